"""Informs producers of the end of the connection that they use.

Registers one callback on each connection, however many producers are opened, reopened and closed on it. A connection keeps its callbacks
until it ends, and would keep each closed producer with them. This module neither opens nor closes anything.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wireproto._net import Connection


class Listener(Protocol):
    """A user of a connection."""

    def lost(self, conn: Connection, why: Exception) -> None:
        """Take note that the connection has ended. Called in the I/O thread.

        Args:
            conn: the connection. why: how it ended.
        """


class Links:
    """The connections of one client that several producers use."""

    def __init__(self) -> None:
        self._listeners: dict[Connection, set[Listener]] = {}
        self._lock = Lock()

    def join(self, conn: Connection, listener: Listener) -> None:
        """Call `listener.lost` when the connection ends; soon, where it has ended already."""
        with self._lock:
            found = self._listeners.get(conn)
            if found is not None:
                found.add(listener)
                return
            self._listeners[conn] = {listener}
        conn.on_lost(partial(self._lost, conn))

    def leave(self, conn: Connection, listener: Listener) -> None:
        """Do not call this listener any more for the connection."""
        with self._lock:
            self._listeners.get(conn, set()).discard(listener)

    def _lost(self, conn: Connection, why: Exception) -> None:
        with self._lock:
            found = self._listeners.pop(conn, set())
        for listener in found:
            listener.lost(conn, why)
