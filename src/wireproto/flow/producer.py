"""A producer of one topic on a Sender: what is the same whatever protocol carries the batches.

What it is: the base of the producers of Kafka, Pulsar and RocketMQ: room in the send budget, records into open batches, receipts' places,
flushing, and the end. Which partition a record goes to, what it may look like, and what a place is, the protocol's own class says.
May be shared by threads. May assume: batches are the sender's; those with an Appender are `OutBatch`. Must not: know a protocol, or send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from wireproto._codec import Appender, Changes, Columns, KeyRouter, ProducerCore, Receipt, unbroken
from wireproto.deadlines import deadline_after
from wireproto.errors import Closed, TimedOut, WireprotoError
from wireproto.net.task import Steps, operation

from .async_hooks import AsyncHooks
from .parts import Parts, found
from .unacked_warning import Sends
from .unreported_errors import UnreportedErrors

if TYPE_CHECKING:
    from wireproto._codec import OutBatch
    from wireproto.net.runtime import Runtime
    from wireproto.position import Position
    from wireproto.records import Headers

    from .budget import Budget
    from .sender import Sender

_STEP = 1 << 16
"""Most bytes of the send budget that a producer takes ahead."""


class BatchProducer(ProducerCore, Sends):
    """See the module. A new batch (`_begin`), a record's place (`position_in`), and that bytes are free (`settled`), is the core's.

    `send` is the core's (`Appender`): it puts the record into the open batch, and calls `_send_slowly` where there is more to do.

    Args:
        runtime, budget: the client's. core: the sender that its batches are sent by.
        linger, delivery_timeout: seconds, as in the protocol's options.
    """

    def __init__(self, runtime: Runtime[Any], budget: Budget, topic: str, core: Sender, *, linger: float, delivery_timeout: float) -> None:
        self.topic = topic
        self._loop = runtime.loop
        self._tasks = runtime.tasks
        self._budget = budget
        self._account = budget.account(self)
        self._sender = core
        self._lock = core.lock
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._closed = False
        self._fixed = {}
        self._unreported = UnreportedErrors()

    def _take_by(self, router: KeyRouter, changes: Changes, learn: Callable[[], object], **how: Any) -> Appender:
        """Have the core take the records; see `Appender`."""
        step = max(min(self._budget.limit // 64, _STEP) & ~0xFFF, 0x1000)
        made = Appender(router, self._account, self._send_slowly, self._loop.check, changes, learn, step=step, **how)
        self._appender = made
        self.send = made.send  # type: ignore[method-assign]
        return made

    # --- records in ---

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
        """See `wireproto.roles.Producer.send`. Each producer has the core's in its place, so that nothing stands between."""
        assert self._appender is not None
        return self._appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        """What `send` leaves over: a new batch, one that it fills, waiting for room, refusals. `headers` are encoded already."""
        raise NotImplementedError

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)

    @unbroken
    def _put(self, number: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int, timeout: float) -> Receipt:
        """A record into the open batch of its partition, once there is room for it."""
        appender = self._appender
        assert appender is not None
        if not appender.charge(size):
            self._account.take(size, deadline_after(timeout))
        batch, index = self._append(appender, number, value, key, headers, time_ms, size)
        if not self._linger:
            self._sender.release([batch])
        elif self._sender.due:
            self._sender.drain()
        if not index:
            self._sender.opened(batch)
        if self._budget.waiting:
            self._sender.hurry_all()
        return appender.receipt(batch, index)

    def _append(
        self, appender: Appender, number: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int
    ) -> tuple[OutBatch, int]:
        """Put a record in whose room is taken: its batch, which is sealed when it is full, and its index there."""
        where, lane = self._key(number), self._lane(key)
        try:
            with self._lock:
                batch = self._open(where, lane)
                index = batch.add(value, key, headers, time_ms, size)
                if index < 0:
                    self._sender.seal(where)
                    batch = self._open(where, lane)
                    index = batch.add(value, key, headers, time_ms, size)
                if batch.full:
                    self._sender.seal(where)
                else:
                    appender.opened(number, batch)
        except BaseException:
            self._account.give(size)
            raise
        return batch, index

    def _key(self, number: int) -> Hashable:
        """The sender's key of a partition."""
        raise NotImplementedError

    def _lane(self, key: Any) -> Hashable:
        """Which of a partition's open batches takes records of this key; None: there is one for all."""
        return None

    def _open(self, where: Hashable, lane: Hashable = None) -> OutBatch:
        """The open batch of a key, a new one if need be. Under the lock."""
        self._usable()
        batch: OutBatch = self._sender.current(where) if lane is None else self._sender.current_of(where, lane)
        return batch

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[Sequence[Receipt]]:
        """Take many records; see `wireproto.roles.Producer.send_batch`. All is checked before any is taken; rows of one partition keep
        their order. What ends it in the middle, as a BufferFull, says how many were taken (`taken`)."""
        self._loop.check()
        self._usable()
        assert self._appender is not None
        deadline = deadline_after(timeout)
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        last: dict[int, tuple[OutBatch, int]] = {}
        taken: dict[int, int] = {}
        try:
            for number, rows, picked in self._portions(table, partition):
                yield from self._put_rows(number, rows, picked, deadline, last, taken)
        except WireprotoError as why:
            _tell_taken(why, taken, len(table))
            raise
        finally:
            if not self._linger:
                self._sender.release([batch for batch, _ in last.values()])
        return [self._appender.receipt(batch, index) for _, (batch, index) in sorted(last.items())]

    def _portions(self, table: Columns, partition: int | None) -> Iterable[tuple[int, Columns, Any]]:
        """(partition, rows, which of them in what order; None: all) of a batch that was found good. Partition -1: `_chosen` says."""
        raise NotImplementedError

    def _chosen(self, number: int, size: int) -> int:
        """The partition of a portion's next batch, for so many bytes."""
        return number

    def _lane_of(self, rows: Columns) -> Hashable:
        """`_lane` of a portion's rows."""
        return None

    def _share(self, rows: Columns, start: int, stop: int) -> tuple[int, int]:
        """How far the rows from `start` on may go into one batch, and the bytes of the send budget to take for it."""
        raise NotImplementedError

    def _row_time(self) -> int:
        """The timestamp, in ms, of rows that have none; 0: none."""
        return 0

    def _fit(self, where: Any, batch: OutBatch, size: int, index: int) -> None:
        """Refuse rows that a batch took and a broker would not; raises ValueUnsupported. Under the lock."""

    def _put_rows(
        self,
        number: int,
        rows: Columns,
        picked: Any,
        deadline: float,
        last: dict[int, tuple[OutBatch, int]],
        taken_of: dict[int, int],
    ) -> Steps[None]:
        """Rows into batches of one partition, counted in `taken_of`. Room for a whole batch is taken before, and what it does not need
        given back."""
        assert self._appender is not None
        row_time, lane = self._row_time(), self._lane_of(rows)
        start, stop = 0, len(rows if picked is None else picked)
        while start < stop:
            end, share = self._share(rows, start, stop)
            if not self._appender.charge(share):
                yield from self._account.taking(share, deadline)
            where = self._key(self._chosen(number, share))
            used = 0
            try:
                with self._lock:
                    batch = self._open(where, lane)
                    taken, size, index = batch.add_rows(rows, picked, start, end, row_time)
                    if taken:
                        self._fit(where, batch, size, index)
                        used = size
                        last[batch.serial] = batch, index
                        taken_of[number] = taken_of.get(number, 0) + taken
                    full = start + taken < end or batch.full
                    if full:
                        self._sender.seal(where)
            finally:
                self._account.give(share - used)
            start += taken
            if full:
                self._sender.drain()
            if taken and index + 1 == taken:
                self._sender.opened(batch)

    # --- what the sender and the budget tell ---

    def relieve(self) -> None:
        """Somebody waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self._give_back()
        self._sender.hurry_all()

    def _give_back(self) -> None:
        """What was taken of the send budget ahead, and holds no record."""
        if self._appender is not None:
            self._account.give(self._appender.recall())

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """A batch failed: the next flush tells of it, unless its records' receipts do before."""
        self._unreported.note(batch.serial, why, batch.count)

    # --- waiting ---

    def async_hooks(self) -> AsyncHooks:
        """What another event loop's face of it is made of."""
        assert self._appender is not None
        return AsyncHooks(self._appender, self._account, self._sender.hurry, self._known_place)

    def _late(self, batch: Any, why: WireprotoError) -> WireprotoError:
        """What is raised for a place that is not known in time, or not any more."""
        if isinstance(why, TimedOut):
            why.text += batch.queue.last_trouble(batch)
        return why

    def _find_place(self, batch: Any, index: int) -> Any:
        """The place of a record whose outcome is known, and is not the usual one."""
        outcome = batch.outcome
        if outcome.error is None and type(outcome.value) is not Parts:
            return self._place(batch, index)
        part, at = found(batch, index)
        if part.outcome.error is not None:
            self._unreported.reported(batch.serial, index)
            raise copy(part.outcome.error)  # a fresh one for each who asks
        return self._known_place(part, at)

    def _positions(self, kind: type[Position]) -> None:
        """Positions are of this class, and have an `offset`: what else is in them `_about` tells."""
        self._offsets, self._others = kind, tuple(field.name for field in fields(kind) if field.name != "offset")

    def forget_places(self) -> None:
        """What `_about` told may be another one now."""
        self._fixed = {}

    def _about(self, key: Any) -> tuple[Any, ...]:
        """The other fields of a position of this key, in their order."""
        raise NotImplementedError

    def _place(self, batch: Any, index: int) -> Any:
        """The position of a record that is stored, where it is not made as `_positions` says."""
        raise NotImplementedError

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """Wait until every record taken so far is acknowledged; raises the first failure that no receipt has told, or TimedOut."""
        return self._flushing(timeout)

    def _flushing(self, timeout: float) -> Steps[None]:
        self._loop.check()
        deadline = deadline_after(timeout)
        yield from self._sender.flushing(deadline, self._mine, topic=self.topic)
        while self._leaving():
            if time.monotonic() >= deadline:
                raise TimedOut(f"not all records have left within {timeout:g} s", topic=self.topic)
            yield time.monotonic() + 0.005
        self._give_back()
        failure = self._unreported.take()
        if failure is not None:
            raise copy(failure)

    def _leaving(self) -> bool:
        """Whether records that need no answer have not left yet."""
        return False

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        return sum(batch.count for batch in self._sender.unsettled(self._mine))

    def _mine(self, batch: Any) -> bool:
        return batch.owner is self

    @operation
    def close(self, timeout: float = 30.0) -> Steps[None]:
        """Take no more, and flush; what is not acknowledged in time fails with Closed."""
        if self._closed:
            return
        deadline = deadline_after(timeout)
        self._refuse_more()
        gone = Closed("the producer was closed before the record was acknowledged", topic=self.topic)
        problem: Exception | None = None
        try:
            try:
                yield from self._flushing(timeout)
            except Exception as why:
                problem = why
            self._sender.abandon(self._mine, gone)
            yield from self._parting(deadline)
        finally:  # also when nobody waits any more
            self._sender.abandon(self._mine, gone)
            self._leave()
            self._sender.leave()
            self._account.close()
        if problem is not None:
            raise problem

    def _refuse_more(self) -> None:
        """It is closed: what it holds is flushed, and nothing else comes in."""
        self._account.refuse(Closed("the producer is closed", topic=self.topic))
        if self._appender is not None:
            self._appender.close()
        with self._lock:
            self._closed = True

    def _parting(self, deadline: float) -> Steps[None]:
        """Nothing of it is on its way any more: have brokers forget it. Steps, which keep `deadline`."""
        yield from ()

    def _leave(self) -> None:
        """Let go of what the protocol keeps for it, without waiting."""


def _tell_taken(why: WireprotoError, taken: dict[int, int], rows: int) -> None:
    """An error ends a `send_batch`: who sends all of it again is to know that he sends some of it twice."""
    if taken:
        why.taken = taken
        shares = ", ".join(f"{count} of partition {number}" if number >= 0 else f"{count} of none" for number, count in taken.items())
        why.text += f"; of the {rows} rows {sum(taken.values())} were taken before, the first {shares}, and are sent"
