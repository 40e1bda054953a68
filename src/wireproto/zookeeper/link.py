"""The link: one session kept alive over the servers of an ensemble.

What it is: the piece between the tree's requests and the engine. It connects to one server at a time, resumes the session elsewhere
when that connection is lost, gives the identities and arms the watches again before anything else is sent, and pings. What a caller
sees of a lost connection:

    | the request             | then                                                                                               |
    |-------------------------|----------------------------------------------------------------------------------------------------|
    | not sent yet            | waits for the next connection, within its timeout                                                  |
    | a read, in flight       | is sent again on the next connection, within its timeout; where a write was sent behind it:        |
    |                         | ConnectionLoss, for it might see that write (`tree.Call`)                                          |
    | a write, in flight      | ConnectionLoss: it may have taken effect (the official client reports the same); nothing is repeated |
    | any, answered with      | (throttled, session moved) is sent again after a pause, within its timeout                         |
    | "not now"               |                                                                                                    |
    | any, and the session    | a write in flight: ConnectionLoss; all else: SessionExpired, be it waiting or about to be repeated.  |
    |   expired meanwhile     |   Then a new session is opened, ephemeral nodes and watches of the old one are gone                  |

A call belongs to the session of the moment when it was made (`era`); `within.Within` binds calls to one session, or to whichever there is.

Threads: any thread calls; `lost`, `_tick` and `_deliver` run in the keeper, `_reconnect` in the client's worker thread. One lock guards
the session, the table of watches and which connection is the current one; it is never held while waiting.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .._net import SERVICE, WATCHES, Call, Event, Mailbox
from ..errors import (
    AuthError,
    BrokerError,
    Closed,
    ConnectError,
    Disconnected,
    ProtocolError,
    TimedOut,
    TransportError,
    ValueUnsupported,
    WireprotoError,
)
from ..net import retry
from ..net.pool import pause
from .codes import EventType, KeeperState, NoNode, SessionClosedRequireSaslAuth, SessionExpired, error
from .messages import AuthPacket, ReplyHeader, RequestHeader, SetWatches, WatcherEvent
from .operations import HEADER, Request, failure
from .session import Session, State
from .watch import CHILD, DATA, EXIST, Callback, Dispatcher, WatchedEvent, WatchTable

if TYPE_CHECKING:
    from .._net import Connection, Loop
    from ..net.address import SocketAddress
    from ..url import Address
    from .paths import Chroot

T = TypeVar("T")
Watching = tuple[str, str, Callback]
"""How a request's watch is noted when the reply is in: kind, the server's path, callback."""
ANY, NOW = -1, -2
"""Which session a call belongs to, where it is not one by number: whichever there is, or that of the moment when it is made."""
IF_EXISTS = "exists"
"""Kind of an exists call's watch, which depends on the answer: `DATA` or `EXIST`."""

log = logging.getLogger("wireproto.zookeeper")
_AUTH, _SET_WATCHES, _PING = -4, -8, -2
_SETTLE = 5.0
SPREAD = 0.5
"""Seconds over which clients that lost a server together come back, at most; a twentieth of the session's time-out at most, too."""
_STATES = {
    State.CONNECTED: KeeperState.SYNC_CONNECTED,
    State.SUSPENDED: KeeperState.DISCONNECTED,
    State.EXPIRED: KeeperState.EXPIRED,
    State.AUTH_FAILED: KeeperState.AUTH_FAILED,
    State.CLOSED: KeeperState.CLOSED,
}


class ConnectionLoss(Disconnected):
    """The connection was lost with a write in flight: it may or may not have taken effect, so it was not repeated."""

    retriable = False


