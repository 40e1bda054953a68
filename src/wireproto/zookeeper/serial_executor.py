"""Runs tasks one at a time, in the order in which they were added.

Reconnecting and the search for a quorum both make a connection the current one; so neither begins while the other runs.
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
    """Runs tasks one at a time.

    Args:
        tasks: the client's. name: of the tasks, for the log.
    """

    def __init__(self, tasks: Tasks, name: str) -> None:
        self._tasks, self._name = tasks, name
        self._lock = threading.Lock()
        self._last: Task[None] | None = None

    def add(self, steps: Steps[None]) -> None:
        """Run these steps when those added before have ended. Any thread; does nothing when the client is closed."""

        def turn() -> Steps[None]:
            if before is not None:
                yield before
            yield from steps

        with suppress(Closed), self._lock:
            before = self._last
            self._last = self._tasks.spawn(turn(), self._name)
