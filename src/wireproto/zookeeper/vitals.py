"""Vitals: whether the server answers, and whether the session may be over.

What it is: the pings of the connection of now, and the session's state held against this machine's clock. A ping's answer tells when the
session was alive at the servers for certain: when that ping left, or later (`Session.safe_until`). Behind that the session is LOST,
until a server says that it is not: a server may have ended it, and this client cannot know.

May assume: servers answer pings in their order. Threads: timers and `answered` run in the keeper, `look` wherever somebody asks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import WireprotoError
from .messages import RequestHeader
from .session import CONNECTED, Session, State

if TYPE_CHECKING:
    import threading

    from .._net import Connection, Loop

log = logging.getLogger("wireproto.zookeeper")
_PING = -2
_ALIVE = (*CONNECTED, State.SUSPENDED)


class Vitals:
    """The pings and the clock of one session.

    Args:
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
        self._session = session
        self._lock = lock
        self._current = current
        self._become = become
        self._runs = False

    def begin(self, conn: Connection) -> None:
        """A connection has taken the session up. Its `context` is when its unanswered pings were sent, from now on."""
        conn.context = deque()
        self._loop.call_at(time.monotonic() + self._session.ping_every, self._tick, conn)
        self._wind()

    def safe_for(self) -> float:
        """Seconds for which no server can have ended the session; 0.0 when one may have."""
        session = self._session
        return max(session.safe_until - time.monotonic(), 0.0) if session.state in _ALIVE else 0.0

    def look(self) -> None:
        """See whether a server may have ended the session: then it is LOST, from now on."""
        session = self._session
        if session.state not in _ALIVE or time.monotonic() < session.safe_until or self._loop.forked:
            return
        with self._lock:
            if session.state in _ALIVE and time.monotonic() >= session.safe_until:
                self._become(State.LOST)

    def answered(self, conn: Connection) -> None:
        """A ping was."""
        with self._lock:
            session = self._session
            if conn is not self._current() or not conn.context:
                return
            session.answered = conn.context.popleft()
            if session.state is State.LOST and session.safe_until > time.monotonic():
                self._become(State.CONNECTED_READ_ONLY if session.read_only else State.CONNECTED)
        self._wind()

    # -- timers -----------------------------------------------------------------------------------------------------------

    def _tick(self, conn: Connection) -> None:
        """Ping, and give the connection up when the server has been silent for too long."""
        if conn.closed:
            return
        now = time.monotonic()
        silent = now - conn.last_read
        if silent > self._session.dead_after:
            conn.close(f"no byte from the server for {silent:.1f} s")
            return
        try:
            conn.context.append(now)
            conn.send(RequestHeader(xid=_PING, type=11).encode())
        except WireprotoError as why:
            log.debug("%s: no ping: %s", conn.peer, why)
        self._loop.call_at(now + self._session.ping_every, self._tick, conn)

    def _wind(self) -> None:
        if not self._runs:
            self._runs = True
            self._loop.call_at(self._session.safe_until, self._clock)

    def _clock(self) -> None:
        self._runs = False
        self.look()
        if self._session.state in _ALIVE:
            self._wind()
