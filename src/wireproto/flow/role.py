"""What roles share: one thread at a time, and an end.

What it is: `Role`, the base of Readers, Consumers and QueueConsumers, each call of which holds the engine's `OneThread`. What only needs
`with` (producers, admins, clients) derives from `net.closing.Closing` alone.

    close ── another one is closing: waits for it ── closed already: nothing to do ── no call comes in any more (Closed)
          ── the call that another thread waits in is woken, and ends ── `waits`: until it is over ── `_let_go`

Rules: a close keeps its timeout. One that came to an end, well or with an error, is not done again; one that raised TimedOut because
another thread did not come out in time, or that a signal handler broke into, may be repeated, and goes on.
Must not: know what a role does, or read its connections.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import ClassVar

from wireproto._net import Loop, OneAfterAnother, OneThread
from wireproto.deadlines import deadline_after
from wireproto.errors import Closed, TimedOut, WireprotoError
from wireproto.net.closing import Closing
from wireproto.net.task import Steps

WOKEN = 0.1
"""Seconds after which a call that goes on is woken again: it may have begun to wait behind the first time."""


class Role(Closing):
    """Base of the roles that belong to one thread at a time."""

    waits: ClassVar[bool] = False
    """Whether a close waits for another thread's call: where it must not be taken in the middle (a rebalance, a commit)."""

    def __init__(self, role: str, loop: Loop) -> None:
        self._name = role
        self._only = OneThread(role, loop)
        self._closing = OneAfterAnother(role)
        self._ended = False

    def close(self, timeout: float = 30.0) -> None:
        """End the role; any thread may ask, and ask again.

        Raises:
            TimedOut: another thread did not come out of its call in time; close again. What ending raises: it is over all the same.
        """
        deadline = deadline_after(timeout)
        with self._closing.by(deadline) as mine:
            if not mine or self._ended:
                return
            self._only.closed = True
            self._wake()
            if self.waits:
                self._until_alone(deadline)
            try:
                self._let_go(deadline)
            except WireprotoError:
                self._ended = self._is_over()
                raise
            self._ended = True

    def _until_alone(self, deadline: float) -> None:
        while True:
            try:
                return self._only.wait(min(deadline, time.monotonic() + WOKEN))
            except TimedOut:
                if time.monotonic() >= deadline:
                    raise
            self._wake()

    def _wake(self) -> None:
        """End the wait of the call that another thread is in: it asks `_still_open` behind it, or meets what is closed by then."""

    def _still_open(self) -> None:
        """Raises Closed when another thread has closed the role meanwhile."""
        if self._only.closed:
            raise Closed(f"the {self._name} was closed")

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
        deadline = deadline_after(timeout)
        self._only.closed = True
        self._wake()
        try:
            yield from self._letting_go(deadline)
        except WireprotoError:
            self._ended = self._is_over()
            raise
        self._ended = True

    def _letting_go(self, deadline: float) -> Steps[None]:
        """`_let_go`, as steps: of a role whose `_let_go` waits (`parting`)."""
        self._let_go(deadline)
        yield from ()

    def _let_go(self, deadline: float) -> None:
        """Give back what the role holds; once more where a signal handler broke into it. Keeps `deadline`."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether an end that raised is one all the same."""
        return True
