"""A producer for many topics: each record names its own.

What it is: a producer of one topic for each that was named, made at its first record; they share their client's sender. May be shared by
threads. Must not: know a protocol.
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
    def send(self) -> Callable[..., Receipt]: ...
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]: ...
    def flush(self, timeout: float = 30.0) -> None: ...
    def close(self, timeout: float = 30.0) -> None: ...


P = TypeVar("P", bound=TopicProducer)


class TopicsProducer(Closing, Generic[P]):
    """What a client's `producer` returns when no topic is named.

    Args:
        make: called with a topic and the seconds that it may take: its producer.
    """

    def __init__(self, make: Callable[[str, float], P]) -> None:
        self._make = make
        self._producers: dict[str, P] = {}
        self._closed = False

    def to(self, topic: str, timeout: float = 30.0) -> P:
        """The producer of one topic, which ends with this one."""
        deadline_after(timeout)
        known = self._producers.get(topic)
        if known is not None:
            return known
        self._check(topic)
        made = self._make(topic, timeout)
        kept = self._producers.setdefault(topic, made)
        if kept is not made:
            made.close(0.0)  # another thread was quicker
        try:
            self._check(topic)
        except Closed:  # meanwhile, by another thread
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
        """As `wireproto.roles.Producer.send`, to `topic`; the first record of a topic waits for it to be looked up."""
        producer = self._producers.get(topic) or self.to(topic, timeout)
        return producer.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """As `wireproto.roles.Producer.send_batch`, all rows to `topic`, or each to the one that its column ``topic`` (text) names.

        All topics are looked up before any row is taken, and a topic's rows are checked before any of them is; rows of one partition of
        a topic keep their order.
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
        """Those that records were sent to and that are kept ready, in the order of their first records."""
        return list(self._producers)

    def keep(self, most: int, timeout: float = 30.0) -> None:
        """Keep no more topics ready than the `most` that were named last: flush and let go of the others, so that who goes on for ever does
        not gather them. A topic that is named again is looked up again; to one that is let go of nobody may send meanwhile."""
        deadline_after(timeout)
        others = [self._producers.pop(topic) for topic in self.topics[: max(0, len(self._producers) - most)]]
        self._each(others, lambda producer, left: producer.close(left), timeout)

    def flush(self, timeout: float = 30.0) -> None:
        """As `wireproto.roles.Producer.flush`, over all topics."""
        self._each(list(self._producers.values()), lambda producer, left: producer.flush(left), timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush all topics, then take no more."""
        deadline_after(timeout)
        self._closed = True
        self._each(list(self._producers.values()), lambda producer, left: producer.close(left), timeout)

    def _each(self, producers: list[P], do: Callable[[P, float], None], timeout: float) -> None:
        """Do it with each of these; then raise the first failure."""
        deadline = deadline_after(timeout)
        first: WireprotoError | None = None
        for producer in producers:
            try:
                do(producer, max(0.0, deadline - time.monotonic()))
            except WireprotoError as why:
                first = first or why
        if first is not None:
            raise first
