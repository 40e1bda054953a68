"""Serves ZooKeeper's connections: handshake, frames, replies, events, and the clock that ends sessions and reaps nodes.

`requests` implements the operations.

    first frame   ConnectRequest (44 or 45 bytes) -> ConnectResponse (36 or 37); time-out 0: the session is gone
                                                  -> ReplyHeader (16 bytes): refused; only where a fault says so
    then          RequestHeader, record           -> ReplyHeader, record
    any time      ReplyHeader (xid -1), WatcherEvent: before the reply of the request that raised it

The answer to a four-letter word (``ruok``, ``srvr``, ``mntr``, ``envi``, ``isro``, ``stat``) is text, the same of every member, then
the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import BrokerError, ProtocolError
from ...zookeeper.messages import ConnectRequest, ConnectResponse, ReplyHeader, RequestHeader
from . import snapshot
from .members import named
from .nodes import Event
from .requests import NAMES, Requests
from .sessions import ServerSession
from .state import Client, ZooKeeperState

if TYPE_CHECKING:
    from ..server import Connection

CLOSE, AUTH = -11, 100
MARSHALLING, UNIMPLEMENTED, SESSION_GONE, AUTH_FAILED, NOT_READ_ONLY, WANTS_IDENTITY = -5, -6, -112, -115, -119, -124
WRITES = (1, 2, 5, 7, 9, 14, 15, 16, 19, 20, 21)
GONE = ConnectResponse(protocol_version=0, time_out=0, session_id=0, passwd=bytes(16), read_only=False).encode()
VERSION = "3.9.5"
"""The version that it announces: clients ask for it before they use features that the oldest servers lack."""
REAP = 0.1
"""Seconds between checks of the sessions' time-outs and of nodes to reap."""


