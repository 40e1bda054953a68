"""The Producer of one topic: records in, receipts out.

What it is: routing by key or in turns, room in the send buffer, open batches of its partitions, and waiting for outcomes; sending them is
`sending.PulsarSender`'s. May be shared by threads. Must not: know frames or sequence ids.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import partial as bound
from typing import TYPE_CHECKING, Any

from wireproto._codec import Appender, Changes, Columns, KeyRouter, OutBatch, Receipt, pulsar_properties, split_columns
from wireproto.errors import Closed, OptionError, ValueUnsupported, WireprotoError
from wireproto.flow.unflushed import Sends
from wireproto.position import MessageId

from .partition_producer import PartitionProducer

if TYPE_CHECKING:
    from wireproto.net.task import Steps, Task
    from wireproto.records import Headers

    from .cluster import PulsarCluster
    from .options import PulsarOptions
    from .sending import PulsarSender

_ROUND = 64
"""Bytes that a row is counted with, at most, beside its key, value and headers."""
_TELLING = 0.5
"""Seconds beyond its time in which a task still tells what kept it."""
_STEP = 1 << 16
"""Most bytes of the send budget that a producer takes ahead."""


class PulsarProducer(Sends):
    """Appends records to one topic; made by `client.producer`.

    `send` is the core's (`Appender`): it puts the record into the open batch, and calls `_send_slowly` where there is more to do.
    """

    def __init__(self, cluster: PulsarCluster, sending: PulsarSender, topic: str, options: PulsarOptions, deadline: float) -> None:
        self.topic = topic
        self._cluster = cluster
        self._options = options = replace(options, batch_size=min(options.batch_size, cluster.budget.limit * 3 // 4))
        self._ahead = min(options.batch_records, cluster.budget.limit // (4 * _ROUND))  # rows that a batch's room is taken for
        self._closed = False
        self._failure: WireprotoError | None = None
        self._sender = sending.core
        self._lock = sending.core.lock
        names = cluster.names(topic, deadline)
        self._account = cluster.budget.account(self)
        self._partitions = [PartitionProducer(cluster, sending, self, number, name, options) for number, name in names]
        self._partitioned = names[0][0] >= 0
        self._fresh: list[PartitionProducer] = []  # of partitions that the topic got, until all of them are open
        self._growth: Task[None] | None = None
        in_turn = options.batch_records if options.batching and options.keyless == "sticky" else 1
        self._router = KeyRouter(options.hashing, in_turn)
        self._router.know(len(names), False)
        self._appender = Appender(
            self._router,
            self._account,
            self._send_slowly,
            cluster.loop.check,
            Changes(),
            _nothing,
            largest=options.batch_size,
            step=max(min(cluster.budget.limit // 64, _STEP) & ~0xFFF, 0x1000),
            direct=options.batching and options.linger > 0,
            headers=bound(pulsar_properties, options.batching),
            dated=False,
        )
        self._open_all(deadline)
        if self._partitioned and options.first_sequence is None:  # whoever says the ids counts by the partitions that were there
            self._growth = cluster.tasks.spawn(self._grow(sending), f"looking for new partitions of {topic}")
        self.send = self._appender.send  # type: ignore[method-assign]

    def _open_all(self, deadline: float) -> None:
        """All partitions at a time; one by this thread."""
        begun: list[Task[None]] = []
        try:
            if len(self._partitions) == 1:
                self._cluster.drive(self._partitions[0].opening(deadline), deadline)
            else:
                begun += [self._cluster.tasks.spawn(one.opening(deadline), f"open {one}") for one in self._partitions]
            for task in begun:
                task.wait(deadline + _TELLING)
        except BaseException:
            for task in begun:
                task.cancel(Closed("the producer is not opened", topic=self.topic))
            for partition in self._partitions:
                partition.close(deadline)
            self._account.close()
            raise

    def _grow(self, sending: PulsarSender) -> Steps[None]:
        """Send to partitions that the topic gets, too: to all of them from when the last one is open, and not at all while one is not."""
        cluster, interval = self._cluster, self._options.metadata_max_age
        while True:
            yield time.monotonic() + interval
            known = {self.topic: len(self._partitions) + len(self._fresh)}
            grown = yield from cluster.lookup.growing(known, time.monotonic() + self._options.operation_timeout)
            made = [PartitionProducer(cluster, sending, self, *name, self._options) for _, names in grown for name in names]
            with self._lock:
                self._usable()
                self._fresh += made
            if (yield from self._opened(self._fresh)):
                with self._lock:
                    self._usable()
                    self._partitions += self._fresh
                    self._fresh = []
                self._router.know(len(self._partitions), True)

    def _opened(self, fresh: list[PartitionProducer]) -> Steps[bool]:
        """Whether all of these, if there are any, are open now; one that was comes back by itself."""
        until = time.monotonic() + self._options.operation_timeout
        begun = [(one, self._cluster.tasks.spawn(one.opening(until), f"open {one}")) for one in fresh if not one.made]
        try:
            for one, task in begun:
                if not task.done:
                    yield task
                if task.error is not None:
                    self._cluster.told.warning(("growing", one), "%s: not written yet: %s", one, task.error)
        finally:
            for _, task in begun:
                task.cancel(Closed("the producer was closed", topic=self.topic))
        return bool(fresh) and all(one.made for one in fresh)

    # -- records in ---------------------------------------------------------------------------------------------

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
        """See `wireproto.roles.Producer.send`; `timestamp` becomes the event time. Each producer has the core's in its place."""
        return self._appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        """What `send` leaves over: a new batch, one that it fills, waiting for room, refusals. `headers` are encoded already."""
        self._usable()
        if stamped and time_ms <= 0:
            raise ValueUnsupported(f"an event time of {time_ms}: Pulsar's are milliseconds above 0", topic=self.topic)
        number = self._router.of(key) if partition is None else self._checked(partition)
        target = self._partitions[number]
        if size > target.max_size:
            text = f"the record has {size} bytes, the broker takes {target.max_size}"
            raise ValueUnsupported(text, topic=self.topic, partition=target.number)
        self._room(size, timeout)
        batch, index = self._append(number, value, key, headers, time_ms, size)
        if not self._options.linger:
            self._sender.release([batch])
        else:
            self._sender.drain()
        if not (index or batch.sealed):
            self._sender.opened(batch)
        if self._cluster.budget.waiting:
            self._sender.hurry_all()
        return Receipt(batch, index)

    def _append(self, number: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int) -> tuple[OutBatch, int]:
        """Put a record in whose room is taken: its batch, which is sealed when it is full, and its index there."""
        target = self._partitions[number]
        try:
            with self._lock:
                self._usable()
                batch: OutBatch = self._sender.current(target)
                index = batch.add(value, key, headers, time_ms, size)
                if index < 0:
                    self._sender.seal(target)
                    batch = self._sender.current(target)
                    index = batch.add(value, key, headers, time_ms, size)
                if batch.full:
                    self._sender.seal(target)
                else:
                    self._appender.opened(number, batch)
        except BaseException:
            self._account.give(size)
            raise
        return batch, index

    def _room(self, size: int, timeout: float) -> None:
        if not self._appender.charge(size):
            self._account.take(size, time.monotonic() + max(timeout, 0.0))

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)

    def _checked(self, partition: int) -> int:
        if not self._partitioned and partition in (-1, 0):
            return 0
        if not 0 <= partition < len(self._partitions):
            raise OptionError(f"partition {partition}: {self.topic} has {len(self._partitions)}")
        return partition

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]:
        """Take many records; see `wireproto.roles.Producer.send_batch`. Everything is checked before anything is taken."""
        self._usable()
        deadline = time.monotonic() + timeout
        last: dict[int, Receipt] = {}
        for number, rows in self.shares(columns, partition):
            self._send_rows(number, rows, deadline, last)
        return tuple(last.values())

    def shares(self, columns: Any, partition: int | None = None) -> list[tuple[int, Columns]]:
        """(number of a partition, its rows in their order): where `send_batch` would send them; takes nothing."""
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        self._partitions[0].builder().check_columns(table)
        count = len(self._partitions)
        places = table.partitions() if partition is None else None
        if places is not None:
            return split_columns(table, [self._checked(place) for place in places], count)
        if partition is not None or count == 1:
            return [(0 if partition is None else self._checked(partition), table)]
        keys = table.keys() if "key" in table.columns else []
        if any(key is not None for key in keys):
            return split_columns(table, [self._router.of(key) for key in keys], count)
        shares: list[tuple[int, Columns]] = []
        start = 0
        while start < len(table):
            number, taken = self._router.in_turn(len(table) - start)
            shares.append((number, table[start : start + taken]))
            start += taken
        return shares

    def _send_rows(self, number: int, rows: Columns, deadline: float, last: dict[int, Receipt]) -> None:
        """Rows into batches of one partition. Room for a whole batch is taken before, and what it does not need given back."""
        target, most, start = self._partitions[number], self._options.batch_size, 0
        while start < len(rows):
            ahead = rows[start : start + self._ahead]
            share = min(ahead.nbytes, max(most, ahead[:1].nbytes)) + _ROUND * len(ahead)
            self._room(share, deadline - time.monotonic())
            used = 0
            try:
                with self._lock:
                    self._usable()
                    batch: OutBatch = self._sender.current(target)
                    taken, used, index = batch.add_rows(ahead, None, 0, len(ahead), 0)
                    if not taken:
                        self._sender.seal(target)
                        batch = self._sender.current(target)
                        taken, used, index = batch.add_rows(ahead, None, 0, len(ahead), 0)
                    if taken < len(ahead) or batch.full:
                        self._sender.seal(target)
            finally:
                self._account.give(share - used)
            start += taken
            last[batch.serial] = Receipt(batch, index)
            if not self._options.linger:
                self._sender.release([batch])
            else:
                self._sender.drain()
            if index + 1 == taken and not batch.sealed:
                self._sender.opened(batch)

    # -- what the sender and the budget tell --------------------------------------------------------------------

    def relieve(self) -> None:
        """Somebody waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self._account.give(self._appender.recall())
        self._sender.hurry_all()

    def settled(self, size: int) -> None:
        """A batch that held so many bytes has its outcome."""
        self._account.give(size)

    def failed(self, why: WireprotoError) -> None:
        """A batch failed: the next flush tells of the first."""
        self._failure = self._failure or why

    # -- waiting ------------------------------------------------------------------------------------------------

    def position_in(self, batch: OutBatch, index: int, timeout: float | None) -> MessageId:
        """The place of a batch's record, as `Receipt.position`.

        Where deduplication made the broker drop a repeated record, ledger and entry are -1: it is stored, but not known where.
        """
        outcome = batch.outcome
        if not outcome.done:
            self._sender.hurry(batch)
            try:
                outcome.wait(batch.created + self._options.delivery_timeout + 1.0 if timeout is None else time.monotonic() + timeout)
            except WireprotoError:
                if not outcome.done:
                    raise
        if outcome.error is not None:
            raise copy(outcome.error)  # a fresh one for each who asks
        ledger, entry = outcome.value
        return MessageId(self.topic, batch.key.number, ledger, entry, index if self._options.batching else -1)

    def seal(self) -> None:
        """Send the open batches as they are, without waiting: what comes later goes into others."""
        with self._lock:
            for partition in self._partitions:
                self._sender.seal(partition)
        self._sender.drain()

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far is acknowledged; raises the first failure, or TimedOut."""
        self._sender.flush(time.monotonic() + timeout, self._mine, topic=self.topic)
        self._account.give(self._appender.recall())
        failure, self._failure = self._failure, None
        if failure is not None:
            raise copy(failure)

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        return sum(batch.count for batch in self._sender.unsettled(self._mine))

    def _mine(self, batch: OutBatch) -> bool:
        return batch.owner is self

    def close(self, timeout: float = 30.0) -> None:
        """Take no more, flush, and deregister; raises what flush raises, after closing all the same."""
        if self._closed:
            return
        self._account.refuse(Closed("the producer is closed", topic=self.topic))
        self._appender.close()
        deadline = time.monotonic() + timeout
        with self._lock:
            self._closed = True
        if self._growth is not None:
            self._growth.cancel(Closed("the producer was closed", topic=self.topic))
        try:
            self.flush(timeout)
        finally:
            for partition in [*self._partitions, *self._fresh]:
                partition.close(max(deadline, time.monotonic() + 0.5))
            self._account.close()
            self._cluster.roles.forget(self)


def _nothing() -> None:
    """The partitions are known."""
