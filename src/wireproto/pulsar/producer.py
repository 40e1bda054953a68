"""Sends records to the partitions of one topic: the Producer role.

Routes records by key or in turns, and opens and closes the producers of the partitions; batching is `flow.producer`'s, sending is
`sending.PulsarSender`'s. Frames and sequence ids are theirs, not this module's. May be shared by threads.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial as bound
from typing import TYPE_CHECKING, Any, Self

from wireproto._codec import Changes, Columns, KeyRouter, OutBatch, Receipt, pulsar_properties, split_columns
from wireproto.errors import Closed, OptionError, TimedOut, ValueUnsupported
from wireproto.flow.producer import BatchProducer
from wireproto.net.retry import Waits
from wireproto.position import MessageId, UnknownPosition

from .partition_producer import RETRY, PartitionProducer
from .subscriber import looked

if TYPE_CHECKING:
    from collections.abc import Hashable

    from wireproto.net.task import Steps, Task

    from .cluster import PulsarCluster
    from .options import PulsarOptions
    from .sending import PulsarSender

_ROUND = 64
"""Bytes that a row is counted with, at most, beside its key, value and headers."""
_ERROR_GRACE = 0.5
"""Seconds to wait for a task beyond its deadline, so that its own error is raised and not only that it was late."""


class PulsarProducer(BatchProducer):
    """Appends records to one topic; made by `client.producer`. A record's timestamp becomes its event time."""

    def __init__(
        self, cluster: PulsarCluster, sending: PulsarSender, topic: str, options: PulsarOptions, names: list[tuple[int, str]]
    ) -> None:
        self._options = options = replace(options, batch_size=min(options.batch_size, cluster.budget.limit * 3 // 4))
        super().__init__(cluster, cluster.budget, topic, sending.core, linger=options.linger, delivery_timeout=options.delivery_timeout)
        self._cluster = cluster
        self._ahead = min(options.batch_records, cluster.budget.limit // (4 * _ROUND))  # rows that a batch's room is taken for
        self._keyed = options.batching == "key"
        self._partitions = [PartitionProducer(cluster, sending, self, number, name, options) for number, name in names]
        self._partitioned = names[0][0] >= 0
        self._fresh: list[PartitionProducer] = []  # of partitions that the topic got, until all of them are open
        self._growth: Task[None] | None = None
        self._sticky = bool(options.batching) and options.keyless == "sticky"
        self._router = KeyRouter(options.hashing, options.batch_records if self._sticky else 1)
        self._last_turn = -2  # partition; the core may have moved on to the next one since
        self._router.know(len(names), False)
        self._take_by(
            self._router,
            Changes(),
            _nothing,
            largest=options.batch_size,
            direct=options.batching is True and options.linger > 0,
            headers=bound(pulsar_properties, bool(options.batching)),
            dated=False,
        )

    @classmethod
    def opening(cls, cluster: PulsarCluster, sending: PulsarSender, topic: str, options: PulsarOptions, deadline: float) -> Steps[Self]:
        """Look the topic up, and return a producer that is open on all of its partitions. Steps.

        Args:
            cluster: of the client. sending: the sender to use. topic: any form of its name. options: of the role.
            deadline: as `time.monotonic()`.

        Raises:
            OptionError: `topic_epoch` was given for a partitioned topic.
            PulsarError: a broker refuses, ProducerBusy or TopicNotFound for example. TransportError: not open in time.
        """
        made = cls(cluster, sending, topic, options, (yield from cluster.naming(topic, deadline)))
        if made._partitioned and options.topic_epoch is not None:
            raise OptionError("topic_epoch is of one topic, and this one has partitions, each with its own: name a partition", topic=topic)
        try:
            yield from made._open_all(deadline)
        except BaseException:
            for partition in made._partitions:
                partition.leave()
            made._account.close()
            raise
        if made._partitioned and options.first_sequence is None:  # sequence ids that the user gives fit the partitions of this moment
            made._growth = cluster.tasks.spawn(made._grow(sending), f"looking for new partitions of {topic}")
        return made

    @property
    def topic_epochs(self) -> dict[int, int]:
        """How many exclusive producers each partition had before this one, by its number (-1: of a topic without partitions).

        Empty with ``access_mode="shared"``. Source: CommandProducerSuccess.topic_epoch (PIP-68).
        """
        return {one.number: one.topic_epoch for one in self._partitions if one.topic_epoch is not None}

    def _open_all(self, deadline: float) -> Steps[None]:
        """Open all partitions at the same time; a single one takes no task."""
        if len(self._partitions) == 1:
            yield from self._partitions[0].opening(deadline)
            return
        begun = [self._cluster.tasks.spawn(one.opening(deadline), f"open {one}") for one in self._partitions]
        try:
            for task in begun:
                if not task.done and not (yield task, deadline + _ERROR_GRACE):
                    raise TimedOut(f"{task.name}: not done in time")
                task.result()
        finally:
            for task in begun:
                task.cancel(Closed("the producer is not opened", topic=self.topic))

    def _grow(self, sending: PulsarSender) -> Steps[None]:
        """Send to partitions that the topic gets: to all of them once the last one is open, and to none while one is not."""
        cluster, interval = self._cluster, self._options.metadata_max_age
        waits, pause = Waits(RETRY), interval
        while True:
            yield time.monotonic() + pause
            known = {self.topic: len(self._partitions) + len(self._fresh)}
            grown, whole = yield from cluster.lookup.growing(known, time.monotonic() + self._options.operation_timeout)
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
            pause = looked(waits, interval, whole and not self._fresh)

    def _opened(self, fresh: list[PartitionProducer]) -> Steps[bool]:
        """Return whether all of these, if there are any, are open now; one that was open once comes back by itself."""
        until = time.monotonic() + self._options.operation_timeout
        begun = [(one, self._cluster.tasks.spawn(one.opening(until), f"open {one}")) for one in fresh if not one.made]
        try:
            for one, task in begun:
                if not task.done:
                    yield task
                if task.error is not None:
                    self._cluster.log.warning(("growing", one), "%s: not written yet: %s", one, task.error)
        finally:
            for _, task in begun:
                task.cancel(Closed("the producer was closed", topic=self.topic))
        return bool(fresh) and all(one.made for one in fresh)

    # -- records in ---------------------------------------------------------------------------------------------

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        self._usable()
        if stamped and time_ms <= 0:
            raise ValueUnsupported(f"an event time of {time_ms}: Pulsar's are milliseconds above 0", topic=self.topic)
        if partition is None and key is None and self._sticky and self._router.partitions > 1:
            number = self._turn()
        else:
            number = self._router.of(key) if partition is None else self._checked(partition)
        target = self._partitions[number]
        if size > target.largest:
            text = f"the record has {size} bytes, the broker takes {target.max_size}"
            raise ValueUnsupported(text, topic=self.topic, partition=target.number)
        return self._put(number, value, key, headers, time_ms, size, timeout)

    def _turn(self) -> int:
        """Return the partition of a record without a key: the next one, once the batch of the records before was sent, full or not."""
        sticky = self._router.sticky
        if sticky == self._last_turn and not self._partitions[sticky].taking:
            self._router.know(len(self._partitions), False)
        self._last_turn = number = self._router.of(None)
        return number

    def _key(self, number: int) -> PartitionProducer:
        return self._partitions[number]

    def _checked(self, partition: int) -> int:
        if not self._partitioned and partition == -1:
            return 0
        if not 0 <= partition < len(self._partitions):
            raise OptionError(f"partition {partition}: {self.topic} has {len(self._partitions)}")
        return partition

    def _portions(self, table: Columns, partition: int | None) -> list[tuple[int, Columns, None]]:
        shares = self.shares(table, partition)
        return [(number, part, None) for number, rows in shares for part in (_by_key(rows) if self._keyed else (rows,))]

    def _lane(self, key: Any) -> bytes | None:
        return bytes(key) if self._keyed and key is not None else None

    def _lane_of(self, rows: Columns) -> bytes | None:
        return self._lane(rows[:1].keys()[0]) if self._keyed and "key" in rows.columns else None

    def _open(self, where: Hashable, lane: Hashable = None) -> OutBatch:
        batch = super()._open(where, lane)
        if len(batch.queue.beside) > self._options.batch_records:
            self._sender.seal(where)
            batch = super()._open(where, lane)
        return batch

    def shares(self, columns: Any, partition: int | None = None) -> list[tuple[int, Columns]]:
        """Return (number of a partition, its rows in their order): where `send_batch` would send them. Sends nothing.

        Args:
            columns: as for `send_batch`: Columns, or anything that exports Arrow arrays, one row a record.
            partition: number for all rows; None: the column ``partition``, else by key, else in turns.

        Raises:
            ValueUnsupported: a row cannot be sent. OptionError: there is no such partition.
        """
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

    def _share(self, rows: Columns, start: int, stop: int) -> tuple[int, int]:
        ahead = rows[start : start + self._ahead]
        most = max(self._options.batch_size, ahead[:1].nbytes)
        return start + len(ahead), min(ahead.nbytes, most) + _ROUND * len(ahead)

    # -- waiting ------------------------------------------------------------------------------------------------

    def _place(self, batch: OutBatch, index: int) -> MessageId | UnknownPosition:
        """Return the position of a record.

        It is an `UnknownPosition` where deduplication made the broker drop a repeated record: that is stored, but the broker does not say
        where.
        """
        ledger, entry = batch.outcome.value
        if ledger < 0:
            return UnknownPosition(self.topic, batch.key.number)
        return MessageId(self.topic, batch.key.number, ledger, entry, index if self._options.batching else -1)

    def seal(self) -> None:
        """Send the open batches as they are, without waiting: records sent later go into others."""
        with self._lock:
            for partition in self._partitions:
                self._sender.seal(partition)
        self._sender.drain()

    def _refuse_more(self) -> None:
        super()._refuse_more()
        if self._growth is not None:
            self._growth.cancel(Closed("the producer was closed", topic=self.topic))

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Send CLOSE_PRODUCER to all brokers, then wait for the replies until the deadline; what a broker answers does not matter."""
        calls = [call for partition in [*self._partitions, *self._fresh] if (call := partition.part()) is not None]
        try:
            if self._growth is not None and not self._growth.done:  # it was cancelled, and ends with the I/O thread's next step
                yield self._growth, deadline
            for call in calls:
                if not call.done:
                    yield call, deadline
        finally:
            for call in calls:
                call.cancel()

    def _leave(self) -> None:
        for partition in [*self._partitions, *self._fresh]:
            partition.leave()
        self._cluster.roles.forget(self)


def _by_key(rows: Columns) -> list[Columns]:
    """Split rows by key, in their order; keys in the order in which they first come."""
    if "key" not in rows.columns:
        return [rows]
    numbers: dict[bytes | None, int] = {}
    places = [numbers.setdefault(None if key is None else bytes(key), len(numbers)) for key in rows.keys()]  # noqa: SIM118
    return [part for _, part in split_columns(rows, places, len(numbers))]


def _nothing() -> None:
    """Do nothing: the partitions are known, and the core has none to look up."""
