"""What roles share: one thread at a time, and an end.

What it is: `OneThread`, the guard held for one call of a role; `Role`, the base of Readers, Consumers and QueueConsumers. What only needs
`with` (producers, admins, clients) derives from `net.closing.Closing` alone.

    close ── another one is closing: waits for it ── closed already: nothing to do ── no call comes in any more (Closed)
          ── `waits`: until the call of another thread is over ── `_let_go`, once

Rules: a close keeps its timeout. One that came to an end, well or with an error, is not done again; one that raised TimedOut because
another thread did not come out in time may be repeated, and goes on.
Must not: know what a role does, or read its connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import TIMEOUT_MAX, Lock
from types import TracebackType
from typing import ClassVar

from wireproto._net import Loop
from wireproto.due import due
from wireproto.errors import Closed, ConcurrentUse, TimedOut
from wireproto.net.closing import Closing
from wireproto.net.task import Steps


def _taken(lock: Lock, deadline: float) -> bool:
    return lock.acquire(timeout=min(max(0.0, deadline - time.monotonic()), TIMEOUT_MAX))


class OneThread:
    """Held for one call of a role: ``with self._only: …``. Entered for each batch, so it is no generator.

    Attributes:
        closed: whether every further call raises Closed.
    """

    __slots__ = ("_check", "_inside", "_role", "closed")

    def __init__(self, role: str, loop: Loop) -> None:
        self._role = role
        self._check = loop.check
        self._inside = Lock()
        self.closed = False

    def __enter__(self) -> None:
        self._check()
        if self._inside.acquire(blocking=False):
            if not self.closed:
                return
            self._inside.release()
        if self.closed:
            raise Closed(f"the {self._role} was closed")
        raise ConcurrentUse(f"this {self._role} is in use by another thread: it belongs to one at a time")

    def __exit__(self, *_: object) -> None:
        self._inside.release()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Held inside a call, while user code runs that may call the role."""
        self._inside.release()
        try:
            yield
        finally:
            self._inside.acquire()

    def wait(self, deadline: float) -> None:
        """Wait until nobody is inside; raises TimedOut at `deadline` (time.monotonic())."""
        if not _taken(self._inside, deadline):
            raise TimedOut(f"another thread is still inside a call of this {self._role}")
        self._inside.release()


class Role(Closing):
    """Base of the roles that belong to one thread at a time."""

    waits: ClassVar[bool] = False
    """Whether a close waits for another thread's call: where it must not be taken in the middle (a rebalance, a commit)."""

    def __init__(self, role: str, loop: Loop) -> None:
        self._only = OneThread(role, loop)
        self._closing = Lock()
        self._ended = False

    def close(self, timeout: float = 30.0) -> None:
        """End the role; any thread may ask, and ask again.

        Raises:
            TimedOut: another thread did not come out of its call in time; close again. What ending raises: it is over all the same.
        """
        deadline = due(timeout)
        if not _taken(self._closing, deadline):
            raise TimedOut("another thread is closing this role")
        try:
            if self._ended:
                return
            self._only.closed = True
            if self.waits:
                self._only.wait(deadline)
            self._ended = True
            self._let_go(deadline)
        finally:
            self._closing.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._work_failed()
        super().__exit__(kind, error, trace)

    def _work_failed(self) -> None:
        """An error ended the `with` block: what was handed out last was not worked on, so that a close commits nothing of it."""

    def ending(self, timeout: float = 30.0) -> Steps[None]:
        """`close`, as steps, for a role that no other thread uses."""
        if self._ended:
            return
        deadline = due(timeout)
        self._only.closed = self._ended = True
        yield from self._letting_go(deadline)

    def _letting_go(self, deadline: float) -> Steps[None]:
        """`_let_go`, as steps: of a role whose `_let_go` waits."""
        self._let_go(deadline)
        yield from ()

    def _let_go(self, deadline: float) -> None:
        """Give back what the role holds; called once. Keeps `deadline`, and lets everything go even when it raises."""
        raise NotImplementedError
