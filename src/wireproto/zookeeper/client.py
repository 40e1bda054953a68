"""ZooKeeperClient: one session with an ensemble, and the roles that are made from it.

What it is: the Client role; it joins the engine (`Runtime`) to the session (`Link`). Thread-safe.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar

from .._codec import Message
from ..errors import OptionError, RoleUnsupported, UsageError
from ..net.address import SocketAddress, interleave
from ..net.retry import Policy
from ..net.runtime import Runtime
from ..position import EARLIEST, Where
from ..url import Address, Url
from .admin import QueueAdmin
from .link import Link
from .lists import MultiRequest
from .options import ZooKeeperOptions
from .paths import Chroot
from .producer import QueueProducer
from .queue import QueueWorker
from .reader import QueueReader
from .request import request
from .session import Session
from .tree import Tree

if TYPE_CHECKING:
    from .._net import Connection, Framing

Role = TypeVar("Role")
ROUNDS = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.3)
"""Waits between rounds over all servers."""


class ZooKeeperClient(Runtime[ZooKeeperOptions]):
    """One session. Made by ``wireproto.connect("zookeeper://host:2181,host2:2181/chroot?session_timeout=10")``."""

    protocol: ClassVar[str] = "zookeeper"
    framing: ClassVar[Framing] = "zookeeper"

    def __init__(self, options: ZooKeeperOptions, servers: Sequence[Address], root: Chroot) -> None:
        super().__init__(options, name="zookeeper")
        session_id, password = options.session or (0, bytes(16))
        self._session = Session(options.session_timeout, read_only=options.read_only, session_id=session_id, password=password)
        order = list(servers)
        if options.shuffle:
            random.shuffle(order)
        identities = []
        if options.user is not None and options.password is not None:
            identities.append(("digest", f"{options.user}:{options.password.text()}".encode()))
        self._link = Link(
            self.loop,
            self._session,
            order,
            self._meet,
            root,
            resolve=self._places,
            identities=identities,
            server_timeout=options.connect_timeout,
            max_frame=options.max_frame,
            delays=_delays,
        )
        self._tree = Tree(self._link, self.loop)

    @classmethod
    def connect(cls, url: Url, options: dict[str, Any]) -> ZooKeeperClient:
        """Open a session; raises ConnectError, TlsError, AuthError, TimedOut, OptionError."""
        read = ZooKeeperOptions.from_url(url, **options)
        client = cls(read, url.addresses, Chroot(f"/{url.path}".rstrip("/")))
        try:
            client._link.connect(client.deadline())
        except BaseException:
            client.loop.close()
            raise
        return client

    # -- roles ------------------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """The tree of nodes below the chroot."""
        return self._tree

    def admin(self) -> QueueAdmin:
        """Queues as topics."""
        return QueueAdmin(self._tree.any_session())

    def producer(self, topic: str, **options: Any) -> QueueProducer:
        """Puts messages into the queue `topic`; see `QueueProducer` for the options."""
        options.setdefault("buffer_memory", self.options.buffer_memory)
        return _made(QueueProducer, self._tree.any_session(), self._link, topic, **options)

    def reader(self, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, **options: Any) -> QueueReader:
        """Reads the messages of the queue `topic` in order, without taking them. Raises NoNode when there is no such queue."""
        return _made(QueueReader, self._tree.any_session(), topic, start=start, stop=stop, **options)

    def queue(self, topic: str, group: str = "", **options: Any) -> QueueWorker:
        """A worker on the queue `topic`. All workers of a queue share it, whatever their group is called."""
        return _made(QueueWorker, self._tree, topic, group, **options)

    def consumer(self, topics: str | Sequence[str], group: str, *, start: Where = EARLIEST, **options: Any) -> NoReturn:
        raise RoleUnsupported("ZooKeeper has no groups with positions", nearest="queue")

    def request(
        self, message: Message | MultiRequest | None = None, *, timeout: float = 30.0, operation: str | None = None, **route: Any
    ) -> Any:
        """Send any record of the wire as it is (paths are the servers': the chroot is not applied); returns the typed reply, or None.

        Args:
            message: a request record, or `MultiRequest`; its own operation unless `operation` names another (``create2``,
                ``createContainer``). None for operations without a record (``whoAmI``, ``ping``, which is answered to nobody).
            operation: jute's name of the operation.
        Raises:
            the error that the server answers, `NoNode` of ``exists`` too; UsageError for what is no operation of a client.
        """
        if route:
            raise UsageError(f"ZooKeeper has no routes: {', '.join(route)}")
        return request(self._link, message, operation, time.monotonic() + timeout)

    def close(self, timeout: float = 30.0) -> None:
        """End the session (its ephemeral nodes go at once) and close everything."""
        if not self.loop.closed and not self.loop.forked:
            self._link.close(time.monotonic() + timeout)
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- for the link -----------------------------------------------------------------------------------------------------

    def handshake(self, conn: Connection, deadline: float) -> None:
        """The session's two frames; the answer is read by the link."""
        conn.context = conn.call(0, self._session.connect_request(), deadline, secret=True)

    def _places(self, address: Address, deadline: float) -> list[SocketAddress]:
        found = self.resolve(address, deadline)
        if self.options.shuffle and len(found) > 1:
            random.shuffle(found)
            found = interleave(found)
        return found

    def _meet(self, address: Address, deadline: float, places: list[SocketAddress]) -> Connection:
        conn = self.dial(address, deadline, places)
        try:
            self._shake(conn, deadline)
        except BaseException:
            conn.close("handshake failed")
            raise
        return conn


def _delays() -> Iterator[float]:
    failures = 0
    while True:
        failures += 1
        yield ROUNDS.delay(failures)


def _made(role: Callable[..., Role], *arguments: Any, **options: Any) -> Role:
    """Make a role; an option that it does not have is an OptionError, not a TypeError."""
    try:
        return role(*arguments, **options)
    except TypeError as why:
        if "unexpected keyword argument" in str(why):
            raise OptionError(f"{str(why).rpartition('unexpected keyword argument ')[2]} is no option of this role") from None
        raise