class Link:
    """One session over an ensemble.

    Args:
        loop: the client's loop.
        session: new, or to be resumed.
        servers: in the order to try, already shuffled.
        dial: connects to one server within a deadline, at one of the places given, which it takes off that list, and sends the
            ConnectRequest; the answer is the connection's `context`.
        root: the chroot.
        resolve: the places of a server within a deadline, in the order to try. Behind one name may be a whole ensemble.
        identities: scheme and credential pairs to give on every connection.
        server_timeout: seconds for one server to answer a handshake.
        max_frame: bytes of the largest frame that the servers take (their ``jute.maxbuffer``).
        rounds: waits between rounds over all servers.
    """

    def __init__(
        self,
        loop: Loop,
        session: Session,
        servers: Sequence[Address],
        dial: Callable[[Address, float, list[SocketAddress]], Connection],
        root: Chroot,
        *,
        resolve: Callable[[Address, float], list[SocketAddress]],
        identities: Sequence[tuple[str, bytes]] = (),
        server_timeout: float = 10.0,
        max_frame: int = 0xFFFFF,
        rounds: retry.Policy,
    ) -> None:
        self.session = session
        self._heads = session.heads
        self.root = root
        self.era = 0  # how many sessions have ended
        self.writes = 0  # how many requests were sent that must not be repeated; two threads' may count as one
        self.watches = WatchTable()
        self.dispatcher = Dispatcher(loop.name or "zookeeper")
        self._loop = loop
        self._servers = list(servers)
        self._next_server = 0
        self._dial = dial
        self._resolve = resolve
        self._identities = list(identities)
        self._server_timeout = server_timeout
        self._max_body = max_frame - 8
        self._rounds = rounds
        self._lock = threading.Lock()
        self._auth_lock = threading.Lock()
        self._conn: Connection | None = None
        self._ready = Event(loop)
        self._since = 0.0  # when the connection of now, or the last one, was ready
        self._short_lived = 0  # connections in a row that did not last a session's time-out
        self._failure: WireprotoError | None = None
        self._last_error: WireprotoError | None = None
        self._closing = threading.Event()
        self._listeners: list[Callable[[State], Any]] = []
        self._hooks: list[Callable[[], Callable[[], Any] | None]] = []
        self._events = Mailbox(loop, handler=self._deliver)

    # -- calls ------------------------------------------------------------------------------------------------------------

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, within: int = NOW) -> T:
        """Send one request and read its reply; see the module's table for what a lost connection does.

        Args:
            within: number of the session that it belongs to (`era`), `NOW` or `ANY`.
        """
        failures = 0
        heads = self._heads.take
        if within == NOW:
            within = self.era
        if not request.repeats:
            self.writes += 1
        while True:
            conn = self._conn or self.connection(deadline, within)
            if within != self.era and within != ANY:  # looked at behind the connection: it is of this session or an earlier one
                raise self._over(request.path)
            sent, frame = True, None
            try:
                if watching is None and len(request.body) <= self._max_body:
                    frame = conn.ask(request.code, request.body, deadline)
                if frame is None:  # a watch to be noted, or the connection takes nothing just now
                    sent = False
                    waiting = self.submit(request, deadline, watching, within)
                    sent, conn = True, waiting.conn
                    frame = waiting.result(deadline)
                if heads(frame) == 0:
                    return request.read(frame)
                return self.read(request, frame, conn)
            except ProtocolError as why:  # bytes that are no reply
                conn.close(str(why))
                raise why.with_context(peer=conn.peer) from None
            except Disconnected as why:
                self.lost(conn, why)
                if not sent:  # nothing left this machine
                    continue
                if not request.repeats:
                    raise ConnectionLoss(f"{request.path}: {why.text}", peer=conn.peer) from why
            except BrokerError as why:  # a server that says "throttled" or "session moved" has done nothing
                if retry.verdict(why) is retry.Verdict.NEVER:
                    raise
                if time.monotonic() + retry.DEFAULT.delay(failures + 1) >= deadline:
                    raise
            failures += 1
            if failures > 1:  # a request that costs a connection each time must not cost them as fast as they can be made
                pause(self._loop, min(time.monotonic() + retry.DEFAULT.delay(failures), deadline))

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Call:
        """Send one request without waiting for the reply; waits for a connection until `deadline` where there is none."""
        self._fits(request)
        if within == NOW:
            within = self.era
        if not request.repeats:
            self.writes += 1
        while True:
            conn = self._conn or self.connection(deadline, within)
            if within != self.era and within != ANY:
                raise self._over(request.path)
            try:
                return conn.post(request.code, request.body, None if watching is None else self._events, deadline, watching)
            except Disconnected as why:  # nothing was sent
                self.lost(conn, why)

    def submit_on(self, conn: Connection, request: Request[Any]) -> Call:
        """Send one request on this connection or not at all (Disconnected): for senders that keep an order over a reconnect."""
        self._fits(request)
        self.writes += 1
        try:
            return conn.post(request.code, request.body)
        except Disconnected as why:
            self.lost(conn, why)
            raise

    def read(self, request: Request[T], frame: bytes, conn: Connection) -> T:
        """A reply's value, or its typed error. Bytes that are no reply cost the connection."""
        try:
            err = self._heads.take(frame)
            if err == 0:
                return request.read(frame)
        except ProtocolError as why:
            conn.close(str(why))
            raise why.with_context(peer=conn.peer) from None
        if err == NoNode.code and request.absent:
            return None  # type: ignore[return-value]
        answer = failure(err, request, conn.peer)
        if err == SessionClosedRequireSaslAuth.code:
            self._shut_out(answer)
        raise answer

    def check(self, request: Request[Any]) -> None:
        """Raise ValueUnsupported for a request that no server would take, Closed on a closed client."""
        self._loop.check()
        self._fits(request)

    def _fits(self, request: Request[Any]) -> None:
        if len(request.body) > self._max_body:
            raise ValueUnsupported(
                f"{request.path}: a request of {len(request.body) + 8} bytes; servers take at most {self._max_body + 8} (jute.maxbuffer)"
            )

    # -- the connection of now --------------------------------------------------------------------------------------------

    def connection(self, deadline: float, within: int = ANY) -> Connection:
        """The current connection, handshake done; waits for one until `deadline`.

        Raises:
            SessionExpired: the session that it is wanted for has ended.
            TimedOut: no server could be reached in time; the text names the last reason.
            AuthError: the ensemble refused the credentials.
        """
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                if within not in (self.era, ANY):
                    raise self._over()
                if self._conn is not None:
                    return self._conn
                ready, last = self._ready, self._last_error
            try:
                ready.wait(deadline)
            except TimedOut as why:
                reason = f": {last}" if last is not None else ""
                raise TimedOut(f"no connection to the ensemble{reason}") from why

    def connect(self, deadline: float) -> None:
        """The first connection, made by the calling thread. Raises what the last server said.

        A server that accepts and hangs up is asked again: it starts, or has no quorum yet.
        """
        patience = min(deadline, time.monotonic() + self._server_timeout)
        waits = retry.Waits(self._rounds)
        while True:
            try:
                self._establish(deadline)
            except TransportError as why:
                hung_up = isinstance(why, Disconnected) or isinstance(why.__cause__, Disconnected)
                delay = waits.next()
                if not hung_up or time.monotonic() + delay >= patience or self._closing.wait(delay):
                    raise
            else:
                return

    def _over(self, path: str = "") -> BrokerError:
        return SessionExpired(f"{path}: the session ended before this was done" if path else "the session has ended")

    @property
    def zxid(self) -> int:
        """The last transaction that a reply told of, be it looked at or not."""
        conn = self._conn
        return self.session.zxid if conn is None else max(self.session.zxid, conn.seen_zxid)

    @property
    def current(self) -> Connection | None:
        """The connection of now, or None while there is none."""
        return self._conn

    @property
    def failure(self) -> WireprotoError | None:
        """Why there will be no connection any more."""
        return self._failure

    def listen(self, listener: Callable[[State], Any]) -> None:
        """Have `listener(state)` called in the dispatcher's thread at each change of the session's state."""
        self.dispatcher.prepare()
        with self._lock:
            self._listeners.append(listener)

    def on_ready(self, hook: Callable[[], Any]) -> None:
        """Have `hook()` called after each reconnect, and when nothing will come any more (`failure`), in the worker thread; it must not
        block. Held weakly when it is a method."""
        with self._lock:
            self._hooks.append(weakref.WeakMethod(hook) if hasattr(hook, "__self__") else lambda: hook)

    def _run_hooks(self) -> None:
        with self._lock:
            self._hooks = [reference for reference in self._hooks if reference() is not None]
            hooks = list(self._hooks)
        for reference in hooks:
            hook = reference()
            if hook is not None:
                hook()

    def identify(self, scheme: str, credential: bytes, deadline: float) -> None:
        """Give an identity now and on every later connection. Raises AuthFailed when the ensemble refuses it."""
        with self._auth_lock:
            while True:
                conn = self.connection(deadline)
                try:
                    self._authenticate(conn, scheme, credential, deadline)
                except Disconnected as why:
                    self.lost(conn, why)
                else:
                    break
            self._identities.append((scheme, credential))

    def close(self, deadline: float) -> None:
        """End the session at the server (its ephemeral nodes go at once), as far as it can be reached in time."""
        self._closing.set()
        with self._lock:
            conn, self._conn = self._conn, None
            self._failure = Closed("the client is closed")
            self._set_state(State.CLOSED)
        if conn is not None:
            xid = conn.next_token()
            try:
                conn.call(xid, RequestHeader(xid=xid, type=-11).encode(), deadline)
            except WireprotoError as why:
                log.debug("session not ended at the server: %s", why)
            conn.close("closed by the client")
        self._end_watches(KeeperState.CLOSED, deadline)
        self.dispatcher.stop()

    # -- handshake --------------------------------------------------------------------------------------------------------

    def _establish(self, deadline: float) -> None:
        """One round over the servers, starting behind the last one tried, and over all places of each."""
        refused: WireprotoError | None = None
        for _ in self._servers:
            address = self._servers[self._next_server % len(self._servers)]
            self._next_server += 1
            places: list[SocketAddress] | None = None
            while places is None or places:
                if self._closing.is_set():
                    raise Closed("the client is closed")
                now = time.monotonic()
                if now >= deadline:
                    break
                try:
                    if places is None:
                        places = self._resolve(address, min(deadline, now + self._share(1)))
                    self._join(address, min(deadline, now + self._share(len(places))), places)
                except AuthError as why:
                    self._give_up(why, deadline)
                    raise
                except (TransportError, ProtocolError, BrokerError) as why:
                    log.info("%s:%d: %s", *address, why)
                    refused = why
                    self._last_error = why
                    places = places or []
                else:
                    return
        if refused is None:
            raise TimedOut("no time was left to connect")
        if isinstance(refused, (TransportError, ProtocolError)):
            raise refused
        raise ConnectError(str(refused)) from refused

    def _share(self, places: int) -> float:
        """Seconds that one of them may take, so that the others are reached before the session is over."""
        return min(self._server_timeout, max(self.session.timeout / (len(self._servers) - 1 + places), 1.0))

    def _join(self, address: Address, deadline: float, places: list[SocketAddress]) -> None:
        """Dial one server, take up the session there, and make its connection the current one."""
        conn = self._dial(address, deadline, places)
        try:
            self.settle_watches(deadline)  # what the connection before still told is noted before the table is read
            conn.route(WATCHES, self._events)
            conn.route(SERVICE, self._events)
            try:
                with self._lock:
                    self.session.connected(conn.context)
            except BrokerError as why:
                if self.session.state is not State.EXPIRED:
                    raise
                log.warning("%s", why)
                conn.close("session expired")
                self._expired(deadline)
                self._join(address, deadline, self._resolve(address, deadline))
                return
            for scheme, credential in list(self._identities):
                self._authenticate(conn, scheme, credential, deadline)
            with self._lock:
                packets = list(self.watches.rearm(self.session.zxid))
            for packet in packets:
                code = 101 if isinstance(packet, SetWatches) else 105
                reply = conn.call(_SET_WATCHES, (RequestHeader(xid=_SET_WATCHES, type=code).encode(), packet.encode()), deadline)
                self._check(reply, "the watches could not be set again")
            with self._lock:
                if self._closing.is_set():
                    raise Closed("the client is closed")
                self._conn = conn
                self._since = time.monotonic()
                self._last_error = None
                self._set_state(State.CONNECTED)
                ready = self._ready
        except BaseException:
            conn.close("handshake failed")
            raise
        ready.set(conn)
        conn.on_lost(lambda why: self.lost(conn, why))
        self._loop.call_at(time.monotonic() + self.session.ping_every, self._tick, conn)

    def _authenticate(self, conn: Connection, scheme: str, credential: bytes, deadline: float) -> None:
        packet = AuthPacket(type=0, scheme=scheme, auth=credential).encode()
        reply = conn.call(_AUTH, (RequestHeader(xid=_AUTH, type=100).encode(), packet), deadline, secret=True)
        self._check(reply, f"the {scheme} identity was refused")

    def _check(self, reply: bytes, text: str) -> None:
        header, _ = ReplyHeader.decode_from(reply)
        if header.err:
            raise error(header.err, text)

    # -- loss and return --------------------------------------------------------------------------------------------------

    def lost(self, conn: Connection, why: Exception | None) -> None:
        """The connection is gone: callers wait for the next one, which the worker thread makes."""
        with self._lock:
            if self._conn is not conn:
                return
            self._conn = None
            self.session.saw(conn.seen_zxid)
            self._ready = Event(self._loop)
            self._last_error = why if isinstance(why, WireprotoError) else None
            lasted = time.monotonic() - self._since >= self.session.timeout
            self._short_lived = 0 if lasted else self._short_lived + 1
            if self._closing.is_set() or self._failure is not None:
                return
            self._set_state(State.SUSPENDED)
        log.info("%s: connection lost: %s", conn.peer, why)
        with contextlib.suppress(Closed):
            self._loop.background(self._reconnect)

    def _reconnect(self) -> None:
        """In the worker thread: round after round, until a server takes the session up or the client is closed."""
        if self._closing.wait(self._pause()):
            return
        waits = retry.Waits(self._rounds)
        while True:
            try:
                self._establish(time.monotonic() + self._server_timeout * len(self._servers))
            except (AuthError, Closed):
                return
            except WireprotoError as why:
                log.info("no server takes the session: %s", why)
            except Exception:
                log.exception("reconnecting failed")
            else:
                self._run_hooks()
                return
            if self._closing.wait(waits.next()):
                return

    def _pause(self) -> float:
        """Seconds before the first attempt: clients that lost a server together spread, and connections that do not last become rare."""
        spread = random.random() * min(SPREAD, self.session.timeout / 20)
        if self._short_lived < 2:
            return spread
        return min(spread + self._rounds.delay(self._short_lived - 1), self.session.timeout / 4)

    def _expired(self, deadline: float) -> None:
        with self._lock:
            self.era += 1
            self._set_state(State.EXPIRED)
            self.session.forget()
            ready, self._ready = self._ready, Event(self._loop)
        ready.set()  # who waits for a connection of the session that has ended is told now
        self._end_watches(KeeperState.EXPIRED, deadline)

    def _give_up(self, why: WireprotoError, deadline: float) -> None:
        """Nothing will come of this client any more: everyone is told why."""
        with self._lock:
            self._failure = why
            self._set_state(State.AUTH_FAILED)
            ready = self._ready
        ready.fail(why)
        self._run_hooks()
        self._end_watches(KeeperState.AUTH_FAILED, deadline)

    def _shut_out(self, why: WireprotoError) -> None:
        """A server takes nothing from a client without an identity that it accepts, and each next one would hang up, too."""
        with self._lock:
            if self._failure is not None or self._closing.is_set():
                return
            self._failure = why
        with contextlib.suppress(Closed):
            self._loop.background(self._give_up, why, time.monotonic() + _SETTLE)

    def _set_state(self, state: State) -> None:
        self.session.state = state
        event = WatchedEvent(EventType.NONE, _STATES[state], "")
        self.dispatcher.call([_tell(listener, state) for listener in self._listeners], event)

    def _end_watches(self, state: KeeperState, deadline: float) -> None:
        with contextlib.suppress(WireprotoError):  # a watch that was set just now is told too
            self.settle_watches(min(deadline, time.monotonic() + _SETTLE))
        with self._lock:
            callbacks = self.watches.clear()
        self.dispatcher.call(callbacks, WatchedEvent(EventType.NONE, state, ""))

    # -- keeper -----------------------------------------------------------------------------------------------------------

    def _tick(self, conn: Connection) -> None:
        """Ping, and give the connection up when the server has been silent for too long."""
        if conn.closed:
            return
        now = time.monotonic()
        silent = now - conn.last_read
        if silent > self.session.dead_after:
            conn.close(f"no byte from the server for {silent:.1f} s")
            return
        try:
            conn.send(RequestHeader(xid=_PING, type=11).encode())
        except WireprotoError as why:
            log.debug("%s: no ping: %s", conn.peer, why)
        self._loop.call_at(now + self.session.ping_every, self._tick, conn)

    def settle_watches(self, deadline: float) -> None:
        """Wait until the table of watches knows what the replies so far said: the keeper notes it, maybe behind the caller's back."""
        noted = Event(self._loop)
        self._events.put(noted)
        noted.wait(deadline)

    def _deliver(self, item: Any) -> None:
        """Replies that set a watch, and events, in the order of the wire."""
        if isinstance(item, Event):
            item.set()
            return
        if isinstance(item, Call):
            if item.frame is not None and item.context is not None:
                self._note(item.context, item.frame)
            return
        try:
            header, _ = ReplyHeader.decode_from(item.frame)
            if item.channel == SERVICE:  # a ping was answered with an error
                why = error(header.err, "the server refuses this client's pings", peer=item.conn.peer)
                if header.err == SessionClosedRequireSaslAuth.code:
                    self._shut_out(why)
                item.conn.close(str(why))
                return
            event = WatcherEvent.decode(item.frame, start=HEADER)
            told = WatchedEvent(EventType(event.type), KeeperState(event.state), self.root.back(event.path or ""), header.zxid)
        except (ProtocolError, ValueError) as why:
            item.conn.close(f"an event that does not decode: {why}")
            return
        with self._lock:  # the event's transaction is not noted as seen: it may have more events, which a cut keeps from us
            callbacks = self.watches.fire(event.type, event.path or "")
        self.dispatcher.call(callbacks, told)

    def _note(self, watching: Watching, frame: bytes) -> None:
        kind, path, callback = watching
        header, _ = ReplyHeader.decode_from(frame)
        if kind == IF_EXISTS and header.err in (0, NoNode.code):
            kind = DATA if header.err == 0 else EXIST
        elif header.err:
            return
        with self._lock:
            self.watches.add(kind, path, callback)


def _tell(listener: Callable[[State], Any], state: State) -> Callback:
    return lambda _: listener(state)


__all__ = ["ANY", "CHILD", "DATA", "IF_EXISTS", "NOW", "ConnectionLoss", "Link", "Watching"]
