"""Implements each operation: decodes the record, checks access, changes or reads the tree, and encodes the reply's body.

`Requests` has the server's table of operations. A write raises events, which the caller sends before the reply. Errors are raised as the
codes of ``wireproto.zookeeper.codes``; a multi undoes its changes when one of its operations fails, and answers with the list of errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import BrokerError, Malformed
from ...zookeeper import messages as m
from ...zookeeper.codes import OPERATIONS, BadArguments, EventType, NoWatcher, Unimplemented
from . import access
from .nodes import Event, Node, Undo
from .watches import CHILD, DATA, PERSISTENT, RECURSIVE

if TYPE_CHECKING:
    from .state import Client, ZooKeeperState

NAMES: dict[int, str] = {facts.code: name for name, facts in OPERATIONS.items()}
CREATE, DELETE, EXISTS, GET, SET, CHILDREN, CHECK, MULTI, CREATE2, CONTAINER, TTL, MULTI_READ = 1, 2, 3, 4, 5, 8, 13, 14, 15, 19, 21, 22
MAX_TTL = (1 << 40) - 1

Reply = tuple[bytes, list[Event]]
Change = tuple[bytes, list[Event], Undo]


class Requests:
    """The operations of one server."""

    def __init__(self, side: ZooKeeperState) -> None:
        self._side = side
        self._nodes = side.nodes
        self._reads: dict[int, Callable[[Client, bytes, int], bytes]] = {
            EXISTS: self._exists,
            GET: self._get,
            6: self._get_acl,
            CHILDREN: self._children,
            9: lambda client, frame, at: m.SyncResponse(path=m.SyncRequest.decode(frame, start=at).path).encode(),
            11: lambda client, frame, at: b"",
            12: self._children2,
            17: self._check_watches,
            18: self._remove_watches,
            MULTI_READ: self._multi_read,
            100: self._auth,
            101: self._set_watches,
            103: self._ephemerals,
            104: self._count,
            105: self._set_watches2,
            106: self._add_watch,
            107: lambda client, frame, at: m.WhoAmIResponse(
                client_info=tuple(m.ClientInfo(auth_scheme=who.scheme, user=who.id.partition(":")[0]) for who in client.identities)
            ).encode(),
        }

    def address_identity(self, peer: str) -> m.Id:
        """Return the ``ip`` identity of an address."""
        return m.Id(scheme="ip", id=peer.rpartition(":")[0])

    def serve(self, client: Client, code: int, frame: bytes, at: int) -> Reply:
        """Return the reply's body, and the events of what the request changed; raises the operation's error."""
        read = self._reads.get(code)
        if read is not None:
            return read(client, frame, at), []
        self._side.zxid += 1
        if code == MULTI:
            return self._multi(client, frame, at)
        if code == 7:
            return self._set_acl(client, frame, at)
        body, events, _, end = self._change(client, code, frame, at)
        if end != len(frame):
            raise Malformed("bytes left over after the request", offset=end)
        return body, events

    # -- changes ------------------------------------------------------------------------------------------------------------

    def _change(self, client: Client, code: int, frame: bytes, at: int) -> tuple[bytes, list[Event], Undo, int]:
        now = int(time.time() * 1000)
        zxid = self._side.zxid
        if code in (CREATE, CREATE2, CONTAINER, TTL):
            return self._create(client, code, frame, at, now)
        if code == DELETE:
            gone, at = m.DeleteRequest.decode_from(frame, start=at)
            above = self._nodes.find(gone.path.rpartition("/")[0] or "/")
            if above is not None:
                access.demand(above.acl, access.DELETE, client.identities)
            node, events, undo = self._nodes.delete(gone.path, gone.version, zxid)
            return b"", events, self._owned(node, gone.path, False, undo), at
        if code == SET:
            asked, at = m.SetDataRequest.decode_from(frame, start=at)
            access.demand(self._nodes.get(asked.path).acl, access.WRITE, client.identities)
            node, events, undo = self._nodes.set_data(asked.path, _bytes(asked.data), asked.version, zxid, now)
            return m.SetDataResponse(stat=node.stat()).encode(), events, undo, at
        if code == CHECK:
            checked, at = m.CheckVersionRequest.decode_from(frame, start=at)
            access.demand(self._nodes.get(checked.path).acl, access.READ, client.identities)
            self._nodes.check(checked.path, checked.version)
            return b"", [], _nothing, at
        raise Unimplemented(NAMES.get(code, str(code)))

    def _create(self, client: Client, code: int, frame: bytes, at: int, now: int) -> tuple[bytes, list[Event], Undo, int]:
        asked: Any
        asked, at = (m.CreateTTLRequest if code == TTL else m.CreateRequest).decode_from(frame, start=at)
        allowed = {CONTAINER: (4,), TTL: (5, 6)}.get(code, (0, 1, 2, 3))
        ttl = asked.ttl if code == TTL else None
        if asked.flags not in allowed or (ttl is not None and not 0 < ttl <= MAX_TTL):
            raise BadArguments(asked.path)
        if asked.path.startswith("/zookeeper/quota/"):
            raise Unimplemented(asked.path)  # a quota that is stored and limits nothing would mislead
        acl = access.fixed(asked.acl, client.identities)
        above = self._nodes.find(asked.path.rpartition("/")[0] or "/")
        if above is not None:
            access.demand(above.acl, access.CREATE, client.identities)
        owner = client.session.id
        path, node, events, undo = self._nodes.create(
            asked.path, _bytes(asked.data), acl, asked.flags, self._side.zxid, now, owner=owner, ttl=ttl
        )
        undo = self._owned(node, path, True, undo)
        if code == CREATE:
            return m.CreateResponse(path=path).encode(), events, undo, at
        return m.Create2Response(path=path, stat=node.stat()).encode(), events, undo, at

    def _owned(self, node: Node, path: str, made: bool, undo: Undo) -> Undo:
        """Update the owner's list of ephemeral nodes, also when the change is undone."""
        if not node.owner:
            return undo
        session = next((session for session in self._side.sessions if session.id == node.owner), None)
        if session is None:
            return undo
        add, discard = session.ephemerals.add, session.ephemerals.discard
        (add if made else discard)(path)

        def both() -> None:
            undo()
            (discard if made else add)(path)

        return both

    def _set_acl(self, client: Client, frame: bytes, at: int) -> Reply:
        asked = m.SetACLRequest.decode(frame, start=at)
        acl = access.fixed(asked.acl, client.identities)
        access.demand(self._nodes.get(asked.path).acl, access.ADMIN, client.identities)
        node = self._nodes.set_acl(asked.path, acl, asked.version)
        return m.SetACLResponse(stat=node.stat()).encode(), []

    def _multi(self, client: Client, frame: bytes, at: int) -> Reply:
        done: list[Change] = []
        results: list[bytes] = []
        failed: int | None = None
        errors: list[int] = []
        while True:
            header, at = m.MultiHeader.decode_from(frame, start=at)
            if header.done:
                break
            if header.type not in (CREATE, DELETE, SET, CHECK, CREATE2, CONTAINER, TTL):
                self._take_back(done)
                raise Malformed(f"operation {header.type} in a multi", offset=at)
            if failed is not None:
                at = _skip(header.type, frame, at)
                errors.append(-2)
                continue
            try:
                body, events, undo, at = self._change(client, header.type, frame, at)
            except BrokerError as why:
                failed = why.code
                at = _skip(header.type, frame, at)
                errors.append(why.code or -1)
                continue
            done.append((body, events, undo))
            errors.append(0)
            kind = CREATE2 if header.type in (CONTAINER, TTL) else header.type
            results += (m.MultiHeader(type=kind, done=False, err=0).encode(), body)
        end = m.MultiHeader(type=-1, done=True, err=-1).encode()
        if failed is None:
            return b"".join(results) + end, [event for _, events, _ in done for event in events]
        self._take_back(done)
        return b"".join(_failed(code) for code in errors) + end, []

    @staticmethod
    def _take_back(done: list[Change]) -> None:
        for _, _, undo in reversed(done):
            undo()

    def reap(self, now: int) -> None:
        """Delete containers whose last child is gone, and nodes whose time to live is over.

        Args:
            now: milliseconds since 1970.
        """
        for path in sorted(self._nodes.expirable):
            node = self._nodes.find(path)
            if node is None or not (node.container or node.ttl is not None):
                self._nodes.expirable.discard(path)
                continue
            empty_container = node.container and node.created and not node.children
            outlived = node.ttl is not None and not node.children and now - node.mtime > node.ttl
            if empty_container or outlived:
                self._side.zxid += 1
                _, events, _ = self._nodes.delete(path, -1, self._side.zxid)
                self._side.tell(events)

    # -- reads --------------------------------------------------------------------------------------------------------------

    def _readable(self, client: Client, path: str, perms: int = access.READ) -> Node:
        node = self._nodes.get(path)
        access.demand(node.acl, perms, client.identities)
        return node

    def _exists(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.ExistsRequest.decode(frame, start=at)
        node = self._nodes.find(asked.path)
        if node is not None:
            access.demand(node.acl, access.READ, client.identities)
        if asked.watch:
            self._side.watches.add(DATA, asked.path, client.connection)
        return m.ExistsResponse(stat=self._nodes.get(asked.path).stat()).encode()

    def _get(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.GetDataRequest.decode(frame, start=at)
        node = self._readable(client, asked.path)
        if asked.watch:
            self._side.watches.add(DATA, asked.path, client.connection)
        return m.GetDataResponse(data=node.data, stat=node.stat()).encode()

    def _children(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.GetChildrenRequest.decode(frame, start=at)
        node = self._readable(client, asked.path)
        if asked.watch:
            self._side.watches.add(CHILD, asked.path, client.connection)
        return m.GetChildrenResponse(children=tuple(node.children)).encode()

    def _children2(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.GetChildren2Request.decode(frame, start=at)
        node = self._readable(client, asked.path)
        if asked.watch:
            self._side.watches.add(CHILD, asked.path, client.connection)
        return m.GetChildren2Response(children=tuple(node.children), stat=node.stat()).encode()

    def _get_acl(self, client: Client, frame: bytes, at: int) -> bytes:
        node = self._readable(client, m.GetACLRequest.decode(frame, start=at).path, access.READ | access.ADMIN)
        return m.GetACLResponse(acl=access.shown(node.acl, client.identities), stat=node.stat()).encode()

    def _ephemerals(self, client: Client, frame: bytes, at: int) -> bytes:
        prefix = m.GetEphemeralsRequest.decode(frame, start=at).prefix_path or "/"
        found = sorted(path for path in client.session.ephemerals if path.startswith(prefix))
        return m.GetEphemeralsResponse(ephemerals=tuple(found)).encode()

    def _count(self, client: Client, frame: bytes, at: int) -> bytes:
        path = m.GetAllChildrenNumberRequest.decode(frame, start=at).path
        self._readable(client, path)
        return m.GetAllChildrenNumberResponse(total_number=self._nodes.below(path)).encode()

    def _multi_read(self, client: Client, frame: bytes, at: int) -> bytes:
        parts: list[bytes] = []
        while True:
            header, at = m.MultiHeader.decode_from(frame, start=at)
            if header.done:
                return b"".join(parts) + m.MultiHeader(type=-1, done=True, err=-1).encode()
            if header.type not in (GET, CHILDREN):
                raise Malformed(f"operation {header.type} in a multi of reads", offset=at)
            asked, at = m.GetDataRequest.decode_from(frame, start=at)
            try:
                node = self._readable(client, asked.path)
            except BrokerError as why:
                parts.append(_failed(why.code or -1))
                continue
            answer: m.GetDataResponse | m.GetChildrenResponse
            if header.type == GET:
                answer = m.GetDataResponse(data=node.data, stat=node.stat())
            else:
                answer = m.GetChildrenResponse(children=tuple(node.children))
            parts += (m.MultiHeader(type=header.type, done=False, err=0).encode(), answer.encode())

    # -- identities and watches ---------------------------------------------------------------------------------------------

    def _auth(self, client: Client, frame: bytes, at: int) -> bytes:
        packet = m.AuthPacket.decode(frame, start=at)
        who = access.identity(packet.scheme, bytes(packet.auth or b""))
        if who not in client.identities:
            client.identities.append(who)
        return b""

    def _add_watch(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.AddWatchRequest.decode(frame, start=at)
        self._side.watches.add(RECURSIVE if asked.mode else PERSISTENT, asked.path, client.connection)
        return m.ErrorResponse(err=0).encode()

    def _check_watches(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.CheckWatchesRequest.decode(frame, start=at)
        if not self._side.watches.remove(asked.type, asked.path, client.connection, only_look=True):
            raise NoWatcher(asked.path)
        return b""

    def _remove_watches(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.RemoveWatchesRequest.decode(frame, start=at)
        if not self._side.watches.remove(asked.type, asked.path, client.connection):
            raise NoWatcher(asked.path)
        return b""

    def _set_watches(self, client: Client, frame: bytes, at: int) -> bytes:
        self._arm(client, m.SetWatches.decode(frame, start=at))
        return b""

    def _set_watches2(self, client: Client, frame: bytes, at: int) -> bytes:
        asked = m.SetWatches2.decode(frame, start=at)
        self._arm(client, asked)
        for path in asked.persistent_watches or ():
            self._side.watches.add(PERSISTENT, path, client.connection)
        for path in asked.persistent_recursive_watches or ():
            self._side.watches.add(RECURSIVE, path, client.connection)
        return b""

    def _arm(self, client: Client, asked: m.SetWatches | m.SetWatches2) -> None:
        """Set watches again, or send at once the events of what happened since the client's last transaction."""
        since, who = asked.relative_zxid, client.connection
        for path in asked.data_watches or ():
            node = self._nodes.find(path)
            if node is None:
                self._side.send_event(who, int(EventType.NODE_DELETED), path, -1)
            elif node.mzxid > since:
                self._side.send_event(who, int(EventType.NODE_DATA_CHANGED), path, -1)
            else:
                self._side.watches.add(DATA, path, who)
        for path in asked.exist_watches or ():
            if self._nodes.find(path) is not None:
                self._side.send_event(who, int(EventType.NODE_CREATED), path, -1)
            else:
                self._side.watches.add(DATA, path, who)
        for path in asked.child_watches or ():
            node = self._nodes.find(path)
            if node is None:
                self._side.send_event(who, int(EventType.NODE_DELETED), path, -1)
            elif node.pzxid > since:
                self._side.send_event(who, int(EventType.NODE_CHILDREN_CHANGED), path, -1)
            else:
                self._side.watches.add(CHILD, path, who)


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _nothing() -> None:
    return


def _failed(code: int) -> bytes:
    return m.MultiHeader(type=-1, done=False, err=code).encode() + m.ErrorResponse(err=code).encode()


def _skip(code: int, frame: bytes, at: int) -> int:
    """Return the offset after an operation of a multi that is not executed."""
    if code == DELETE:
        return m.DeleteRequest.decode_from(frame, start=at)[1]
    if code == SET:
        return m.SetDataRequest.decode_from(frame, start=at)[1]
    if code == CHECK:
        return m.CheckVersionRequest.decode_from(frame, start=at)[1]
    if code == TTL:
        return m.CreateTTLRequest.decode_from(frame, start=at)[1]
    return m.CreateRequest.decode_from(frame, start=at)[1]


__all__ = ["NAMES", "Requests"]
