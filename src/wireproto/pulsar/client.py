"""The client: makes the roles of one program over a Pulsar cluster, and closes them.

May assume: `cluster` for all that roles share. Must not: do a role's work, or talk to a broker by itself.
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
    """A client of one Pulsar cluster; see `wireproto.roles.Client`."""

    protocol = "pulsar"
    made_from = (".sending", ".producer", "..flow.topics", ".reader", ".consumer", ".queue", ".transactions", ".admin")

    def __init__(self, options: PulsarOptions, addresses: Sequence[Address]) -> None:
        super().__init__(PulsarCluster(options, addresses))
        self._options = options
        self._coordinators: Coordinators | None = None

    @classmethod
    def connect(cls, url: Url, keywords: dict[str, Any]) -> PulsarClient:
        """Read the options and connect to one service address, so that a wrong one is told now."""
        client = cls.made(url, keywords)
        try:
            client.cluster.drive(client.beginning(), float("inf"))
        except BaseException:
            client.close()
            raise
        return client

    @classmethod
    def made(cls, url: Url, keywords: dict[str, Any]) -> PulsarClient:
        """A client that has not connected yet."""
        client = cls(PulsarOptions.from_url(url, **keywords), url.addresses)
        client.topic = url.path
        return client

    def beginning(self) -> Steps[None]:
        yield from self.cluster.serving(self.deadline())

    def _role(self, role: str, given: Mapping[str, Any]) -> tuple[PulsarOptions, float]:
        """A role's options, and until when it must be made; how long a lost partition may stay lost is the client's `timeout`."""
        found = self._options.for_role(role, given)
        return replace(found, timeout=self._options.timeout), self.deadline(found.timeout)

    @overload
    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> PulsarProducer: ...
    @overload
    def producer(self, topic: None = None, **options: Unpack[ProducerOptions]) -> TopicsProducer[PulsarProducer]: ...
    @overload
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Any: ...
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> PulsarProducer | TopicsProducer[PulsarProducer]:
        """A producer on all partitions of `topic` (the URL's, if none is named), or, without one, for many: then each `send` names its
        `topic`. Options as in `PulsarOptions`."""
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
        """`producer`, of one topic, as steps."""
        from .producer import PulsarProducer
        from .sending import PulsarSender

        given, deadline = self._role("producer", options)
        opening = PulsarProducer.opening(self.cluster, PulsarSender(self.cluster, given), self.named(topic), given, deadline)
        return self.keep((yield from opening), held=True)  # held, so that a close sends what it still holds

    @operation
    def transactions(self, /, name: str, **options: Unpack[TransactionsOptions]) -> Steps[PulsarTransactions]:
        """Transactions: records to any topics, and acknowledgements of queues and consumers of this client, all of them or none.

        Args:
            name: what people know them by. Brokers are told nothing of it: it fences nobody, and may be another one each time.
            options: as of a producer, and `transaction_timeout`.
        Raises:
            NotAllowedError: the cluster has no transactions. TimedOut.
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
        """Read `topic` without a subscription that stays; see `wireproto.roles.Client.reader`."""
        from .reader import PulsarReader

        opening = PulsarReader.opening(self.cluster, self.named(topic), *self.between(start, stop), *self._role("reader", options))
        return self.keep((yield from opening))

    @operation
    def consumer(
        self, /, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Steps[PulsarConsumer]:
        """Join the subscription `group` as a member that reads a log (failover, or ``mode="exclusive"``)."""
        from .consumer import PulsarConsumer

        names = list(self.all_named(topics))
        opening = PulsarConsumer.opening(self.cluster, names, group, place(start), *self._role("consumer", options))
        return self.keep((yield from opening))

    @operation
    def queue(self, /, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> Steps[PulsarQueue]:
        """Join the subscription `group` as a worker (shared, or ``mode="key-shared"``)."""
        from .queue import PulsarQueue

        opening = PulsarQueue.opening(self.cluster, self.named(topic), group, *self._role("queue", options))
        return self.keep((yield from opening))

    def hold(self, group: str, *, consumer_name: str | None = None) -> PinnedSubscription:
        """The subscription `group` as something that is moved by hand: brokers keep what lies behind it, and send nothing of that. For who
        reads by Readers and must not find that records were deleted meanwhile.

        Args:
            consumer_name: what brokers show of this member; None: they make one up.
        """
        from .pinned_subscription import PinnedSubscription

        return self.keep(PinnedSubscription(self.cluster, group, consumer_name))

    def admin(self) -> PulsarAdmin:
        """Topics, subscriptions and positions."""
        from .admin import PulsarAdmin

        return PulsarAdmin(self.cluster)

    def tree(self) -> Any:
        """Not a thing that Pulsar has."""
        raise RoleUnsupported("Pulsar has no tree of nodes; topics and their properties are Admin's", nearest="admin")

    @operation
    def request(
        self, /, message: Message, *, timeout: float = 30.0, topic: str | None = None, entry: bytes | None = None, **route: Any
    ) -> Steps[Any]:
        """Send any command of a client (CommandX of `PulsarApi_pb2`) and return the CommandX that answers it, None where nothing does.

        Args:
            topic: send it to the broker that serves this topic or partition, by any form of its name; None: where the command itself
                says (see ``pulsar/request.py``), else to a service address.
            entry: what follows CommandSend: checksum, metadata and payload.
        Raises:
            PulsarError: the broker's answer is an error.
            OptionError: not a command that may be sent so, or a required field is missing.
        """
        if route:
            raise OptionError(f"request takes topic= and entry=, not {', '.join(route)}")
        from .request import request

        return (yield from request(self.cluster, message, topic, entry, deadline_after(timeout)))

    def broker_info(self, timeout: float | None = None) -> BrokerInfo:
        """What the service address told at CONNECTED: version, largest message, feature flags."""
        return self.cluster.broker_info(self.deadline(timeout))
