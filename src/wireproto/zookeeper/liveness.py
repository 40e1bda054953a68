"""Tracks whether the server answers, and whether the session may be over: sends pings and checks the session's state against the clock.

The reply to a ping shows that its server was there when the ping was sent, or later. Three quarters of the timeout after that
(`Session.lost_at`) the session is LOST, until a server says that it is not: a server may have ended it, and this client cannot know.

That is no promise: a follower answers pings by itself, also while it is cut off from the leader, which ends the session. What is promised
(`safe_for`) rests on what the leader has received. Servers report signs of life to it within half a tick, in order with the requests that
they forward. So a reply that involved the leader (a write's, a `sync`'s) proves the pings of that connection that were answered
`Session.delay` before its request was sent, and the session has its whole timeout from the last of those on; a new leader gives each
session as much. A `sync` is sent beside each ping as long as `safe_for` is called, and not otherwise: it costs the leader work.

Servers answer pings in their order. Threads: timers, `answered` and `_led` run in the I/O thread, the rest in any thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .._codec import reply_error
from ..errors import WireprotoError
from ..net.task import after
from .messages import RequestHeader
from .operations import sync
from .session import CONNECTED, Session, State

if TYPE_CHECKING:
    import threading

    from .._net import Call, Connection, Loop

log = logging.getLogger("wireproto.zookeeper")
_PING = -2
_ALIVE = (*CONNECTED, State.SUSPENDED)
_SYNC = sync("/", "/")
SIGNS = 64
"""Answered pings that are remembered: enough for `Session.delay` of a session timeout of 40 minutes."""


class Liveness:
    """The pings and the clock of the current session.

    Args:
        session: the first; the link replaces it by the next one.
        lock: the link's, which guards the session.
        current: returns the current connection, or None.
        become: sets the session's state and reports it; called with the lock held.
    """

    def __init__(
        self,
        loop: Loop,
        session: Session,
        lock: threading.Lock,
        current: Callable[[], Connection | None],
        become: Callable[[State], object],
    ) -> None:
        self._loop = loop
        self.session = session
        self._lock = lock
        self._current = current
        self._become = become
        self._runs = False
        self._signs: tuple[Connection | None, tuple[tuple[float, float], ...]] = None, ()  # of a connection: when answered, when sent
        self._asked = float("-inf")  # when `safe_for` was called last

    def begin(self, conn: Connection) -> None:
        """Begin to ping on a connection that has taken the session up.

        From now on its `context` holds when its unanswered pings were sent.
        """
        conn.context = deque()
        self._signs = conn, ()
        self._loop.call_at(time.monotonic() + self.session.ping_every, self._tick, conn)
        self._set_clock()

    def safe_for(self) -> float:
        """Return for how many seconds no leader can have ended the session; 0.0 when one may have."""
        session, now = self.session, time.monotonic()
        if session.state not in _ALIVE or self._loop.forked:
            return 0.0
        first, self._asked = now - self._asked > session.timeout, now
        if first:
            with suppress(WireprotoError):
                self._loop.call_soon(self._lead, self._current())
        return max(session.safe_until - now, 0.0)

    def led(self, conn: Connection, asked: float) -> None:
        """Note that the leader was involved in the reply to a request that was sent at `asked` (seconds of `time.monotonic()`)."""
        of, signs = self._signs
        if of is not conn:
            return
        session = self.session
        reported = asked - session.delay
        for answered, sent in reversed(signs):
            if answered <= reported:
                session.known = max(session.known, sent)
                return

    def look(self) -> None:
        """Check whether a server may have ended the session: then it is LOST, from now on."""
        session = self.session
        if session.state not in _ALIVE or time.monotonic() < session.lost_at or self._loop.forked:
            return
        with self._lock:
            if session.state in _ALIVE and time.monotonic() >= session.lost_at:
                self._become(State.LOST)

    def answered(self, conn: Connection) -> None:
        """Take the reply to the oldest ping of this connection."""
        with self._lock:
            session = self.session
            if conn is not self._current() or not conn.context:
                return
            session.answered = conn.context.popleft()
            self._signs = conn, (*self._signs[1][1 - SIGNS :], (time.monotonic(), session.answered))
            if session.state is State.LOST and session.lost_at > time.monotonic():
                self._become(State.CONNECTED_READ_ONLY if session.read_only else State.CONNECTED)
        self._set_clock()

    # -- timers -----------------------------------------------------------------------------------------------------------

    def _tick(self, conn: Connection) -> None:
        """Send a ping, and close the connection when the server has been silent for too long."""
        if conn.closed:
            return
        now = time.monotonic()
        silent = now - conn.last_read
        if silent > self.session.dead_after:
            conn.close(f"no byte from the server for {silent:.1f} s, of a session timeout of {self.session.timeout:g} s")
            return
        try:
            conn.context.append(now)
            conn.send(RequestHeader(xid=_PING, type=11).encode())
        except WireprotoError as why:
            log.debug("%s: no ping: %s", conn.peer, why)
        if now - self._asked <= self.session.timeout:
            self._lead(conn)
        self._loop.call_at(now + self.session.ping_every, self._tick, conn)

    def _lead(self, conn: Connection | None) -> None:
        """Send a `sync`, whose reply involves the leader."""
        if conn is None or self.session.read_only:
            return
        try:
            now, call = time.monotonic(), conn.post(_SYNC.code, _SYNC.body)
        except WireprotoError as why:
            log.debug("%s: no sync: %s", conn.peer, why)
        else:
            after(call, self._led, call, now)

    def _led(self, call: Call, asked: float) -> None:
        if call.frame is not None and not reply_error(call.frame):
            self.led(call.conn, asked)

    def _set_clock(self) -> None:
        if not self._runs:
            self._runs = True
            self._loop.call_at(self.session.lost_at, self._clock)

    def _clock(self) -> None:
        self._runs = False
        self.look()
        if self.session.state in _ALIVE:
            self._set_clock()
