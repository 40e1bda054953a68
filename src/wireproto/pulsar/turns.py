"""One thread at a time.

What it is: the guard of Reader, Consumer and QueueConsumer: entering one while another thread is inside raises ConcurrentUse.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from wireproto.errors import ConcurrentUse


class OneThread:
    """Base of the roles that belong to one thread at a time."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._inside = Lock()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold the role for one call."""
        if not self._inside.acquire(blocking=False):
            raise ConcurrentUse(f"this {self._role} is in use by another thread")
        try:
            yield
        finally:
            self._inside.release()
