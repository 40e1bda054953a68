"""Keeps the tree of nodes as a server does: every change can be undone, and stats are counted as in real servers.

This is sans-IO state. A change returns what it made, the events it raises, and a function that undoes it, so that a multi is a list of
changes that are undone when one of them fails. Counters:

    version    writes of the data          aversion   writes of the access list
    cversion   creations + deletions of children; the next sequential child gets the number of creations
    mzxid      last write, or creation     pzxid      last creation or deletion of a child, or own creation

This module knows no connection or clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...zookeeper.codes import (
    BadArguments,
    BadVersion,
    CreateMode,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from ...zookeeper.messages import ACL, Id, Stat

OPEN = (ACL(perms=31, id=Id(scheme="world", id="anyone")),)
_ILLEGAL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]|//|/\\.\\.?(?:/|$)|^[^/]|^$|.+/$")

Event = tuple[EventType, str, tuple[ACL, ...]]
"""Type and path of an event, and the node's access list: only clients that may read the node get the event."""
SPECIAL = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
Undo = Callable[[], None]


@dataclass(slots=True)
class Node:
    """One node.

    Attributes:
        czxid, ctime, mzxid, mtime, pzxid, version, aversion: as in Stat; times are milliseconds since 1970.
        owner: session of an ephemeral node, else 0. created: number of children that were ever created.
        container: whether it is deleted with its last child. ttl: milliseconds, None: it has no time to live.
    """

    data: bytes | None
    acl: tuple[ACL, ...]
    czxid: int
    ctime: int
    mzxid: int
    mtime: int
    pzxid: int
    owner: int = 0
    version: int = 0
    aversion: int = 0
    created: int = 0
    container: bool = False
    ttl: int | None = None
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        """Return the node's Stat."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=self.created * 2 - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.owner,
            data_length=len(self.data or b""),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


def split(path: str) -> tuple[str, str]:
    """Return parent and name of a path."""
    above, _, name = path.rpartition("/")
    return above or "/", name


class Nodes:
    """All nodes by path.

    Attributes:
        expirable: paths of containers and nodes with a time to live (and of some that are gone).
    """

    def __init__(self) -> None:
        self.expirable: set[str] = set()
        self._nodes: dict[str, Node] = {"/": Node(b"", OPEN, 0, 0, 0, 0, 0)}
        for path in ("/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
            self.create(path, b"", OPEN, int(CreateMode.PERSISTENT), 0, 0)
        self._nodes["/"].created = 0  # a new server's root does not count them

    def __len__(self) -> int:
        return len(self._nodes)

    def items(self) -> Iterator[tuple[str, Node]]:
        """Return every node with its path, parents first."""
        return iter(sorted(self._nodes.items()))

    def find(self, path: str) -> Node | None:
        """Return a node, or None."""
        return self._nodes.get(path or "/")

    def get(self, path: str) -> Node:
        """Return a node; raises NoNode."""
        node = self._nodes.get(path or "/")
        if node is None:
            raise NoNode(path)
        return node

    def below(self, path: str) -> int:
        """Return the number of nodes below a path."""
        prefix = path.rstrip("/") + "/"
        return sum(1 for other in self._nodes if other.startswith(prefix) and other != "/")

    def restore(self, path: str, node: Node) -> None:
        """Put back a node that was saved, parents first."""
        self._nodes[path] = node
        if node.container or node.ttl is not None:
            self.expirable.add(path)
        if path != "/":
            above, name = split(path)
            self._nodes[above].children[name] = None

    # -- changes ------------------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: bytes | None, acl: tuple[ACL, ...], mode: int, zxid: int, now: int, *, owner: int = 0, ttl: int | None = None
    ) -> tuple[str, Node, list[Event], Undo]:
        """Create a node; sequential modes complete the path.

        Args:
            zxid: of the transaction. now: milliseconds since 1970. owner: session, for ephemeral modes. ttl: milliseconds.
        Returns:
            its path, the node, events, and a function that undoes it.
        Raises:
            BadArguments, NodeExists, NoNode, NoChildrenForEphemerals.
        """
        sequential = mode in (CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)
        if _ILLEGAL.search(path + "1" if sequential else path) and path != "/":
            raise BadArguments(path)
        above, name = split(path)
        parent = self._nodes.get(above)
        if path == "/":
            raise NodeExists(path)
        if parent is None:
            raise NoNode(path)
        if sequential:
            path, name = f"{path}{parent.created:010d}", f"{name}{parent.created:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        ephemeral = mode in (CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL)
        node = Node(data, acl, zxid, now, zxid, now, zxid, owner if ephemeral else 0)
        node.container = mode == CreateMode.CONTAINER
        node.ttl = ttl
        before = parent.pzxid
        self._nodes[path] = node
        if node.container or ttl is not None:
            self.expirable.add(path)
        parent.children[name] = None
        parent.created += 1
        parent.pzxid = zxid

        def undo() -> None:
            del self._nodes[path], parent.children[name]
            parent.created -= 1
            parent.pzxid = before

        return path, node, [(EventType.NODE_CREATED, path, acl), (EventType.NODE_CHILDREN_CHANGED, above, parent.acl)], undo

    def delete(self, path: str, version: int, zxid: int) -> tuple[Node, list[Event], Undo]:
        """Delete a node; returns it, events, and a function that undoes it.

        Raises:
            BadArguments, NoNode, BadVersion, NotEmpty.
        """
        node = self._nodes.get(path)
        if not path or path in SPECIAL:
            raise BadArguments(path)
        if node is None:
            raise NoNode(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        if node.children:
            raise NotEmpty(path)
        above, name = split(path)
        parent = self._nodes[above]
        before = parent.pzxid
        del self._nodes[path], parent.children[name]
        parent.pzxid = zxid

        def undo() -> None:
            self._nodes[path] = node
            parent.children[name] = None
            parent.pzxid = before

        return node, [(EventType.NODE_DELETED, path, node.acl), (EventType.NODE_CHILDREN_CHANGED, above, parent.acl)], undo

    def set_data(self, path: str, data: bytes | None, version: int, zxid: int, now: int) -> tuple[Node, list[Event], Undo]:
        """Write a node's data; returns the node, events, and a function that undoes it.

        Raises:
            NoNode, BadVersion.
        """
        node = self.check(path, version)
        before = node.data, node.version, node.mzxid, node.mtime
        node.data, node.version, node.mzxid, node.mtime = data, node.version + 1, zxid, now

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime = before

        return node, [(EventType.NODE_DATA_CHANGED, path or "/", node.acl)], undo

    def set_acl(self, path: str, acl: tuple[ACL, ...], version: int) -> Node:
        """Write a node's access list; raises NoNode, BadVersion."""
        node = self.get(path)
        if version not in (-1, node.aversion):
            raise BadVersion(path)
        node.acl, node.aversion = acl, node.aversion + 1
        return node

    def check(self, path: str, version: int) -> Node:
        """Return a node that has this version (-1: any); raises NoNode, BadVersion."""
        node = self.get(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        return node
