"""The server's watches: which connection wants to hear of which node.

What it is: sans-IO state, by connection, since a watch ends with the connection that set it (clients arm theirs again).

    data, child   one-shot; an exists call on a missing node is a data watch
    persistent    of one node (and its list of children); stays
    recursive     of a node and all below; stays, and hears nothing of lists of children

Must not: write to a connection.
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
    """Four books: path to connections."""

    def __init__(self) -> None:
        self._books: tuple[dict[str, set[C]], ...] = ({}, {}, {}, {})

    def add(self, kind: int, path: str, who: C) -> None:
        self._books[kind].setdefault(path or "/", set()).add(who)

    def drop(self, who: C) -> None:
        """A connection is gone."""
        for book in self._books:
            for path in [path for path, watchers in book.items() if who in watchers]:
                self._discard(book, path, who)

    def remove(self, watcher_type: int, path: str, who: C, *, only_look: bool = False) -> bool:
        """Take a connection's watches of this type off a path; whether there was one."""
        found = False
        for kind in _TYPES.get(watcher_type, ()):
            book = self._books[kind]
            if who in book.get(path, ()):
                found = True
                if not only_look:
                    self._discard(book, path, who)
        return found

    def fired(self, events: Iterable[Event]) -> list[tuple[C, Event]]:
        """Who hears of these events, in order; one-shot watches are gone after it."""
        told: list[tuple[C, Event]] = []
        for event in events:
            kind, path, _ = event
            hearers: dict[C, None] = {}
            if kind != EventType.NODE_CHILDREN_CHANGED:
                hearers.update(dict.fromkeys(self._books[DATA].pop(path, ())))
                for above in _self_and_above(path):
                    hearers.update(dict.fromkeys(self._books[RECURSIVE].get(above, ())))
            if kind in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
                hearers.update(dict.fromkeys(self._books[CHILD].pop(path, ())))
            hearers.update(dict.fromkeys(self._books[PERSISTENT].get(path, ())))
            told += ((who, event) for who in hearers)
        return told

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
