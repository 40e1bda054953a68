"""One thread at a time.

What it is: the guard of Reader, Consumer and QueueConsumer: entering one while another thread is inside raises ConcurrentUse.
"""

from __future__ import annotations

from threading import Lock

from wireproto.errors import ConcurrentUse


class Turn:
    """Held for one call of a role. Entered for each batch, so it is no generator."""

    __slots__ = ("_inside", "_role")

    def __init__(self, role: str) -> None:
        self._role = role
        self._inside = Lock()

    def __enter__(self) -> None:
        if not self._inside.acquire(blocking=False):
            raise ConcurrentUse(f"this {self._role} is in use by another thread")

    def __exit__(self, *_: object) -> None:
        self._inside.release()


class OneThread:
    """Base of the roles that belong to one thread at a time."""

    def __init__(self, role: str) -> None:
        self._turn = Turn(role)

    def entered(self) -> Turn:
        """Hold the role for one call: ``with self.entered(): …``."""
        return self._turn
