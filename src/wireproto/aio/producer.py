"""Sends records under asyncio: `send` is a plain function, and the future that it returns is awaited.

The producer is the core's Appender (or an object with the same interface, `RecordIntake`), which returns SendFutures, with a queue in front
of it for records that cannot be appended yet: while the producer is being made, and while the send budget is full. Records keep their
order: while one is in the queue, all later ones are queued behind it.

    send ── Appender ──▶ open batch                    the usual case: no Python code runs
         └─ slow ──▶ a new batch, a refusal            as the producer itself does it, without waiting
                └─ no room ──▶ queue ──▶ room ──▶ Appender     at most `buffer_memory` bytes again, then BufferFull

Everything runs in the event loop's thread. `send` never waits, and no record is lost silently: one that leaves the queue unsent fails its
future. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from wireproto._codec import OutBatch, SendFuture, settle_futures
from wireproto.deadlines import deadline_after
from wireproto.errors import BufferFull, Closed, TimedOut, WireprotoError
from wireproto.flow.unacked_warning import tell
from wireproto.net.task import Steps, after

from .host import Host
from .roles import AsyncRole

if TYPE_CHECKING:
    from wireproto.flow.async_hooks import AsyncHooks
    from wireproto.records import Headers

_ROUND = 128
"""Bytes that the queue counts for a record beside its key and value."""


class Producer(AsyncRole[Any]):
    """Sends records to one topic; see `wireproto.roles.Producer`. Made by `Client.producer`.

    ``position = await out.send(value)`` returns once the record is stored. `send` itself takes the record at once, in order; awaiting only
    waits.

    Attributes:
        topic: the topic's name; empty: that of the URL.
        io: the event loop.
        needed: bytes of the send budget that the first record of the queue takes, as the Appender has found.
    """

    def __init__(
        self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], topic: str, limit: int
    ) -> None:
        super().__init__(host, what, make, forget)
        self.topic = topic
        self.io = host.io
        self._limit = limit
        self._hooks: AsyncHooks | None = None
        self._slow: Callable[..., Any] = _unmade
        self._queue: deque[tuple[SendFuture, int, tuple[Any, ...]]] = deque()
        self._held = 0
        self._appending = False  # the first record of the queue is being appended
        self.needed = 0
        self._refusing = False
        self._pumping: asyncio.Task[None] | None = None
        self._dropped: WireprotoError | None = None
        self._room: asyncio.Future[None] | None = None
        self._wanted: dict[OutBatch, None] = {}

    # --- records in ---

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Take a record, and return a future of its position. Once the producer is made, the Appender's own `send` replaces this method.

        Args:
            value, key: bytes, or None for null where the broker has it.
            headers: a mapping or ordered pairs of name and bytes (or None).
            timestamp: milliseconds since 1970 UTC; None: the client's time of this call.
            partition: the partition's number; None picks it by the key, and without a key keeps to one partition for a batch.

        Returns:
            a future of the record's position; it fails with what the broker answered, TimedOut, or Closed.

        Raises:
            BufferFull: `buffer_memory` is full, and the queue holds as many bytes again: await `room`, or earlier futures.
            ValueUnsupported, OptionError: such a record cannot be sent (before the producer is made, the future fails with it instead).
            Closed: the producer or its client was closed.
        """
        self._check()
        if self._hooks is not None and not self._queue:
            with suppress(BufferFull):
                taken: SendFuture = self._hooks.appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition)
                return taken
        size = _ROUND + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        return self._wait(size, (value, key, headers, timestamp, partition))

    def slow(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> SendFuture:
        """Take a record that the Appender does not take by itself: it opens a new batch, or queues the record. Called by the Appender.

        Args:
            value, key: the record's. headers: encoded, in the protocol's form. time_ms: its timestamp in milliseconds since 1970 UTC.
            stamped: whether the caller gave the timestamp. partition: its number, or None.
            size: bytes that the record takes of the send budget. timeout: seconds; not used, since nothing waits here.

        Raises:
            BufferFull: the queue holds `buffer_memory` bytes. ValueUnsupported, OptionError, Closed: see `send`.
        """
        encoded = value, key, headers, time_ms, stamped, partition, size
        if self._appending:
            self.needed = size
            first: SendFuture = self._slow(*encoded, 0.0)
            return first
        self._check()
        if not self._queue:
            with suppress(BufferFull):
                taken: SendFuture = self._slow(*encoded, 0.0)
                return taken
        return self._wait(size, encoded)

    def _check(self) -> None:
        if self._refusing:
            raise Closed("the producer is closed", topic=self.topic)

    def _wait(self, size: int, record: tuple[Any, ...]) -> SendFuture:
        """Put a record into the queue. Raises BufferFull."""
        if self._queue and self._held + size > self._limit:
            raise BufferFull(f"{self._held} bytes wait for room already; the record was not taken", topic=self.topic)
        future = SendFuture(self)
        self._queue.append((future, size, record))
        self._held += size
        if self._hooks is not None:
            self._hooks.appender.hold(True)
        if self._pumping is None:
            self._pumping = self.io.create_task(self._pump())
        return future

    async def _pump(self) -> None:
        """Make the producer, then append the queue's records as the send budget has room for them."""
        try:
            await self._opened()
            while self._queue:
                future, size, record = self._queue[0]
                if not future.cancelled():
                    await self._append_queued(future, size, record)
                self._queue.popleft()
                self._held -= size
                if self._room is not None and self._held <= self._limit // 2:
                    self._room.set_result(None)
                    self._room = None
        except BaseException as why:
            if isinstance(why, asyncio.CancelledError) and not (self._refusing or self._dropped):  # the event loop ended
                tell(sum(not future.done() for future, _, _ in self._queue), self.topic, "the event loop ended")
            gone = self._dropped or Closed("the producer was closed", topic=self.topic)
            self._fail_all(gone if isinstance(why, asyncio.CancelledError) else why)
            if not isinstance(why, Exception):
                raise
        finally:
            self._pumping = self._dropped = None
            if self._hooks is not None:
                self._hooks.appender.hold(False)

    async def _append_queued(self, future: SendFuture, size: int, record: tuple[Any, ...]) -> None:
        """Append one queued record once there is room for it; its future fails with what is wrong with the record."""
        assert self._hooks is not None
        hooks = self._hooks
        try:
            if len(record) == 7:
                await self._host.drive(hooks.account.taking(size))
                hooks.appender.lend(size)
                taken: SendFuture = self._slow(*record, 0.0)
            else:
                value, key, headers, timestamp, partition = record
                while True:
                    try:
                        taken = self._first(value, key, headers, timestamp, partition)
                        break
                    except BufferFull:
                        await self._host.drive(hooks.account.taking(self.needed))
                        hooks.appender.lend(self.needed)
            future.follow(taken)
        except Closed:
            raise
        except Exception as why:
            future.fail(why)

    def _first(self, value: Any, key: Any, headers: Any, timestamp: int | None, partition: int | None) -> SendFuture:
        """Append a record that was queued before the producer was made; only now it is checked and encoded."""
        assert self._hooks is not None
        self._appending = True
        try:
            return cast("SendFuture", self._hooks.appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition))
        finally:
            self._appending = False

    def _fail_all(self, why: BaseException) -> None:
        queue, self._queue, self._held = self._queue, deque(), 0
        for future, _, _ in queue:
            if not future.done():
                future.fail(why)
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    async def room(self) -> None:
        """Wait until at most half of `buffer_memory` is in the queue: for loops that send without awaiting."""
        while self._queue and self._held > self._limit // 2:
            if self._room is None:
                self._room = self.io.create_future()
            await asyncio.shield(self._room)

    # --- called by SendFuture ---

    def awaited(self, batch: OutBatch) -> None:
        """Have a batch sent at the end of the event loop's current turn, since a coroutine awaits one of its records.

        Args:
            batch: the open or sealed batch.
        """
        if not self._wanted:
            self.io.call_soon(self._hurry)
        self._wanted[batch] = None
        after(batch.outcome, self._known, batch)

    def _hurry(self) -> None:
        wanted, self._wanted = self._wanted, {}
        assert self._hooks is not None
        for batch in wanted:
            if not batch.outcome.done:
                self._hooks.hurry(batch)

    def _known(self, batch: OutBatch) -> None:
        self.io.call_soon(settle_futures, batch)

    def place(self, batch: OutBatch, index: int) -> Any:
        """Return the position of a record whose outcome is known.

        Args:
            batch: its batch. index: its place in the batch, from 0.

        Raises:
            WireprotoError: what the record failed with.
        """
        assert self._hooks is not None
        return self._hooks.place(batch, index)

    def reason(self, batch: OutBatch, index: int) -> BaseException | None:
        """Return what a record failed with, or None when it is stored.

        Args:
            batch: its batch. index: its place in the batch, from 0.
        """
        outcome = batch.outcome
        if outcome.error is None and type(outcome.value) is int and outcome.value >= 0:
            return None  # stored; asyncio.gather asks for this twice, and making the position takes longer
        try:
            self.place(batch, index)
        except WireprotoError as why:
            return why
        return None

    # --- the rest ---

    def _ready(self, role: Any) -> None:
        made = getattr(role, "async_hooks", None)
        if made is None:
            self._steps(role, "async_hooks")
        self._hooks = role.async_hooks()
        slow = self._hooks.appender.await_by(self)
        if slow is not None:
            self._slow = slow
            # no batch is open yet, so the Appender passes the next record to `slow`, which queues it behind the waiting ones
            self.send = self._hooks.appender.send  # type: ignore[method-assign]

    async def flush(self, timeout: float = 30.0) -> None:
        """Send every record taken so far, and wait until its outcome is known.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError: the first failure of a record since the last flush that was not awaited.
            TimedOut: not every outcome is known in time.
        """
        deadline = deadline_after(timeout)
        await self.left(deadline)
        if self._hooks is not None:
            await self._do("flush", timeout=max(0.0, deadline - time.monotonic()))

    async def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[SendFuture]:
        """Take many records, behind those sent before; see `wireproto.roles.Producer.send_batch`. Waits for room in the send buffer.

        Args:
            columns: rows as Arrow data with columns ``value``, ``key``, ``headers``, ``timestamp``, ``partition``, or a Columns.
            partition: the partition of all rows; None: each row's own.
            timeout: seconds to wait for room.

        Returns:
            one future per batch, of the position of its last row.

        Raises:
            ValueUnsupported: a row cannot be sent; none was taken. Closed: the producer or its client was closed.
            BufferFull, TimedOut: no room in time; `taken` of the error maps each partition to the number of its rows that were taken.
        """
        deadline = deadline_after(timeout)
        await self.left(deadline)
        given = max(0.0, deadline - time.monotonic())
        receipts: Sequence[SendFuture] = await self._do("send_batch", columns, partition=partition, timeout=given)
        return receipts

    @property
    def waiting(self) -> int:
        """Number of records in the queue."""
        return len(self._queue)

    async def left(self, deadline: float) -> None:
        """Wait until the records sent so far have left the queue.

        Args:
            deadline: `time.monotonic()` value.

        Raises:
            TimedOut: some are still there.
        """
        if (pumping := self._pumping) is not None:
            await asyncio.wait([pumping], timeout=max(0.0, deadline - time.monotonic()))
            if not pumping.done():
                raise TimedOut(f"{len(self._queue)} records are not sent yet", topic=self.topic)

    async def drop(self, why: WireprotoError) -> None:
        """Empty the queue: its records are not sent, and their futures fail.

        Args:
            why: the error of the futures.
        """
        if (pumping := self._pumping) is not None:
            self._dropped = why
            pumping.cancel()
            await asyncio.wait([pumping])

    async def _end(self, role: Any, timeout: float) -> None:
        await self._host.drive(self._steps(role, "close")(timeout))

    async def close(self, timeout: float = 30.0) -> None:
        """Take no more records, and flush. Futures of records that are not acknowledged in time fail with Closed.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError, TimedOut: see `flush`; the producer is closed all the same.
        """
        if self._refusing:
            return
        deadline = deadline_after(timeout)
        self._refusing = True
        if self._hooks is not None:
            self._hooks.appender.hold(True)
        if self._pumping is not None:
            await asyncio.wait([self._pumping], timeout=max(0.0, deadline - time.monotonic()))
            if self._pumping is not None:
                self._pumping.cancel()
        await super().close(max(0.0, deadline - time.monotonic()))


def _unmade(*_: Any) -> Any:
    raise RuntimeError("the producer is not made yet")
