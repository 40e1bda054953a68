"""Keeps one session alive over the servers of an ensemble.

The link is between the tree's requests and the engine. It connects to one server at a time, resumes the session elsewhere when that
connection is lost, gives the identities and sets the watches again before anything else is sent, and pings. What a caller sees of a lost
connection:

    | the request             | then                                                                                          |
    |-------------------------|-----------------------------------------------------------------------------------------------|
    | not sent yet            | waits for the next connection, within its timeout                                             |
    | a read, in flight       | is sent again on the next connection, within its timeout; where a write was sent after it:    |
    |                         | ConnectionLoss, for it might see that write (`call.Call`)                                     |
    | a write, in flight      | ConnectionLoss: it may have taken effect (the official client reports the same)               |
    | any, answered with      | (throttled, session moved) is sent again after a pause, within its timeout, while a caller    |
    | "not now"               | waits: nothing was done. Of asynchronous calls a read is, as above; a write is not, nor a     |
    |                         | producer's message: what was sent after it may be done, so they raise                         |
    | any, and the session    | a write in flight: ConnectionLoss; all else: SessionExpired, waiting or about to be repeated. |
    |   expired meanwhile     | Then a new session is opened; ephemeral nodes and watches of the old one are gone             |

A call belongs to the session of the moment when it was made (`session_number`); `session_calls.SessionCalls` binds calls to one session, or
to whichever there is. Before a write is sent, and whenever its state is read, the session is checked against the clock: a process that was
stopped learns that its session may be gone (LOST) before it writes.

Threads: any thread calls; `lost` and `_answered` run in the I/O thread, `_reconnecting` and the search are tasks, one after the other. One
lock guards the session, the table of watches and which connection is the current one; it is never held while waiting.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._codec import reply_error
from .._net import Event
from ..errors import (
    AuthError,
    BrokerError,
    Closed,
    ConnectError,
    Disconnected,
    ProtocolError,
    TimedOut,
    TlsError,
    TransportError,
    Unanswered,
    WireprotoError,
)
from ..net import retry
from ..net.dial import was_reset
from ..net.task import NEVER, Steps, Tasks
from . import modes
from .acl import OPEN
from .codes import KeeperState, SessionClosedRequireSaslAuth, SessionExpired, error
from .events import IF_EXISTS, Events, Listening, Watching
from .liveness import Liveness
from .lookups import Places
from .messages import ACL, RequestHeader
from .operations import Request, nothing
from .quorum_search import QuorumSearch
from .request_path import ANY, NOW, SETTLE, RequestPath
from .serial_executor import SerialExecutor
from .session import CONNECTED, Session, SessionEvent, State
from .session_setup import SessionSetup
from .watch import CHILD, DATA, PACKET

if TYPE_CHECKING:
    from .._net import Connection, Loop
    from ..net.address import SocketAddress
    from ..net.client_log import ClientLog
    from ..url import Address
    from .paths import Chroot

log = logging.getLogger("wireproto.zookeeper")
RECONNECT_SPREAD = 0.5
"""Seconds over which clients that lost a server together reconnect, at most; also at most a twentieth of the session timeout."""
END_SESSION_TIMEOUT = 5.0
"""Seconds for which a close tries to find a server that ends the session, at most; also at most the session timeout."""
_THERE = (*CONNECTED, State.SUSPENDED, State.LOST)


class Link(RequestPath):
    """One session over an ensemble.

    Args:
        loop: the client's loop.
        session: new, or to be resumed.
        servers: in the order to try, already shuffled.
        dial: steps that connect to one server within a deadline, at one of the places given, which they take off that list, and send the
            ConnectRequest; the answer is the connection's `context`.
        root: the chroot.
        resolve: steps to the addresses of a server within a deadline, in the order to try. One name may stand for a whole ensemble.
        log: the client's log.
        identities: scheme and credential pairs to give on every connection.
        server_timeout: seconds for one server to answer a handshake.
        max_frame: bytes of the largest frame that the servers accept (their ``jute.maxbuffer``).
        acl: access list of nodes that are created without one of their own.
        rounds: pauses between rounds over all servers.

    Attributes:
        session_number: how many sessions have ended.
        writes: how many requests were sent that must not be repeated; those of two threads may count as one.
    """

    def __init__(
        self,
        tasks: Tasks,
        loop: Loop,
        session: Session,
        servers: Sequence[Address],
        dial: Callable[[Address, float, list[SocketAddress]], Steps[Connection]],
        root: Chroot,
        *,
        resolve: Callable[[Address, float], Steps[list[SocketAddress]]],
        log: ClientLog,
        identities: Sequence[tuple[str, bytes]] = (),
        server_timeout: float = 10.0,
        max_frame: int = 0xFFFFF,
        acl: tuple[ACL, ...] = OPEN,
        rounds: retry.Policy,
    ) -> None:
        self.session = session
        self.root = root
        self.acl = acl
        self.session_number = 0  # how many sessions have ended
        self.writes = 0  # requests sent that must not be repeated; those of two threads may count as one
        self.tasks = tasks
        self._loop = loop
        self.log = log
        self._servers = list(servers)
        self._next_server = 0
        self._dial = dial
        self._resolve = resolve
        self._identities = list(identities)
        self._server_timeout = server_timeout
        self._max_body = max_frame - 8
        self._packet = min(PACKET, max_frame // 2)
        self._rounds = rounds
        self._lock = threading.Lock()
        self.events = Events(loop, root, self._lock, self._answered, log, self._list_again)
        self._liveness = Liveness(loop, session, self._lock, lambda: self._conn, self._set_state)
        self._session_setup = SessionSetup()
        self._executor = SerialExecutor(tasks, "keeping the session")
        another = lambda: self._establishing(time.monotonic() + server_timeout)  # noqa: E731
        self._quorum_search = QuorumSearch(loop, lambda: self._conn, self._executor, another, self._reconnecting, self._run_hooks)
        self._conn: Connection | None = None
        self._ready = Event(loop)
        self._since = 0.0  # when the current connection, or the last one, was ready
        self._short_lived = 0  # connections in a row that did not last a session timeout
        self._failure: WireprotoError | None = None
        self._last_error: WireprotoError | None = None
        self._closing = Event(loop)
        self._hooks: list[Callable[[], Callable[[], Any] | None]] = []
        self._many_hooks = 16  # number of hooks from which on dead ones are removed

    # -- the current connection --------------------------------------------------------------------------------------------

    def connection(self, deadline: float, session_number: int = ANY) -> Connection:
        """Return the current connection, handshake done; waits for one until `deadline`.

        Args:
            deadline: `time.monotonic()` value. session_number: of the session that it is wanted for; ANY: whichever there is.

        Raises:
            SessionExpired: the session that it is wanted for has ended.
            TimedOut: no server could be reached in time; the text names the last reason.
            AuthError: the ensemble refused the credentials. Closed.
        """
        return self.tasks.drive(self.connecting(deadline, session_number), deadline + SETTLE)

    def connecting(self, deadline: float, session_number: int = ANY) -> Steps[Connection]:
        """Run `connection` as steps."""
        self._loop.check()
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure
                self.still(session_number)
                if self._conn is not None:
                    return self._conn
                ready, last = self._ready, self._last_error
            if not (yield ready, deadline):
                reason = f": {last}" if last is not None else ""
                raise TimedOut(f"no connection to the ensemble{reason}") from last
            ready.wait(0.0)

    def beginning(self, deadline: float) -> Steps[None]:
        """Open the first connection. Raises what the last server answered. Steps.

        A server that accepts and hangs up is tried again for a while: it is starting, or has no quorum yet. Not so in the middle of TLS:
        that is the wrong port. A server that does not answer is tried until `deadline`, and so is one that resets: it has too many
        connections from this address.
        """
        server_deadline = min(deadline, time.monotonic() + self._server_timeout)
        waits = retry.Waits(self._rounds)
        before: TransportError | None = None
        full = False  # it resets now and then, as a server does that accepts no more connections
        while True:
            try:
                yield from self._establishing(deadline)
                return
            except TransportError as why:
                if before is None or not isinstance(why, TimedOut):
                    before = why  # it says more than a timeout
                hung_up = isinstance(why, Disconnected) or (isinstance(why.__cause__, Disconnected) and not isinstance(why, TlsError))
                again = time.monotonic() + waits.next()
                full = full or (hung_up and was_reset(why))
                until = deadline if isinstance(why, Unanswered) or (hung_up and full) else server_deadline if hung_up else 0.0
                if again >= until or (yield self._closing, again):
                    if before is not why:
                        raise before from None
                    raise

    @property
    def zxid(self) -> int:
        """Return the zxid of the last transaction that a reply reported, whether the reply was read or not."""
        conn = self._conn
        return self.session.zxid if conn is None else max(self.session.zxid, conn.seen_zxid)

    @property
    def current(self) -> Connection | None:
        """Return the current connection, or None while there is none."""
        return self._conn

    @property
    def seeking(self) -> bool:
        """Return whether only a server with a quorum will do now, as for the end of a session."""
        return self._quorum_search.active or self._closing.done

    @property
    def failure(self) -> WireprotoError | None:
        """Return why there will be no further connection, or None."""
        return self._failure

    def own(self) -> tuple[int, Session]:
        """Return the number of the current session, and the session."""
        with self._lock:
            return self.session_number, self.session

    def listen(self, listener: Callable[[SessionEvent], Any], session_number: int = ANY, session: Session | None = None) -> Listening:
        """Call `listener(event)` in the dispatcher's thread with the current state and at each change, until the result is called.

        Args:
            listener: called with a `SessionEvent`.
            session_number, session: the session that it is about; the listener gets no events of others.
        """
        return self.events.listen(listener, session_number, session)

    @property
    def state(self) -> State:
        """Return the session's current state, checked against the clock."""
        self.look()
        return self.session.state

    def look(self) -> None:
        """Check the session's state against the clock."""
        self._liveness.look()

    def safe_for(self) -> float:
        """Return for how many seconds no leader can have ended the session; 0.0 when one may have. See `Liveness`."""
        return self._liveness.safe_for()

    def on_ready(self, hook: Callable[[], Any]) -> None:
        """Call `hook()` in the I/O thread after each reconnect, and when there will be no further connection (`failure`).

        It must not block. Held weakly when it is a method.
        """
        with self._lock:
            if len(self._hooks) >= self._many_hooks:
                self._hooks = [reference for reference in self._hooks if reference() is not None]
                self._many_hooks = 16 + 2 * len(self._hooks)
            self._hooks.append(weakref.WeakMethod(hook) if hasattr(hook, "__self__") else lambda: hook)

    def _run_hooks(self) -> None:
        with self._lock:
            self._hooks = [reference for reference in self._hooks if reference() is not None]
            hooks = list(self._hooks)
        for reference in hooks:
            if (hook := reference()) is not None:
                hook()

    def identifying(self, scheme: str, credential: bytes, deadline: float, session_number: int = ANY) -> Steps[None]:
        """Give an identity now and on every later connection, also when no server answers in time. Steps.

        Raises AuthFailed when it is refused, SessionExpired when that session has ended: then it is not kept.
        """
        self._loop.check()
        self.still(session_number)
        given = scheme, credential
        with self._lock:
            new = given not in self._identities
            if new:
                self._identities.append(given)
        try:
            yield from self._giving(scheme, credential, deadline, session_number)
        except BrokerError:
            if new:
                self.forget_identity(scheme, credential)
            raise

    def _giving(self, scheme: str, credential: bytes, deadline: float, session_number: int) -> Steps[None]:
        while True:
            conn = yield from self.connecting(deadline, session_number)
            try:
                yield from self._session_setup.authenticate(conn, scheme, credential, deadline)
            except Disconnected as why:
                self.lost(conn, why)
            else:
                return

    def forget_identity(self, scheme: str, credential: bytes) -> None:
        """Stop giving an identity to later connections; the current one keeps it, since servers cannot revoke it."""
        with self._lock, contextlib.suppress(ValueError):
            self._identities.remove((scheme, credential))

    def ending(self, deadline: float) -> Steps[None]:
        """End the session at the servers, as far as one can be reached in time: its ephemeral nodes are deleted at once. Steps."""
        self._closing.set()
        with self._lock:
            conn, self._conn = self._conn, None
            self._failure = Closed("the client is closed")
            state = self.session.state
            self._set_state(State.CLOSED)
            ready = self._ready
        ready.fail(self._failure)
        there = bool(self._since and self.session.session_id and self.session.writable) and state in _THERE
        if conn is not None or there:
            why = yield from self._end_session(conn, deadline, there=there, once=state is State.LOST)
            if why is not None:
                self.log.info("end", "the session was not closed at the server: %s", why)
        yield from self.events.ending(KeeperState.CLOSED, deadline)
        self.events.dispatcher.stop()

    def _end_session(self, conn: Connection | None, deadline: float, *, there: bool, once: bool) -> Steps[object]:
        """End the session at the current server, else at any that takes it up, round after round; returns why none did, or None. Steps.

        Between two servers, or while a leader is elected, the next server is there within seconds; otherwise what a session holds (a lock)
        would be held by no one for its whole timeout. A current server that is busy with other clients' requests has the time of a
        handshake.

        Args:
            there: whether other servers know the session.
            once: whether one round is enough, since the session may be over by the clock.
        """
        begin = time.monotonic()
        until = min(deadline, begin + min(END_SESSION_TIMEOUT, self.session.timeout))
        why: object = "none was reached"
        if conn is not None:
            try:
                timeout = min(self.session.dead_after, self._server_timeout)
                yield from self._leaving(conn, min(deadline, begin + timeout), END_SESSION_TIMEOUT / 2 if there else timeout)
                return None
            except WireprotoError as error:
                why = error
        waits = retry.Waits(self._rounds)
        again = 0.0
        while there and again < until:
            yield again
            why = yield from self._leaving_anywhere(until)
            if why is None or once or isinstance(why, AuthError) or self._loop.closed:
                break
            again = time.monotonic() + waits.next()
        return why

    def _leaving_anywhere(self, until: float) -> Steps[object]:
        """End the session in one round over the servers, the current one last, and all addresses of each; returns why none did. Steps."""
        why: object = "none was reached"
        first = self._next_server % len(self._servers)
        for address in self._servers[first:] + self._servers[:first]:
            places = Places(self._resolve, address)
            while not places.over and time.monotonic() < until:
                conn = None
                try:
                    offered = yield from places.looking(self._leaving_by(until, 1))
                    if not offered:
                        break
                    conn = yield from self._dial(address, self._leaving_by(until, len(offered)), offered)
                    copy.copy(self.session).connected(*conn.context)
                    for scheme, credential in list(self._identities):
                        yield from self._session_setup.authenticate(conn, scheme, credential, until)
                    yield from self._leaving(conn, until, END_SESSION_TIMEOUT)
                    return None
                except SessionExpired:
                    return None  # the session is gone
                except WireprotoError as error:
                    if conn is not None:
                        why = error
                finally:
                    if conn is not None:
                        conn.close("closed by the client")
        return why

    def _leaving_by(self, until: float, places: int) -> float:
        """Return the time until which one of several addresses may be tried while the session is ended."""
        now = time.monotonic()
        return min(until, now + self._share(places, until - now))

    def _leaving(self, conn: Connection, until: float, silence: float) -> Steps[None]:
        """End the session on this connection. Raises the server's error, or TimedOut after `silence` seconds without a byte. Steps."""
        xid = conn.next_token()
        begin = time.monotonic()
        try:
            call = conn.submit(xid, RequestHeader(xid=xid, type=-11).encode(), timeout_at=until)
            while not (yield call, min(until, max(begin, conn.last_read) + silence)):
                if time.monotonic() >= min(until, max(begin, conn.last_read) + silence):
                    raise TimedOut("the server does not answer", peer=conn.peer)
            if err := reply_error(call.result(0.0)):
                raise error(err, "the server refused to close the session", peer=conn.peer)
        finally:
            conn.close("closed by the client")

    # -- handshake --------------------------------------------------------------------------------------------------------

    def _establishing(self, deadline: float) -> Steps[None]:
        """Connect in one round over the servers, starting after the last one tried.

        All addresses of each server are tried, looked up before each attempt. Raises the error that says most (`_rank`).
        """
        refused: WireprotoError | None = None
        for _ in self._servers:
            address = self._servers[self._next_server % len(self._servers)]
            self._next_server += 1
            places = Places(self._resolve, address)
            while not places.over:
                if self._closing.done:
                    raise Closed("the client is closed")
                now = time.monotonic()
                if now >= deadline:
                    break
                try:
                    offered = yield from places.looking(min(deadline, now + self._share(1)))
                    if not offered:
                        break
                    yield from self._joining(address, min(deadline, now + self._share(len(offered))), offered)
                    return
                except AuthError as why:
                    yield from self._giving_up(why, deadline)
                    raise
                except SessionExpired:  # the session that was to be resumed; another one is not wanted
                    raise
                except (TransportError, ProtocolError, BrokerError) as why:
                    if refused is None or _rank(why) >= _rank(refused):
                        refused = self._last_error = why
        if refused is None:
            raise TimedOut("no time was left to connect")
        if isinstance(refused, (TransportError, ProtocolError)):
            raise refused
        raise ConnectError(str(refused)) from refused

    def _share(self, places: int, of: float = NEVER) -> float:
        """Return how many seconds one address may take, so that the others are tried before the session, or the time `of`, is over."""
        return min(self._server_timeout, max(min(self.session.timeout, of) / (len(self._servers) - 1 + places), 1.0))

    def _joining(self, address: Address, deadline: float, places: list[SocketAddress]) -> Steps[None]:
        """Dial one server, resume or open the session there, and make its connection the current one. Steps."""
        conn = yield from self._dial(address, deadline, places)
        answer, sent = conn.context
        self._liveness.look()  # LOST comes before EXPIRED
        try:
            if self._closing.done:  # the session may just be ended at another server, which is no reason to open a new one
                raise Closed("the client is closed")
            try:
                with self._lock:
                    self.session.connected(answer, sent)
                    before, self._conn = self._conn, None
                    if before is not None:  # a server without a quorum
                        self.session.note_zxid(before.seen_zxid)
                        self._ready = Event(self._loop)
            except BrokerError:
                if self.session.state is not State.EXPIRED:
                    raise
                conn.close("session expired")
                if not self._since:
                    raise
                yield from self._expired(deadline)
                yield from self._joining(address, deadline, (yield from self._resolve(address, deadline)))
                return
            if before is not None:
                before.close("a server with a quorum was found")
            yield from self.events.settling(deadline)  # events of the last connection are noted before the table is read
            self.events.route(conn)
            for scheme, credential in list(self._identities):
                yield from self._session_setup.authenticate(conn, scheme, credential, deadline)
            with self._lock:
                packets = list(self.events.table.rearm(self.session.zxid, self._packet))
            yield from self._session_setup.arm(conn, packets, deadline, self._share(1))
            with self._lock:
                if self._closing.done:
                    raise Closed("the client is closed")
                self._conn = conn
                self._since = time.monotonic()
                self._liveness.begin(conn)
                self._last_error = None
                self._set_state(self.session.state)
                ready = self._ready
        except BaseException:
            conn.close("handshake failed")
            self.events.failed(conn)
            raise
        ready.set(conn)
        conn.on_lost(lambda why: self.lost(conn, why))
        if self.session.read_only:
            self._quorum_search.begin(conn)

    # -- loss and return --------------------------------------------------------------------------------------------------

    def lost(self, conn: Connection, why: Exception | None) -> None:
        """Drop a lost connection: callers wait for the next one, which a task opens."""
        self._liveness.look()
        with self._lock:
            if self._conn is not conn:
                return
            self._conn = None
            self.session.note_zxid(conn.seen_zxid)
            self._ready = Event(self._loop)
            self._last_error = why if isinstance(why, WireprotoError) else None
            lasted = time.monotonic() - self._since >= self.session.timeout
            self._short_lived = 0 if lasted else self._short_lived + 1
            if self._closing.done or self._failure is not None:
                return
            if self.session.state is not State.LOST:
                self._set_state(State.SUSPENDED)
        self._executor.add(self._reconnecting())

    def _reconnecting(self) -> Steps[None]:
        """Try all servers, round after round, until one takes the session up or the client is closed. Steps."""
        if (yield self._closing, time.monotonic() + self._pause()):
            return
        waits = retry.Waits(self._rounds)
        while self._conn is None:  # else a search for a server with a quorum has found one meanwhile
            try:
                yield from self._establishing(time.monotonic() + self._server_timeout * len(self._servers))
            except (AuthError, Closed):
                return
            except WireprotoError as why:
                self.log.warning("round", "no server accepts the session, tried again: %s", why)
            except Exception:
                log.exception("reconnecting failed")
            else:
                self._run_hooks()
                return
            if (yield self._closing, time.monotonic() + waits.next()):
                return

    def _pause(self) -> float:
        """Return the seconds before the first attempt.

        Clients that lost a server together spread, and attempts become rare where connections do not last.
        """
        spread = random.random() * min(RECONNECT_SPREAD, self.session.timeout / 20)
        if self._short_lived < 2:
            return spread
        return min(spread + self._rounds.delay(self._short_lived - 1), self.session.timeout / 4)

    def _expired(self, deadline: float) -> Steps[None]:
        with self._lock:
            self.session_number += 1
            self._set_state(State.EXPIRED)
            self.session = self._liveness.session = self.session.next()
            ready, self._ready = self._ready, Event(self._loop)
        ready.set()  # callers that wait for a connection of the session that has ended raise now
        yield from self.events.ending(KeeperState.EXPIRED, deadline)

    def _giving_up(self, why: WireprotoError, deadline: float) -> Steps[None]:
        """Fail all callers with `why`: no further connection will come. Steps."""
        with self._lock:
            self._failure = why
            self._set_state(State.AUTH_FAILED)
            ready = self._ready
        ready.fail(why)
        self._run_hooks()
        yield from self.events.ending(KeeperState.AUTH_FAILED, deadline)

    def _shut_out(self, why: WireprotoError) -> None:
        """Give up the session: a server accepts no request without an identity that it accepts, and each other server would hang up too."""
        with self._lock:
            if self._failure is not None or self._closing.done:
                return
            self._failure = why
        with contextlib.suppress(Closed):
            self.tasks.spawn(self._giving_up(why, time.monotonic() + SETTLE), "giving up the session")

    def _set_state(self, state: State) -> None:
        self.session.state = state
        self.log.info(("state", state), "session 0x%x: %s", self.session.session_id, state.name)
        self.events.changed(SessionEvent(state, self.session.session_id, self.zxid))

    # -- I/O thread -----------------------------------------------------------------------------------------------------------

    def _list_again(self, path: str) -> None:
        """Set a one-shot watch of a node's children again: a server before 3.9 has it in place of a persistent one, and it has fired."""
        with contextlib.suppress(Closed):
            self.tasks.spawn(self._listing_again(path), f"setting the watch of {path} again")

    def _listing_again(self, path: str) -> Steps[None]:
        request = Request(modes.SET_WATCHES, modes.children_again(path, self.zxid), nothing, path)
        with contextlib.suppress(WireprotoError):  # every watch is set on the next connection anyhow
            yield from self.calling(request, time.monotonic() + self._server_timeout)

    def _answered(self, conn: Connection, err: int) -> None:
        """Take the reply to a ping."""
        if not err:
            self._liveness.answered(conn)
            return
        why = error(err, "the server refuses this client's pings", peer=conn.peer)
        if err == SessionClosedRequireSaslAuth.code:
            self._shut_out(why)
        conn.close(str(why))


def _rank(why: WireprotoError) -> int:
    """Rank an error by how much it says: 2: a server's reply, 1: a lost connection, 0: no connection."""
    if isinstance(why, BrokerError):
        return 2
    return int(not why.lasting or why.__cause__ is not None)


__all__ = ["ANY", "CHILD", "DATA", "IF_EXISTS", "NOW", "Link", "Watching"]
