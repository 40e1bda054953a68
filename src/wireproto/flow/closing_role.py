"""Closes roles whose end waits for brokers: a commit, leaving a group, giving back messages.

The end of a `ClosingRole` is a task of its client, and `close` only waits for it: what a signal handler raises, or a cancellation under
asyncio, interrupts the wait and leaves nothing half done, and the next close waits for the same task.

    close ── as `Role` ── `_closing_steps` begins, in the I/O thread, once ── waits: until it has ended ── its error, if any

The end keeps the deadline of the close that began it; a later close waits until its own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from wireproto.errors import Closed, Forked, TimedOut
from wireproto.net.task import NEVER, Tasks

from .role import Role

if TYPE_CHECKING:
    from wireproto.net.task import Steps, Task


class ClosingRole(Role):
    """A role whose end is a task of its client."""

    _tasks: Tasks
    _close_task: Task[None] | None = None

    def close_in_background(self, deadline: float) -> None:
        """Begin the end that an interrupted close has not begun, and wait for nothing.

        Args:
            deadline: `time.monotonic()` value for the end.
        """
        if not self._ended:
            self._only.closed = True
            self._wake()
            self._begin_close(deadline)

    def _let_go(self, deadline: float) -> None:
        self._tasks.drive(self._letting_go(deadline), NEVER)

    def _letting_go(self, deadline: float) -> Steps[None]:
        until = NEVER if self._close_task is None else deadline
        try:
            closing = self._begin_close(deadline)
        except (Closed, Forked):  # the client's tasks are over
            yield from self._closing_steps(deadline)
            return
        if not closing.done and not (yield closing, until):
            raise TimedOut(f"the {self._name} is still being closed")
        closing.result()

    def _begin_close(self, deadline: float) -> Task[None]:
        """Return the task that ends the role; begun by the first call."""
        if self._close_task is None:
            name = f"closing the {self._name}"
            self._close_task = self._tasks.shared(("closing", id(self)), partial(self._closing_steps, deadline), name)
        return self._close_task

    def _is_over(self) -> bool:
        return self._close_task is None or self._close_task.done

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Give back what the role holds, in the I/O thread. Keeps `deadline`, and releases everything even when it raises."""
        raise NotImplementedError
