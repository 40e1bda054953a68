"""Keeps sessions as a server does: their passwords, when each was last heard from, and their ephemeral nodes.

This is sans-IO state; time is passed in. This module does not use the connection objects that it is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LOWEST, HIGHEST = 0.2, 60.0
"""Bounds of a session's time-out in seconds; real servers have 2 and 20 of their ticks."""


@dataclass(slots=True)
class ServerSession:
    """One session.

    Attributes:
        timeout: seconds. heard: when the last frame came, of `time.monotonic`.
        connection: the current one, or None. ephemerals: paths of its ephemeral nodes.
    """

    id: int
    password: bytes
    timeout: float
    heard: float
    connection: Any = None
    ephemerals: set[str] = field(default_factory=set)


class Sessions:
    """All sessions by id."""

    def __init__(self, first: int) -> None:
        self._by_id: dict[int, ServerSession] = {}
        self._next = first

    def open(self, timeout: float, now: float) -> ServerSession:
        """Open a session; its time-out is kept within `LOWEST` and `HIGHEST`.

        Args:
            timeout: seconds. now: of `time.monotonic`.
        """
        number = self._next
        self._next += 1
        password = hashlib.sha256(b"dev broker" + number.to_bytes(8, "big")).digest()[:16]
        session = ServerSession(number, password, min(max(timeout, LOWEST), HIGHEST), now)
        self._by_id[number] = session
        return session

    def find(self, number: int, password: bytes) -> ServerSession | None:
        """Return the session of this id; None when it is gone or has another password."""
        session = self._by_id.get(number)
        return session if session is not None and session.password == password else None

    def end(self, number: int) -> ServerSession | None:
        """Remove a session and return it, or None."""
        return self._by_id.pop(number, None)

    def silent(self, now: float) -> list[ServerSession]:
        """Return the sessions whose time-out is over."""
        return [session for session in self._by_id.values() if now - session.heard > session.timeout]

    def touch_all(self, now: float) -> None:
        """Start every session's time-out again, as after an election: the server was away."""
        for session in self._by_id.values():
            session.heard = now

    def __iter__(self) -> Iterator[ServerSession]:
        return iter(list(self._by_id.values()))
