"""Shares one timer between callers that each want it at a time of their own: it is set for the soonest, and never put off.

A `Sender` has its `tick` called by one. Thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from wireproto._codec import BriefLock
from wireproto._net import Loop, Timer
from wireproto.errors import Closed


class Alarm:
    """Calls `due`, in the I/O thread, at the soonest of the times that it is set to.

    Args:
        loop: the client's loop. due: called without arguments.
    """

    def __init__(self, loop: Loop, due: Callable[[], object]) -> None:
        self._loop = loop
        self._due = due
        self._lock = BriefLock()
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether `due` will be called: false from before the call on."""
        return self._timer is not None

    def set(self, when: float) -> None:
        """Call `due` at `when` (seconds of `time.monotonic()`), or sooner; infinity is `stop`."""
        if when == math.inf:
            self.stop()
            return
        with self._lock:
            before = self._timer
            if before is not None and before.when <= when:
                return
            self._timer = self._loop.call_at(when, self._ring)  # first: if a signal handler interrupts, `due` is called once too often
            if before is not None:
                before.cancel()

    def stop(self) -> None:
        """Cancel the timer, until it is set again."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
        with suppress(Closed):  # the client is closed meanwhile: nothing is due any more, and waiting callers have raised
            self._due()
