"""Vitals: whether the server answers, and whether the session may be over.

What it is: the pings of the connection of now, and the session's state held against this machine's clock. A ping's answer tells that its
server was there when it left, or later. Three quarters of the time-out behind that (`Session.lost_at`) the session is LOST, until a server
says that it is not: a server may have ended it, and this client cannot know.

That is no promise: a follower answers pings by itself, also while it is cut off from the leader, which ends the session. What is promised
(`safe_for`) rests on what the leader has got. Servers tell it of signs of life within half a tick, in order with what they pass on to it.
So an answer that took the leader (a write's, a `sync`'s) proves the pings of that connection which were answered `Session.delay` before
its question left, and the session has its whole time-out from the last of those on; a new leader gives each session as much. A `sync` goes
out beside each ping as long as somebody asks `safe_for`, and not otherwise: it costs the leader.

May assume: servers answer pings in their order. Threads: timers, `answered` and `_led` run in the I/O thread, the rest wherever somebody asks.
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
"""Answered pings that are remembered: `Session.delay` of a session of 40 minutes."""


class Liveness:
    """The pings and the clock of the session of now.

    Args:
        session: the first; the link puts the next one in its place.
        lock: the link's, which guards the session.
        current: the connection of now, or None.
        become: sets the session's state and tells it; called with the lock held.
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
        self._asked = float("-inf")  # when somebody asked `safe_for` last

    def begin(self, conn: Connection) -> None:
        """A connection has taken the session up. Its `context` is when its unanswered pings were sent, from now on."""
        conn.context = deque()
        self._signs = conn, ()
        self._loop.call_at(time.monotonic() + self.session.ping_every, self._tick, conn)
        self._wind()

    def safe_for(self) -> float:
        """Seconds for which no leader can have ended the session; 0.0 when one may have."""
        session, now = self.session, time.monotonic()
        if session.state not in _ALIVE or self._loop.forked:
            return 0.0
        first, self._asked = now - self._asked > session.timeout, now
        if first:
            with suppress(WireprotoError):
                self._loop.call_soon(self._lead, self._current())
        return max(session.safe_until - now, 0.0)

    def led(self, conn: Connection, asked: float) -> None:
        """The leader has had a part in the answer to a question that left then."""
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
        """See whether a server may have ended the session: then it is LOST, from now on."""
        session = self.session
        if session.state not in _ALIVE or time.monotonic() < session.lost_at or self._loop.forked:
            return
        with self._lock:
            if session.state in _ALIVE and time.monotonic() >= session.lost_at:
                self._become(State.LOST)

    def answered(self, conn: Connection) -> None:
        """A ping was."""
        with self._lock:
            session = self.session
            if conn is not self._current() or not conn.context:
                return
            session.answered = conn.context.popleft()
            self._signs = conn, (*self._signs[1][1 - SIGNS :], (time.monotonic(), session.answered))
            if session.state is State.LOST and session.lost_at > time.monotonic():
                self._become(State.CONNECTED_READ_ONLY if session.read_only else State.CONNECTED)
        self._wind()

    # -- timers -----------------------------------------------------------------------------------------------------------

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
            conn.context.append(now)
            conn.send(RequestHeader(xid=_PING, type=11).encode())
        except WireprotoError as why:
            log.debug("%s: no ping: %s", conn.peer, why)
        if now - self._asked <= self.session.timeout:
            self._lead(conn)
        self._loop.call_at(now + self.session.ping_every, self._tick, conn)

    def _lead(self, conn: Connection | None) -> None:
        """Ask for what takes the leader."""
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

    def _wind(self) -> None:
        if not self._runs:
            self._runs = True
            self._loop.call_at(self.session.lost_at, self._clock)

    def _clock(self) -> None:
        self._runs = False
        self.look()
        if self.session.state in _ALIVE:
            self._wind()
