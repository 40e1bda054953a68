"""One client's engine under asyncio: who calls it, and how a coroutine waits for what it brings.

What it is: `Host` gives the engine's loop to the running event loop: one descriptor to watch, one timer, `run_ready` when either says so.
No thread is started; the event loop's thread does what the I/O thread does elsewhere. `Host.drive` runs an operation's steps as a coroutine,
`Host.awaiting` a coroutine as steps.
May assume: one thread, the event loop's. Must not: know a protocol or a role, or block.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wireproto._net import Event, Loop, Runnable, Waitable
from wireproto.errors import Closed, UsageError
from wireproto.net.task import Steps, Wait

T = TypeVar("T")
_NEVER = float("inf")


class Host:
    """A client's loop, adopted by the running event loop.

    Args:
        loop: not used yet.
    Attributes:
        io: the event loop.
    Raises:
        UsageError, Closed, Forked: see `Loop.adopt`.
    """

    def __init__(self, loop: Loop) -> None:
        self.io = asyncio.get_running_loop()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = _NEVER
        self._fd = loop.adopt(self._schedule)
        self.io.add_reader(self._fd, self._run, True)

    def check(self) -> None:
        """Raises Closed, Forked."""
        self._loop.check()

    def here(self) -> None:
        """Raises UsageError in another event loop."""
        if asyncio.get_running_loop() is not self.io:
            raise UsageError("a client belongs to the event loop in which it was first used; make another one for this loop")

    def _schedule(self) -> None:
        self.io.call_soon(self._run, False)

    def _run(self, look: bool) -> None:
        if self._loop.closed or self._loop.forked:
            return  # it was asked for before the end
        due = self._loop.run_ready(look)
        if due < self._due:  # one that comes too early finds nothing to do, and is set anew
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self.io.call_later(max(0.0, due - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer, self._due = None, _NEVER
        self._run(False)

    def close(self) -> None:
        """Close the loop: whatever waits raises Closed."""
        if self._loop.closed:
            return
        self.io.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.close()

    async def drive(self, steps: Steps[T], inside: set[Waiter] | None = None) -> T:
        """Run an operation; a cancellation is raised where its steps wait, and leaves nothing behind.

        Args:
            inside: has what `stop` may be called of, while this goes on.
        Raises:
            Closed, Forked, and whatever the steps raise: they keep their time.
        """
        self.here()
        waiter: Waiter | None = None
        thrown = False
        try:
            wait = next(steps)
            waiter = Waiter(self._loop)
            waiter.attend()
            if inside is not None:
                inside.add(waiter)
            while True:
                try:
                    answer = await waiter.ready(self.io, wait)
                except BaseException as why:
                    if thrown:
                        raise
                    thrown = True
                    wait = steps.throw(why)
                else:
                    wait = steps.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            if waiter is not None:
                waiter.finish()
                if inside is not None:
                    inside.discard(waiter)
            steps.close()

    def awaiting(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Steps[T]:
        """What a coroutine function of the user's comes to, as steps: it runs as a task of the event loop, which ends with them.

        Raises:
            Closed: it was cancelled. What it raises.
        """
        over = Event(self._loop)
        running = self.io.create_task(fn(*args))
        running.add_done_callback(lambda _: over.set())
        try:
            yield over
        finally:
            running.cancel()  # where it has not ended
        if running.cancelled():
            raise Closed(f"{getattr(fn, '__qualname__', 'a call')} was cancelled")
        return running.result()


class Waiter(Runnable):
    """What hangs on that which a coroutine waits for, one thing after the other."""

    __slots__ = ("_future",)

    _future: asyncio.Future[bool] | None

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._future = None

    async def ready(self, io: asyncio.AbstractEventLoop, wait: Wait) -> bool:
        what, due = wait if isinstance(wait, tuple) else (wait, _NEVER) if isinstance(wait, Waitable) else (None, float(wait))
        if what is not None and not self.hang_on(what):
            return True
        future = self._future = io.create_future()
        timer = None if due == _NEVER else io.call_later(max(0.0, due - time.monotonic()), self._late, future)
        try:
            come: bool = await future
            return come
        finally:
            self._future = None
            self.take_off()
            if timer is not None:
                timer.cancel()

    def _late(self, future: asyncio.Future[bool]) -> None:
        if not future.done():
            future.set_result(False)

    def run(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def stop(self, error: BaseException) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)
