"""Keeps which callbacks wait for which node, and calls them at an event.

`WatchTable` is the sans-IO table of one session's watches; `Watch` is a callback that a thread can wait for; `Dispatcher` is the thread
that runs all other callbacks. A watch is noted in the table when the reply that set it is read, in the order of the wire, so an event that
was in flight before is not taken for it.

    | set by                      | fired by (event type)                                  | stays |
    |-----------------------------|--------------------------------------------------------|-------|
    | get, exists on a node       | data changed (3), deleted (2)                          | no    |
    | exists on a missing node    | created (1)                                            | no    |
    | children                    | children changed (4), deleted (2)                      | no    |
    | add_watch                   | 1, 2, 3, 4 of this node                                | yes   |
    | add_watch(recursive=True)   | 1, 2, 3 of this node and every one below               | yes   |

When the session is gone (expired, closed, credentials refused) every callback gets one event of type -1 (none) with that state, and
its watch is gone. A lost connection is no event: watches are set again on the next one. Callers of the table hold the link's lock. Users'
callbacks never run in the engine's threads.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..deadlines import deadline_after
from .callbacks import Callback, Callbacks, doubled
from .codes import EventType, KeeperState
from .messages import SetWatches, SetWatches2

if TYPE_CHECKING:
    from .._net import Loop
    from ..net.client_log import ClientLog
    from ..net.task import Steps

PACKET = 128 << 10
"""Bytes of paths in one SetWatches: servers cap a frame at 1 MiB, the official client stays at 128 KiB."""
ZXID_AFTER_ALL = (1 << 63) - 1
"""Sent in place of the last transaction that was seen: what has happened so far is not reported."""


@dataclass(frozen=True, slots=True)
class WatchedEvent:
    """An event, as a watch's callback gets it.

    Attributes:
        type: what happened; NONE: the session is gone, see `state`.
        state: the session's state.
        path: the node, without the chroot; "" with NONE.
        zxid: the transaction that did it; -1 where the server does not report it (before 3.9).
    """

    type: EventType
    state: KeeperState
    path: str
    zxid: int = -1


Kind = str
MANY = 1024
"""Number of paths from which on those without callbacks are removed, each time that the number has doubled."""
DATA, EXIST, CHILD, PERSISTENT, RECURSIVE = "data", "exist", "child", "persistent", "recursive"

_FIRES: dict[int, tuple[Kind, ...]] = {
    int(EventType.NODE_CREATED): (DATA, EXIST),
    int(EventType.NODE_DATA_CHANGED): (DATA, EXIST),
    int(EventType.NODE_DELETED): (DATA, EXIST, CHILD),
    int(EventType.NODE_CHILDREN_CHANGED): (CHILD,),
}
_REMOVES: dict[int, tuple[Kind, ...]] = {
    int(EventType.DATA_WATCH_REMOVED): (DATA, EXIST),
    int(EventType.CHILD_WATCH_REMOVED): (CHILD,),
    int(EventType.PERSISTENT_WATCH_REMOVED): (PERSISTENT, RECURSIVE),
}


class Watch:
    """A one-shot callback that a thread waits for: pass it as ``watch=``, then `wait`.

    Passed again when its event has been seen (by `wait`, or `fired`), it waits for the next one; else the event stays, so that one watch
    may be passed for several nodes. One that is not referenced any more is forgotten.

    Args:
        loop: the client's loop (``tree.watch()`` makes one).
    """

    __slots__ = ("__weakref__", "_event", "_loop", "_seen")
    WAITED_FOR: ClassVar[bool] = True

    def __init__(self, loop: Loop) -> None:
        from .._net import Event

        self._loop = loop
        self._event = Event(loop)
        self._seen = False

    def __call__(self, event: WatchedEvent) -> None:
        """Set the event; called by the dispatcher."""
        self._event.set(event)

    @property
    def fired(self) -> bool:
        """Return whether the event has come."""
        self._seen = self._event.done
        return self._seen

    def wait(self, timeout: float = 30.0) -> WatchedEvent | None:
        """Wait for the event and return it, or None when none came.

        Args:
            timeout: seconds.

        Raises:
            Closed: the client is closed.
        """
        from ..errors import TimedOut

        waited = self._event
        try:
            event: WatchedEvent = waited.wait(deadline_after(timeout))
        except TimedOut:
            return None
        self._seen = self._event is waited
        return event

    def renew(self) -> None:
        """Wait for the next event, where the last one has been seen; called when the watch is passed again."""
        from .._net import Event

        if self._seen:
            self._event, self._seen = Event(self._loop), False

    def waiting(self, until: float) -> Steps[bool]:
        """Run `wait` as steps, until a `time.monotonic()` value; returns whether the event has come."""
        return (yield self._event, until)

    def wake(self) -> None:
        """End a wait though no event has come; the watch cannot be used any more."""
        self._event.set()


@dataclass(slots=True)
class WatchTable:
    """The callbacks of each path (the server's). A callback that is set twice on one path is called once. Not thread-safe."""

    _books: dict[Kind, dict[str, Callbacks]] = field(
        default_factory=lambda: {kind: {} for kind in (DATA, EXIST, CHILD, PERSISTENT, RECURSIVE)}
    )

    def add(self, kind: Kind, path: str, callback: Callback) -> int:
        """Note that the server has set a watch; returns how many callbacks wait for it now."""
        book = self._books[kind]
        callbacks = book.get(path)
        if callbacks is None:
            callbacks = book[path] = Callbacks()
            if len(book) >= MANY and doubled(len(book)):
                self._books[kind] = {path: callbacks for path, callbacks in book.items() if callbacks} | {path: callbacks}
        return callbacks.add(callback)

    def remove(self, path: str, callback: Callback | None, kinds: tuple[Kind, ...]) -> bool:
        """Forget one callback (None: all) of a path; returns whether there was one."""
        found = False
        for kind in kinds:
            callbacks = self._books[kind].get(path, Callbacks())
            if callback is None:
                found |= bool(callbacks)
            elif callback in callbacks:
                found = True
                callbacks.discard(callback)
            if callback is None or not callbacks:
                self._books[kind].pop(path, None)
        return found

    def has(self, path: str, kinds: tuple[Kind, ...]) -> bool:
        """Return whether a callback waits for this path."""
        return any(self._books[kind].get(path) for kind in kinds)

    def fire(self, type_: int, path: str) -> list[Callback]:
        """Return the callbacks to call for an event; one-shot watches are forgotten."""
        called: dict[Callback, None] = {}
        for kind in _FIRES.get(type_, ()) + _REMOVES.get(type_, ()):
            called.update(dict.fromkeys(self._books[kind].pop(path, ())))
        if type_ in _FIRES:
            called.update(dict.fromkeys(self._books[PERSISTENT].get(path, ())))
            if type_ != EventType.NODE_CHILDREN_CHANGED and self._books[RECURSIVE]:
                for above in _self_and_above(path):
                    called.update(dict.fromkeys(self._books[RECURSIVE].get(above, ())))
        return list(called)

    def clear(self) -> list[Callback]:
        """Forget every watch, since the session is gone; returns their callbacks."""
        called = {callback: None for book in self._books.values() for callbacks in book.values() for callback in callbacks}
        for book in self._books.values():
            book.clear()
        return list(called)

    def rearm(self, zxid: int, packet: int = PACKET) -> Iterator[SetWatches | SetWatches2]:
        """Yield the requests that set every watch again after a reconnect.

        Args:
            zxid: last transaction that the session has seen; what happened after it is reported at once.
            packet: bytes of paths in one request, except that one path is never divided.
        """
        self._books = {kind: {path: callbacks for path, callbacks in book.items() if callbacks} for kind, book in self._books.items()}
        recursive = self._books[RECURSIVE]
        order = [(kind, path) for kind in (DATA, EXIST, CHILD, PERSISTENT, RECURSIVE) for path in self._books[kind]]
        # on servers before 3.9 a recursive watch replaces the one of its node's children (see `modes`): that one is set after it
        behind = [item for item in order if item[0] == CHILD and item[1] in recursive]
        order = [item for item in order if item[0] != CHILD or item[1] not in recursive] if behind else order
        listed = self._books[CHILD]
        quiet = [(CHILD, path) for path in self._books[PERSISTENT] if path in recursive and path not in listed]
        yield from _packets(order, zxid, packet, newer=bool(self._books[PERSISTENT] or recursive))
        yield from _packets(behind, zxid, packet, newer=False)
        yield from _packets(quiet, ZXID_AFTER_ALL, packet, newer=False)


def _packets(order: list[tuple[Kind, str]], zxid: int, packet: int, *, newer: bool) -> Iterator[SetWatches | SetWatches2]:
    part: dict[Kind, list[str]] = {}
    size = 0
    for kind, path in order:
        if size and size + len(path) * 3 + 4 > packet:
            yield _set_watches(zxid, part, newer)
            part, size = {}, 0
        part.setdefault(kind, []).append(path)
        size += len(path.encode("utf-8", "surrogatepass")) + 4
    if part:
        yield _set_watches(zxid, part, newer)


def _set_watches(zxid: int, part: dict[Kind, list[str]], newer: bool) -> SetWatches | SetWatches2:
    data, exist, child = (tuple(part.get(kind, ())) for kind in (DATA, EXIST, CHILD))
    if not newer:
        return SetWatches(relative_zxid=zxid, data_watches=data, exist_watches=exist, child_watches=child)
    return SetWatches2(
        relative_zxid=zxid,
        data_watches=data,
        exist_watches=exist,
        child_watches=child,
        persistent_watches=tuple(part.get(PERSISTENT, ())),
        persistent_recursive_watches=tuple(part.get(RECURSIVE, ())),
    )


def _self_and_above(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield "/"


class Dispatcher:
    """Runs users' callbacks, one after the other, in a thread that starts with the first of them.

    Args:
        name: of the client, for the thread's name.
        log: the client's log.

    Attributes:
        call_soon: calls them instead, where an event loop drives the client; else None.
    """

    def __init__(self, name: str, log: ClientLog) -> None:
        self.call_soon: Callable[..., object] | None = None
        self._name = name
        self._log = log
        self._queue: queue.SimpleQueue[tuple[Callable[[Any], Any], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Start the thread, if it does not run yet. Called by the thread that sets a callback, never by the engine's."""
        if self._thread is None and self.call_soon is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=f"{self._name}-watches", daemon=True)
                    self._thread.start()

    def call(self, callbacks: Sequence[Callable[[Any], Any]], event: Any) -> None:
        """Have each callback called, in order. A `Watch` is set at once: it runs no user code."""
        for callback in callbacks:
            if type(callback) is Watch:
                callback(event)
            elif self.call_soon is not None:
                self.call_soon(callback, event)
            else:
                self._queue.put((callback, event))

    def stop(self) -> None:
        """End the thread when what is queued has been called."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            callback, event = item
            try:
                callback(event)
            except BaseException as why:  # also SystemExit and the like: the other callbacks have to run all the same
                trace = "".join(traceback.format_exception(why))
                self._log.warning(("callback", hash(callback)), "the callback %r failed at %r: %s", callback, event, trace)
