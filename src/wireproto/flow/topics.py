"""Implements a producer for many topics: each record names its own.

It has a producer of one topic for each that was named, made at its first record; they share their client's sender. Shared by threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from wireproto._codec import topic_shares
from wireproto.deadlines import deadline_after
from wireproto.errors import Closed, WireprotoError
from wireproto.net.closing import Closing

if TYPE_CHECKING:
    from wireproto._codec import Receipt
    from wireproto.records import Headers


class TopicProducer(Protocol):
    """A producer of one topic; see `wireproto.roles.Producer`."""

    @property
    def send(self) -> Callable[..., Receipt]:
        """Return the function that takes one record; see `wireproto.roles.Producer.send`."""
        ...

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]:
        """Take many records; see `wireproto.roles.Producer.send_batch`.

        Args:
            columns: the rows. partition: number; None: by column or key. timeout: seconds to wait for room in the send buffer.

        Raises:
            ValueUnsupported, BufferFull, Closed.
        """
        ...

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far is acknowledged or has failed.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut, or the first failure that no receipt has raised.
        """
        ...

    def close(self, timeout: float = 30.0) -> None:
        """Take no more records, and flush.

        Args:
            timeout: seconds for the flush.

        Raises:
            what `flush` raises.
        """
        ...


P = TypeVar("P", bound=TopicProducer)


class TopicsProducer(Closing, Generic[P]):
    """A producer for many topics: what a client's `producer` returns when no topic is named.

    Args:
        make: called with a topic and the seconds that it may take; returns the topic's producer.
    """

    def __init__(self, make: Callable[[str, float], P]) -> None:
        self._make = make
        self._producers: dict[str, P] = {}
        self._closed = False

    def to(self, topic: str, timeout: float = 30.0) -> P:
        """Return the producer of one topic, made when there is none; it is closed with this one.

        Args:
            topic: its name. timeout: seconds to look the topic up.

        Raises:
            TimedOut, TransportError, BrokerError: the topic could not be looked up. Closed: this producer is closed.
        """
        deadline_after(timeout)
        known = self._producers.get(topic)
        if known is not None:
            return known
        self._check(topic)
        made = self._make(topic, timeout)
        kept = self._producers.setdefault(topic, made)
        if kept is not made:
            made.close(0.0)  # another thread has made one meanwhile
        try:
            self._check(topic)
        except Closed:  # closed meanwhile, by another thread
            kept.close(0.0)
            raise
        return kept

    def _check(self, topic: str) -> None:
        if self._closed:
            raise Closed("the producer is closed", topic=topic)

    def send(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt:
        """Take one record for `topic`; the first record of a topic waits until the topic is looked up.

        Args:
            value: bytes of the record, or None for null where the broker has it. topic: its name. key: bytes or None.
            headers: pairs of name and bytes. timestamp: milliseconds since 1970, None: now. partition: number, None: by the key.
            timeout: seconds to look the topic up, and to wait for room in the send buffer.

        Raises:
            ValueUnsupported, BufferFull, Closed: see `wireproto.roles.Producer.send`. Else what `to` raises.
        """
        producer = self._producers.get(topic) or self.to(topic, timeout)
        return producer.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """Take many records, all for `topic`, or each for the topic that its column ``topic`` (text) names.

        All topics are looked up before any row is taken, and a topic's rows are checked before any of them is; rows of one partition of a
        topic keep their order.

        Args:
            columns: as for `wireproto.roles.Producer.send_batch`, with a column ``topic`` where `topic` is None.
            topic: its name, or None. partition: number, for all rows; None: by column or key.
            timeout: seconds to look the topics up, and to wait for room in the send buffer.

        Raises:
            ValueUnsupported, BufferFull, Closed: see `wireproto.roles.Producer.send_batch`; rows of topics before may have been taken.
            Else what `to` raises.
        """
        self._check(topic or "")
        if topic is not None:
            return self.to(topic, timeout).send_batch(columns, partition=partition, timeout=timeout)
        deadline = deadline_after(timeout)
        found: list[Receipt] = []
        for producer, rows in [(self.to(name, deadline - time.monotonic()), rows) for name, rows in topic_shares(columns)]:
            found += producer.send_batch(rows, partition=partition, timeout=max(0.0, deadline - time.monotonic()))
        return found

    @property
    def topics(self) -> list[str]:
        """Return the topics that records were sent to and that are kept ready, in the order of their first records."""
        return list(self._producers)

    def keep(self, most: int, timeout: float = 30.0) -> None:
        """Keep at most `most` topics ready, those that were named last; flush and close the producers of the others.

        So a program that runs for ever does not gather topics. A topic that is named later is looked up again; no thread may send to one
        that is being closed.

        Args:
            most: topics to keep. timeout: seconds for the flush of the others.

        Raises:
            TimedOut, or the first failure of a record that no receipt has raised: see `close`.
        """
        deadline_after(timeout)
        others = [self._producers.pop(topic) for topic in self.topics[: max(0, len(self._producers) - most)]]
        self._each(others, lambda producer, left: producer.close(left), timeout)

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record of all topics taken so far is acknowledged or has failed.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut: not all are acknowledged in time. Otherwise the first failure that no receipt has raised.
        """
        self._each(list(self._producers.values()), lambda producer, left: producer.flush(left), timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Take no more records, and flush all topics.

        Args:
            timeout: seconds for the flush.

        Raises:
            what `flush` raises; the producers are closed all the same.
        """
        deadline_after(timeout)
        self._closed = True
        self._each(list(self._producers.values()), lambda producer, left: producer.close(left), timeout)

    def _each(self, producers: list[P], do: Callable[[P, float], None], timeout: float) -> None:
        """Call `do` with each producer and the seconds that are left; then raise the first failure."""
        deadline = deadline_after(timeout)
        first: WireprotoError | None = None
        for producer in producers:
            try:
                do(producer, max(0.0, deadline - time.monotonic()))
            except WireprotoError as why:
                first = first or why
        if first is not None:
            raise first
