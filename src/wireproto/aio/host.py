"""Runs one client's engine in an asyncio event loop.

`Host` gives the engine's loop to the running event loop: one descriptor to watch and one timer, and `run_ready` is called when the
descriptor is ready or the timer is over. No thread is started; the event loop's thread does what the I/O thread does elsewhere.
`Host.drive` runs an operation's steps as a coroutine, `Host.awaiting` a coroutine as steps. All of it runs in the event loop's thread, and
nothing blocks. The module knows no protocol and no role.
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
        loop: the client's engine loop, not used yet.

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
        """Raise Closed when the engine's loop is closed, Forked in a child process."""
        self._loop.check()

    def here(self) -> None:
        """Raise UsageError when another event loop is running than the one that adopted the engine."""
        if asyncio.get_running_loop() is not self.io:
            raise UsageError("a client belongs to the event loop in which it was first used; make another one for this loop")

    def _schedule(self) -> None:
        self.io.call_soon(self._run, False)

    def _run(self, look: bool) -> None:
        if self._loop.closed or self._loop.forked:
            return  # scheduled before the loop was closed
        due = self._loop.run_ready(look)
        if due < self._due:  # a timer that is early finds nothing to do and is set again
            if self._timer is not None:
                self._timer.cancel()
            self._due = due
            self._timer = self.io.call_later(max(0.0, due - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer, self._due = None, _NEVER
        self._run(False)

    def close(self) -> None:
        """Close the engine's loop: everything that waits in it raises Closed."""
        if self._loop.closed:
            return
        self.io.remove_reader(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.close()

    async def drive(self, steps: Steps[T], inside: set[Waiter] | None = None) -> T:
        """Run an operation's steps, and return what they return. A cancellation is raised in the steps, where they wait.

        Args:
            steps: the operation; it keeps its own deadline.
            inside: a set that holds the operation's waiter while it runs, so that `Waiter.stop` can end its wait.

        Raises:
            Closed, Forked, UsageError (another event loop), and whatever the steps raise.
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
        """Call a user's coroutine function, as steps, and return its result. It runs as a task, which is cancelled if the steps end first.

        Args:
            fn, args: the coroutine function and its arguments.

        Raises:
            Closed: the task was cancelled. What `fn` raises.
        """
        over = Event(self._loop)
        running = self.io.create_task(fn(*args))
        running.add_done_callback(lambda _: over.set())
        try:
            yield over
        finally:
            running.cancel()  # does nothing when it has ended
        if running.cancelled():
            raise Closed(f"{getattr(fn, '__qualname__', 'a call')} was cancelled")
        return running.result()


class Waiter(Runnable):
    """Lets one coroutine wait for the engine's waitables, one after the other."""

    __slots__ = ("_future",)

    _future: asyncio.Future[bool] | None

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._future = None

    async def ready(self, io: asyncio.AbstractEventLoop, wait: Wait) -> bool:
        """Wait for what steps have yielded; returns whether it came before its deadline, if it has one.

        Args:
            io: the event loop.
            wait: a waitable, a `time.monotonic()` value, or a pair of both.
        """
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
        """End the wait: the waitable is ready. Called by the engine's loop."""
        if self._future is not None and not self._future.done():
            self._future.set_result(True)

    def stop(self, error: BaseException) -> None:
        """End the wait by raising `error` in the coroutine."""
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)
