"""The ZooKeeper side: handshake, frames, replies, events, and the clock that ends sessions and reaps nodes.

What it is: everything of the protocol that has to do with connections; what an operation does stands in `requests`.

    first frame   ConnectRequest (44 or 45 bytes) -> ConnectResponse (36 or 37); time-out 0: the session is gone
                                                  -> ReplyHeader (16 bytes): refused; only where a fault says so
    then          RequestHeader, record           -> ReplyHeader, record
    any time      ReplyHeader (xid -1), WatcherEvent: before the reply of the request that raised it

The answer to a four-letter word (``ruok``, ``srvr``, ``mntr``, ``isro``, ``stat``) is text, then the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from ...errors import BrokerError, ProtocolError
from ...zookeeper.messages import ConnectRequest, ConnectResponse, ReplyHeader, RequestHeader
from . import snapshot
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
REAP = 0.1
"""Seconds between looks at the sessions' time and at nodes to reap."""


class ZooKeeperSide(ZooKeeperState):
    """One ZooKeeper server, alone."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.requests = Requests(self)
        self.read_only = False
        self._local: set[int] = set()  # sessions that a server with a quorum would not know
        self.wants_identity = False
        self._reaper: asyncio.Task[None] | None = None
        if self.store.folder is not None:
            self.zxid = snapshot.load(self.store.folder, self.nodes)

    async def start(self) -> None:
        self.sessions.touch_all(time.monotonic())
        self._reaper = asyncio.get_running_loop().create_task(self._reap())
        await super().start()

    async def stopped(self) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reaper
            self._reaper = None
        if self.store.folder is not None:
            snapshot.save(self.store.folder, self.nodes, self.zxid)

    # -- connections --------------------------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
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
        fault = await connection.fault("createSession")
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
        if asked.last_zxid_seen > self.zxid:
            return None  # this client has seen a later state than ours: it must find another server
        if self.read_only and not asked.read_only:
            return None  # this client needs a server with a quorum
        now = time.monotonic()
        if asked.session_id == 0:
            opened = self.sessions.open(asked.time_out / 1000, now)
            session: ServerSession | None = opened
            if self.read_only:
                self._local.add(opened.id)
            else:
                self.zxid += 1
        else:
            session = self.sessions.find(asked.session_id, bytes(asked.passwd or b""))
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
            read_only=self.read_only,
        )
        connection.send(answer.encode()[: len(frame) - 8], fault=fault)
        return Client(connection, session, [self.requests.address_identity(connection.peer)])

    async def _answer(self, client: Client, frame: bytes) -> bool:
        """Serve one request; False ends the connection."""
        header, at = RequestHeader.decode_from(frame)
        name = NAMES.get(header.type, "unknown")
        connection = client.connection
        fault = await connection.fault(name, xid=header.xid, type=header.type)
        body, code = b"", 0
        events: list[Event] = []
        goes_on = header.type != CLOSE
        try:
            if fault is not None and fault.kind == "error":
                code = fault.code
            elif self.wants_identity and header.type != AUTH and all(who.scheme == "ip" for who in client.identities):
                code, goes_on = WANTS_IDENTITY, False
            elif self.read_only and header.type in WRITES:
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
        """The answer to a four-letter word, or None when these bytes are none."""
        sessions = len(list(self.sessions))
        answers = {
            b"ruok": "imok",
            b"isro": "ro" if self.read_only else "rw",
            b"srvr": f"Zookeeper version: wireproto dev broker\nConnections: {len(self.connections)}\n"
            f"Zxid: 0x{self.zxid:x}\nMode: standalone\nNode count: {len(self.nodes)}\n",
            b"stat": f"Zookeeper version: wireproto dev broker\nClients: {sessions}\nMode: standalone\nNode count: {len(self.nodes)}\n",
            b"mntr": f"zk_version\twireproto dev broker\nzk_server_state\tstandalone\nzk_znode_count\t{len(self.nodes)}\n",
        }
        answer = answers.get(first[:4])
        return None if answer is None else answer.encode()

    # -- sessions and time --------------------------------------------------------------------------------------------------

    def restrict(self, *, read_only: bool | None = None, wants_identity: bool | None = None) -> None:
        """Be a server without a quorum, whose sessions are its own, or one that serves no client without an identity; or be so no more.

        Who is connected is sent away.
        """
        if read_only is False:
            for number in self._local:
                self.sessions.end(number)
            self._local.clear()
        self.read_only = self.read_only if read_only is None else read_only
        self.wants_identity = self.wants_identity if wants_identity is None else wants_identity
        for connection in list(self.clients):
            connection.close()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP)
            for session in self.sessions.silent(time.monotonic()):
                self.end_session(session.id)
            self.requests.reap(int(time.time() * 1000))
