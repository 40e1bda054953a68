"""Turns: tasks of which one is done at a time, in the order in which they were asked for.

What it is: reconnecting and the search for a quorum both make a connection the current one; so neither begins while the other is at it.
Must not: know what they do.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import Closed
from ..net.task import Steps

if TYPE_CHECKING:
    from ..net.task import Task, Tasks


class SerialExecutor:
    """Args:
    name: of the tasks, for the log.
    """

    def __init__(self, tasks: Tasks, name: str) -> None:
        self._tasks, self._name = tasks, name
        self._lock = threading.Lock()
        self._last: Task[None] | None = None

    def add(self, steps: Steps[None]) -> None:
        """Have it done when those before have ended. Any thread; nothing happens when the client is closed."""

        def turn() -> Steps[None]:
            if before is not None:
                yield before
            yield from steps

        with suppress(Closed), self._lock:
            before = self._last
            self._last = self._tasks.spawn(turn(), self._name)
