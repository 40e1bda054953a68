"""The Producer under asyncio: `send` is a plain function, and what it returns is awaited.

What it is: the core's Appender (or what takes records as that does), which hands out SendFutures, and a queue in front of it for records
that cannot go in yet: while the producer is being made, and while the send budget is full. Order stays: while one waits there, all that
come later do.

    send ── Appender ──▶ open batch                    room, the fast way: no Python code at all
         └─ slow ──▶ a new batch, a refusal            as the producer itself does it, without waiting
                └─ no room ──▶ queue ──▶ room ──▶ Appender     at most `buffer_memory` bytes again, then BufferFull

May assume: the event loop's thread. Must not: wait in `send`, or lose a record silently: one that leaves the queue unsent fails its future.
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
"""Bytes of a queued record beside its key and value, as the queue counts them."""


class Producer(AsyncRole[Any]):
    """Sends records to one topic; see `wireproto.roles.Producer`. Made by `Client.producer`.

    ``place = await out.send(value)``: the record is stored there. `send` itself takes the record at once, in order; awaiting only waits.
    """

    def __init__(
        self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], topic: str, limit: int
    ) -> None:
        super().__init__(host, what, make, forget)
        self.topic = topic
        self.io = host.io
        self._limit = limit
        self._way: AsyncHooks | None = None
        self._slow: Callable[..., Any] = _unmade
        self._queue: deque[tuple[SendFuture, int, tuple[Any, ...]]] = deque()
        self._held = 0
        self._letting_in = False  # the first of the queue …
        self.needed = 0  # … which takes so many bytes, as what takes it has found
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
        """Take a record; the result is a future of its place. Where there is an Appender, its own `send` stands in its place then.

        Raises:
            BufferFull: `buffer_memory` is taken, and as much again waits here: await `room`, or what was sent. Closed.
            ValueUnsupported, OptionError: such a record cannot be sent (or the future fails so, where the producer is not made yet).
        """
        self._check()
        if self._way is not None and not self._queue:
            with suppress(BufferFull):
                taken: SendFuture = self._way.appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition)
                return taken
        size = _ROUND + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        return self._wait(size, (value, key, headers, timestamp, partition))

    def slow(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> SendFuture:
        """What the Appender leaves over."""
        encoded = value, key, headers, time_ms, stamped, partition, size
        if self._letting_in:
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
        """Put a record into the queue."""
        if self._queue and self._held + size > self._limit:
            raise BufferFull(f"{self._held} bytes wait for room already; the record was not taken", topic=self.topic)
        future = SendFuture(self)
        self._queue.append((future, size, record))
        self._held += size
        if self._way is not None:
            self._way.appender.hold(True)
        if self._pumping is None:
            self._pumping = self.io.create_task(self._pump())
        return future

    async def _pump(self) -> None:
        """Make the producer, then let records in as there is room for them."""
        try:
            await self._opened()
            while self._queue:
                future, size, record = self._queue[0]
                if not future.cancelled():
                    await self._let_in(future, size, record)
                self._queue.popleft()
                self._held -= size
                if self._room is not None and self._held <= self._limit // 2:
                    self._room.set_result(None)
                    self._room = None
        except BaseException as why:
            if isinstance(why, asyncio.CancelledError) and not (self._refusing or self._dropped):  # by the end of the event loop
                tell(sum(not future.done() for future, _, _ in self._queue), self.topic, "the event loop ended")
            gone = self._dropped or Closed("the producer was closed", topic=self.topic)
            self._fail_all(gone if isinstance(why, asyncio.CancelledError) else why)
            if not isinstance(why, Exception):
                raise
        finally:
            self._pumping = self._dropped = None
            if self._way is not None:
                self._way.appender.hold(False)

    async def _let_in(self, future: SendFuture, size: int, record: tuple[Any, ...]) -> None:
        """One record, once there is room for it; what is wrong with it is told by its future."""
        assert self._way is not None
        way = self._way
        try:
            if len(record) == 7:
                await self._host.drive(way.account.taking(size))
                way.appender.lend(size)
                taken: SendFuture = self._slow(*record, 0.0)
            else:
                value, key, headers, timestamp, partition = record
                while True:
                    try:
                        taken = self._first(value, key, headers, timestamp, partition)
                        break
                    except BufferFull:
                        await self._host.drive(way.account.taking(self.needed))
                        way.appender.lend(self.needed)
            future.follow(taken)
        except Closed:
            raise
        except Exception as why:
            future.fail(why)

    def _first(self, value: Any, key: Any, headers: Any, timestamp: int | None, partition: int | None) -> SendFuture:
        """A record that came before the producer was made: only now is it looked at."""
        assert self._way is not None
        self._letting_in = True
        try:
            return cast("SendFuture", self._way.appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition))
        finally:
            self._letting_in = False

    def _fail_all(self, why: BaseException) -> None:
        queue, self._queue, self._held = self._queue, deque(), 0
        for future, _, _ in queue:
            if not future.done():
                future.fail(why)
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    async def room(self) -> None:
        """Wait while more than half of `buffer_memory` waits in the queue: for loops that send without awaiting."""
        while self._queue and self._held > self._limit // 2:
            if self._room is None:
                self._room = self.io.create_future()
            await asyncio.shield(self._room)

    # --- what futures ask ---

    def awaited(self, batch: OutBatch) -> None:
        """Somebody waits for a record of this batch: at the end of this turn it leaves."""
        if not self._wanted:
            self.io.call_soon(self._hurry)
        self._wanted[batch] = None
        after(batch.outcome, self._known, batch)

    def _hurry(self) -> None:
        wanted, self._wanted = self._wanted, {}
        assert self._way is not None
        for batch in wanted:
            if not batch.outcome.done:
                self._way.hurry(batch)

    def _known(self, batch: OutBatch) -> None:
        self.io.call_soon(settle_futures, batch)

    def place(self, batch: OutBatch, index: int) -> Any:
        assert self._way is not None
        return self._way.place(batch, index)

    def reason(self, batch: OutBatch, index: int) -> BaseException | None:
        outcome = batch.outcome
        if outcome.error is None and type(outcome.value) is int and outcome.value >= 0:
            return None  # it has a place, which takes longer to tell; gather asks twice
        try:
            self.place(batch, index)
        except WireprotoError as why:
            return why
        return None

    # --- the rest ---

    def _ready(self, role: Any) -> None:
        way = getattr(role, "async_hooks", None)
        if way is None:
            self._steps(role, "async_hooks")
        self._way = role.async_hooks()
        slow = self._way.appender.await_by(self)
        if slow is not None:
            self._slow = slow
            # nothing is open yet, so the core leaves over what comes next, and it joins those that wait
            self.send = self._way.appender.send  # type: ignore[method-assign]

    async def flush(self, timeout: float = 30.0) -> None:
        """Send what was taken, and wait for its outcome; raises the first failure since the last flush, TimedOut."""
        deadline = deadline_after(timeout)
        await self.left(deadline)
        if self._way is not None:
            await self._do("flush", timeout=max(0.0, deadline - time.monotonic()))

    async def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[SendFuture]:
        """As the synchronous `send_batch`; waits for room, behind what was sent before. The futures are of each partition's last row."""
        deadline = deadline_after(timeout)
        await self.left(deadline)
        given = max(0.0, deadline - time.monotonic())
        receipts: Sequence[SendFuture] = await self._do("send_batch", columns, partition=partition, timeout=given)
        return receipts

    @property
    def waiting(self) -> int:
        """Records in the queue."""
        return len(self._queue)

    async def left(self, deadline: float) -> None:
        """Until what was sent so far has left the queue. Raises TimedOut."""
        if (pumping := self._pumping) is not None:
            await asyncio.wait([pumping], timeout=max(0.0, deadline - time.monotonic()))
            if not pumping.done():
                raise TimedOut(f"{len(self._queue)} records are not sent yet", topic=self.topic)

    async def drop(self, why: WireprotoError) -> None:
        """Let in nothing of what waits in the queue, and have it fail with this."""
        if (pumping := self._pumping) is not None:
            self._dropped = why
            pumping.cancel()
            await asyncio.wait([pumping])

    async def _end(self, role: Any, timeout: float) -> None:
        await self._host.drive(self._steps(role, "close")(timeout))

    async def close(self, timeout: float = 30.0) -> None:
        """Flush, then take no more; what is not acknowledged in time fails with Closed."""
        if self._refusing:
            return
        deadline = deadline_after(timeout)
        self._refusing = True
        if self._way is not None:
            self._way.appender.hold(True)
        if self._pumping is not None:
            await asyncio.wait([self._pumping], timeout=max(0.0, deadline - time.monotonic()))
            if self._pumping is not None:
                self._pumping.cancel()
        await super().close(max(0.0, deadline - time.monotonic()))


def _unmade(*_: Any) -> Any:
    raise RuntimeError("the producer is not made yet")
