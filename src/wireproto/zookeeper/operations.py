"""Makes the request of each operation of the tree, with the function that reads its reply. Sans-IO.

A `Request` is what the link sends and a call decodes. Every frame begins with a RequestHeader (xid, code) and every reply with a
ReplyHeader (xid, zxid, err) of 16 bytes; with an error nothing follows. Paths are checked by the caller and carry the chroot: `server_path`
is the server's, `path` the caller's, for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Generic, TypeVar

from .. import arguments
from .._codec import ReplyFields
from ..errors import BrokerError, OptionError, ValueUnsupported
from .acl import OPEN
from .codes import OPERATIONS, CreateMode, error
from .messages import (
    ACL,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    ExistsRequest,
    ExistsResponse,
    GetACLRequest,
    GetACLResponse,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetChildren2Request,
    GetChildren2Response,
    GetDataRequest,
    GetDataResponse,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    SetACLRequest,
    SetACLResponse,
    SetDataRequest,
    SetDataResponse,
    Stat,
    SyncRequest,
    SyncResponse,
)
from .messages import Create2Response as _Create2Response
from .messages import CreateResponse as _CreateResponse

T = TypeVar("T")

_INT = Struct(">i").pack
HEADER = 16
"""Bytes of a ReplyHeader."""
CREATE, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN, SYNC, CHILDREN2, CHECK, MULTI = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14
CREATE2, CONTAINER, TTL, MULTI_READ = 15, 19, 21, 22
LED = frozenset({CREATE, DELETE, SET, SET_ACL, SYNC, MULTI, CREATE2, 16, CONTAINER, TTL})
"""Operations that involve the leader, whichever server gets them; 16 is reconfig."""
MAX_TTL = (1 << 40) - 1


def takes_leader(operation: int) -> bool:
    """Return whether the reply to such a request involves the leader."""
    return operation in LED


class Request(Generic[T]):
    """One operation to be sent. Immutable: requests are kept and sent again.

    Args:
        code: operation code.
        body: the encoded record after the header.
        read: turns the frame of a reply without an error into the value.
        path: the node as the caller named it, for errors.
        repeats: whether sending it twice does no harm, so that a lost connection is no error.
        absent: whether error -101 (no node) is the value None.

    Attributes:
        leads: whether its reply involves the leader: a write's, or a `sync`'s.
    """

    __slots__ = ("absent", "body", "code", "leads", "path", "read", "repeats")

    def __init__(
        self, code: int, body: bytes, read: Callable[[bytes], T], path: str = "", repeats: bool = True, absent: bool = False
    ) -> None:
        self.code = code
        self.body = body
        self.read = read
        self.path = path
        self.repeats = repeats
        self.absent = absent
        self.leads = takes_leader(code)

    @property
    def what(self) -> str:
        """Its operation and node, for errors: "setData /a"."""
        name = next((name for name, facts in OPERATIONS.items() if facts.code == self.code), f"operation {self.code}")
        return f"{name} {self.path}".rstrip()


def failure(code: int, request: Request[Any], peer: str | None = None) -> BrokerError:
    """Return the typed error for a reply's code, naming the node."""
    return error(code, request.path, node=request.path, peer=peer)


def nothing(frame: bytes) -> None:
    """Read a reply without a body."""


# -- reads ----------------------------------------------------------------------------------------------------------------


_read_data: Callable[[bytes], tuple[bytes | None, Stat]] = ReplyFields(GetDataResponse, "data", "stat").read


def get(server_path: str, path: str, watch: bool = False) -> Request[tuple[bytes | None, Stat]]:
    """Make a getData request; its value is (data, stat)."""
    return Request(GET, GetDataRequest(path=server_path, watch=watch).encode(), _read_data, path)


_read_exists: Callable[[bytes], Stat | None] = ReplyFields(ExistsResponse, "stat").read


def exists(server_path: str, path: str, watch: bool = False) -> Request[Stat | None]:
    """Make an exists request; its value is the stat, or None when there is no such node."""
    return Request(EXISTS, ExistsRequest(path=server_path, watch=watch).encode(), _read_exists, path, absent=True)


def unwatched(body: bytes) -> bytes:
    """Return the body of a `get`, `exists` or `children` with a watch without the watch: the flag is the last byte."""
    return body[:-1] + b"\0"


def _read_children(frame: bytes) -> tuple[list[str], Stat]:
    answer = GetChildren2Response.decode(frame, start=HEADER)
    return list(answer.children or ()), answer.stat


def children(server_path: str, path: str, watch: bool = False) -> Request[tuple[list[str], Stat]]:
    """Make a getChildren2 request; its value is (names, stat)."""
    return Request(CHILDREN2, GetChildren2Request(path=server_path, watch=watch).encode(), _read_children, path)


def _read_acl(frame: bytes) -> tuple[tuple[ACL, ...], Stat]:
    answer = GetACLResponse.decode(frame, start=HEADER)
    return tuple(answer.acl or ()), answer.stat


def get_acl(server_path: str, path: str) -> Request[tuple[tuple[ACL, ...], Stat]]:
    """Make a getACL request; its value is (access list, stat)."""
    return Request(GET_ACL, GetACLRequest(path=server_path).encode(), _read_acl, path)


def sync(server_path: str, path: str) -> Request[str]:
    """Make a sync request; its value is the server's path."""
    return Request(SYNC, SyncRequest(path=server_path).encode(), lambda frame: SyncResponse.decode(frame, start=HEADER).path, path)


def ephemerals(server_prefix: str, prefix: str) -> Request[list[str]]:
    """Make a getEphemerals request; its value is the list of the servers' paths (servers from 3.6)."""

    def read(frame: bytes) -> list[str]:
        return list(GetEphemeralsResponse.decode(frame, start=HEADER).ephemerals or ())

    return Request(103, GetEphemeralsRequest(prefix_path=server_prefix).encode(), read, prefix)


