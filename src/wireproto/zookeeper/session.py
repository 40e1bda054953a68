"""Keeps what survives the loss of a connection: the session's id, password, state and times; and reads each handshake.

A sans-IO state object. It builds the first frame of a connection, reads the server's answer, and says how long silence may last. It knows
no socket, thread or randomness; times are given to it (seconds of `time.monotonic`). Layout of the two frames:
``proto/zookeeper/session.wire``.

    NEW ──connected──▶ CONNECTED ──connection lost──▶ SUSPENDED ──resumed──▶ CONNECTED
                           │                              │ server: "session gone"
                           └── close ──▶ CLOSED           └──▶ EXPIRED ──(a new session)──▶ CONNECTED

CONNECTED is CONNECTED_READ_ONLY on a server without quorum. CONNECTED and SUSPENDED become LOST by this machine's clock: a server may
have ended the session by now, and could not report it (`lost_at`); a server that says it has not makes it CONNECTED again. A session that
was only ever served without quorum is not known to the other servers: they are asked for a new one, and nothing is lost by that.

What a server's answer can be:

    37 bytes (36 before 3.4)   time-out > 0: connected; the session id says whether ours was resumed
                               time-out 0: our session is gone (expired, unknown, or wrong password)
    16 bytes                   a ReplyHeader with error -119: this server has no quorum and its reads need a session of its own kind
    closed without a byte      it does not serve yet, has no quorum, or is behind what we have seen: another server may do
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..errors import ConnectError, Malformed
from .codes import NotReadOnly, SessionExpired, error
from .messages import ConnectRequest, ConnectResponse, ReplyHeader

NO_PASSWORD = bytes(16)


class State(enum.Enum):
    """The state of the session."""

    NEW = "new"
    CONNECTED = "connected"
    CONNECTED_READ_ONLY = "connected read-only"
    SUSPENDED = "suspended"
    LOST = "lost"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"


CONNECTED = (State.CONNECTED, State.CONNECTED_READ_ONLY)


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """A change of the session's state, as a listener gets it.

    Attributes:
        state: of the session, from now on.
        session_id: its id; 0 before there is one.
        zxid: the last transaction that this client had seen by then.
    """

    state: State
    session_id: int
    zxid: int


class Session:
    """One session. Not thread-safe: the link's lock guards it.

    Args:
        timeout: wanted session timeout in seconds; servers clamp it to 2 … 20 of their ticks.
        read_only: whether a server without quorum will do.
        session_id, password: of a session to resume; 0 asks for a new one.

    Attributes:
        state: see the module.
        session_id, password: what another process needs to resume it.
        timeout: what the server granted, in seconds (what was wanted, before).
        read_only: whether the connected server has no quorum.
        zxid: the last transaction that replies on earlier connections reported.
        writable: whether a server with a quorum has taken the session up.
        answered: when the last ping that was answered was sent, or the handshake: a server was there then, or later. Perhaps it alone: one
            that is cut off from its leader continues to answer for a while (``syncLimit`` ticks).
        known: when the last sign of this client was sent that the leader has received for certain: the session has its whole timeout from
            then on.
    """

    def __init__(self, timeout: float, *, read_only: bool = False, session_id: int = 0, password: bytes = NO_PASSWORD) -> None:
        self.state = State.NEW
        self.wanted = timeout
        self.accepts_read_only = read_only
        self.session_id = session_id
        self.password = password
        self.timeout = timeout
        self.read_only = False
        self.zxid = 0
        self.writable = session_id != 0
        self.answered = 0.0
        self.known = 0.0

    def connect_request(self, *, read_only: bool = True) -> bytes:
        """Return the first frame of a connection.

        Args:
            read_only: False: only a server with a quorum will do, whatever the session accepts.
        """
        return ConnectRequest(
            protocol_version=0,
            last_zxid_seen=self.zxid,
            time_out=min(int(self.wanted * 1000), 0x7FFFFFFF),
            session_id=self.session_id if self.writable else 0,
            passwd=self.password if self.writable else NO_PASSWORD,
            read_only=self.accepts_read_only and read_only,
        ).encode()

    def connected(self, frame: bytes, sent: float = 0.0) -> bool:
        """Read the server's answer; returns whether the session was resumed (True) or is a new one (False).

        Args:
            frame: the answer. sent: when the first frame was sent (`time.monotonic()`).

        Raises:
            SessionExpired: ours is gone; ask for `next`.
            ConnectError: a new one was asked for, and is refused in the same way.
            NotReadOnly: this server cannot take us.
            Malformed: this is no ZooKeeper server.
        """
        if len(frame) == 16:
            header, _ = ReplyHeader.decode_from(frame)
            raise error(header.err, "the server refused the session" + (": it has no quorum" if header.err == NotReadOnly.code else ""))
        if len(frame) not in (36, 37):
            raise Malformed(f"a ConnectResponse has 36 or 37 bytes, not {len(frame)}", message="ConnectResponse", offset=0)
        answer = ConnectResponse.decode(frame if len(frame) == 37 else frame + b"\0")
        if answer.time_out <= 0 or answer.session_id == 0:
            if not (self.session_id and self.writable):
                raise ConnectError("the server created no session: it answered with session id 0 or a timeout of 0")
            self.state = State.EXPIRED
            raise SessionExpired(f"session 0x{self.session_id & (1 << 64) - 1:x} has expired")
        resumed = self.session_id == answer.session_id
        if self.session_id and self.writable and not resumed:
            # a server that gives a new session without saying so: nothing of ours (ephemeral nodes, watches) is left
            self.state = State.EXPIRED
            raise SessionExpired(
                f"the server gave session 0x{answer.session_id & (1 << 64) - 1:x} instead of 0x{self.session_id & (1 << 64) - 1:x}"
            )
        self.session_id = answer.session_id
        self.password = bytes(answer.passwd or NO_PASSWORD)
        self.timeout = answer.time_out / 1000
        self.read_only = answer.read_only
        self.writable = self.writable or not answer.read_only
        self.answered = sent
        if not answer.read_only:
            self.known = sent  # the leader opens and resumes sessions
        self.state = State.CONNECTED_READ_ONLY if answer.read_only else State.CONNECTED
        return resumed

    def next(self) -> Session:
        """Return the session to ask for after this one has ended. This one stays as it is, since scopes hold it.

        The zxid that was seen is kept: a server with older data is still refused.
        """
        after = Session(self.wanted, read_only=self.accepts_read_only)
        after.zxid = self.zxid
        return after

    def note_zxid(self, zxid: int) -> None:
        """Note that a reply reported this transaction, whether the reply was read or not. Not for events: see `Events._pushed`."""
        self.zxid = max(self.zxid, zxid)

    @property
    def lost_at(self) -> float:
        """Return when it becomes LOST. A server that fails may not have forwarded the last sign of us for half a tick (`delay`)."""
        return self.answered + self.timeout - self.delay if self.answered else 0.0

    @property
    def safe_until(self) -> float:
        """Return until when no leader can have ended the session."""
        return min(self.known + self.timeout, self.lost_at) if self.known else 0.0

    @property
    def delay(self) -> float:
        """Return how many seconds servers may take to forward a sign of us: half a tick, and the least session timeout is two ticks."""
        return self.timeout / 4

    @property
    def dead_after(self) -> float:
        """Return the seconds without a byte from the server after which the connection is given up, early enough to reach another one."""
        return self.timeout * 2 / 3

    @property
    def ping_every(self) -> float:
        """Return the seconds between pings. At most ten, however long the session: a device on the way may forget a silent connection."""
        return min(max(self.timeout / 6, 0.05), 10.0)
