"""Holds one session with an ensemble, and makes the roles that use it (the Client role).

`cluster` has the engine and the session; each role's work is done in its own module. Thread-safe.
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
    """A client with one session. Made by ``wireproto.connect("zookeeper://host:2181,host2:2181/chroot?session_timeout=10")``."""

    protocol = "zookeeper"

    def __init__(self, options: ZooKeeperOptions, servers: Sequence[Address], root: Chroot) -> None:
        super().__init__(ZooKeeperCluster(options, servers, root))
        self._options = options
        self._tree = Tree(self.cluster.link, self.loop)

    @classmethod
    def connect(cls, url: Url, options: dict[str, Any]) -> ZooKeeperClient:
        """Open a session.

        Args:
            url: the servers, the chroot as its path, digest credentials as its userinfo. options: those of `ZooKeeperOptions`.

        Raises:
            ConnectError, TlsError, TimedOut: no server took the session. AuthError: the credentials were refused. OptionError: a wrong
                option.
        """
        client = cls.made(url, options)
        try:
            client.cluster.drive(client.beginning(), NEVER)
        except BaseException:
            client.cluster.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, options: dict[str, Any]) -> ZooKeeperClient:
        """Make a client that has no session yet.

        Args:
            url, options: as for `connect`.
        """
        read = ZooKeeperOptions.from_url(url, **options)
        return cls(read, url.addresses, Chroot(f"/{url.path}".rstrip("/")))

    def beginning(self) -> Steps[None]:
        """Open the session, within the client's `timeout`. Steps; they raise what `connect` raises."""
        return self.cluster.link.beginning(self.deadline())

    def call_back_by(self, call_soon: Callable[..., object]) -> None:
        """Have callbacks of watches and of the session's state called by another event loop instead of a thread.

        Args:
            call_soon: called with a callback and its event, in any thread.
        """
        self.cluster.link.events.dispatcher.call_soon = call_soon

    # -- roles ------------------------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        """Return the tree of nodes below the chroot."""
        return self._tree

    def admin(self) -> QueueAdmin:
        """Return the admin, which manages queues as topics."""
        return QueueAdmin(self._tree.any_session())

    @operation
    def producer(self, topic: str | None = None, **given: Unpack[ProducerOptions]) -> Steps[QueueProducer]:
        """Make a producer, which puts messages into a queue.

        Args:
            topic: the queue's path below the chroot, created when it is not there.

        Raises:
            OptionError: a wrong option, or no topic. NoAuth: the queue is missing and may not be created. TimedOut, SessionExpired, Closed.
        """
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
        """Make a reader, which reads a queue's messages in order without taking them.

        Args:
            topic: the queue's path below the chroot.
            start: EARLIEST, LATEST, AtTime or a position to read from. stop: where to end, likewise; None: wait for more messages.

        Raises:
            NoNode: there is no such queue. OptionError: a wrong option, or no position of this queue. TimedOut, SessionExpired, Closed.
        """
        options = self._options.for_role("reader", given)
        begin, end = self.between(start, stop)
        opening = QueueReader.opening(self._tree.any_session(), self.named(topic), start=begin, stop=end, timeout=options.timeout)
        return (yield from opening)

    @operation
    def queue(self, /, topic: str | None = None, group: str = "", **given: Unpack[QueueOptions]) -> Steps[QueueWorker]:
        """Make a worker on a queue.

        Args:
            topic: the queue's path below the chroot.
            group: a name that the worker's claims carry. All workers of a queue share its messages, whatever their group.

        Raises:
            OptionError: a wrong option, or no topic.
        """
        yield from ()
        return QueueWorker(self._tree, self.named(topic), group, acl=self._options.for_role("queue", given).access)

    @operation
    def consumer(
        self, /, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Any
    ) -> Steps[NoReturn]:
        """Raise RoleUnsupported: ZooKeeper has no groups with positions.

        Args:
            topics, group, start: not used.

        Raises:
            RoleUnsupported: always; it names `queue` as the nearest role.
        """
        raise RoleUnsupported("ZooKeeper has no groups with positions", nearest="queue")

    @operation
    def request(
        self, /, message: Message | MultiRequest | None = None, *, timeout: float = 30.0, operation: str | None = None, **route: Any
    ) -> Steps[Any]:
        """Send any record of the protocol as it is (paths are the servers': the chroot is not applied); returns the typed reply, or None.

        Args:
            message: a request record, or `MultiRequest`; its own operation unless `operation` names another (``create2``,
                ``createContainer``). None for operations without a record (``whoAmI``; ``ping``, whose reply is dropped).
            timeout: seconds to wait for the reply.
            operation: jute's name of the operation.

        Raises:
            the error that the server answers, `NoNode` of ``exists`` too. UsageError: it is no operation of a client, or a route was given.
            ConnectionLoss, SessionExpired, TimedOut, Closed: see `wireproto.zookeeper.tree`.
        """
        if route:
            raise UsageError(f"ZooKeeper has no routes: {', '.join(route)}")
        return (yield from request(self.cluster.link, message, operation, deadline_after(timeout)))

    def ending(self, deadline: float) -> Steps[None]:
        """End the session. Steps.

        Args:
            deadline: `time.monotonic()` value until which servers are asked.
        """
        return self.cluster.link.ending(deadline)