def count(server_path: str, path: str) -> Request[int]:
    """Make a getAllChildrenNumber request; its value is the number of descendants (servers from 3.6)."""

    def read(frame: bytes) -> int:
        return GetAllChildrenNumberResponse.decode(frame, start=HEADER).total_number

    return Request(104, GetAllChildrenNumberRequest(path=server_path).encode(), read, path)


# -- writes ---------------------------------------------------------------------------------------------------------------


def access(acl: Sequence[ACL] | None) -> tuple[ACL, ...]:
    """Return the access list to send; None is open to anyone.

    Raises:
        OptionError: it is not several `ACL`. ValueUnsupported: it is empty.
    """
    if acl is None:
        return OPEN
    if acl is not OPEN:
        acl = arguments.each("acl", acl, ACL, "access list entries (ACL)")
    if not acl:
        raise ValueUnsupported("an access list cannot be empty")
    return tuple(acl)


def create_record(
    server_path: str,
    data: bytes | None,
    *,
    ephemeral: bool = False,
    sequence: bool = False,
    container: bool = False,
    ttl: float | None = None,
    acl: Sequence[ACL] | None = None,
) -> tuple[int, CreateRequest | CreateTTLRequest]:
    """Return operation code and record of a create; the code is that of create2 where the reply may carry the stat.

    Args:
        server_path: the server's path. data: bytes; None is null. ephemeral, sequence, container: the kind of node. acl: None: open to
            anyone.
        ttl: seconds since the last write of the data after which the server removes the node, once it has no children.

    Raises:
        ValueUnsupported: kinds of node that exclude each other, or a time to live that the protocol cannot carry.
    """
    if (ephemeral and (container or ttl is not None)) or (container and (sequence or ttl is not None)):
        raise ValueUnsupported("a node is one of ephemeral, container (never sequential) or with a time to live")
    if data is not None and not isinstance(data, bytes):
        data = _as_bytes(data)  # type: ignore[unreachable]
    access_list = access(acl)
    if ttl is not None:
        ms = round(ttl * 1000)
        if not 0 < ms <= MAX_TTL:
            raise ValueUnsupported(f"time to live {ttl} s is not between 1 ms and 2^40 - 1 ms")
        mode = CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL if sequence else CreateMode.PERSISTENT_WITH_TTL
        return TTL, CreateTTLRequest(path=server_path, data=data, acl=access_list, flags=int(mode), ttl=ms)
    mode = CreateMode.CONTAINER if container else CreateMode(int(ephemeral) + 2 * int(sequence))
    return CONTAINER if container else CREATE2, CreateRequest(path=server_path, data=data, acl=access_list, flags=int(mode))


def _as_bytes(data: Any) -> bytes:
    try:
        return memoryview(data).tobytes()
    except TypeError:
        raise ValueUnsupported(f"a node's data is bytes or None, not {type(data).__name__}") from None


_read_path: Callable[[bytes], str] = ReplyFields(_CreateResponse, "path").read


def _read_path_stat(frame: bytes) -> str:
    answer, _ = _Create2Response.decode_from(frame, start=HEADER)
    return answer.path


def create(server_path: str, path: str, data: bytes | None, **kind: Any) -> Request[str]:
    """Make a create request whose value is the server's path. Plain nodes use operation 1, which every server has."""
    operation, record = create_record(server_path, data, **kind)
    if operation == CREATE2:
        return Request(CREATE, record.encode(), _read_path, path, repeats=False)
    return Request(operation, record.encode(), _read_path_stat, path, repeats=False)


def create2(server_path: str, path: str, data: bytes | None, **kind: Any) -> Request[tuple[str, Stat]]:
    """Make a create request whose value is the server's path and the new node's stat."""

    def read(frame: bytes) -> tuple[str, Stat]:
        answer = _Create2Response.decode(frame, start=HEADER)
        return answer.path, answer.stat

    code, record = create_record(server_path, data, **kind)
    return Request(code, record.encode(), read, path, repeats=False)


def delete(server_path: str, path: str, version: int = -1) -> Request[None]:
    """Make a delete request; its value is None."""
    return Request(DELETE, DeleteRequest(path=server_path, version=version).encode(), nothing, path, repeats=False)


_read_set: Callable[[bytes], Stat] = ReplyFields(SetDataResponse, "stat").read


def written(server_path: str, path: str) -> bytes:
    """Return the first part of every request to write a node: its path, encoded."""
    return SetDataRequest(path=server_path, data=b"", version=-1).encode()[:-8]


def set_data(node: bytes, path: str, data: bytes | None, version: int = -1) -> Request[Stat]:
    """Make a setData request for the node whose path `written` encoded: [path][int32 length, or -1 for null][data][int32 version]."""
    if type(data) is not bytes and data is not None:
        data = _as_bytes(data)
    if version != -1 and not (isinstance(version, int) and -0x80000000 <= version <= 0x7FFFFFFF):
        raise ValueUnsupported(f"version {version!r} is no int32")
    body = node + _INT(-1) + _INT(version) if data is None else b"".join((node, _INT(len(data)), data, _INT(version)))
    return Request(SET, body, _read_set, path, False)


def set_acl(server_path: str, path: str, acl: Sequence[ACL], version: int = -1) -> Request[Stat]:
    """Make a setACL request; its value is the stat. Raises as `access`, also for None, which would open the node to anyone."""
    if acl is None:
        raise OptionError("acl is several access list entries (ACL), not None")
    body = SetACLRequest(path=server_path, acl=access(acl), version=version).encode()
    return Request(SET_ACL, body, lambda frame: SetACLResponse.decode(frame, start=HEADER).stat, path, repeats=False)
