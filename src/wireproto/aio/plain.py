"""Sends records under asyncio for a protocol whose records do not go through the core's Appender (ZooKeeper's queue).

`send` passes a record to the role's own `sending` at once where there is room; else it puts the record into a queue, which one task empties
in order. A second task runs the role's `settling` and completes the futures, oldest first. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wireproto.deadlines import deadline_after
from wireproto.errors import BufferFull, Closed, TimedOut, WireprotoError
from wireproto.flow.unacked_warning import tell
from wireproto.net.task import NEVER, Steps

from .host import Host
from .roles import AsyncRole

if TYPE_CHECKING:
    from wireproto.records import Headers

_ROUND = 128
"""Bytes that the queue counts for a record beside its key and value."""


class PlainProducer(AsyncRole[Any]):
    """Sends records to one topic; see `wireproto.aio.Producer`."""

    def __init__(
        self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], topic: str, limit: int
    ) -> None:
        super().__init__(host, what, make, forget)
        self.topic = topic
        self._limit = limit
        self._held = 0
        self._queue: deque[tuple[asyncio.Future[Any], int, bytes | None, dict[str, Any]]] = deque()
        self._sent: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Event()

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[Any]:
        """Take a record, and return a future of its position.

        Args:
            value, key: bytes, or None for null where the broker has it.
            headers: a mapping or ordered pairs of name and bytes (or None).
            timestamp: milliseconds since 1970 UTC, where the protocol has timestamps.
            partition: the partition's number, where the protocol has several.

        Returns:
            a future of the record's position; it fails with what the broker answered, TimedOut, or Closed.

        Raises:
            BufferFull: `buffer_memory` is full, and the queue holds as many bytes again: await `room`, or earlier futures.
            ValueUnsupported, OptionError: such a record cannot be sent (while others are queued before it, the future fails with it).
            Closed: the producer or its client was closed.
        """
        if self._closed:
            raise Closed("the producer is closed", topic=self.topic)
        self._host.check()
        size = _ROUND + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        if self._queue and self._held + size > self._limit:
            raise BufferFull(f"{self._held} bytes wait for room already; the record was not taken", topic=self.topic)
        given = {"key": key, "headers": headers, "timestamp": timestamp, "partition": partition}
        receipt = None if self._queue else self._at_once(value, given)
        future = self._host.io.create_future()
        future.add_done_callback(_retrieved)
        if receipt is not None:
            self._await(future, receipt)
            return future
        self._queue.append((future, size, value, given))
        self._held += size
        self._go("sending", self._sending)
        return future

    def _at_once(self, value: bytes | None, given: dict[str, Any]) -> Any:
        """Send a record if there is room for it now, and return its receipt, else None. Raises why it cannot be sent."""
        if self._role is None:
            return None
        steps = self._role.sending(value, **given, timeout=_FOREVER)
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        steps.close()  # it does not wait for room
        return None

    def _await(self, future: asyncio.Future[Any], receipt: Any) -> None:
        self._sent.append((future, receipt))
        self._go("settling", self._settling)

    def _go(self, name: str, what: Callable[[], Any]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = self._host.io.create_task(what())

    async def _sending(self) -> None:
        """Send the queue's records, in order, as there is room for them."""
        try:
            role: Any = await self._opened()
            while self._queue:
                future, size, value, given = self._queue[0]
                if not future.cancelled():
                    try:
                        self._await(future, await self._host.drive(role.sending(value, **given, timeout=_FOREVER)))
                    except Closed:
                        raise
                    except Exception as why:
                        _fail(future, why)
                self._queue.popleft()
                self._held -= size
                if self._held <= self._limit // 2:
                    self._room.set()
        except BaseException as why:
            if isinstance(why, asyncio.CancelledError) and not self._closed:  # the event loop ended
                tell(sum(not entry[0].done() for entry in self._queue), self.topic, "the event loop ended")
            gone = Closed("the producer was closed", topic=self.topic) if isinstance(why, asyncio.CancelledError) else why
            while self._queue:
                _fail(self._queue.popleft()[0], gone)
            self._held = 0
            self._room.set()
            if not isinstance(why, Exception):
                raise

    async def _settling(self) -> None:
        """Complete the futures of records that were sent, in order."""
        while self._sent:
            future, receipt = self._sent[0]
            if not receipt.done:
                with suppress(WireprotoError):
                    await self._host.drive(self._role.settling(NEVER, receipt))  # type: ignore[union-attr]
            self._settle(future, receipt)
            self._sent.popleft()

    def _settle(self, future: asyncio.Future[Any], receipt: Any) -> None:
        """Complete a record's future by its receipt; with Closed if the outcome is not known."""
        try:
            place = receipt.position(0.0) if receipt.done else None
        except WireprotoError as why:
            _fail(future, why)
        else:
            if place is None:
                _fail(future, Closed("the producer was closed", topic=self.topic))
            elif not future.done():
                future.set_result(place)

    async def room(self) -> None:
        """Wait until at most half of `buffer_memory` is in the queue: for loops that send without awaiting."""
        while self._queue and self._held > self._limit // 2:
            self._room.clear()
            await self._room.wait()

    async def _let_in(self, deadline: float) -> None:
        """Wait until the records sent so far have left the queue. Raises TimedOut."""
        task = self._tasks.get("sending")
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=max(0.0, deadline - time.monotonic()))
            if not task.done():
                raise TimedOut(f"{len(self._queue)} records are not sent yet", topic=self.topic)

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until the outcome of every record taken so far is known.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError: the first failure of a record since the last flush.
            TimedOut: not every outcome is known in time.
        """
        deadline = deadline_after(timeout)
        await self._let_in(deadline)
        if self._role is not None:
            await self._do("flush", timeout=max(0.0, deadline - time.monotonic()))
            await asyncio.sleep(0)

    async def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[asyncio.Future[Any]]:
        """Take many records, behind those sent before; see `wireproto.roles.Producer.send_batch`.

        Args:
            columns: rows as Arrow data with columns named like the arguments of `send`, or a Columns.
            partition: the partition of all rows; None: each row's own.
            timeout: seconds to wait for room.

        Returns:
            futures of positions, one for each receipt of the synchronous call.

        Raises:
            ValueUnsupported: a row cannot be sent. BufferFull, TimedOut: no room in time. Closed: the producer or its client was closed.
        """
        deadline = deadline_after(timeout)
        await self._let_in(deadline)
        futures = []
        given = max(0.0, deadline - time.monotonic())
        for receipt in await self._do("send_batch", columns, partition=partition, timeout=given):
            future = self._host.io.create_future()
            future.add_done_callback(_retrieved)
            self._await(future, receipt)
            futures.append(future)
        return futures

    async def _end(self, role: Any, timeout: float) -> None:
        await self._host.drive(self._steps(role, "close")(timeout))

    async def close(self, timeout: float = 30.0) -> None:
        """Flush, then take no more records. Futures of records that are not acknowledged in time fail with Closed.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError, TimedOut: see `flush`; the producer is closed all the same.
        """
        if self._closed:
            return
        deadline = deadline_after(timeout)
        with suppress(TimedOut):  # the futures of the records that are left fail
            await self._let_in(deadline)
        if (task := self._tasks.get("sending")) is not None:
            task.cancel()
        try:
            await super().close(max(0.0, deadline - time.monotonic()))
        finally:
            if (task := self._tasks.get("settling")) is not None:
                task.cancel()
                await asyncio.wait([task])
            while self._sent:
                self._settle(*self._sent.popleft())


_FOREVER = 86400.0 * 365
"""Seconds that a record waits for room: in effect until its producer is closed."""


def _fail(future: asyncio.Future[Any], why: BaseException) -> None:
    if not future.done():
        future.set_exception(why)


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Mark a future's exception as retrieved, so that asyncio logs nothing: `flush` raises it."""
    if not future.cancelled():
        future.exception()
