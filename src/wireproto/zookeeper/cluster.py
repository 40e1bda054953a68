"""Joins the engine (`Runtime`) and the session (`Link`) of one ensemble.

It knows the servers and how to connect to one of them, and holds the one link that all roles share. Thread-safe.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ..errors import ConnectError, Disconnected, TlsError
from ..flow.budget import Budget
from ..net.address import SocketAddress, interleave, resolving, translate
from ..net.dial import Progress
from ..net.retry import Policy
from ..net.runtime import Runtime
from ..net.task import Steps, reply
from ..url import Address
from .link import Link
from .options import ZooKeeperOptions
from .paths import Chroot
from .session import Session

if TYPE_CHECKING:
    from .._net import Connection

ROUNDS = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.3)
"""Pauses between rounds over all servers."""
LIMIT = ", or has the server as many connections from this address as it takes (maxClientCnxns, 60 as it is shipped)?"


class ZooKeeperCluster(Runtime[ZooKeeperOptions]):
    """The servers, connections and session of one ensemble.

    Attributes:
        link: the session, over one connection at a time. budget: limit of the bytes that all producers may hold.
    """

    protocol: ClassVar[str] = "zookeeper"

    def __init__(self, options: ZooKeeperOptions, servers: Sequence[Address], root: Chroot) -> None:
        super().__init__(options)
        self.budget = Budget(self.loop, options.buffer_memory)
        self._served: set[str] = set()  # peers that have answered a handshake
        session_id, password = options.session or (0, bytes(16))
        session = Session(options.session_timeout, read_only=options.read_only, session_id=session_id, password=password)
        order = list(servers)
        if options.shuffle:
            random.shuffle(order)
        identities = []
        if options.user is not None and options.password is not None:
            identities.append(("digest", f"{options.user}:{options.password.text()}".encode()))
        self.link = Link(
            self.tasks,
            self.loop,
            session,
            order,
            self._opening,
            root,
            resolve=self._places,
            log=self.log,
            identities=identities,
            server_timeout=options.connect_timeout,
            max_frame=options.max_frame,
            acl=options.access,
            rounds=ROUNDS,
        )

    def _opening(self, address: Address, deadline: float, places: list[SocketAddress]) -> Steps[Connection]:
        """Open a connection, handshake done.

        Where a server may have hung up on one connection too many, the error mentions maxClientCnxns.
        """
        try:
            return (yield from self.opening(address, Progress(), deadline, places))
        except (ConnectError, TlsError, Disconnected) as why:
            if isinstance(why, Disconnected) or isinstance(why.__cause__, Disconnected):
                why.text = why.text.rstrip("?") + LIMIT
            raise

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """Send the session's ConnectRequest and keep the answer as the connection's `context`; the link reads it. Steps."""
        sent = time.monotonic()
        asked = self.link.session.connect_request(read_only=not self.link.seeking)
        conn.context = (yield from reply(conn.submit(0, asked, timeout_at=until, secret=True), until)), sent
        self._served.add(conn.peer)

    def dropped(self, conn: Connection) -> str:
        """Return the error text for a server that hangs up at the handshake.

        A server that does not serve yet does so without an answer; one whose data was lost or set back does so for ever.
        """
        seen = self.link.session.zxid
        if not seen and conn.peer not in self._served:
            return super().dropped(conn)
        behind = f", or its data is older than what this client has seen (zxid 0x{seen:x})" if seen else ""
        return f"the server hung up at the handshake, it does not serve: it starts, or has no quorum{behind}"

    def _places(self, address: Address, deadline: float) -> Steps[list[SocketAddress]]:
        """Resolve the addresses of a server, in the order to try. Steps."""
        found = yield from resolving(self.loop, translate(address, self.options.address_map), deadline)
        if self.options.shuffle:
            random.shuffle(found)
            found = interleave(found)
        return found
