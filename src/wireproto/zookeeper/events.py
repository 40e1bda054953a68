"""Delivers the events of a session, in the order of the wire, to watches and to listeners to its state.

`Events` holds the link's table of watches (`WatchTable`), its mailbox, and the thread that calls users' callbacks (`Dispatcher`).
Everything goes through the mailbox: replies that set a watch, events, changes of the state, new listeners; so callbacks get them in the
order in which they happened. Events that the next connection reports during its handshake are delivered after the state that says that it
is connected, and events of the last connection before the state that says that it is lost.

Setting a watch and removing one at the servers, on one path, exclude each other (`setting`, `take_back`): else the servers would remove
both.
So do setting a persistent watch and setting one of another kind: how each is requested depends on what is set (`modes`).

Threads: `_deliver` runs in the I/O thread; `_promptly` in a thread that reads and waits. Nothing here waits with the lock held, or sends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .._net import SERVICE, WATCHES, Call, Event, Mailbox
from ..errors import ProtocolError, TimedOut, TransportError, WireprotoError
from ..net.task import Steps
from . import modes
from . import operations as op
from .callbacks import Callback, doubled
from .codes import EventType, KeeperState, NoNode, WatcherType
from .messages import ReplyHeader, WatcherEvent
from .operations import HEADER
from .session import Session, SessionEvent, State
from .watch import CHILD, DATA, EXIST, MANY, PERSISTENT, RECURSIVE, Dispatcher, WatchedEvent, WatchTable

if TYPE_CHECKING:
    import threading

    from .._net import Connection, Loop, Push
    from ..net.client_log import ClientLog
    from .paths import Chroot


class Watching:
    """How a request's watch is noted when the reply is in.

    Args:
        kind: of the watch, or `IF_EXISTS`. path: the server's. callback: what to call.

    Attributes:
        withdrawn: whether the call that wanted it was given up.
        redundant: whether the server is not asked for it, since another watch of this node reports the same (`modes`).
    """

    __slots__ = ("__weakref__", "_outcome", "callback", "kind", "path", "redundant", "withdrawn")

    def __init__(self, kind: str, path: str, callback: Callback) -> None:
        self.kind, self.path, self.callback = kind, path, callback
        self.withdrawn = False
        self.redundant = False
        self._outcome: tuple[Loop, Event] | None = None

    def outcome(self, loop: Loop) -> Event:
        """Return an event of the request's outcome, for calls that wait for it. The lock is held."""
        if self._outcome is None or self._outcome[1].done:
            self._outcome = loop, Event(loop)
        return self._outcome[1]

    def over(self) -> None:
        """Wake the calls that wait for the request's outcome. May be run again after a signal handler interrupted it."""
        if self._outcome is not None:
            self._outcome[1].set()

    def __del__(self) -> None:  # never sent; in any thread, under any lock
        if self._outcome is not None and not self._outcome[1].done:
            loop, event = self._outcome
            with contextlib.suppress(WireprotoError, RuntimeError):  # the client is closed, or the program ends
                loop.call_soon(event.set)


IF_EXISTS = "exists"
"""Kind of an exists call's watch, which depends on the answer: `DATA` or `EXIST`."""
_SETTLE = 5.0
_ALL = (DATA, EXIST, CHILD, PERSISTENT, RECURSIVE)
_WAITED_FOR = {
    DATA: "a change of the data of",
    EXIST: "the creation of",
    CHILD: "a change of the children of",
    PERSISTENT: "any change of",
    RECURSIVE: "any change below",
}
_STAY = {PERSISTENT: WatcherType.PERSISTENT, RECURSIVE: WatcherType.PERSISTENT_RECURSIVE}
"""Persistent kinds, whose events come until the servers' watch is removed, with their type at the servers."""


class Listening:
    """One listener, from `Events.listen` until it is called to end.

    Args:
        note: takes it in, and again when it is over.
        session_number, session: the session that it is about; ANY and None: whichever there is.
    """

    __slots__ = ("_listener", "_note", "active", "session", "session_number")

    def __init__(
        self, listener: Callable[[SessionEvent], Any], note: Callable[[Listening], object], session_number: int, session: Session | None
    ) -> None:
        self._listener = listener
        self._note = note
        self.session_number = session_number
        self.session = session
        self.active = True

    def __repr__(self) -> str:
        return repr(self._listener)

    def tell(self, event: SessionEvent) -> None:
        """Call the listener, in the dispatcher's thread."""
        if self.active:
            self._listener(event)

    def __call__(self) -> None:
        """End the calls of the listener."""
        self.active = False
        self._note(self)


