"""A program's connection to one RocketMQ cluster: makes the roles, and closes them.

May assume: `cluster` for all that roles share. Must not: do a role's work, or talk to a server by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from wireproto.errors import OptionError, RoleUnsupported, UsageError
from wireproto.net.runtime import ClientBase
from wireproto.net.task import NEVER, operation
from wireproto.position import EARLIEST, TopicPartition, Where, place

from ..deadlines import deadline_after
from . import requests
from .cluster import Reply, RocketCluster
from .options import RocketOptions

if TYPE_CHECKING:
    from wireproto.flow.topics import TopicsProducer
    from wireproto.net.task import Steps
    from wireproto.url import Address, Url

    from .admin import RocketAdmin
    from .consumer import RocketConsumer
    from .half import Check
    from .option_types import ConsumerOptions, ProducerOptions, QueueOptions, ReaderOptions, TransactionalOptions
    from .producer import RocketProducer
    from .queue import RocketQueueConsumer
    from .reader import RocketReader
    from .requests import Body
    from .staged import RocketTransactional


class RocketClient(ClientBase[RocketCluster]):
    """What `wireproto.connect("rocketmq://…")` returns. Thread-safe."""

    protocol = "rocketmq"
    made_from = (".producer", "..flow.topics", ".reader", ".consumer", ".queue", ".staged", ".admin", ".plans")

    def __init__(self, options: RocketOptions, name_servers: Sequence[Address]) -> None:
        super().__init__(RocketCluster(options, name_servers))
        self._options = options

    @classmethod
    def connect(cls, url: Url, keywords: dict[str, Any]) -> RocketClient:
        """Read the options and ask a name server, so that a wrong one is told now. Raises ConnectError, TlsError, TimedOut."""
        client = cls.made(url, keywords)
        try:
            client.cluster.drive(client.beginning(), NEVER)
        except BaseException:
            client.cluster.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, keywords: dict[str, Any]) -> RocketClient:
        """A client that has not connected yet."""
        client = cls(RocketOptions.from_url(url, **keywords), url.addresses)
        client.topic = url.path
        return client

    def beginning(self) -> Steps[None]:
        return self.cluster.serving(self.deadline())

    @overload
    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> RocketProducer: ...
    @overload
    def producer(self, topic: None = None, **options: Unpack[ProducerOptions]) -> TopicsProducer[RocketProducer]: ...
    @overload
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Any: ...
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> RocketProducer | TopicsProducer[RocketProducer]:
        """A producer for one topic (the URL's, if none is named), or, without one, for many: then each `send` names its `topic`.

        See `options.RocketOptions` for what it takes.
        """
        from wireproto.flow.topics import TopicsProducer

        from .producer import RocketProducer

        wanted = self._options.for_role("producer", options)
        if topic is None and not self.topic:
            opening, drive = RocketProducer.opening, self.cluster.drive  # the steps keep their time
            return self.keep(TopicsProducer(lambda name, timeout: drive(opening(self.cluster, name, wanted, timeout), NEVER)))
        return self.cluster.drive(self.producing(topic, **options), NEVER)

    def producing(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Steps[RocketProducer]:
        """`producer`, of one topic, as steps."""
        from .producer import RocketProducer

        opening = RocketProducer.opening(self.cluster, self.named(topic), self._options.for_role("producer", options))
        return self.keep((yield from opening))

    @operation
    def transactional(self, group: str, check: Check, **options: Unpack[TransactionalOptions]) -> Steps[RocketTransactional]:
        """Messages that are stored, and seen when their sender says so. RocketMQ's transaction is one message with a verdict: it spans no
        topics and no positions, as Kafka's does (`transactions`).

        Args:
            group: the producer group: brokers ask any process of it what became of a half message whose end has not come, so that each is
                able to tell, for each topic, also of a process that has died.
            check: told by that: called with a `CheckedMessage`, in a thread of the client, one at a time; says ``commit``, ``abort``, or
                None while that is not decided: then the broker asks again.
            options: see `options.RocketOptions`.
        Raises:
            OptionError: no group, no function. TransportError, NoMaster: no broker can be reached.
        """
        from .staged import RocketTransactional

        given = self._options.for_role("transactional", options)
        return self.keep((yield from RocketTransactional.opening(self.cluster, group, check, given)), held=True)

    @operation
    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Steps[RocketReader]:
        """A reader of queues by offset."""
        from .reader import RocketReader

        read = self._options.for_role("reader", options)
        return self.keep((yield from RocketReader.opening(self.cluster, self.named(topic), *self.between(start, stop), read)))

    @operation
    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Steps[RocketConsumer]:
        """A member of a group: queues shared out by the members themselves, offsets kept by the brokers."""
        from .consumer import RocketConsumer

        given = self._options.for_role("consumer", options)
        return self.keep((yield from RocketConsumer.opening(self.cluster, self.all_named(topics), group, place(start), given)))

    @operation
    def queue(self, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> Steps[RocketQueueConsumer]:
        """A worker of a group: each message is acked or given back."""
        from .queue import RocketQueueConsumer

        given = self._options.for_role("queue", options)
        return self.keep((yield from RocketQueueConsumer.opening(self.cluster, self.named(topic), group, given)))

    def admin(self) -> RocketAdmin:
        from .admin import RocketAdmin

        return RocketAdmin(self.cluster)

    def tree(self) -> Any:
        raise RoleUnsupported("RocketMQ has no tree", nearest="admin")

    @operation
    def request(
        self,
        /,
        message: Any,
        *,
        timeout: float = 30.0,
        body: Body = b"",
        to: str | TopicPartition | None = None,
        one_way: bool = False,
        **route: Any,
    ) -> Steps[Reply]:
        """Send any command and return its typed reply.

        Args:
            message: a request of `wireproto.rocketmq.messages`.
            body: the frame's body, where the command has one: bytes, text, or an object or list that is written as JSON.
            to: ``host:port``, ``names``, a broker's name, or (topic, partition). Without it see `requests.Router`: a name server for its
                commands, otherwise a broker that holds the message's topic and queue, or its group, or the first broker.
            one_way: ask for no reply; `Reply.message` is None then. Brokers do not tell what became of such a command.
        Returns:
            Reply: fields, body, code (0, or one of the warnings 10, 11, 12 of sends and the answers 19, 20, 21 of pulls, 210 of pops).
        Raises:
            BrokerError: any other code.
            TimedOut: no reply. Brokers never answer EndTransaction with 0, 4.9 name servers no code that they do not know.
        """
        if route:
            raise OptionError(f"unknown: {', '.join(route)}; a RocketMQ request takes timeout, body, to and one_way")
        if not hasattr(type(message), "CODE"):
            raise UsageError(f"{type(message).__name__} is not a request of RocketMQ")
        return requests.Router(self.cluster).requesting(message, requests.body_bytes(body), to, deadline_after(timeout), one_way=one_way)
