"""The send buffer's bound: bytes that producers of one client may hold until they are acknowledged.

What it is: a counter with waiters in order of arrival. Must not: know what the bytes are.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

from wireproto._net import Event, Loop
from wireproto.errors import BufferFull, TimedOut


class Budget:
    """Bytes of `limit` in use. Thread-safe; a single piece larger than the limit is let in when nothing else is."""

    def __init__(self, loop: Loop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._lock = Lock()
        self._waiting: deque[tuple[int, Event]] = deque()
        self.used = 0

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self._limit

    def try_take(self, size: int) -> bool:
        """Take `size` bytes if there is room and nobody waits."""
        with self._lock:
            if self._waiting or not self._fits(size):
                return False
            self.used += size
            return True

    def take(self, size: int, deadline: float) -> None:
        """Take `size` bytes; waits for room until `deadline` (time.monotonic()), then raises BufferFull."""
        if self.try_take(size):
            return
        event = Event(self._loop)
        place = (size, event)
        with self._lock:
            if not self._waiting and self._fits(size):
                self.used += size
                return
            self._waiting.append(place)
        try:
            event.wait(deadline)
        except BaseException as why:
            with self._lock:
                if place in self._waiting:
                    self._waiting.remove(place)
                elif event.done and event.error is None:
                    self.used -= size
                self._serve()
            if isinstance(why, TimedOut):
                raise BufferFull(f"no room for {size} bytes: {self.used} of {self._limit} wait for the broker") from None
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self.used -= size
            self._serve()

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, event = self._waiting.popleft()
            self.used += size
            event.set()
