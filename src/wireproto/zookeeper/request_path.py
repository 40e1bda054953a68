"""Asking: requests go out over the connection of now, and what comes of them.

What it is: the half of the link that callers use: `call` and `submit`, and the same as steps, for who waits in another way. The short way
of a request without a watch, on a connection that is there, is a call of the engine's; everything else is done by the steps. What a lost
connection does to a request stands in `link`. Must not: know how a connection is made.
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
from .errors import ConnectionLoss
from .operations import Request, failure

if TYPE_CHECKING:
    from .._net import Call, Connection, Loop
    from ..net.client_log import ClientLog
    from ..net.task import Tasks
    from .events import Events, Watching
    from .liveness import Liveness

T = TypeVar("T")
ANY, NOW = -1, -2
"""Which session a call belongs to, where it is not one by number: whichever there is, or that of the moment when it is made."""
ROOM = 0.01
"""Seconds between looks whether a connection that had no room for more bytes has some again."""
SETTLE = 5.0
"""Seconds beyond its own time after which an operation is ended from outside."""


def passing(why: WireprotoError) -> bool:
    """Whether it says "not now": nothing was done, and the same may be done later."""
    return isinstance(why, BrokerError) and retry.verdict(why) is not retry.Verdict.NEVER


class RequestPath:
    """Sends requests over one session.

    Attributes:
        era: how many sessions have ended.
        writes: how many requests were sent that must not be repeated; two threads' may count as one.
        told: the client's log.
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
        """The current connection, handshake done; waits for one until `deadline`. Steps."""

    @property
    @abstractmethod
    def zxid(self) -> int:
        """The last transaction that a reply told of."""

    @abstractmethod
    def lost(self, conn: Connection, why: Exception | None) -> None:
        """This connection is gone."""

    @abstractmethod
    def _shut_out(self, why: WireprotoError) -> None:
        """The servers take nothing from this client."""

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> T:
        """Send one request and read its reply; see the table of `link` for what a lost connection does.

        Args:
            within: number of the session that it belongs to (`session_number`), `NOW` or `ANY`.
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
                self._judge(request, conn, why, deadline)
                trouble = why
        return self.tasks.drive(self.calling(request, deadline, watching, session_number, int(trouble is not None)), deadline + SETTLE)

    def calling(
        self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW, failures: int = 0
    ) -> Steps[T]:
        """`call`, as steps.

        Args:
            failures: how many attempts have failed.
        """
        if session_number == NOW:
            session_number = self.session_number
        while True:
            asked = time.monotonic()
            call: Call | None = None
            try:
                call = yield from self.submitting(request, deadline, watching, session_number)
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
                self._judge(request, call.conn, why, deadline, failures)
            except BaseException:  # closed, or thrown into: nobody waits any more
                if watching is not None:
                    watching.withdrawn = True
                    if call is not None:
                        self.events.withdraw(watching)
                raise
            finally:
                if watching is None and call is not None:
                    call.cancel()
            failures += 1
            if failures > 1:  # a request that costs a connection each time must not cost them as fast as they can be made
                yield min(time.monotonic() + retry.DEFAULT.delay(failures), deadline)

    def _judge(self, request: Request[Any], conn: Connection, why: WireprotoError, deadline: float, failures: int = 0) -> None:
        """What became of a request that was sent: raises, or it is to be sent again."""
        if isinstance(why, ProtocolError):  # bytes that are no reply
            conn.close(str(why))
            raise why.with_context(peer=conn.peer) from None
        if isinstance(why, TimedOut):
            why.doubtful = not request.repeats
            raise why
        if isinstance(why, Disconnected):
            self.lost(conn, why)
            if not request.repeats:
                raise ConnectionLoss(f"{request.path}: {why.text}", peer=conn.peer) from why
            self.again(why)
        elif not self.passes(why, deadline, failures):
            raise why

    def passes(self, why: WireprotoError, deadline: float, failures: int = 0) -> bool:
        """Whether there is time to ask again: a server that says "throttled" or "session moved" has done nothing."""
        if not passing(why) or time.monotonic() + retry.DEFAULT.delay(failures + 1) >= deadline:
            return False
        self.again(why)
        return True

    def again(self, why: WireprotoError) -> None:
        """Tell that what failed so is asked again."""
        self.log.info(("again", type(why)), "tried again, while there is time: %s", why)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Call:
        """Send one request without waiting for the reply; waits for a connection until `deadline` where there is none."""
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
        """`submit`, as steps.

        Args:
            lasting: whether a call with a watch is waited for by who may come back behind `deadline`; else it ends there.
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
            ):  # looked at behind the connection: it is of this session or an earlier one
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
            except BufferFull:  # where nobody may wait in `post`: an event loop's thread
                if time.monotonic() >= deadline:
                    raise TimedOut("the request is not sent in time", peer=conn.peer) from None
                yield min(time.monotonic() + ROOM, deadline)

    def _following(self, conn: Connection, behind: Sequence[tuple[int, bytes]], deadline: float) -> Steps[None]:
        """Send what belongs behind a request for a watch. Where the connection is lost, the next one has the watches set anyhow."""
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
        """A reply's value, or its typed error. Bytes that are no reply cost the connection."""
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
        """Raise ValueUnsupported for a request that no server would take, Closed on a closed client."""
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
