"""A program's connection to one RocketMQ cluster: makes the roles, and closes them.

May assume: `cluster` for all that roles share. Must not: do a role's work, or talk to a server by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from wireproto.errors import OptionError, RoleUnsupported, UsageError
from wireproto.net.runtime import ClientBase
from wireproto.position import EARLIEST, TopicPartition, Where, place

from ..due import due
from . import requests
from .cluster import Reply, RocketCluster
from .options import RocketOptions

if TYPE_CHECKING:
    from wireproto.flow.topics import TopicsProducer
    from wireproto.url import Address

    from .admin import RocketAdmin
    from .consumer import RocketConsumer
    from .option_types import ConsumerOptions, ProducerOptions, QueueOptions, ReaderOptions
    from .producer import RocketProducer
    from .queue import RocketQueueConsumer
    from .reader import RocketReader
    from .requests import Body


class RocketClient(ClientBase[RocketCluster]):
    """What `wireproto.connect("rocketmq://…")` returns. Thread-safe.

    Raises, when made: ConnectError, TlsError, TimedOut, when no name server answers.
    """

    protocol = "rocketmq"

    def __init__(self, options: RocketOptions, name_servers: Sequence[Address]) -> None:
        super().__init__(RocketCluster(options, name_servers))
        self._options = options

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
            return self.keep(TopicsProducer(lambda name, timeout: RocketProducer(self.cluster, name, wanted, timeout)))
        return self.keep(RocketProducer(self.cluster, self.named(topic), wanted))

    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> RocketReader:
        """A reader of queues by offset."""
        from .reader import RocketReader

        read = self._options.for_role("reader", options)
        return self.keep(RocketReader(self.cluster, self.named(topic), *self.between(start, stop), read))

    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> RocketConsumer:
        """A member of a group: queues shared out by the members themselves, offsets kept by the brokers."""
        from .consumer import RocketConsumer

        names = self.all_named(topics)
        return self.keep(RocketConsumer(self.cluster, names, group, place(start), self._options.for_role("consumer", options)))

    def queue(self, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> RocketQueueConsumer:
        """A worker of a group: each message is acked or given back."""
        from .queue import RocketQueueConsumer

        return self.keep(RocketQueueConsumer(self.cluster, self.named(topic), group, self._options.for_role("queue", options)))

    def admin(self) -> RocketAdmin:
        from .admin import RocketAdmin

        return RocketAdmin(self.cluster)

    def tree(self) -> Any:
        raise RoleUnsupported("RocketMQ has no tree", nearest="admin")

    def request(
        self,
        message: Any,
        *,
        timeout: float = 30.0,
        body: Body = b"",
        to: str | TopicPartition | None = None,
        one_way: bool = False,
        **route: Any,
    ) -> Reply:
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
        return requests.Router(self.cluster).request(message, requests.body_bytes(body), to, due(timeout), one_way=one_way)
