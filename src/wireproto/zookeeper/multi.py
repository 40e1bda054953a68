"""Encodes several operations as one request: all of them are done, or none (operation 14); or several reads (operation 22).

The typed operations of `Tree.multi` are here, and their frame, which is a list with a header before each item and one at its end:

    request   ( MultiHeader type=op done=0 err=-1, the op's record )*            MultiHeader type=-1 done=1 err=-1
    reply     ( MultiHeader type=op done=0 err=0,  the op's result )*            MultiHeader type=-1 done=1 err=-1
    a failed  ( MultiHeader type=-1 done=0 err,    ErrorResponse err )*          0 before the one that failed, its code, -2 after it

Servers answer a failed multi with error 0 in the reply's own header. A create's result is CreateResponse under type 1, and
Create2Response under type 15 for every other kind of create.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BrokerError, Malformed, ValueUnsupported
from . import operations as op
from .codes import RuntimeInconsistency, error
from .messages import (
    ACL,
    CheckVersionRequest,
    Create2Response,
    CreateResponse,
    DeleteRequest,
    ErrorResponse,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    GetDataResponse,
    MultiHeader,
    SetDataRequest,
    SetDataResponse,
)
from .paths import Chroot


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; its result is the path, or (path, stat) with ``stat=True``.

    Attributes:
        path: of the node. data: bytes; None is null. acl: access list; None: the client's default.
        ephemeral, sequence, container: as for `Tree.create`. ttl: seconds, as for `Tree.create`. stat: whether the result has the stat.
    """

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequence: bool = False
    container: bool = False
    ttl: float | None = None
    acl: Sequence[ACL] | None = None
    stat: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node; its result is None.

    Attributes:
        path: of the node. version: data version that it must have; -1: any.
    """

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Set:
    """Write a node; its result is the stat.

    Attributes:
        path: of the node. data: bytes; None is null. version: data version that it must have; -1: any.
    """

    path: str
    data: bytes | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Demand that a node exists, in this version unless -1; its result is None.

    Attributes:
        path: of the node. version: data version that it must have; -1: any.
    """

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Get:
    """Read a node; its result is (data, stat). Only with other reads.

    Attributes:
        path: of the node.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Children:
    """List a node's children; its result is a list of names. Only with other reads.

    Attributes:
        path: of the node.
    """

    path: str


Operation = Create | Delete | Set | Check | Get | Children
_READS = (Get, Children)
_END = MultiHeader(type=-1, done=True, err=-1).encode()


def request(operations: Sequence[Operation], root: Chroot, acl: Sequence[ACL] | None = None) -> op.Request[list[Any]]:
    """Return one request of all operations; its value is the list of results, in order.

    In place of a read that failed is an error object. Writes raise: see `_failed`.

    Args:
        operations: either writes and checks, or reads. root: the chroot. acl: of nodes that are created without one of their own.

    Raises:
        ValueUnsupported: reads and writes are mixed, or one of them cannot be sent.
    """
    reads = [isinstance(item, _READS) for item in operations]
    if any(reads) and not all(reads):
        raise ValueUnsupported("reads and writes cannot be in one multi")
    parts: list[bytes] = []
    for item in operations:
        code, record = _record(item, root, acl)
        parts += (MultiHeader(type=code, done=False, err=-1).encode(), record)
    parts.append(_END)
    items = tuple(operations)
    read = any(reads)
    return op.Request(
        op.MULTI_READ if read else op.MULTI, b"".join(parts), _reader(items, root, read), _name(items), repeats=read or not items
    )


def _record(item: Operation, root: Chroot, acl: Sequence[ACL] | None) -> tuple[int, bytes]:
    if not isinstance(item, Operation):
        raise ValueUnsupported(f"{type(item).__name__} is no operation of a multi")
    if isinstance(item, Create):
        code, record = op.create_record(
            root.out(item.path, sequence=item.sequence),
            item.data,
            ephemeral=item.ephemeral,
            sequence=item.sequence,
            container=item.container,
            ttl=item.ttl,
            acl=acl if item.acl is None else item.acl,
        )
        return (code if item.stat or code != op.CREATE2 else op.CREATE), record.encode()
    path = root.out(item.path)
    if isinstance(item, Delete):
        return op.DELETE, DeleteRequest(path=path, version=item.version).encode()
    if isinstance(item, Set):
        return op.SET, SetDataRequest(path=path, data=item.data, version=item.version).encode()
    if isinstance(item, Check):
        return op.CHECK, CheckVersionRequest(path=path, version=item.version).encode()
    if isinstance(item, Get):
        return op.GET, GetDataRequest(path=path, watch=False).encode()
    return 8, GetChildrenRequest(path=path, watch=False).encode()


def _reader(items: tuple[Operation, ...], root: Chroot, read: bool) -> Callable[[bytes], list[Any]]:
    def results(frame: bytes) -> list[Any]:
        found: list[Any] = []
        failed = False
        at = op.HEADER
        while True:
            header, at = MultiHeader.decode_from(frame, start=at)
            if header.done:
                break
            if len(found) == len(items):
                raise Malformed("more results than operations", message="MultiResponse", offset=at)
            item = items[len(found)]
            if header.type == -1:
                answer, at = ErrorResponse.decode_from(frame, start=at)
                failed = True
                found.append(None if answer.err == 0 else error(answer.err, item.path, node=item.path))
            else:
                value, at = _result(header.type, frame, at, item, root)
                found.append(value)
        if len(found) != len(items) or at != len(frame):
            raise Malformed(f"{len(found)} results for {len(items)} operations", message="MultiResponse", offset=at)
        if failed and not read:
            raise _failed(items, found)
        return found

    return results


def _result(code: int, frame: bytes, at: int, item: Operation, root: Chroot) -> tuple[Any, int]:
    if code == op.CREATE:
        created, at = CreateResponse.decode_from(frame, start=at)
        return root.back(created.path), at
    if code in (op.CREATE2, op.CONTAINER, op.TTL):
        made, at = Create2Response.decode_from(frame, start=at)
        path = root.back(made.path)
        return ((path, made.stat) if isinstance(item, Create) and item.stat else path), at
    if code == op.SET:
        written, at = SetDataResponse.decode_from(frame, start=at)
        return written.stat, at
    if code in (op.DELETE, op.CHECK):
        return None, at
    if code == op.GET:
        got, at = GetDataResponse.decode_from(frame, start=at)
        return (got.data, got.stat), at
    if code == op.CHILDREN:
        listed, at = GetChildrenResponse.decode_from(frame, start=at)
        return list(listed.children or ()), at
    raise Malformed(f"a result of operation {code}", message="MultiResponse", offset=at)


def _failed(items: tuple[Operation, ...], found: list[Any]) -> BrokerError:
    """Return the error of the operation that failed; its `index` says which, its `results` hold every operation's error or None."""
    errors = [(index, value) for index, value in enumerate(found) if isinstance(value, BrokerError)]
    index, failed = next((pair for pair in errors if not isinstance(pair[1], RuntimeInconsistency)), errors[0])
    failed.__dict__.update(index=index, results=found)
    return failed


def _name(items: tuple[Operation, ...]) -> str:
    return ", ".join(item.path for item in items[:3]) + (", …" if len(items) > 3 else "")
