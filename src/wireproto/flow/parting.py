"""Roles whose end waits for brokers: a commit, leaving a group, giving back what is in hand.

What it is: `PartingRole`, whose end is a task of its client. Who closes only waits for it: what a signal handler raises, or a cancellation
under asyncio, breaks into the wait and leaves nothing half done, and the next close waits on.

    close ── as `Role` ── `_parting` begins, in the I/O thread, once ── waits: until it has ended ── its error, if any

Rules: the end keeps the time of the close that began it; a later one waits its own.
Must not: know what a role does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wireproto.errors import Closed, Forked, TimedOut
from wireproto.net.task import NEVER, Tasks

from .role import Role

if TYPE_CHECKING:
    from wireproto.net.task import Steps, Task


class PartingRole(Role):
    """See the module."""

    _tasks: Tasks
    _farewell: Task[None] | None = None

    def end_beside(self, deadline: float) -> None:
        """Begin the end that a close was broken off from, and wait for nothing."""
        if not self._ended:
            self._only.closed = True
            self._wake()
            self._farewell_task(deadline)

    def _let_go(self, deadline: float) -> None:
        self._tasks.drive(self._letting_go(deadline), NEVER)

    def _letting_go(self, deadline: float) -> Steps[None]:
        until = NEVER if self._farewell is None else deadline
        try:
            farewell = self._farewell_task(deadline)
        except (Closed, Forked):  # the client's tasks are over: nobody is told
            yield from self._parting(deadline)
            return
        if not farewell.done and not (yield farewell, until):
            raise TimedOut(f"the {self._name} is still being closed")
        farewell.result()

    def _farewell_task(self, deadline: float) -> Task[None]:
        """The task that ends the role."""
        if self._farewell is None:
            name = f"closing the {self._name}"
            self._farewell = self._tasks.shared(("closing", id(self)), partial(self._parting, deadline), name)
        return self._farewell

    def _is_over(self) -> bool:
        return self._farewell is None or self._farewell.done

    def _parting(self, deadline: float) -> Steps[None]:
        """Give back what the role holds, in the I/O thread. Keeps `deadline`, and lets everything go even when it raises."""
        raise NotImplementedError
