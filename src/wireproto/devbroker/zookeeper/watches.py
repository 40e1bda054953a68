"""Keeps the server's watches: which connection watches which node.

This is sans-IO state, by connection, since a watch ends with the connection that set it (clients set theirs again).

    data, child   one-shot; an exists call on a missing node is a data watch
    persistent    of one node (and its list of children); stays
    recursive     of a node and all below; stays, and gets no events of lists of children

This module does not write to a connection.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from ...zookeeper.codes import EventType, WatcherType
from .nodes import Event

C = TypeVar("C", bound=Hashable)
DATA, CHILD, PERSISTENT, RECURSIVE = range(4)
_TYPES: dict[int, tuple[int, ...]] = {
    int(WatcherType.CHILDREN): (CHILD,),
    int(WatcherType.DATA): (DATA,),
    int(WatcherType.ANY): (DATA, CHILD, PERSISTENT, RECURSIVE),
    int(WatcherType.PERSISTENT): (PERSISTENT,),
    int(WatcherType.PERSISTENT_RECURSIVE): (RECURSIVE,),
}


class Watches(Generic[C]):
    """The watches of each kind: connections by path."""

    def __init__(self) -> None:
        self._books: tuple[dict[str, set[C]], ...] = ({}, {}, {}, {})

    def add(self, kind: int, path: str, who: C) -> None:
        """Add a watch of this kind."""
        self._books[kind].setdefault(path or "/", set()).add(who)

    def drop(self, who: C) -> None:
        """Remove all watches of a connection."""
        for book in self._books:
            for path in [path for path, watchers in book.items() if who in watchers]:
                self._discard(book, path, who)

    def remove(self, watcher_type: int, path: str, who: C, *, only_look: bool = False) -> bool:
        """Remove a connection's watches of this type from a path; returns whether there was one.

        Args:
            only_look: do not remove them.
        """
        found = False
        for kind in _TYPES.get(watcher_type, ()):
            book = self._books[kind]
            if who in book.get(path, ()):
                found = True
                if not only_look:
                    self._discard(book, path, who)
        return found

    def fired(self, events: Iterable[Event]) -> list[tuple[C, Event]]:
        """Return (connection, event) for these events, in order, and remove one-shot watches."""
        found: list[tuple[C, Event]] = []
        for event in events:
            kind, path, _ = event
            watching: dict[C, None] = {}
            if kind != EventType.NODE_CHILDREN_CHANGED:
                watching.update(dict.fromkeys(self._books[DATA].pop(path, ())))
                for above in _self_and_above(path):
                    watching.update(dict.fromkeys(self._books[RECURSIVE].get(above, ())))
            if kind in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
                watching.update(dict.fromkeys(self._books[CHILD].pop(path, ())))
            watching.update(dict.fromkeys(self._books[PERSISTENT].get(path, ())))
            found += ((who, event) for who in watching)
        return found

    @staticmethod
    def _discard(book: dict[str, set[C]], path: str, who: C) -> None:
        book[path].discard(who)
        if not book[path]:
            del book[path]


def _self_and_above(path: str) -> Iterable[str]:
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield "/"
