"""Sends any operation of the protocol, by its record or by its name (``client.request``).

It finds out which operation a record belongs to, under which xid it is sent, and the typed reply. The chroot is not applied, and watches
are not noted: an event of a watch that is set here has no callback.

    | operation                | xid  | here                                                                               |
    |--------------------------|------|------------------------------------------------------------------------------------|
    | most                     | next | sent by the link, which repeats reads on the next connection                       |
    | auth                     | -4   | given on every later connection too                                                |
    | setWatches, setWatches2  | -8   | on the current connection                                                          |
    | ping                     | -2   | sent; the engine drops the reply                                                   |
    | createSession, closeSession, notification, error | | UsageError: the client's own, or the servers'                   |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .._codec import Message
from ..errors import UsageError
from ..net.task import Steps, reply
from . import messages
from . import operations as op
from .codes import OPERATIONS, error
from .lists import MultiRequest, MultiResponse

if TYPE_CHECKING:
    from .link import Link

_READS: Final = frozenset({
    "exists", "getData", "getACL", "getChildren", "getChildren2", "sync", "getEphemerals", "getAllChildrenNumber", "whoAmI", "multiRead",
    "checkWatches", "addWatch",
})  # fmt: skip
"""Operations that do no harm when they are sent twice."""
_OWN: Final = {
    "createSession": "the client opens its session itself",
    "closeSession": "close the client",
    "notification": "servers send it",
    "error": "servers write it",
}


def request(link: Link, message: Message | MultiRequest | None, operation: str | None, deadline: float) -> Steps[Any]:
    """Send one request and return the typed reply, None where there is none; see `ZooKeeperClient.request`. Steps."""
    name = _operation(message, operation)
    if name in _OWN:
        raise UsageError(f"{name}: {_OWN[name]}")
    facts = OPERATIONS[name]
    if name == "auth" and isinstance(message, messages.AuthPacket):
        yield from link.identifying(message.scheme, bytes(message.auth or b""), deadline)
        return None
    body = b"" if message is None else message.encode()
    if facts.xid is not None:
        return (yield from _fixed(link, name, facts.xid, facts.code, body, deadline))

    def read(frame: bytes) -> Any:
        if name in ("multi", "multiRead"):
            return MultiResponse.decode(frame, op.HEADER)
        return None if facts.reply is None else getattr(messages, facts.reply).decode(frame, start=op.HEADER)

    asked = op.Request(facts.code, body, read, getattr(message, "path", name), repeats=name in _READS)
    return (yield from link.calling(asked, deadline))


def _fixed(link: Link, name: str, xid: int, code: int, body: bytes, deadline: float) -> Steps[None]:
    """Send an operation that has an xid of its own. Steps."""
    conn = yield from link.connecting(deadline)
    parts = (messages.RequestHeader(xid=xid, type=code).encode(), body)
    if name == "ping":
        conn.send(parts, timeout_at=deadline)
        return
    header, _ = messages.ReplyHeader.decode_from((yield from reply(conn.submit(xid, parts), deadline)))
    if header.err:
        raise error(header.err, name, peer=conn.peer)


def _operation(message: Message | MultiRequest | None, name: str | None) -> str:
    """Return the operation's name; raises UsageError for none, or one that the record does not belong to."""
    record = None if message is None else type(message).__name__
    if isinstance(message, MultiRequest):
        own = "multiRead" if message.reads else "multi"
        if name not in (None, own, "multi"):
            raise UsageError(f"a MultiRequest is no {name}")
        return name or own
    if name is None:
        for known, facts in OPERATIONS.items():
            if record is not None and facts.request == record:
                return known
        raise UsageError(f"{record} is the request of no operation" if record else "neither a record nor an operation")
    if name not in OPERATIONS:
        raise UsageError(f"no operation {name!r}")
    if OPERATIONS[name].request != record:
        raise UsageError(f"{name} takes {OPERATIONS[name].request or 'no record'}, not {record or 'none'}")
    return name
