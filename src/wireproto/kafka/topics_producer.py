"""A producer for many topics: each record names its own.

What it is: a producer of one topic for each that was named, made at its first record; they share the client's sender, so that one Produce
carries what goes to one broker. May be shared by threads.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from ..errors import Closed, WireprotoError
from ..net.closing import Closing
from .producer import KafkaProducer

if TYPE_CHECKING:
    from .._codec import Receipt
    from ..records import Headers
    from .options import KafkaOptions
    from .sending import KafkaSenders


class KafkaTopicsProducer(Closing):
    """What `KafkaClient.producer` returns when no topic is named."""

    def __init__(self, senders: KafkaSenders, options: KafkaOptions) -> None:
        self.options = options
        self._senders = senders
        self._lock = threading.Lock()
        self._producers: dict[str, KafkaProducer] = {}
        self._closed = False

    def to(self, topic: str) -> KafkaProducer:
        """The producer of one topic, which ends with this one."""
        known = self._producers.get(topic)
        if known is not None:
            return known
        if self._closed:
            raise Closed("the producer is closed", topic=topic)
        made = KafkaProducer(self._senders, topic, self.options)
        with self._lock:
            kept = self._producers.setdefault(topic, made)
        if kept is not made:
            made.close(0.0)  # another thread was quicker
        return kept

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
        """As `wireproto.roles.Producer.send`, to `topic`; the first record of a topic waits for its leaders to be looked up."""
        producer = self._producers.get(topic) or self.to(topic)
        return producer.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def send_batch(self, columns: Any, *, topic: str, partition: int | None = None, timeout: float = 30.0) -> list[Receipt]:
        """As `wireproto.roles.Producer.send_batch`, all rows to `topic`."""
        return self.to(topic).send_batch(columns, partition=partition, timeout=timeout)

    def flush(self, timeout: float = 30.0) -> None:
        """As `wireproto.roles.Producer.flush`, over all topics."""
        self._each(lambda producer, left: producer.flush(left), timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush all topics, then take no more."""
        self._closed = True
        self._each(lambda producer, left: producer.close(left), timeout)

    def _each(self, do: Any, timeout: float) -> None:
        """Do it with every topic's producer; then raise the first failure."""
        deadline = time.monotonic() + timeout
        first: WireprotoError | None = None
        for producer in list(self._producers.values()):
            try:
                do(producer, max(0.0, deadline - time.monotonic()))
            except WireprotoError as why:
                first = first or why
        if first is not None:
            raise first
