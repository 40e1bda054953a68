"""One timer that several want, each at a time of its own: it is set for the soonest, and never put off.

What it is: what a `Sender` has its `tick` called by. Thread-safe. Must not: know what it wakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from wireproto._codec import BriefLock
from wireproto._net import Loop, Timer
from wireproto.errors import Closed


class Alarm:
    """Calls `deadline_after`, in the I/O thread, at the soonest of the times that it is set to."""

    def __init__(self, loop: Loop, due: Callable[[], object]) -> None:
        self._loop = loop
        self._due = due
        self._lock = BriefLock()
        self._timer: Timer | None = None

    def set(self, when: float) -> None:
        """Call `deadline_after` at `when` (time.monotonic()), or sooner; infinity is `stop`."""
        if when == math.inf:
            self.stop()
            return
        with self._lock:
            before = self._timer
            if before is not None and before.when <= when:
                return
            self._timer = self._loop.call_at(when, self._ring)  # first: where a signal handler breaks in, one rings too often
            if before is not None:
                before.cancel()

    def stop(self) -> None:
        """Nothing is due any more, until it is set again."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
        with suppress(Closed):  # the client is closed meanwhile: nothing comes due any more, and who waited has been told
            self._due()
