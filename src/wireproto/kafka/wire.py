"""Sends one request on one connection and returns its reply.

The header in front, the version agreed with this node, the typed reply, for every message alike. `conn.context` holds what the handshake
agreed (`Agreed`); the connection has had its handshake.

    request   RequestHeader (v1; v2 for flexible messages) | body
    reply     correlation id | tagged fields where the reply's header is v1 | body

Does not choose the node, retry, or look at error codes.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .._codec import Sent
from ..errors import ProtocolError, WireprotoError
from ..net.task import Steps, reply
from .codes import SECRET_APIS
from .messages import ResponseHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._net import Call, Connection, Mailbox
    from .versions import Request, Versions

_HEAD = struct.Struct(">hhih")


SILENT = 2.0
"""Seconds without a reply, after which `meanwhile` is run."""


class Reply(Protocol):
    """What every generated reply class has.

    Attributes:
        NAME: the message's name.
    """

    NAME: ClassVar[str]

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of the header in front of this version."""

    @classmethod
    def decode(cls, data: Any, version: int = ..., start: int = ...) -> Any:
        """Decode the body, which begins at `start`."""


class Agreed:
    """What the handshake with a node agreed, and what is known of the connection since.

    Attributes:
        versions: what the node offers.
        client_id: goes into every header.
        timed_out_at: when a request was last given up without a reply, a time.monotonic() value; 0.0: never.
        until: when to stop using the connection: some time before its session ends, after which the node closes it at the next request.
        leaving: whether no record goes out by it any more, since its session ends soon.
        muted_until: until when the node reads nothing by it, since a quota is used up (KIP-219); 0.0: never so far.
    """

    __slots__ = ("client_id", "leaving", "muted_until", "timed_out_at", "until", "versions")

    def __init__(self, versions: Versions, client_id: bytes) -> None:
        self.versions = versions
        self.client_id = client_id
        self.timed_out_at = 0.0
        self.until = float("inf")
        self.leaving = False
        self.muted_until = 0.0


def frame(message: Request, version: int, token: int, client_id: bytes) -> list[Any]:
    """Encode a request as buffers, without the length in front."""
    head = _HEAD.pack(message.API_KEY, version, token, len(client_id)) + client_id
    if message.header_version(version) >= 2:
        head += b"\0"
    return [head, *message.encode_parts(version)]


def decode(reply: type[Reply], version: int, data: bytes, conn: Connection) -> Any:
    """Decode the typed reply in a frame.

    Raises:
        ProtocolError: it does not decode; the connection is closed, since nothing after it can be trusted.
    """
    try:
        start = 4
        if reply.header_version(version) >= 1:
            start = 5 if data[4:5] == b"\0" else ResponseHeader.decode_from(data, 1)[1]
        return reply.decode(data, version, start)
    except ProtocolError as why:
        why.with_context(peer=conn.peer, message=reply.NAME, version=version)
        conn.close(f"an undecodable reply: {why}")
        raise


def version_for(conn: Connection, message: type[Request] | Request, cap: int | None = None) -> int:
    """Return the newest version of a message that this node and we speak; raises UnsupportedVersion."""
    agreed: Agreed = conn.context
    kind = message if isinstance(message, type) else type(message)
    return agreed.versions.pick(kind, cap, peer=conn.peer)


def silent(conn: Connection) -> bool:
    """Return whether a request was given up, and nothing has come by this connection since."""
    agreed: Agreed = conn.context
    return agreed.timed_out_at > conn.last_read


def asking(
    conn: Connection,
    message: Request,
    until: float,
    *,
    version: int | None = None,
    meanwhile: Callable[[Connection], Steps[None]] | None = None,
) -> Steps[Any]:
    """Send a request and wait for its typed reply. Steps.

    Args:
        until: the deadline, a time.monotonic() value.
        version: to speak; None takes the newest agreed one.
        meanwhile: steps to be run again and again while no reply comes; what they raise ends the waiting.
    Raises:
        TimedOut, Disconnected, Closed: there is no reply. UnsupportedVersion, ValueUnsupported: the version cannot carry the message.
    """
    agreed: Agreed = conn.context
    if version is None:
        version = version_for(conn, message)
    token = conn.next_token()
    secret = message.API_KEY in SECRET_APIS
    call = conn.submit(token, frame(message, version, token, agreed.client_id), timeout_at=until, secret=secret)
    try:
        while meanwhile is not None and not (yield call, min(until, time.monotonic() + SILENT)) and time.monotonic() < until:
            yield from meanwhile(conn)
        data = yield from reply(call, until)
    except WireprotoError:
        call.cancel()
        agreed.timed_out_at = time.monotonic()
        raise
    return decode(message.RESPONSE, version, data, conn)


def submit(
    conn: Connection,
    message: Request,
    *,
    mailbox: Mailbox | None = None,
    timeout_at: float | None = None,
    version: int | None = None,
    caller_data: Any = None,
) -> Call:
    """Send a request without waiting; `result` reads the finished call.

    Args:
        mailbox: takes the call when it is finished; None: it is waited for. timeout_at: when it fails with TimedOut, a time.monotonic()
            value.
        version: to speak; None takes the newest agreed one. caller_data: kept in the call's context.
    """
    agreed: Agreed = conn.context
    if version is None:
        version = version_for(conn, message)
    token = conn.next_token()
    parts = frame(message, version, token, agreed.client_id)
    return conn.submit(token, parts, mailbox, timeout_at, Sent(message.RESPONSE, version, caller_data))


def result(call: Call) -> Any:
    """Return the typed reply of a finished call; raises what it failed with."""
    if call.error is not None:
        raise call.error
    sent: Sent = call.context
    return decode(sent.reply, sent.version, call.frame or b"", call.conn)