class Events:
    """The events of one session.

    Args:
        loop: the client's loop.
        root: the chroot.
        lock: the link's; it guards the table of watches too.
        answered: called in the I/O thread for the reply to a ping, with the connection and the error code.
        log: the client's log.
        list_again: called in the I/O thread with the path of a node for whose children a server before 3.9 is to get a watch again.
    """

    def __init__(
        self,
        loop: Loop,
        root: Chroot,
        lock: threading.Lock,
        answered: Callable[[Connection, int], object],
        log: ClientLog,
        list_again: Callable[[str], object],
    ) -> None:
        self.table = WatchTable()
        self.dispatcher = Dispatcher(loop.name or "zookeeper", log)
        self.mailbox = Mailbox(loop, handler=self._deliver, prompt=self._promptly)
        self._loop = loop
        self._root = root
        self._lock = lock
        self._answered = answered
        self._list_again = list_again
        self._log = log
        self._setting: WeakSet[Watching] = WeakSet()  # in flight; weak, since a signal handler may keep one from being sent
        self._removing: dict[str, Event] = {}
        self._listeners: dict[Listening, None] = {}
        self._now = SessionEvent(State.NEW, 0, 0)
        self._ended = 0  # number of sessions whose end was delivered
        self._joining: Connection | None = None
        self._early: list[tuple[list[Callback], WatchedEvent]] = []

    # -- watches ----------------------------------------------------------------------------------------------------------

    def setting(self, watching: Watching, deadline: float) -> Steps[None]:
        """Note that a request that sets this watch is about to be sent; `unset` or its outcome in the mailbox follows. Steps.

        Args:
            watching: the watch. deadline: `time.monotonic()` value until which other calls on this path are waited for.

        Raises:
            TimedOut: another call on this path is not done in time. Closed.
        """
        self._loop.check()
        while True:
            with self._lock:
                removing = self._removing.get(watching.path)
                going = removing or self._outcome(lambda other: _exclude(watching, other))
                if going is None:
                    watching.redundant = modes.is_redundant(self.table, watching.path, watching.kind)
                    self._setting.add(watching)
                    return
            yield from _over(going, deadline, "removes a watch of this path" if removing else "sets a watch of this path")

    def _outcome(self, wanted: Callable[[Watching], bool]) -> Event | None:
        """Return the outcome of a request in flight for a watch that matches, or None. The lock is held."""
        other = next(filter(wanted, self._setting), None)
        return None if other is None else other.outcome(self._loop)

    def requests(self, watching: Watching, code: int, body: bytes, zxid: int) -> list[modes.Sent]:
        """Return how the server is asked for this watch: operation codes and bodies. The reply to the first says whether it is set.

        Args:
            code, body: of the request that asks for it alone.
            zxid: the last transaction that the session has seen.
        """
        if watching.redundant:
            return [(code, op.unwatched(body))]
        if watching.kind not in modes.STAY:
            return [(code, body)]
        with self._lock:
            return modes.adding(self.table, watching.path, watching.kind, (code, body), zxid)

    def unset(self, watching: Watching) -> None:
        """Note that the request of this watch has its outcome, or was never sent."""
        with self._lock:
            self._setting.discard(watching)
        watching.over()

    def withdraw(self, watching: Watching) -> None:
        """Drop a watch whose call was given up before its reply: the callback is not called, though the servers may keep their watch.

        The request must have been sent: else a callback that is noted would be an earlier request's.
        """
        with self._lock:
            watching.withdrawn = True
            if watching not in self._setting:
                kinds = (DATA, EXIST) if watching.kind == IF_EXISTS else (watching.kind,)
                self.table.remove(watching.path, watching.callback, kinds)

    def covers_one_shot(self, path: str, type_: WatcherType) -> bool:
        """Return whether a persistent watch is set in place of a one-shot watch of this type, which was not requested from the server."""
        with self._lock:
            return any(
                type_ is once and self.table.has(path, (kind,)) and modes.is_redundant(self.table, path, kind)
                for kind, once in ((DATA, WatcherType.DATA), (EXIST, WatcherType.DATA), (CHILD, WatcherType.CHILDREN))
            )

    def take_back(
        self, path: str, callback: Callback | None, zxid: Callable[[], int], deadline: float
    ) -> Steps[tuple[bool, tuple[WatcherType, ...], list[modes.Sent]]]:
        """Forget a callback of a path (None: all). Steps.

        Args:
            path: the server's. callback: the one to forget. zxid: returns the last transaction that the session has seen.
            deadline: `time.monotonic()` value.

        Returns:
            whether there was one; the types of the servers' watches that no callback needs any more: they are to be removed there, and
            `taken_back` to follow (a one-shot watch among others is left alone); the requests to be sent before that, for the watches that
            remain.

        Raises:
            TimedOut: another call on this path is not done in time.
        """
        yield from self.settling(deadline)
        while True:
            with self._lock:
                removing = self._removing.get(path)
                going = removing or self._outcome(lambda other: other.redundant and other.path == path)
                if going is None:
                    stay = [kind for kind in _STAY if self.table.has(path, (kind,))]
                    known = self.table.remove(path, callback, _ALL)
                    unneeded = self._unneeded(path, stay)
                    if unneeded:
                        self._removing[path] = Event(self._loop)
                    before = modes.requests_for_remaining(self.table, path, zxid()) if unneeded and unneeded != (WatcherType.ANY,) else []
                    return known, unneeded, before
            yield from _over(going, deadline, "removes a watch of this path" if removing else "sets a watch of this path")

    def _unneeded(self, path: str, had: list[str]) -> tuple[WatcherType, ...]:
        """Return which of the servers' watches of a path serve no callback; of the persistent ones only if there `had` been such."""
        setting = [watching for watching in self._setting if watching.path == path]
        if not setting and not self.table.has(path, _ALL):
            return (WatcherType.ANY,)
        if any(watching.withdrawn for watching in setting):  # the server may set it after the removal
            return ()
        needed = {watching.kind for watching in setting}
        return tuple(_STAY[kind] for kind in had if kind not in needed and not self.table.has(path, (kind,)))

    def forget(self, path: str, callback: Callback) -> None:
        """Stop calling this callback, set or in flight; the servers' watch stays, and serves the other callbacks."""
        with self._lock:
            for watching in self._setting:
                if watching.path == path and watching.callback is callback:
                    watching.withdrawn = True
            self.table.remove(path, callback, _ALL)

    def taken_back(self, path: str) -> None:
        """Note that the servers were asked to remove their watch of this path."""
        with self._lock:
            going = self._removing.pop(path)
        going.set()

    def route(self, conn: Connection) -> None:
        """Route what this connection, whose handshake is in progress, sends unrequested to the mailbox."""
        self._joining = conn
        conn.route(WATCHES, self.mailbox)
        conn.route(SERVICE, self.mailbox)

    def failed(self, conn: Connection) -> None:
        """Note that the handshake of this connection failed."""
        self.mailbox.put(conn)

    def ending(self, state: KeeperState, until: float) -> Steps[None]:
        """Call every watch, also one that was set just now, since the session is gone. Steps."""
        with contextlib.suppress(TransportError):
            yield from self.settling(min(until, time.monotonic() + _SETTLE))
        with self._lock:
            callbacks = self.table.clear()
        self.dispatcher.call(callbacks, WatchedEvent(EventType.NONE, state, ""))

    def settle(self, deadline: float) -> None:
        """Wait until everything that has arrived so far has had its effect."""
        self._noted().wait(deadline)

    def settling(self, until: float) -> Steps[None]:
        """Run `settle` as steps."""
        if not (yield self._noted(), until):
            raise TimedOut("the watch events received before were not delivered in time")

    def _noted(self) -> Event:
        noted = Event(self._loop)
        self.mailbox.put(noted)
        return noted

    def before(self, deadline: float) -> None:
        """Let events that came before a reply take effect first: their `Watch` has fired, their callbacks are queued."""
        with contextlib.suppress(WireprotoError):
            self.settle(deadline)

    def seen(self, until: float) -> Steps[None]:
        """Run `before` as steps."""
        with contextlib.suppress(WireprotoError):
            yield from self.settling(until)

    # -- the session's state ----------------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[SessionEvent], Any], session_number: int, session: Session | None) -> Listening:
        """Call a listener with the current state and at every change; one that is about a session until that has ended."""
        self._loop.check()
        self.dispatcher.prepare()
        listening = Listening(listener, self.mailbox.put, session_number, session)
        self.mailbox.put(listening)
        return listening

    def changed(self, event: SessionEvent) -> None:
        """Deliver a change of the state."""
        self.mailbox.put(event)

    # -- the mailbox ------------------------------------------------------------------------------------------------------

    def _promptly(self, item: Any) -> bool:
        """Note a watch in the thread that waits for the reply that set it. Running twice does no harm."""
        if not isinstance(item, Call):
            return False
        self._deliver(item)
        return True

    def _deliver(self, item: Any) -> None:
        if isinstance(item, Call):
            self._note(item.context, item.frame)
        elif isinstance(item, Event):
            item.set()
        elif isinstance(item, SessionEvent):
            self._now = item
            self.dispatcher.call([listening.tell for listening in self._listeners], item)
            if item.state is State.EXPIRED:
                self._ended += 1
                self._listeners = {listening: None for listening in self._listeners if listening.session is None}
            if item.state in (State.CONNECTED, State.CONNECTED_READ_ONLY):
                self._tell_early()
        elif isinstance(item, Listening):
            self._listeners.pop(item, None)
            if item.active:
                self._join(item)
        elif hasattr(item, "frame"):
            self._pushed(item)
        elif item is self._joining:
            self._tell_early()

    def _join(self, listening: Listening) -> None:
        session, now = listening.session, self._now
        if session is not None and listening.session_number < self._ended:
            self.dispatcher.call([listening.tell], SessionEvent(State.EXPIRED, session.session_id, session.zxid))
            return
        if session is not None and now.state is State.EXPIRED:  # of the session before
            now = SessionEvent(State.NEW, 0, now.zxid)
        self._listeners[listening] = None
        self.dispatcher.call([listening.tell], now)

    def _pushed(self, item: Push) -> None:
        try:
            header, _ = ReplyHeader.decode_from(item.frame)
            if item.channel == SERVICE:
                self._answered(item.conn, header.err)
                return
            event = WatcherEvent.decode(item.frame, start=HEADER)
            watched = WatchedEvent(EventType(event.type), KeeperState(event.state), self._root.back(event.path or ""), header.zxid)
        except (ProtocolError, ValueError) as why:
            item.conn.close(f"an event that does not decode: {why}")
            return
        with self._lock:  # the event's transaction is not noted as seen: it may have more events, which a lost connection would hide
            callbacks = self.table.fire(event.type, event.path or "")
            list_again = event.type == EventType.NODE_CHILDREN_CHANGED and header.zxid == -1 and self._both(event.path or "")
        if item.conn is self._joining:
            self._early.append((callbacks, watched))
        else:
            self.dispatcher.call(callbacks, watched)
        if list_again:
            self._list_again(event.path or "")

    def _both(self, path: str) -> bool:
        """Return whether a node has both kinds of persistent watches: servers before 3.9 then need a one-shot one of its children."""
        return self.table.has(path, (PERSISTENT,)) and self.table.has(path, (RECURSIVE,))

    def _tell_early(self) -> None:
        self._joining = None
        early, self._early = self._early, []
        for callbacks, watched in early:
            self.dispatcher.call(callbacks, watched)

    def _note(self, watching: Watching, frame: bytes | None) -> None:
        kind: str | None = None
        many = 0
        try:
            with self._lock:
                self._setting.discard(watching)
                kind = _set(watching, frame)
                if kind is not None:
                    many = self.table.add(kind, watching.path, watching.callback)
        finally:
            watching.over()
        if kind is not None and many >= MANY and doubled(many):
            text = "%d callbacks wait for %s %s: one that is passed in each round of a loop is kept until the watch fires"
            self._log.warning(("callbacks", kind, watching.path), text, many, _WAITED_FOR[kind], self._root.back(watching.path))


def _set(watching: Watching, frame: bytes | None) -> str | None:
    """Return the kind of watch that a reply says is set; None: it set none, or none is wanted any more."""
    if frame is None or watching.withdrawn:
        return None
    header, _ = ReplyHeader.decode_from(frame)
    if watching.kind == IF_EXISTS and header.err in (0, NoNode.code):
        return DATA if header.err == 0 else EXIST
    return None if header.err else watching.kind


def _exclude(one: Watching, other: Watching) -> bool:
    """Return whether these two must not be set at the same time."""
    return one.path == other.path and one.kind != other.kind and not {one.kind, other.kind}.isdisjoint(modes.STAY)


def _over(going: Event, until: float, what: str) -> Steps[None]:
    """Wait until another call, which does `what`, has done it."""
    if not (yield going, until):
        raise TimedOut(f"another call that {what} has not ended in time")


__all__ = ["IF_EXISTS", "Events", "Listening", "Watching"]
