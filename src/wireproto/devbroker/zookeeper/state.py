"""Holds the state of the ZooKeeper side that operations use: nodes, watches, sessions, and the last zxid."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import BrokerError
from ...zookeeper.codes import KeeperState
from ...zookeeper.messages import ReplyHeader, WatcherEvent
from ..side import Side
from . import access
from .nodes import Event, Nodes
from .sessions import ServerSession, Sessions
from .watches import Watches

if TYPE_CHECKING:
    from ...zookeeper.messages import Id
    from ..server import Connection

EVENT_XID = -1


class Client:
    """A connection after its handshake: its session and identities."""

    def __init__(self, connection: Connection, session: ServerSession, identities: list[Id]) -> None:
        self.connection = connection
        self.session = session
        self.identities = identities


class ZooKeeperState(Side):
    """One server's state.

    Attributes:
        nodes: the tree. watches: by connection. sessions: by id. zxid: of the last transaction. clients: by connection.
    """

    protocol: ClassVar[str] = "zookeeper"
    cap: ClassVar[int] = 0xFFFFF

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.nodes = Nodes()
        self.watches: Watches[Connection] = Watches()
        self.sessions = Sessions(int(time.time() * 1000) << 16)
        self.zxid = 0
        self.clients: dict[Connection, Client] = {}

    def tell(self, events: list[Event], zxid: int | None = None) -> None:
        """Send the events of a change to the connections that watch and may read the node.

        Args:
            zxid: in the events; None: the last one.
        """
        for connection, (kind, path, acl) in self.watches.fired(events):
            client = self.clients.get(connection)
            if client is not None and access.allows(acl, access.READ, client.identities):
                self.send_event(connection, int(kind), path, self.zxid if zxid is None else zxid)

    def send_event(self, connection: Connection, kind: int, path: str, zxid: int) -> None:
        """Send one event."""
        header = ReplyHeader(xid=EVENT_XID, zxid=zxid, err=0).encode()
        connection.send(header, WatcherEvent(type=kind, state=int(KeeperState.SYNC_CONNECTED), path=path).encode())

    def end_session(self, number: int, keep: Connection | None = None) -> bool:
        """Delete a session's ephemeral nodes and cut its connection (but `keep`); returns whether there was one.

        Tests call it to expire a session.
        """
        session = self.sessions.end(number)
        if session is None:
            return False
        self.zxid += 1
        for path in sorted(session.ephemerals, key=len, reverse=True):
            with contextlib.suppress(BrokerError):
                _, events, _ = self.nodes.delete(path, -1, self.zxid)
                self.tell(events)
        if session.connection is not None and session.connection is not keep:
            session.connection.abort()
        return True

    expire = end_session
