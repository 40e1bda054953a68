"""Room for records that were taken and not yet answered, shared by all producers of a client.

What it is: a count of bytes with a bound, and those who wait for it to fall. Waiting threads read the client's sockets meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from .._net import Event, Loop
from ..errors import BufferFull, TimedOut


class SendBuffer:
    """At most `limit` bytes; one record larger than that is let in alone."""

    def __init__(self, loop: Loop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._lock = threading.Lock()
        self._held = 0
        self._waiting: deque[Event] = deque()

    @property
    def held(self) -> int:
        return self._held

    def try_take(self, size: int) -> bool:
        """Take room if there is some now."""
        with self._lock:
            if self._held + size > self._limit and self._held:
                return False
            self._held += size
            return True

    def take(self, size: int, timeout: float) -> None:
        """Take room, waiting for it at most `timeout` seconds; raises BufferFull."""
        deadline = time.monotonic() + timeout
        while not self.try_take(size):
            event = Event(self._loop)
            with self._lock:
                if self._held + size <= self._limit or not self._held:
                    continue
                self._waiting.append(event)
            try:
                event.wait(deadline)
            except TimedOut:
                raise BufferFull(f"the send buffer ({self._limit} bytes) stayed full for {timeout:g} s; the record was not taken") from None

    def give(self, size: int) -> None:
        """Give room back; everybody who waits looks again."""
        with self._lock:
            self._held -= size
            waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            event.set()
