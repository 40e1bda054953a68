"""The session: what survives the loss of a connection, and what each handshake makes of it.

What it is: a sans-IO state object. It builds the first frame of a connection, reads the server's answer, and tells how long silence may
last. It knows no socket, clock, thread or randomness. Layout of the two frames: ``proto/zookeeper/session.wire``.

    NEW ──connected──▶ CONNECTED ──connection lost──▶ SUSPENDED ──resumed──▶ CONNECTED
                           │                              │ server: "session gone"
                           └── close ──▶ CLOSED           └──▶ EXPIRED ──(a new session)──▶ CONNECTED

What a server's answer can be:

    37 bytes (36 before 3.4)   time-out > 0: connected; the session id tells whether ours was resumed
                               time-out 0: our session is gone (expired, unknown, or wrong password)
    16 bytes                   a ReplyHeader with error -119: this server has no quorum and its reads need a session of its own kind
    closed without a byte      it does not serve yet, has no quorum, or is behind what we have seen: another server may do
"""

from __future__ import annotations

import enum

from .._codec import ReplyHeads
from ..errors import Malformed
from .codes import SessionExpired, error
from .messages import ConnectRequest, ConnectResponse, ReplyHeader

NO_PASSWORD = bytes(16)


class State(enum.Enum):
    """Where the session stands."""

    NEW = "new"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"


class Session:
    """One session. Not thread-safe: the link's lock guards it, but for `heads` and `saw`.

    Args:
        timeout: wanted time-out in seconds; servers clamp it to 2 … 20 of their ticks.
        read_only: whether a server without quorum will do.
        session_id, password: of a session to go on with; 0 asks for a new one.

    Attributes:
        state: see above.
        session_id, password: what another process needs to go on with it.
        timeout: what the server granted, in seconds (what was wanted, before).
        read_only: whether the server of now has no quorum.
        heads: reads the replies' headers, and so knows the last transaction that this client has seen (`zxid`).
    """

    def __init__(self, timeout: float, *, read_only: bool = False, session_id: int = 0, password: bytes = NO_PASSWORD) -> None:
        self.state = State.NEW
        self.wanted = timeout
        self.accepts_read_only = read_only
        self.session_id = session_id
        self.password = password
        self.timeout = timeout
        self.read_only = False
        self.heads = ReplyHeads()

    def connect_request(self) -> bytes:
        """The first frame of a connection."""
        return ConnectRequest(
            protocol_version=0,
            last_zxid_seen=self.zxid,
            time_out=min(int(self.wanted * 1000), 0x7FFFFFFF),
            session_id=self.session_id,
            passwd=self.password,
            read_only=self.accepts_read_only,
        ).encode()

    def connected(self, frame: bytes) -> bool:
        """Read the server's answer; whether the session goes on (True) or is a new one (False).

        Raises:
            SessionExpired: ours is gone; `forget` makes the next handshake ask for a new one.
            NotReadOnly: this server cannot take us.
            Malformed: this is no ZooKeeper server.
        """
        if len(frame) == 16:
            header, _ = ReplyHeader.decode_from(frame)
            raise error(header.err, "the server refused the session")
        if len(frame) not in (36, 37):
            raise Malformed(f"a ConnectResponse has 36 or 37 bytes, not {len(frame)}", message="ConnectResponse", offset=0)
        answer = ConnectResponse.decode(frame if len(frame) == 37 else frame + b"\0")
        if answer.time_out <= 0 or answer.session_id == 0:
            self.state = State.EXPIRED
            raise SessionExpired(f"session 0x{self.session_id & (1 << 64) - 1:x} is gone")
        resumed = self.session_id == answer.session_id
        if self.session_id and not resumed:
            # a server that hands out a new session in silence: nothing of ours (ephemeral nodes, watches) is left
            self.state = State.EXPIRED
            raise SessionExpired(f"the server gave session 0x{answer.session_id & (1 << 64) - 1:x} instead of ours")
        self.session_id = answer.session_id
        self.password = bytes(answer.passwd or NO_PASSWORD)
        self.timeout = answer.time_out / 1000
        self.read_only = answer.read_only
        self.state = State.CONNECTED
        return resumed

    def forget(self) -> None:
        """Ask for a new session at the next handshake. What was seen stays seen: an older server is still refused."""
        self.session_id = 0
        self.password = NO_PASSWORD
        self.timeout = self.wanted
        if self.state is State.EXPIRED:
            self.state = State.NEW

    def saw(self, zxid: int) -> None:
        """A reply told of this transaction, be it looked at (then `heads` knows) or not. Not for events: see `Link._deliver`."""
        self.heads.saw(zxid)

    @property
    def zxid(self) -> int:
        return self.heads.zxid

    @property
    def dead_after(self) -> float:
        """Seconds without a byte from the server after which the connection is given up, so that another server can be reached in time."""
        return self.timeout * 2 / 3

    @property
    def ping_every(self) -> float:
        """Seconds between pings."""
        return max(self.timeout / 6, 0.05)
