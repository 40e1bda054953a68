"""Who is to hear of a connection's end: the producers that are open on it now.

What it is: one callback on each connection, however many producers are opened on it, opened again and closed in its life. A connection
keeps its callbacks until it ends, and would keep each closed producer with them.
Must not: open or close anything.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wireproto._net import Connection


class Listener(Protocol):
    """Who uses a connection."""

    def lost(self, conn: Connection, why: Exception) -> None:
        """It has ended. I/O thread."""


class Links:
    """The connections of one client that are used by several."""

    def __init__(self) -> None:
        self._listeners: dict[Connection, set[Listener]] = {}
        self._lock = Lock()

    def join(self, conn: Connection, listener: Listener) -> None:
        """Tell it when the connection ends, soon where that is so already."""
        with self._lock:
            found = self._listeners.get(conn)
            if found is not None:
                found.add(listener)
                return
            self._listeners[conn] = {listener}
        conn.on_lost(partial(self._lost, conn))

    def leave(self, conn: Connection, listener: Listener) -> None:
        """It uses that no more."""
        with self._lock:
            self._listeners.get(conn, set()).discard(listener)

    def _lost(self, conn: Connection, why: Exception) -> None:
        with self._lock:
            found = self._listeners.pop(conn, set())
        for listener in found:
            listener.lost(conn, why)
