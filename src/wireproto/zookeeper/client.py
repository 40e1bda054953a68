"""ZooKeeperClient: one session with an ensemble, and the roles that are made from it.

What it is: the Client role. Thread-safe. May assume: `cluster` for engine and session. Must not: do a role's work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from .._codec import Message
from ..deadlines import deadline_after
from ..errors import RoleUnsupported, UsageError
from ..net.runtime import ClientBase
from ..net.task import NEVER, Steps, operation
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
        client = cls.made(url, options)
        try:
            client.cluster.drive(client.beginning(), NEVER)
        except BaseException:
            client.cluster.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, options: dict[str, Any]) -> ZooKeeperClient:
        read = ZooKeeperOptions.from_url(url, **options)
        return cls(read, url.addresses, Chroot(f"/{url.path}".rstrip("/")))

    def beginning(self) -> Steps[None]:
        return self.cluster.link.beginning(self.deadline())

    def told_by(self, call_soon: Callable[..., object]) -> None:
        self.cluster.link.events.dispatcher.call_soon = call_soon

    # -- roles ------------------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """The tree of nodes below the chroot."""
        return self._tree

    def admin(self) -> QueueAdmin:
        """Queues as topics."""
        return QueueAdmin(self._tree.any_session())

    @operation
    def producer(self, topic: str | None = None, **given: Unpack[ProducerOptions]) -> Steps[QueueProducer]:
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
        )
        return self.keep((yield from made.opening(options.access, options.timeout)))

    @operation
    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **given: Unpack[ReaderOptions]
    ) -> Steps[QueueReader]:
        """Reads the messages of the queue `topic` in order, without taking them. Raises NoNode when there is no such queue."""
        options = self._options.for_role("reader", given)
        begin, end = self.between(start, stop)
        opening = QueueReader.opening(self._tree.any_session(), self.named(topic), start=begin, stop=end, timeout=options.timeout)
        return (yield from opening)

    @operation
    def queue(self, /, topic: str | None = None, group: str = "", **given: Unpack[QueueOptions]) -> Steps[QueueWorker]:
        """A worker on the queue `topic`. All workers of a queue share it, whatever their group is called."""
        yield from ()
        return QueueWorker(self._tree, self.named(topic), group, acl=self._options.for_role("queue", given).access)

    @operation
    def consumer(
        self, /, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Any
    ) -> Steps[NoReturn]:
        raise RoleUnsupported("ZooKeeper has no groups with positions", nearest="queue")

    @operation
    def request(
        self, /, message: Message | MultiRequest | None = None, *, timeout: float = 30.0, operation: str | None = None, **route: Any
    ) -> Steps[Any]:
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
        return (yield from request(self.cluster.link, message, operation, deadline_after(timeout)))

    def ending(self, deadline: float) -> Steps[None]:
        return self.cluster.link.ending(deadline)
