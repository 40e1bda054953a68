"""Implements a producer of one topic on a Sender, for the protocols that send batches.

`BatchProducer` is the base of the producers of Kafka, Pulsar and RocketMQ: room in the send budget, records into open batches, receipts'
positions, flushing, and the end. Which partition a record goes to, what it may contain, and what a position is, is up to the protocol's own
class. Shared by threads. Batches are the sender's; those with an Appender are `OutBatch`.
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
from .taken_rows import add_taken
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
"""Bytes of the send budget that a producer takes ahead, at most."""


class BatchProducer(ProducerCore, Sends):
    """A producer of one topic.

    A new batch (`_begin`), a record's position (`position_in`), and the return of bytes (`settled`), are the core's. So is `send`
    (`Appender`): it puts the record into the open batch, and calls `_send_slowly` where there is more to do.

    Args:
        runtime, budget: the client's. topic: the topic. core: the sender that its batches are sent by.
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
        """Take one record; returns at once unless the send buffer is full. Each producer has the core's `send` in its place.

        Args:
            value: bytes of the record, or None for null where the broker has it. key: bytes or None. headers: pairs of name and bytes.
            timestamp: milliseconds since 1970, None: now. partition: number, None: by the key. timeout: seconds to wait for room in the
                buffer.

        Raises:
            ValueUnsupported: the broker cannot carry this record, or it is larger than allowed.
            BufferFull: no room in time; the record was not taken. Closed: the producer or the client is closed.
        """
        assert self._appender is not None
        return self._appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        """Take a record where `send` cannot: a new batch, one that it fills, waiting for room, refusals. `headers` are encoded already."""
        raise NotImplementedError

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)

    @unbroken
    def _put(self, number: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int, timeout: float) -> Receipt:
        """Put a record into the open batch of its partition, once there is room for it."""
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
        """Append a record whose room is taken; returns its batch, which is sealed when it is full, and its index there."""
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
        """Return the sender's key of a partition."""
        raise NotImplementedError

    def _lane(self, key: Any) -> Hashable:
        """Return which of a partition's open batches takes records of this key; None: there is one for all."""
        return None

    def _open(self, where: Hashable, lane: Hashable = None) -> OutBatch:
        """Return the open batch of a key, a new one if need be. Under the lock."""
        self._usable()
        batch: OutBatch = self._sender.current(where) if lane is None else self._sender.current_of(where, lane)
        return batch

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[Sequence[Receipt]]:
        """Take many records. All are checked before any is taken; rows of one partition keep their order.

        Args:
            columns: anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` whose columns are named as ours (``value``, and any of
                ``key``, ``headers``, ``timestamp``, ``partition``), or a Columns.
            partition: number, for all rows; None: by column or key. timeout: seconds to wait for room in the send buffer.

        Returns:
            one receipt per batch that is sent, in order; each has the position of its last record.

        Raises:
            ValueUnsupported: a row cannot be sent; none was taken. BufferFull, Closed: not all rows were taken; `taken` says of which
                partition how many were, the first ones, which are sent all the same.
        """
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
            add_taken(why, taken, len(table))
            raise
        finally:
            if not self._linger:
                self._sender.release([batch for batch, _ in last.values()])
        return [self._appender.receipt(batch, index) for _, (batch, index) in sorted(last.items())]

    def _portions(self, table: Columns, partition: int | None) -> Iterable[tuple[int, Columns, Any]]:
        """Yield (partition, rows, indexes of its rows in order; None: all) of a batch that was checked. Partition -1: `_chosen` decides."""
        raise NotImplementedError

    def _chosen(self, number: int, size: int) -> int:
        """Return the partition of a portion's next batch of `size` bytes."""
        return number

    def _lane_of(self, rows: Columns) -> Hashable:
        """Return `_lane` of a portion's rows."""
        return None

    def _share(self, rows: Columns, start: int, stop: int) -> tuple[int, int]:
        """Return how far the rows from `start` on may go into one batch, and the bytes of the send budget to take for it."""
        raise NotImplementedError

    def _row_time(self) -> int:
        """Return the timestamp, in ms, of rows that have none; 0: none."""
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
        """Put rows into batches of one partition, counted in `taken_of`.

        Room for a whole batch is taken before, and what it does not need is given back.
        """
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

    # --- calls of the sender and the budget ---

    def relieve(self) -> None:
        """Send open batches and give bytes back, since a caller waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self._give_back()
        self._sender.hurry_all()

    def _give_back(self) -> None:
        """Give back what was taken of the send budget ahead, and holds no record."""
        if self._appender is not None:
            self._account.give(self._appender.recall())

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """Note that a batch failed: the next flush raises it, unless its records' receipts do before.

        Args:
            batch: the batch, or a part of one. why: its error.
        """
        self._unreported.note(batch.serial, why, batch.count)

    # --- waiting ---

    def async_hooks(self) -> AsyncHooks:
        """Return the parts that the asyncio wrapper uses."""
        assert self._appender is not None
        return AsyncHooks(self._appender, self._account, self._sender.hurry, self._known_place)

    def _late(self, batch: Any, why: WireprotoError) -> WireprotoError:
        """Return the error to raise for a position that is not known in time, or not any more."""
        if isinstance(why, TimedOut):
            batch.queue.explain(why, batch)
        return why

    def _find_place(self, batch: Any, index: int) -> Any:
        """Return the position of a record whose outcome is known and unusual: failed, sent in parts, or positioned by `_place`."""
        outcome = batch.outcome
        if outcome.error is None and type(outcome.value) is not Parts:
            return self._place(batch, index)
        part, at = found(batch, index)
        if part.outcome.error is not None:
            self._unreported.reported(batch.serial, index)
            raise copy(part.outcome.error)  # a new one for each caller
        return self._known_place(part, at)

    def _positions(self, kind: type[Position]) -> None:
        """Make positions of this class, which have an `offset`; `_about` returns the other fields."""
        self._offsets, self._others = kind, tuple(field.name for field in fields(kind) if field.name != "offset")

    def forget_places(self) -> None:
        """Forget what `_about` returned: it may have changed."""
        self._fixed = {}

    def _about(self, key: Any) -> tuple[Any, ...]:
        """Return the other fields of a position of this key, in their order."""
        raise NotImplementedError

    def _place(self, batch: Any, index: int) -> Any:
        """Return the position of a record that is stored, where it is not made as `_positions` says."""
        raise NotImplementedError

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """Wait until every record taken so far is acknowledged or has failed.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut: not all are acknowledged in time. Otherwise the first failure that no receipt has raised. Closed: the client is
                closed.
        """
        return self._flushing(timeout)

    def _flushing(self, timeout: float) -> Steps[None]:
        self._loop.check()
        deadline = deadline_after(timeout)
        yield from self._sender.flushing(deadline, self._mine, topic=self.topic)
        while self._leaving():
            if time.monotonic() >= deadline:
                raise TimedOut(f"not all records were sent within {timeout:g} s", topic=self.topic)
            yield time.monotonic() + 0.005
        self._give_back()
        failure = self._unreported.take()
        if failure is not None:
            raise copy(failure)

    def _leaving(self) -> bool:
        """Return whether records that need no reply are still to be written to a connection."""
        return False

    def unsettled(self) -> int:
        """Return the number of records whose outcome is not known."""
        return sum(batch.count for batch in self._sender.unsettled(self._mine))

    def _mine(self, batch: Any) -> bool:
        return batch.owner is self

    @operation
    def close(self, timeout: float = 30.0) -> Steps[None]:
        """Take no more records, and flush.

        Records that are not acknowledged in time fail with Closed.

        Args:
            timeout: seconds for the flush and for what brokers are asked at the end.

        Raises:
            what `flush` raises; the producer is closed all the same.
        """
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
            yield from self._closing_steps(deadline)
        finally:  # also when the caller does not wait any more
            self._sender.abandon(self._mine, gone)
            self._leave()
            self._sender.leave()
            self._account.close()
        if problem is not None:
            raise problem

    def _refuse_more(self) -> None:
        """Take no more records: what is held is flushed."""
        self._account.refuse(Closed("the producer is closed", topic=self.topic))
        if self._appender is not None:
            self._appender.close()
        with self._lock:
            self._closed = True

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Have brokers forget the producer, when nothing of it is in flight any more. Steps, which keep `deadline`."""
        yield from ()

    def _leave(self) -> None:
        """Release what the protocol keeps for the producer, without waiting."""
