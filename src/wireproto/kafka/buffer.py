"""Room for records that were taken and not yet answered, shared by all producers of a client.

What it is: a count of bytes with a bound, and those who wait for it to fall. Waiting threads read the client's sockets meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from .._codec import KafkaRoom
from .._net import Event, Loop
from ..errors import BufferFull, TimedOut


class SendBuffer(KafkaRoom):
    """At most `limit` bytes; one record larger than that is let in alone. Counted by the core, where producers take from it."""

    def __init__(self, loop: Loop, limit: int) -> None:
        self._loop = loop
        self.bound(limit)
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque()

    def take(self, size: int, timeout: float) -> None:
        """Take room, waiting for it at most `timeout` seconds; raises BufferFull."""
        deadline = time.monotonic() + timeout
        while not self.try_take(size):
            event = Event(self._loop)
            with self._lock:
                if self.held + size <= self.limit or not self.held:
                    continue
                self._waiting.append(event)
            try:
                event.wait(deadline)
            except TimedOut:
                raise BufferFull(f"the send buffer ({self.limit} bytes) stayed full for {timeout:g} s; the record was not taken") from None

    def give(self, size: int) -> None:
        """Give room back; everybody who waits looks again."""
        self.put_back(size)
        self.wake()

    def wake(self) -> None:
        """Room was given back."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            event.set()
