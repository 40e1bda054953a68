"""Sends transactional messages under asyncio: half messages that are stored first, and committed or rolled back later.

`Transactional` and `HalfMessage` have no state of their own: they run the steps of the synchronous role and of its halves. An end
(commit or rollback) that was sent is a task of the client, so a cancelled wait does not undo it. `Check` wraps a check that is a coroutine
function.

    async with work.send(b"…", topic="payments") as half:     stored, and not visible
        …                                                     leaving commits; an exception or a cancellation leaves it to the check

Everything runs in the event loop's thread. The module knows no protocol.
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
    """Calls a check that is a coroutine function, and can cancel the call that is under way."""

    def __init__(self, check: Callable[[Any], Awaitable[Any]]) -> None:
        self._check = check
        self._now: asyncio.Task[Any] | None = None

    async def __call__(self, message: Any) -> Any:
        """Call the user's check with a half message that was left open, and return its verdict."""
        self._now = asyncio.current_task()
        return await self._check(message)

    async def stop(self, deadline: float) -> None:
        """Cancel the call that is under way, unless this is called by it, and wait until it has ended.

        Args:
            deadline: `time.monotonic()` value until which to wait.
        """
        now = self._now
        if now is not None and not now.done() and now is not asyncio.current_task():
            now.cancel()
            await asyncio.wait([now], timeout=max(0.0, deadline - time.monotonic()))


class HalfMessage:
    """A half message that is stored and not visible yet; see the protocol's own. Made by `Transactional.send`.

    A cancelled `commit` or `abort` leaves it open if nothing was sent yet. Otherwise the end continues; the same call waits for it again.

    Attributes:
        topic, partition: where it will be visible.
        transaction_id: its id, by which the check is asked about it.
        made: the synchronous half message.
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
        """How far its commit or rollback is."""
        return self.made.state

    async def commit(self, *, timeout: float = 30.0) -> None:
        """Make the message visible.

        Args:
            timeout: seconds to wait for the broker.

        Raises:
            OutcomeUnknown: it was sent and not answered with success; the check decides.
            TransportError, NoMaster: it was not sent, and the half is still open.
            UsageError: it has ended already, was left to the check, or another caller is ending it. Closed: the role was closed.
        """
        await self._work.ended(self.made.commit, timeout=timeout)

    async def abort(self, *, timeout: float = 30.0) -> None:
        """Roll the message back: it is never visible.

        Args:
            timeout: seconds to wait for the broker.

        Raises:
            OutcomeUnknown: it was sent and not answered with success; the check decides.
            TransportError, NoMaster: it was not sent, and the half is still open.
            UsageError: it has ended already, was left to the check, or another caller is ending it. Closed: the role was closed.
        """
        await self._work.ended(self.made.abort, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._work.ended(self.made.leaving, error)


class Sending(Coroutine[Any, Any, HalfMessage]):
    """The result of `Transactional.send`: await it for a half message that you end yourself, or use it in ``async with``.

    It can be used wherever a coroutine can, as in a `TaskGroup`.
    """

    def __init__(self, steps: Coroutine[Any, Any, HalfMessage]) -> None:
        self._steps = steps
        self._half: HalfMessage | None = None

    def send(self, value: Any) -> Any:
        """Resume the coroutine; see `Coroutine.send`.

        Args:
            value: what its await returns.
        """
        return self._steps.send(value)

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        """Raise an error in the coroutine; see `Coroutine.throw`.

        Args:
            kind: the error, or its class. value: the error where `kind` is a class. trace: not used.
        """
        return self._steps.throw(kind if value is None else value)

    def close(self) -> None:
        """End the coroutine; see `Coroutine.close`."""
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
    """Sends messages that are stored first, and become visible once their sender, or a check, commits them. Made by `Client.transactional`.

    Brokers may call the check from when the role is made: by its first `send`, ``async with`` or ``await``.
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
        """Store a half message; awaiting returns when its broker has stored it. A cancelled send is rolled back, if it was stored at all.

        Args:
            value, key: bytes, or None for null where the broker has it. topic: where the message goes.
            headers: a mapping or ordered pairs of name and bytes (or None).
            partition: the partition's number; None: the client picks one.
            timeout: seconds to look the topic up and to wait for the broker.

        Raises:
            Aborted: the half message is rolled back. Any other error, as of the synchronous `send`: nothing was stored.
        """
        return Sending(self._send(value, topic=topic, key=key, headers=headers, partition=partition, timeout=timeout))

    async def _send(self, value: bytes | None, **more: Any) -> HalfMessage:
        return HalfMessage(self, await self._do("send", value, **more))

    async def ended(self, method: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run an operation of a half message. Closing the role does not interrupt it: the close waits for ends that were sent.

        Args:
            method: the half's operation. args, options: its arguments.

        Raises:
            AsyncUnsupported: it is no operation. What the operation raises.
        """
        await self._host.drive(self._made_of(method)(*args, **options))

    async def _end(self, role: Any, timeout: float) -> None:
        deadline = deadline_after(timeout)
        try:
            await super()._end(role, timeout)
        finally:  # the check's verdict is not used any more
            if self._check is not None:
                await self._check.stop(deadline)
