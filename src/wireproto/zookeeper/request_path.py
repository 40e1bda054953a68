"""Sends requests over the current connection and judges their outcome.

It is the half of the link that callers use: `call` and `submit`, and the same as steps. A request without a watch, on a connection that is
there, takes a short way, which is one call of the engine; everything else is done by the steps. What a lost connection does to a request is
in the table of `link`, which also opens the connections.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .._codec import reply_error
from ..errors import BrokerError, BufferFull, Disconnected, ProtocolError, TimedOut, ValueUnsupported, WireprotoError
from ..net import retry
from ..net.task import Steps
from .codes import NoNode, SessionClosedRequireSaslAuth, SessionExpired
from .errors import UNKNOWN, connection_loss, lost_answer
from .operations import Request, failure

if TYPE_CHECKING:
    from .._net import Call, Connection, Loop
    from ..net.client_log import ClientLog
    from ..net.task import Tasks
    from .events import Events, Watching
    from .liveness import Liveness

T = TypeVar("T")
ANY, NOW = -1, -2
"""Session that a call belongs to, in place of a number: whichever there is, or the one of the moment when the call is made."""
ROOM = 0.01
"""Seconds between checks whether a connection that had no room for more bytes has room again."""
SETTLE = 5.0
"""Seconds beyond an operation's own deadline after which it is ended from outside."""


def is_transient(why: WireprotoError) -> bool:
    """Return whether a server's error says "not now": nothing was done, and the same request may succeed later."""
    return isinstance(why, BrokerError) and retry.verdict(why) is not retry.Verdict.NEVER


def unanswered(why: TimedOut, request: Request[Any], conn: Connection, sent: float) -> TimedOut:
    """Name the request that was not answered in time in the error, doubtful if it is a write; returns the error.

    Args:
        why: the error. request: what was sent. conn: where. sent: when, as `time.monotonic()`; 0.0: not known.
    """
    now = time.monotonic()
    why.text += f": {request.what}" + (f", sent {now - sent:.1f} s ago" if sent else "")
    why.text += f"; the server has sent nothing for {now - conn.last_read:.1f} s"
    if not request.repeats:
        why.text += f"; {UNKNOWN}"
        why.doubtful = True
    return why


