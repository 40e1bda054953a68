"""The Producer role: which partition a record goes to, and what all partitions share.

What it is: routing by key or in turns, the send buffer's bound, flush and close over a topic's partition producers. Thread-safe.
Must not: know frames or sequence ids; `partition_producer` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wireproto._codec import Columns
from wireproto.errors import Closed, OptionError, ValueUnsupported
from wireproto.records import Headers

from .keys import as_bytes
from .keys import properties as to_properties
from .partition_producer import PartitionProducer
from .receipts import PulsarReceipt
from .routing import key_hasher

if TYPE_CHECKING:
    from .client import PulsarClient
    from .options import PulsarOptions

RECORD_OVERHEAD = 64
"""Bytes that a record is counted with beside its key, value and headers."""


class PulsarProducer:
    """Appends records to one topic; made by `client.producer`."""

    def __init__(self, client: PulsarClient, topic: str, options: PulsarOptions, deadline: float) -> None:
        self.topic = topic
        self._client = client
        self._options = options
        self._lock = Lock()
        self._closed = False
        self._turn = 0
        self._left = 0
        self._hash = key_hasher(options.hashing)
        names = client.names(topic, deadline)
        self._partitions = [PartitionProducer(client, topic, number, name, options) for number, name in names]
        self._partitioned = names[0][0] >= 0
        opened: list[PartitionProducer] = []
        try:
            for partition in self._partitions:
                partition.open(deadline)
                opened.append(partition)
        except BaseException:
            for partition in opened:
                partition.close(deadline)
            raise

    # -- sending ------------------------------------------------------------------------------------------------

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> PulsarReceipt:
        """Take one record; see `wireproto.roles.Producer.send`. `timestamp` becomes the event time."""
        return self._take(value, key, to_properties(headers), timestamp, partition, time.monotonic() + timeout)

    def _take(
        self,
        value: bytes | None,
        key: bytes | None,
        properties: tuple[tuple[str, bytes], ...],
        timestamp: int | None,
        partition: int | None,
        deadline: float,
    ) -> PulsarReceipt:
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)
        value, key = as_bytes("value", value), as_bytes("key", key)
        if timestamp is not None and not 0 < timestamp < 2**63:
            raise ValueUnsupported(f"an event time of {timestamp}: Pulsar's are milliseconds above 0", topic=self.topic)
        size = RECORD_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        for name, text in properties:
            size += len(name) + len(text) + 8
        target = self._choose(key, partition)
        budget = self._client.budget
        if not budget.try_take(size):
            for waiting in self._partitions:
                waiting.hurry()
            budget.take(size, deadline)
        try:
            return target.append(value, key, properties, timestamp or 0, size)
        except BaseException:
            budget.give(size)
            raise

    def _choose(self, key: bytes | None, partition: int | None) -> PartitionProducer:
        """The partition asked for, else by key, else in turns: a batch's worth of records to each."""
        count = len(self._partitions)
        if partition is not None:
            if not self._partitioned and partition in (-1, 0):
                return self._partitions[0]
            if not 0 <= partition < count:
                raise OptionError(f"partition {partition}: {self.topic} has {count}")
            return self._partitions[partition]
        if count == 1:
            return self._partitions[0]
        if key is not None:
            return self._partitions[self._hash(key) % count]
        with self._lock:
            if self._left <= 0:
                self._turn = (self._turn + 1) % count
                self._left = self._options.batch_records if self._options.batching and self._options.keyless == "sticky" else 1
            self._left -= 1
            return self._partitions[self._turn]

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[PulsarReceipt]:
        """Take many records; see `wireproto.roles.Producer.send_batch`."""
        deadline = time.monotonic() + timeout
        last: dict[int, PulsarReceipt] = {}
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        places: Sequence[int | None] = table.partitions() or [None] * len(table)
        if partition is not None:
            places = [partition] * len(table)
        rows = zip(table.values(), table.keys(), table.headers(), table.timestamps(), places, strict=True)
        for value, key, headers, timestamp, place in rows:
            receipt = self._take(value, key, to_properties(headers), timestamp, place, deadline)
            last[id(receipt.entry)] = receipt
        return tuple(last.values())

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far is acknowledged; raises the first failure, or TimedOut."""
        deadline = time.monotonic() + timeout
        waiting = [entry for partition in self._partitions for entry in partition.outstanding()]
        for entry in waiting:
            try:
                entry.event.wait(deadline)
            except Exception:
                if not entry.event.done:
                    raise
        for partition in self._partitions:
            error = partition.failure()
            if error is not None:
                raise error

    # -- ends ---------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 30.0) -> None:
        """Flush, then deregister; raises what flush raises, after closing all the same."""
        if self._closed:
            return
        deadline = time.monotonic() + timeout
        try:
            self.flush(timeout)
        finally:
            self._closed = True
            for partition in self._partitions:
                partition.close(max(deadline, time.monotonic() + 0.5))
            self._client.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
