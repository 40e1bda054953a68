"""The Producer role: which partition a record goes to, and what all partitions share.

What it is: routing by key or in turns, what is held of the send budget, flush and close over a topic's partition producers. Thread-safe.
Must not: know frames or sequence ids; `partition_producer` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from wireproto._codec import Columns, Receipt, split_columns, timestamp_ms
from wireproto.errors import Closed, OptionError, ValueUnsupported
from wireproto.flow.unflushed import Sends
from wireproto.records import Headers

from .keys import as_bytes
from .keys import properties as to_properties
from .partition_producer import RECORD_OVERHEAD, PartitionProducer
from .partitioner import key_hasher

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions


class PulsarProducer(Sends):
    """Appends records to one topic; made by `client.producer`."""

    def __init__(self, cluster: PulsarCluster, topic: str, options: PulsarOptions, deadline: float) -> None:
        self.topic = topic
        self._cluster = cluster
        self._options = options = replace(options, batch_size=min(options.batch_size, cluster.budget.limit * 3 // 4))
        self._ahead = min(options.batch_records, cluster.budget.limit // (4 * RECORD_OVERHEAD))  # rows that a batch's room is taken for
        self._lock = Lock()
        self._closed = False
        self._turn = 0
        self._left = 0
        self._hash = key_hasher(options.hashing)
        names = cluster.names(topic, deadline)
        self._account = cluster.budget.account(self)
        self._partitions = [PartitionProducer(cluster, topic, number, name, options, self._account) for number, name in names]
        self._partitioned = names[0][0] >= 0
        self._single = self._partitions[0] if len(names) == 1 else None
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
    ) -> Receipt:
        """Take one record; see `wireproto.roles.Producer.send`. `timestamp` becomes the event time."""
        if self._single is not None and headers is None and timestamp is None and partition is None:
            receipt = self._single.take(value, key)
            if receipt is not None:
                return receipt
        return self._take(value, key, to_properties(headers), timestamp, partition, time.monotonic() + timeout)

    def _take(
        self,
        value: bytes | None,
        key: bytes | None,
        properties: tuple[tuple[str, bytes], ...],
        timestamp: int | None,
        partition: int | None,
        deadline: float,
    ) -> Receipt:
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)
        value, key = as_bytes("value", value), as_bytes("key", key)
        if timestamp is not None and timestamp_ms(timestamp) <= 0:
            raise ValueUnsupported(f"an event time of {timestamp}: Pulsar's are milliseconds above 0", topic=self.topic)
        target = self._partitions[self._choose(key, partition)]
        if not properties and timestamp is None:
            receipt = target.take(value, key)
            if receipt is not None:
                return receipt
        size = RECORD_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        for name, text in properties:
            size += len(name) + len(text) + 8
        self._account.take(size, deadline)
        try:
            return target.append(value, key, properties, timestamp or 0, size)
        except BaseException:
            self._account.give(size)
            raise

    def relieve(self) -> None:
        """Somebody waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self.seal()

    def _choose(self, key: bytes | None, partition: int | None) -> int:
        """The partition asked for, else by key, else in turns: a batch's worth of records to each."""
        count = len(self._partitions)
        if partition is not None:
            if not self._partitioned and partition in (-1, 0):
                return 0
            if not 0 <= partition < count:
                raise OptionError(f"partition {partition}: {self.topic} has {count}")
            return partition
        if count == 1:
            return 0
        if key is not None:
            return self._hash(key) % count
        return self._in_turn(1)[0]

    def _in_turn(self, wanted: int) -> tuple[int, int]:
        """The partition whose turn it is, and how many of the records without a key it takes."""
        with self._lock:
            if self._left <= 0:
                self._turn = (self._turn + 1) % len(self._partitions)
                self._left = self._options.batch_records if self._options.batching and self._options.keyless == "sticky" else 1
            count = min(self._left, wanted)
            self._left -= count
            return self._turn, count

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]:
        """Take many records; see `wireproto.roles.Producer.send_batch`. Everything is checked before anything is taken."""
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)
        deadline = time.monotonic() + timeout
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        self._partitions[0].check_columns(table)
        last: dict[int, Receipt] = {}
        for number, rows in self._shares(table, partition):
            self._take_columns(self._partitions[number], rows, deadline, last)
        return tuple(last.values())

    def shares(self, columns: Any, partition: int | None = None) -> list[tuple[int, Columns]]:
        """(number of a partition, its rows in their order): where `send_batch` would send them; takes nothing."""
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        self._partitions[0].check_columns(table)
        return self._shares(table, partition)

    def _shares(self, table: Columns, partition: int | None) -> list[tuple[int, Columns]]:
        """The rows by partition, in their order within each."""
        count = len(self._partitions)
        places = table.partitions() if partition is None else None
        if places is not None:
            return split_columns(table, [self._choose(None, place) for place in places], count)
        if partition is not None or count == 1:
            return [(self._choose(None, partition), table)]
        keys = table.keys() if "key" in table.columns else []
        if any(key is not None for key in keys):
            return split_columns(table, [self._choose(key, None) for key in keys], count)
        shares: list[tuple[int, Columns]] = []
        start = 0
        while start < len(table):
            number, taken = self._in_turn(len(table) - start)
            shares.append((number, table[start : start + taken]))
            start += taken
        return shares

    def _take_columns(self, target: PartitionProducer, rows: Columns, deadline: float, last: dict[int, Receipt]) -> None:
        """Rows into batches of one partition. Room for a whole batch is taken before, and what it does not need given back."""
        start, most = 0, self._options.batch_size
        while start < len(rows):
            ahead = rows[start : start + self._ahead]
            share = min(ahead.nbytes, max(most, ahead[:1].nbytes)) + RECORD_OVERHEAD * len(ahead)
            self._account.take(share, deadline)
            try:
                taken, receipt = target.append_columns(ahead, share)
            except BaseException:
                self._account.give(share)
                raise
            start += taken
            last[id(receipt.batch)] = receipt

    def seal(self) -> None:
        """Send the open batches as they are, without waiting: what comes later goes into others."""
        for partition in self._partitions:
            partition.hurry()

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

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        return sum(partition.unsettled() for partition in self._partitions)

    # -- ends ---------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 30.0) -> None:
        """Take no more, flush, and deregister; raises what flush raises, after closing all the same."""
        if self._closed:
            return
        self._account.refuse(Closed("the producer is closed", topic=self.topic))
        deadline = time.monotonic() + timeout
        try:
            self.flush(timeout)
        finally:
            self._closed = True
            for partition in self._partitions:
                partition.close(max(deadline, time.monotonic() + 0.5))
            self._account.close()
            self._cluster.roles.forget(self)
