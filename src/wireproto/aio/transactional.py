"""Transactional messages under asyncio: halves that are stored, and ended by one word, as the synchronous role has them.

What it is: no state of its own. `Transactional` and `HalfMessage` run the steps of the role and of its halves; an end that has left is a
task of the client, so that a cancelled wait takes nothing back. `Check` is a check that is a coroutine function, as the role calls it.

    async with work.send(b"…", topic="payments") as half:     stored, and seen by nobody
        …                                                     leaving commits; an exception or a cancellation leaves it to the check

May assume: the event loop's thread. Must not: know a protocol, or how a half goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from wireproto.deadlines import deadline_after
from wireproto.net.task import Steps

from .host import Host
from .roles import AsyncRole

if TYPE_CHECKING:
    from wireproto.records import Headers


class Check:
    """A check that is a coroutine function; the call of it that is under way may be broken off."""

    def __init__(self, check: Callable[[Any], Awaitable[Any]]) -> None:
        self._check = check
        self._now: asyncio.Task[Any] | None = None

    async def __call__(self, message: Any) -> Any:
        self._now = asyncio.current_task()
        return await self._check(message)

    async def stop(self, deadline: float) -> None:
        """Cancel the call that is under way, unless that is who asks, and wait until it has ended."""
        now = self._now
        if now is not None and not now.done() and now is not asyncio.current_task():
            now.cancel()
            await asyncio.wait([now], timeout=max(0.0, deadline - time.monotonic()))


class HalfMessage:
    """A half message in hand; see the protocol's own. Made by `Transactional.send`.

    A cancelled `commit` or `abort` leaves it open where the end has not left, and else goes on with it: awaited again, it waits for that.

    Attributes:
        topic, partition: where it will be seen. transaction_id: its id, by which the check is asked about it.
        made: the synchronous one.
    """

    def __init__(self, work: Transactional, made: Any) -> None:
        self._work, self.made = work, made
        self.topic: str = made.topic
        self.partition: int = made.partition
        self.transaction_id: str = made.transaction_id

    def __repr__(self) -> str:
        return repr(self.made)

    @property
    def state(self) -> Any:
        """How far it is."""
        return self.made.state

    async def commit(self, *, timeout: float = 30.0) -> None:
        """Have it seen. Raises: see the synchronous one."""
        await self._work.ended(self.made.commit, timeout=timeout)

    async def abort(self, *, timeout: float = 30.0) -> None:
        """Roll it back: it is never seen. Raises: see the synchronous one."""
        await self._work.ended(self.made.abort, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._work.ended(self.made.leaving, error)


class Sending(Coroutine[Any, Any, HalfMessage]):
    """What `Transactional.send` gives: await it for a half that is ended by hand, or ``async with`` it. It stands wherever a coroutine
    may, in a `TaskGroup`, say."""

    def __init__(self, steps: Coroutine[Any, Any, HalfMessage]) -> None:
        self._steps = steps
        self._half: HalfMessage | None = None

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        return self._steps.throw(kind if value is None else value)

    def close(self) -> None:
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, HalfMessage]:
        return self._steps.__await__()

    async def __aenter__(self) -> HalfMessage:
        self._half = await self._steps
        return self._half

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._half is not None
        await self._half.__aexit__(kind, error, trace)


class Transactional(AsyncRole[Any]):
    """Messages that are stored, and seen when their sender, or a check, says so. Made by `Client.transactional`.

    Its brokers may ask from when it was made: by its first `send`, ``async with`` or ``await``.
    """

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], check: Check | None) -> None:
        super().__init__(host, what, make, forget)
        self._check = check

    def send(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        headers: Headers = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Sending:
        """Store a half message; comes back when its broker has it. One that is cancelled is rolled back, if it is stored at all.

        Raises:
            Aborted: nothing comes of it. What else is raised: see the synchronous one; nothing was stored.
        """
        return Sending(self._send(value, topic=topic, key=key, headers=headers, partition=partition, timeout=timeout))

    async def _send(self, value: bytes | None, **more: Any) -> HalfMessage:
        return HalfMessage(self, await self._do("send", value, **more))

    async def ended(self, method: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run an operation of a half. The end of the role breaks none off: it waits for an end that has left, and lets no other leave."""
        await self._host.drive(self._made_of(method)(*args, **options))

    async def _end(self, role: Any, timeout: float) -> None:
        deadline = deadline_after(timeout)
        try:
            await super()._end(role, timeout)
        finally:  # nobody hears any more what it says
            if self._check is not None:
                await self._check.stop(deadline)