class RequestPath:
    """Sends requests over one session.

    Attributes:
        session_number: how many sessions have ended.
        writes: how many requests were sent that must not be repeated; those of two threads may count as one.
        log: the client's log.
    """

    session_number: int
    writes: int
    events: Events
    _conn: Connection | None
    _loop: Loop
    _max_body: int
    tasks: Tasks
    log: ClientLog
    _liveness: Liveness

    @abstractmethod
    def connecting(self, deadline: float, session_number: int = ANY) -> Steps[Connection]:
        """Return the current connection, handshake done; waits for one until `deadline`. Steps."""

    @property
    @abstractmethod
    def zxid(self) -> int:
        """Return the zxid of the last transaction that a reply reported."""

    @abstractmethod
    def lost(self, conn: Connection, why: Exception | None) -> None:
        """Drop this connection, which is lost."""

    @abstractmethod
    def _shut_out(self, why: WireprotoError) -> None:
        """Give up the session: the servers accept nothing from this client."""

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> T:
        """Send one request and return its reply's value; see the table of `link` for what a lost connection does.

        Args:
            request: what is sent. deadline: `time.monotonic()` value. watching: the watch that it sets, or None.
            session_number: number of the session that it belongs to, `NOW` or `ANY`.

        Raises:
            BrokerError: the server's error. ConnectionLoss: a write was in flight on a lost connection. SessionExpired: that session has
                ended.
            TimedOut: no reply in time. ValueUnsupported: the request is too large. ProtocolError: the reply does not decode. Closed,
                AuthError.
        """
        if session_number == NOW:
            session_number = self.session_number
        conn, trouble = self._conn, None
        if (
            conn is not None
            and watching is None
            and len(request.body) <= self._max_body
            and (session_number == self.session_number or session_number == ANY)
        ):
            if not request.repeats:  # the short way: as `calling` does it first
                self.writes += 1
                self._liveness.look()
            asked = time.monotonic() if request.leads else 0.0
            try:
                frame = conn.ask(request.code, request.body, deadline)
                if frame is not None:
                    if not self.events.mailbox.idle:
                        self.events.before(deadline)
                    if reply_error(frame) == 0:
                        if request.leads:
                            self._liveness.led(conn, asked)
                        return request.read(frame)
                    return self.read(request, frame, conn)
            except (ProtocolError, TimedOut, Disconnected, BrokerError) as why:
                self._judge(request, conn, why, deadline, asked)
                trouble = why
        return self.tasks.drive(self.calling(request, deadline, watching, session_number, int(trouble is not None)), deadline + SETTLE)

    def calling(
        self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW, failures: int = 0
    ) -> Steps[T]:
        """Run `call` as steps.

        Args:
            failures: number of attempts that have failed.
        """
        if session_number == NOW:
            session_number = self.session_number
        while True:
            asked = sent = time.monotonic()
            call: Call | None = None
            try:
                call = yield from self.submitting(request, deadline, watching, session_number)
                sent = time.monotonic()
                if not (yield call, deadline):  # one with a watch is not given up: it may yet be set
                    raise TimedOut("no reply in time", peer=call.conn.peer)
                frame = call.result(0.0)
                if not self.events.mailbox.idle:
                    yield from self.events.seen(deadline)
                value = self.read(request, frame, call.conn)
                if request.leads:
                    self._liveness.led(call.conn, asked)
                return value
            except (ProtocolError, TimedOut, Disconnected, BrokerError) as why:
                if call is None:  # nothing was sent
                    raise
                self._judge(request, call.conn, why, deadline, sent, failures)
            except BaseException:  # closed, or thrown into: the caller does not wait any more
                if watching is not None:
                    watching.withdrawn = True
                    if call is not None:
                        self.events.withdraw(watching)
                raise
            finally:
                if watching is None and call is not None:
                    call.cancel()
            failures += 1
            if failures > 1:  # a request that ends its connection each time must not do so as fast as connections can be opened
                yield min(time.monotonic() + retry.DEFAULT.delay(failures), deadline)

    def _judge(self, request: Request[Any], conn: Connection, why: WireprotoError, deadline: float, sent: float, failures: int = 0) -> None:
        """Decide about a request that was sent and failed: raise the error, or return so that it is sent again."""
        if isinstance(why, ProtocolError):  # bytes that are no reply
            conn.close(str(why))
            raise why.with_context(peer=conn.peer) from None
        if isinstance(why, TimedOut):
            raise unanswered(why, request, conn, sent)
        if isinstance(why, Disconnected):
            self.lost(conn, why)
            if not request.repeats:
                raise connection_loss(lost_answer(request.what, sent, why))
            self.again(why)
        elif not self.passes(why, deadline, failures):
            raise why

    def passes(self, why: WireprotoError, deadline: float, failures: int = 0) -> bool:
        """Return whether there is time to repeat the request: a server that answers "throttled" or "session moved" has done nothing."""
        if not is_transient(why) or time.monotonic() + retry.DEFAULT.delay(failures + 1) >= deadline:
            return False
        self.again(why)
        return True

    def again(self, why: WireprotoError) -> None:
        """Log that a request that failed so is repeated."""
        self.log.info(("again", type(why)), "tried again, while there is time: %s", why)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Call:
        """Send one request without waiting for the reply; waits for a connection until `deadline` where there is none.

        Args and errors are those of `call`, without those of the reply.
        """
        if session_number == NOW:
            session_number = self.session_number
        conn = self._conn
        if conn is not None and watching is None and (session_number == self.session_number or session_number == ANY):  # the short way
            self._fits(request)
            if not request.repeats:
                self.writes += 1
                self._liveness.look()
            try:
                return conn.post(request.code, request.body, None, deadline)
            except Disconnected as why:  # nothing was sent
                self.lost(conn, why)
        return self.tasks.drive(self.submitting(request, deadline, watching, session_number, lasting=True), deadline + SETTLE)

    def submitting(
        self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW, *, lasting: bool = False
    ) -> Steps[Call]:
        """Run `submit` as steps.

        Args:
            lasting: whether the caller may come back after `deadline` for a call with a watch; else the call ends there.
        """
        self._fits(request)
        if session_number == NOW:
            session_number = self.session_number
        if not request.repeats:
            self.writes += 1
            self._liveness.look()
        while True:
            conn = self._conn or (yield from self.connecting(deadline, session_number))
            if (
                session_number != self.session_number and session_number != ANY
            ):  # checked after the connection was read: that is of this session or an earlier one
                raise self._over(request.path)
            try:
                if watching is None:
                    return conn.post(request.code, request.body, None, deadline)
                yield from self.events.setting(watching, deadline)
                (code, body), *behind = self.events.requests(watching, request.code, request.body, self.zxid)
                try:
                    call = conn.post(code, body, self.events.mailbox, deadline, watching, lasting)
                except BaseException:
                    self.events.unset(watching)
                    raise
                yield from self._following(conn, behind, deadline)
                return call
            except Disconnected as why:  # nothing was sent
                self.lost(conn, why)
            except BufferFull:  # in an event loop's thread, where `post` must not wait
                if time.monotonic() >= deadline:
                    raise TimedOut("the request is not sent in time", peer=conn.peer) from None
                yield min(time.monotonic() + ROOM, deadline)

    def _following(self, conn: Connection, behind: Sequence[tuple[int, bytes]], deadline: float) -> Steps[None]:
        """Send the requests that belong after a request for a watch.

        Where the connection is lost, the watches are set on the next one anyhow.
        """
        for code, body in behind:
            while True:
                try:
                    conn.post(code, body, None, deadline)
                except Disconnected:
                    return
                except BufferFull:
                    if time.monotonic() >= deadline:
                        raise TimedOut("the request is not sent in time", peer=conn.peer) from None
                    yield min(time.monotonic() + ROOM, deadline)
                else:
                    break

    def read(self, request: Request[T], frame: bytes, conn: Connection) -> T:
        """Return a reply's value, or raise its typed error. Bytes that are no reply cost the connection."""
        try:
            err = reply_error(frame)
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
        """Raise ValueUnsupported for a request that no server would accept, Closed on a closed client."""
        self._loop.check()
        self._fits(request)

    def _fits(self, request: Request[Any]) -> None:
        if len(request.body) > self._max_body:
            raise ValueUnsupported(
                f"{request.path}: a request of {len(request.body) + 8} bytes; servers take at most {self._max_body + 8} (jute.maxbuffer)"
            )

    def still(self, session_number: int = ANY) -> None:
        """Raise SessionExpired when the session of this number has ended."""
        if session_number not in (self.session_number, ANY):
            raise self._over()

    def _over(self, path: str = "") -> BrokerError:
        return SessionExpired(f"{path}: the session ended before this was done" if path else "the session has ended")