class ZooKeeperSide(ZooKeeperState):
    """A ZooKeeper server, alone, or an ensemble: a listener for each member, over one tree."""

    kinds: ClassVar[Mapping[str, int]] = {"members": 1}

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.requests = Requests(self)
        self.members = named(self.counts["members"])
        self._reaper: asyncio.Task[None] | None = None
        if self.store.folder is not None:
            self.zxid = snapshot.load(self.store.folder, self.nodes)

    async def start(self) -> None:
        """Open each member's listener, and start the timer that ends sessions."""
        self.sessions.touch_all(time.monotonic())
        self._reaper = asyncio.get_running_loop().create_task(self._reap())
        for name in self.members:
            await self.listen(name)

    def place(self) -> str:
        """Return the addresses of all members, separated by commas."""
        return ",".join(self.address(name) for name in self.members)

    async def stopped(self) -> None:
        """Stop the timer, and save the tree where there is a folder."""
        if self._reaper is not None:
            self._reaper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reaper
            self._reaper = None
        if self.store.folder is not None:
            snapshot.save(self.store.folder, self.nodes, self.zxid)

    # -- connections --------------------------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        """Shake hands, and answer each request."""
        first = await connection.next()
        if first is None:
            return
        client = await self._shake(connection, first)
        if client is None:
            return
        self.clients[connection] = client
        try:
            async for frame in connection:
                client.session.heard = time.monotonic()
                if not await self._answer(client, frame):
                    return
        finally:
            self.watches.drop(connection)
            del self.clients[connection]
            if client.session.connection is connection:
                client.session.connection = None

    async def _shake(self, connection: Connection, frame: bytes) -> Client | None:
        member = self.members[connection.listener]
        fault = await connection.fault("createSession", member=connection.listener)
        if len(frame) not in (44, 45):
            raise ProtocolError(f"a ConnectRequest has 44 or 45 bytes, not {len(frame)}", peer=connection.peer)
        asked = ConnectRequest.decode(frame if len(frame) == 45 else frame + b"\0")
        if fault is not None and fault.kind == "error":
            if fault.code == SESSION_GONE:
                self.end_session(asked.session_id)
                connection.send(GONE[: len(frame) - 8])
            else:
                connection.send(ReplyHeader(xid=0, zxid=0, err=fault.code).encode())
            return None
        if asked.last_zxid_seen > max(self.zxid - member.behind, 0):
            return None  # this client has seen a later state than this server: it must find another one
        if member.read_only and not asked.read_only:
            return None  # this client needs a server with a quorum
        now = time.monotonic()
        if asked.session_id == 0:
            opened = self.sessions.open(asked.time_out / 1000, now)
            session: ServerSession | None = opened
            if member.read_only:
                member.local.add(opened.id)
            else:
                self.zxid += 1
        else:
            known = not any(asked.session_id in other.local for other in self.members.values() if other is not member)
            session = self.sessions.find(asked.session_id, bytes(asked.passwd or b"")) if known else None
            if session is not None and session.connection is not None:
                session.connection.close()
        if session is None:
            connection.send(GONE[: len(frame) - 8], fault=fault)
            return None
        session.heard, session.connection = now, connection
        answer = ConnectResponse(
            protocol_version=0,
            time_out=round(session.timeout * 1000),
            session_id=session.id,
            passwd=session.password,
            read_only=member.read_only,
        )
        connection.send(answer.encode()[: len(frame) - 8], fault=fault)
        return Client(connection, session, [self.requests.address_identity(connection.peer)])

    async def _answer(self, client: Client, frame: bytes) -> bool:
        """Serve one request; False ends the connection."""
        header, at = RequestHeader.decode_from(frame)
        name = NAMES.get(header.type, "unknown")
        connection = client.connection
        member = self.members[connection.listener]
        fault = await connection.fault(name, xid=header.xid, type=header.type, member=connection.listener)
        body, code = b"", 0
        events: list[Event] = []
        goes_on = header.type != CLOSE
        try:
            if fault is not None and fault.kind == "error":
                code = fault.code
            elif member.wants_identity and header.type != AUTH and all(who.scheme == "ip" for who in client.identities):
                code, goes_on = WANTS_IDENTITY, False
            elif member.read_only and header.type in WRITES:
                code = NOT_READ_ONLY
            elif header.type == CLOSE:
                self.zxid += 1
                self.end_session(client.session.id, keep=connection)
            else:
                body, events = self.requests.serve(client, header.type, frame, at)
        except BrokerError as why:
            code = why.code or MARSHALLING
            goes_on = code != AUTH_FAILED and (code != UNIMPLEMENTED or header.type in (21, 16, *WRITES))
        except ProtocolError:
            code = MARSHALLING
        self.tell(events)
        connection.send(ReplyHeader(xid=header.xid, zxid=self.zxid, err=code).encode(), body, fault=fault)
        await connection.drain()
        return goes_on

    def word(self, first: bytes) -> bytes | None:
        """Return the answer to a four-letter word, or None when these bytes are none."""
        sessions = len(list(self.sessions))
        answers = {
            b"ruok": "imok",
            b"envi": f"Environment:\nzookeeper.version={VERSION}-wireproto dev broker\n",
            b"isro": "ro" if all(member.read_only for member in self.members.values()) else "rw",
            b"srvr": f"Zookeeper version: wireproto dev broker\nConnections: {len(self.connections)}\n"
            f"Zxid: 0x{self.zxid:x}\nMode: standalone\nNode count: {len(self.nodes)}\n",
            b"stat": f"Zookeeper version: wireproto dev broker\nClients: {sessions}\nMode: standalone\nNode count: {len(self.nodes)}\n",
            b"mntr": f"zk_version\twireproto dev broker\nzk_server_state\tstandalone\nzk_znode_count\t{len(self.nodes)}\n",
        }
        answer = answers.get(first[:4])
        return None if answer is None else answer.encode()

    # -- sessions and time --------------------------------------------------------------------------------------------------

    def restrict(
        self, name: str | None = None, *, read_only: bool | None = None, wants_identity: bool | None = None, behind: int | None = None
    ) -> None:
        """Change how members behave, and close their clients' connections.

        Args:
            name: the member's listener; None: all members.
            read_only: be without a quorum. wants_identity: serve no client without an identity. behind: have missed this many transactions.
                None leaves a setting as it is.
        """
        for member in self.members.values() if name is None else [self.members[name]]:
            if read_only is False:
                for number in member.local:
                    self.sessions.end(number)
                member.local.clear()
            member.read_only = member.read_only if read_only is None else read_only
            member.wants_identity = member.wants_identity if wants_identity is None else wants_identity
            member.behind = member.behind if behind is None else behind
        for connection in list(self.clients):
            if name in (None, connection.listener):
                connection.close()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP)
            for session in self.sessions.silent(time.monotonic()):
                self.end_session(session.id)
            self.requests.reap(int(time.time() * 1000))
