"""Makes the roles of one program over a Pulsar cluster, and closes them.

What the roles share (connections, look-up, ids, the bound of the send buffer) is in `cluster`. The client does no role's work and talks to
no broker itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, overload

from google.protobuf.message import Message

from wireproto.deadlines import deadline_after
from wireproto.errors import OptionError, RoleUnsupported
from wireproto.net.runtime import ClientBase
from wireproto.net.task import Steps, operation
from wireproto.position import EARLIEST, Where, place
from wireproto.url import Address, Url

from .cluster import PulsarCluster
from .connection import BrokerInfo
from .options import PulsarOptions

if TYPE_CHECKING:
    from wireproto.flow.topics import TopicsProducer

    from .admin import PulsarAdmin
    from .consumer import PulsarConsumer
    from .coordinators import Coordinators
    from .option_types import ConsumerOptions, ProducerOptions, QueueOptions, ReaderOptions, TransactionsOptions
    from .pinned_subscription import PinnedSubscription
    from .producer import PulsarProducer
    from .queue import PulsarQueue
    from .reader import PulsarReader
    from .transactions import PulsarTransactions


class PulsarClient(ClientBase[PulsarCluster]):
    """Client of one Pulsar cluster; see `wireproto.roles.Client`.

    Each role takes the options of its kind as keywords, which count for that role alone; docs/pulsar.md lists them.
    """

    protocol = "pulsar"
    made_from = (".sending", ".producer", "..flow.topics", ".reader", ".consumer", ".queue", ".transactions", ".admin")

    def __init__(self, options: PulsarOptions, addresses: Sequence[Address]) -> None:
        super().__init__(PulsarCluster(options, addresses))
        self._options = options
        self._coordinators: Coordinators | None = None

    @classmethod
    def connect(cls, url: Url, keywords: dict[str, Any]) -> PulsarClient:
        """Read the options and connect to one service address, so that a wrong address is reported at once.

        Args:
            url: of the cluster; its path is the default topic. keywords: `PulsarOptions` by name.

        Raises:
            OptionError: the URL or an option is wrong.
            AuthError: the broker refused the credentials.
            TransportError: no service address answered within the option `timeout`.
        """
        client = cls.made(url, keywords)
        try:
            client.cluster.drive(client.beginning(), float("inf"))
        except BaseException:
            client.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, keywords: dict[str, Any]) -> PulsarClient:
        """Return a client that has not connected yet.

        Args:
            url: of the cluster; its path is the default topic. keywords: `PulsarOptions` by name.

        Raises:
            OptionError: the URL or an option is wrong.
        """
        client = cls(PulsarOptions.from_url(url, **keywords), url.addresses)
        client.topic = url.path
        return client

    def beginning(self) -> Steps[None]:
        """Connect to one service address, within the option `timeout`. Steps.

        Raises:
            AuthError: the broker refused the credentials.
            TransportError: no service address answered in time.
        """
        yield from self.cluster.serving(self.deadline())

    def _role(self, role: str, given: Mapping[str, Any]) -> tuple[PulsarOptions, float]:
        """Return the options of a role and the deadline for making it.

        A role may recover a lost partition for the client's `timeout`, whatever `timeout` the role was given for being made.
        """
        found = self._options.for_role(role, given)
        return replace(found, timeout=self._options.timeout), self.deadline(found.timeout)

    @overload
    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> PulsarProducer: ...
    @overload
    def producer(self, topic: None = None, **options: Unpack[ProducerOptions]) -> TopicsProducer[PulsarProducer]: ...
    @overload
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Any: ...
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> PulsarProducer | TopicsProducer[PulsarProducer]:
        """Make a producer on all partitions of one topic, or one for many topics.

        Args:
            topic: any form of its name (see `topics`); None: the topic of the URL. Where that names none either, the result is a
                `TopicsProducer`, each `send` of which names its `topic`.
            options: of a producer, as in `PulsarOptions`.

        Raises:
            OptionError: an option is wrong, or `topic_epoch` was given for a partitioned topic.
            PulsarError: a broker refuses the producer, ProducerBusy or TopicNotFound for example.
            TransportError: not all partitions were open within the option `timeout`.
        """
        from wireproto.flow.topics import TopicsProducer

        from .producer import PulsarProducer
        from .sending import PulsarSender

        forever = float("inf")  # the steps keep their time
        if topic is not None or self.topic:
            return self.cluster.drive(self.producing(topic, **options), forever)
        given, _ = self._role("producer", options)
        sending, drive = PulsarSender(self.cluster, given), self.cluster.drive
        opening = partial(PulsarProducer.opening, self.cluster, sending)
        return self.keep(
            TopicsProducer(lambda name, timeout: self.keep(drive(opening(name, given, self.deadline(timeout)), forever), held=True))
        )

    def producing(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Steps[PulsarProducer]:
        """Run `producer` as steps, for one topic.

        Args:
            topic: any form of its name; None: the topic of the URL. options: of a producer.
        """
        from .producer import PulsarProducer
        from .sending import PulsarSender

        given, deadline = self._role("producer", options)
        opening = PulsarProducer.opening(self.cluster, PulsarSender(self.cluster, given), self.named(topic), given, deadline)
        return self.keep((yield from opening), held=True)  # held, so that a close sends what it still holds

    @operation
    def transactions(self, /, name: str, **options: Unpack[TransactionsOptions]) -> Steps[PulsarTransactions]:
        """Return transactions: records to any topics, and acknowledgements of this client's queues and consumers, all of them or none.

        Args:
            name: by which people know them. Brokers do not get it: no other program is fenced by it, and it may differ from run to run.
            options: of a producer, and `transaction_timeout`.

        Raises:
            NotAllowedError: the cluster has no transactions (the brokers' setting transactionCoordinatorEnabled).
            OptionError: `name` is empty, or an option is wrong.
            TimedOut: no transaction coordinator answered within the option `timeout`.
        """
        from .coordinators import Coordinators
        from .transactions import PulsarTransactions

        if self._coordinators is None:
            self._coordinators = Coordinators(self.cluster)
        given = self._options.for_role("transactions", options)
        return self.keep((yield from PulsarTransactions.opening(self.cluster, self._coordinators, name, given)), held=True)

    @operation
    def reader(
        self, /, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Steps[PulsarReader]:
        """Read a topic without a durable subscription; see `wireproto.roles.Client.reader`.

        Args:
            topic: any form of its name; None: the topic of the URL.
            start: EARLIEST, LATEST or AtTime for all partitions; or a position, or a mapping of places by (topic, partition): then only the
                partitions that it names are read.
            stop: the first place not read, in the same forms; LATEST: what the topic holds now. None: read for ever.
            options: of a reader.

        Raises:
            OptionError: an option, `start` or `stop` is wrong.
            PulsarError: a broker refuses, TopicNotFound for example.
            TransportError: no partition could be opened within the option `timeout`, or a look-up was not answered.
        """
        from .reader import PulsarReader

        opening = PulsarReader.opening(self.cluster, self.named(topic), *self.between(start, stop), *self._role("reader", options))
        return self.keep((yield from opening))

    @operation
    def consumer(
        self, /, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Steps[PulsarConsumer]:
        """Join a subscription as a member that reads a log (failover, or ``mode="exclusive"``).

        Args:
            topics: one topic or several, by any form of their names; None: the topic of the URL.
            group: name of the subscription.
            start: where a new subscription begins: EARLIEST, LATEST or AtTime, or a mapping of positions by (topic, partition), which needs
                the option `admin`. One that exists goes on where it is. Without `admin`, AtTime counts in seconds, and moves also one that
                exists.
            options: of a consumer.

        Raises:
            OptionError: an option, `start` or the mode is wrong.
            PulsarError: a broker refuses, ConsumerBusy or TopicNotFound for example.
            DataLoss: a position to start at lies in a deleted ledger, and the option `reset` is ``"raise"``.
            TransportError: no partition could be opened within the option `timeout`.
        """
        from .consumer import PulsarConsumer

        names = list(self.all_named(topics))
        opening = PulsarConsumer.opening(self.cluster, names, group, place(start), *self._role("consumer", options))
        return self.keep((yield from opening))

    @operation
    def queue(self, /, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> Steps[PulsarQueue]:
        """Join a subscription as a worker (shared, or ``mode="key-shared"``).

        Args:
            topic: any form of its name; None: the topic of the URL. group: name of the subscription. options: of a queue.

        Raises:
            OptionError: an option or the mode is wrong.
            RoleUnsupported: the topic is non-persistent, so that it keeps no message to be acknowledged.
            PulsarError: a broker refuses, ConsumerBusy or TopicNotFound for example.
            TransportError: no partition could be opened within the option `timeout`.
        """
        from .queue import PulsarQueue

        opening = PulsarQueue.opening(self.cluster, self.named(topic), group, *self._role("queue", options))
        return self.keep((yield from opening))

    def hold(self, group: str, *, consumer_name: str | None = None) -> PinnedSubscription:
        """Return a durable subscription whose mark-delete position is moved by hand, for readers that must find no record deleted.

        Brokers keep what lies behind that position, and send none of it. Nothing is attached before the first `PinnedSubscription.move`.

        Args:
            group: name of the subscription. consumer_name: what brokers show of this member; None: the broker makes one up.
        """
        from .pinned_subscription import PinnedSubscription

        return self.keep(PinnedSubscription(self.cluster, group, consumer_name))

    def admin(self) -> PulsarAdmin:
        """Return the role for topics, subscriptions and positions."""
        from .admin import PulsarAdmin

        return PulsarAdmin(self.cluster)

    def tree(self) -> Any:
        """Raise RoleUnsupported: Pulsar has no tree of nodes."""
        raise RoleUnsupported("Pulsar has no tree of nodes; topics and their properties are Admin's", nearest="admin")

    @operation
    def request(
        self, /, message: Message, *, timeout: float = 30.0, topic: str | None = None, entry: bytes | None = None, **route: Any
    ) -> Steps[Any]:
        """Send any command of a client (CommandX of `PulsarApi_pb2`) and return the CommandX that answers it, or None where nothing does.

        Args:
            message: the command. Its request id is set here.
            timeout: seconds for look-up, connection and answer.
            topic: send it to the broker that serves this topic or partition, by any form of its name; None: to the broker that the command
                itself names (see ``pulsar/request.py``), else to a service address.
            entry: what follows CommandSend: checksum, metadata and payload.

        Raises:
            PulsarError: the broker's answer is an error.
            OptionError: not a command that may be sent so, or a required field is missing.
            TimedOut: no answer in time. Disconnected: the connection was lost.
        """
        if route:
            raise OptionError(f"request takes topic= and entry=, not {', '.join(route)}")
        from .request import request

        return (yield from request(self.cluster, message, topic, entry, deadline_after(timeout)))

    def broker_info(self, timeout: float | None = None) -> BrokerInfo:
        """Return what the service address sent in CONNECTED: version, largest message in bytes, feature flags.

        Args:
            timeout: seconds to connect, where there is no connection yet; None: the option `timeout`.

        Raises:
            TransportError: no service address answered in time. AuthError: the broker refused the credentials.
        """
        return self.cluster.broker_info(self.deadline(timeout))
