"""Makes the roles of a RocketMQ client, and closes them: a program's connection to one cluster.

What roles share is in `cluster`. The client does no role's work, and sends nothing to a server by itself.
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
    """Makes roles on one cluster. `wireproto.connect("rocketmq://…")` returns it. Thread-safe."""

    protocol = "rocketmq"
    made_from = (".producer", "..flow.topics", ".reader", ".consumer", ".queue", ".staged", ".admin", ".plans")

    def __init__(self, options: RocketOptions, name_servers: Sequence[Address]) -> None:
        super().__init__(RocketCluster(options, name_servers))
        self._options = options

    @classmethod
    def connect(cls, url: Url, keywords: dict[str, Any]) -> RocketClient:
        """Read the options and ask a name server, so that wrong options are reported now.

        Args:
            url: names the name servers, and perhaps a topic. keywords: options, see `options.RocketOptions`.
        Raises:
            OptionError: an option is unknown or does not fit. AuthError: the credentials are refused.
            ConnectError, TlsError, TimedOut: no name server answers.
        """
        client = cls.made(url, keywords)
        try:
            client.cluster.drive(client.beginning(), NEVER)
        except BaseException:
            client.cluster.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, keywords: dict[str, Any]) -> RocketClient:
        """Make a client that has not connected yet.

        Args:
            url, keywords: as of `connect`.
        Raises:
            OptionError: an option is unknown or does not fit.
        """
        client = cls(RocketOptions.from_url(url, **keywords), url.addresses)
        client.topic = url.path
        return client

    def beginning(self) -> Steps[None]:
        """Run what `connect` waits for as steps: one command to a name server."""
        return self.cluster.serving(self.deadline())

    @overload
    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> RocketProducer: ...
    @overload
    def producer(self, topic: None = None, **options: Unpack[ProducerOptions]) -> TopicsProducer[RocketProducer]: ...
    @overload
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Any: ...
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> RocketProducer | TopicsProducer[RocketProducer]:
        """Make a producer of one topic (the URL's, if none is named), or, without one, of many: then each `send` names its `topic`.

        Args:
            topic: name of the topic. options: see `options.RocketOptions`.
        Raises:
            OptionError: an unknown option. ValueUnsupported: brokers do not take this name of a topic.
            TopicNotExist: no name server knows the topic. NoPermission: it has no queue.
            TransportError, TimedOut: no name server answers within the option `timeout`.
        """
        from wireproto.flow.topics import TopicsProducer

        from .producer import RocketProducer

        wanted = self._options.for_role("producer", options)
        if topic is None and not self.topic:
            opening, drive = RocketProducer.opening, self.cluster.drive  # the steps keep their time
            return self.keep(TopicsProducer(lambda name, timeout: drive(opening(self.cluster, name, wanted, timeout), NEVER)))
        return self.cluster.drive(self.producing(topic, **options), NEVER)

    def producing(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Steps[RocketProducer]:
        """Run `producer` as steps; of one topic alone.

        Args:
            topic: name of the topic; None: the URL's, or OptionError.
        """
        from .producer import RocketProducer

        opening = RocketProducer.opening(self.cluster, self.named(topic), self._options.for_role("producer", options))
        return self.keep((yield from opening))

    @operation
    def transactional(self, group: str, check: Check, **options: Unpack[TransactionalOptions]) -> Steps[RocketTransactional]:
        """Make a producer of half messages: each is stored, and delivered to consumers when its sender commits it.

        RocketMQ's transaction is one message with a commit or abort: it spans no topics and no positions, as Kafka's does (`transactions`).

        Args:
            group: the producer group. For a half message without a commit or abort, brokers ask any process of the group (check-back), so
                each process has to be able to answer, for each topic, also for a process that has died.
            check: answers a check-back: called with a `CheckedMessage`, in a thread of the client, one at a time; returns ``commit``,
                ``abort``, or None while that is not decided: then the broker asks again.
            options: see `options.RocketOptions`.
        Raises:
            OptionError: no valid group, or `check` is no function. TransportError, NoMaster: no broker can be reached.
        """
        from .staged import RocketTransactional

        given = self._options.for_role("transactional", options)
        return self.keep((yield from RocketTransactional.opening(self.cluster, group, check, given)), held=True)

    @operation
    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Steps[RocketReader]:
        """Make a reader of a topic's queues by offset, without a group.

        Args:
            topic: name of the topic; None: the URL's.
            start: where each queue begins: EARLIEST, LATEST, AtTime (milliseconds since 1970), or a mapping of positions, whose keys are
                the partitions that are read.
            stop: the first position not read, one for all or a mapping; None: read on for ever.
            options: see `options.RocketOptions`.
        Raises:
            OptionError: no topic, an unknown option, or a start or stop that names a partition that there is not.
            TopicNotExist: no name server knows the topic. BrokerError: a broker refuses.
            TransportError, TimedOut: servers do not answer within the option `timeout`.
        """
        from .reader import RocketReader

        read = self._options.for_role("reader", options)
        return self.keep((yield from RocketReader.opening(self.cluster, self.named(topic), *self.between(start, stop), read)))

    @operation
    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Steps[RocketConsumer]:
        """Join a consumer group: its members share the queues among themselves, brokers keep the offsets.

        Args:
            topics: names of topics; None: the URL's. group: name of the consumer group.
            start: where queues begin that have no committed offset: EARLIEST, LATEST, AtTime (milliseconds since 1970), or positions.
            options: see `options.RocketOptions`.
        Raises:
            OptionError: no topic, an unknown option, or a start that names a partition that there is not.
            UsageError: a member of the group in this client reads other topics.
            TopicNotExist: no name server knows a topic. BrokerError: a broker refuses.
            TransportError, TimedOut: servers do not answer within the option `timeout`.
        """
        from .consumer import RocketConsumer

        given = self._options.for_role("consumer", options)
        return self.keep((yield from RocketConsumer.opening(self.cluster, self.all_named(topics), group, place(start), given)))

    @operation
    def queue(self, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> Steps[RocketQueueConsumer]:
        """Join a consumer group as a worker: each message is acked, or released to come again.

        Args:
            topic: name of the topic; None: the URL's. group: name of the consumer group. options: see `options.RocketOptions`.
        Raises:
            OptionError: no topic or an unknown option. UsageError, TopicNotExist, BrokerError, TransportError, TimedOut: as of `consumer`.
        """
        from .queue import RocketQueueConsumer

        given = self._options.for_role("queue", options)
        return self.keep((yield from RocketQueueConsumer.opening(self.cluster, self.named(topic), group, given)))

    def admin(self) -> RocketAdmin:
        """Make the role that administers topics and groups."""
        from .admin import RocketAdmin

        return RocketAdmin(self.cluster)

    def tree(self) -> Any:
        """Raise RoleUnsupported: RocketMQ has no tree."""
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
            message: a request of `wireproto.rocketmq.messages`. timeout: seconds.
            body: the frame's body, where the command has one: bytes, text, or an object or list that is written as JSON.
            to: ``host:port``, ``names``, a broker's name, or (topic, partition). Without it see `requests.Router`: a name server for its
                commands, otherwise a broker that holds the message's topic and queue, or its group, or the first broker.
            one_way: ask for no reply; `Reply.message` is None then. The outcome of such a command is not known.
        Returns:
            Reply: fields, body, code (0, or one of the warnings 10, 11, 12 of sends and the answers 19, 20, 21 of pulls, 210 of pops).
        Raises:
            BrokerError: any other code. OptionError: an unknown keyword. UsageError: `message` is not a request of RocketMQ.
            TimedOut: no reply. Brokers never answer EndTransaction with 0, and 4.9 name servers never answer a code that they do not know.
            TransportError: no connection, or it was lost.
        """
        if route:
            raise OptionError(f"unknown: {', '.join(route)}; a RocketMQ request takes timeout, body, to and one_way")
        if not hasattr(type(message), "CODE"):
            raise UsageError(f"{type(message).__name__} is not a request of RocketMQ")
        return requests.Router(self.cluster).requesting(message, requests.body_bytes(body), to, deadline_after(timeout), one_way=one_way)
