"""ZooKeeperClient: one session with an ensemble, and the roles that are made from it.

What it is: the Client role. Thread-safe. May assume: `cluster` for engine and session. Must not: do a role's work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from .._codec import Message
from ..errors import RoleUnsupported, UsageError, WireprotoError
from ..net.runtime import ClientBase
from ..position import EARLIEST, Where
from ..url import Address, Url
from .admin import QueueAdmin
from .cluster import ZooKeeperCluster
from .lists import MultiRequest
from .options import ZooKeeperOptions
from .paths import Chroot
from .producer import QueueProducer
from .queue import QueueWorker
from .reader import QueueReader
from .request import request
from .tree import Tree

if TYPE_CHECKING:
    from .option_types import ProducerOptions, QueueOptions, ReaderOptions


class ZooKeeperClient(ClientBase[ZooKeeperCluster]):
    """One session. Made by ``wireproto.connect("zookeeper://host:2181,host2:2181/chroot?session_timeout=10")``."""

    protocol = "zookeeper"

    def __init__(self, options: ZooKeeperOptions, servers: Sequence[Address], root: Chroot) -> None:
        super().__init__(ZooKeeperCluster(options, servers, root))
        self._options = options
        self._tree = Tree(self.cluster.link, self.loop)

    @classmethod
    def connect(cls, url: Url, options: dict[str, Any]) -> ZooKeeperClient:
        """Open a session; raises ConnectError, TlsError, AuthError, TimedOut, OptionError."""
        read = ZooKeeperOptions.from_url(url, **options)
        client = cls(read, url.addresses, Chroot(f"/{url.path}".rstrip("/")))
        try:
            client.cluster.link.connect(client.deadline())
        except BaseException:
            client.cluster.close()
            raise
        return client

    # -- roles ------------------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """The tree of nodes below the chroot."""
        return self._tree

    def admin(self) -> QueueAdmin:
        """Queues as topics."""
        return QueueAdmin(self._tree.any_session())

    def producer(self, topic: str | None = None, **given: Unpack[ProducerOptions]) -> QueueProducer:
        """Puts messages into the queue `topic`."""
        options = self._options.for_role("producer", given)
        made = QueueProducer(
            self._tree.any_session(),
            self.cluster.link,
            self.cluster.budget,
            self.named(topic),
            priority=options.priority,
            delivery_timeout=options.delivery_timeout,
            repeat=options.repeat,
            acl=options.access,
            timeout=options.timeout,
        )
        return self.keep(made)

    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **given: Unpack[ReaderOptions]
    ) -> QueueReader:
        """Reads the messages of the queue `topic` in order, without taking them. Raises NoNode when there is no such queue."""
        options = self._options.for_role("reader", given)
        begin, end = self.between(start, stop)
        return QueueReader(self._tree.any_session(), self.named(topic), start=begin, stop=end, timeout=options.timeout)

    def queue(self, topic: str | None = None, group: str = "", **given: Unpack[QueueOptions]) -> QueueWorker:
        """A worker on the queue `topic`. All workers of a queue share it, whatever their group is called."""
        return QueueWorker(self._tree, self.named(topic), group, acl=self._options.for_role("queue", given).access)

    def consumer(self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Any) -> NoReturn:
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
        return request(self.cluster.link, message, operation, time.monotonic() + timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush the producers, end the session (its ephemeral nodes go at once) and close everything."""
        deadline = time.monotonic() + timeout
        problem: WireprotoError | None = None
        if not self.closed and not self.loop.forked:
            problem = self.cluster.roles.close(deadline)
            self.cluster.link.close(deadline)
        super().close(max(0.0, deadline - time.monotonic()))
        if problem is not None:
            raise problem
