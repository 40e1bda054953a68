"""Gives roles their common rules: one thread at a time, and an end.

`Role` is the base of Readers, Consumers and QueueConsumers, each call of which holds the engine's `OneThread`. Classes that only need
`with` (producers, admins, clients) derive from `net.closing.Closing` alone.

    close ── another close is running: waits for it ── closed already: nothing to do ── no further call is accepted (Closed)
          ── the call that another thread waits in is woken, and ends ── `waits`: until it is over ── `_let_go`

A close keeps its timeout. One that came to an end, with or without an error, is not done again; one that raised TimedOut because another
thread did not return in time, or that a signal handler interrupted, may be repeated, and continues.
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
"""Seconds after which a call that continues is woken again: it may have begun to wait after the first time."""


class Role(Closing):
    """Base of the roles that belong to one thread at a time.

    Args:
        role: its name in errors. loop: the client's loop.
    """

    waits: ClassVar[bool] = False
    """Whether a close waits for another thread's call: where that must not be interrupted in the middle (a rebalance, a commit)."""

    def __init__(self, role: str, loop: Loop) -> None:
        self._name = role
        self._only = OneThread(role, loop)
        self._closing = OneAfterAnother(role)
        self._ended = False

    def close(self, timeout: float = 30.0) -> None:
        """End the role; any thread may call it, and repeat it.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut: another thread did not return from its call in time; close again. Errors of the end itself: the role is closed all the
                same.
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
        """Wake the call that another thread is in: it calls `_still_open` afterwards, or meets what is closed by then."""

    def _still_open(self) -> None:
        """Raise Closed when another thread has closed the role meanwhile."""
        if self._only.closed:
            raise Closed(f"the {self._name} was closed")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._work_failed()
        super().__exit__(kind, error, trace)

    def _work_failed(self) -> None:
        """Note that an error ended the `with` block: what was delivered last was not processed, so that a close commits nothing of it."""

    def ending(self, timeout: float = 30.0) -> Steps[None]:
        """Run `close` as steps. For a role that no other thread uses."""
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
        """Run `_let_go` as steps, for a role whose `_let_go` waits (`closing_role`)."""
        self._let_go(deadline)
        yield from ()

    def _let_go(self, deadline: float) -> None:
        """Give back what the role holds; called again where a signal handler interrupted it. Keeps `deadline`."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Return whether the role has ended although its end raised."""
        return True
