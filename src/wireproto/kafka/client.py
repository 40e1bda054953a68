"""Makes the roles of a program's connection to one Kafka cluster, and closes them.

Uses `cluster` for all that roles share; does no role's work, and does not talk to a node by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from ..deadlines import deadline_after
from ..errors import RoleUnsupported
from ..net.runtime import ClientBase
from ..net.task import Steps, operation
from ..position import EARLIEST, Where, place
from .cluster import KafkaCluster
from .options import KafkaOptions

if TYPE_CHECKING:
    from ..flow.topics import TopicsProducer
    from ..roles import Tree
    from ..url import Address
    from .admin import KafkaAdmin
    from .consumer import KafkaConsumer
    from .identity import Identity
    from .option_types import ConsumerOptions, ProducerOptions, ReaderOptions, TransactionsOptions
    from .producer import KafkaProducer
    from .reader import KafkaReader
    from .sending import KafkaSenders
    from .transactions import KafkaTransactions
    from .versions import Request
    from .wire import Agreed


class KafkaClient(ClientBase[KafkaCluster]):
    """The client that `wireproto.connect("kafka://…")` returns. May be shared by threads."""

    protocol = "kafka"
    made_from = (".sending", ".producer", "..flow.topics", ".reader", ".consumer", ".transactions", ".admin")

    def __init__(self, options: KafkaOptions, addresses: Sequence[Address]) -> None:
        super().__init__(KafkaCluster(options, addresses))
        self._options = options
        self._shared: dict[str, KafkaSenders] = {}

    @property
    def _senders(self) -> KafkaSenders:
        """Return the client's senders, made for the first producer: a client that only reads imports nothing of sending.

        `setdefault` is one step, so there is only one, whatever thread asks first.
        """
        from .sending import KafkaSenders

        return self._shared.get("senders") or self._shared.setdefault("senders", KafkaSenders(self.cluster))

    @overload
    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> KafkaProducer: ...
    @overload
    def producer(self, topic: None = None, **options: Unpack[ProducerOptions]) -> TopicsProducer[KafkaProducer]: ...
    @overload
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Any: ...
    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> KafkaProducer | TopicsProducer[KafkaProducer]:
        """Make a producer for one topic, or, where neither the call nor the URL names one, for many: then each `send` names its `topic`.

        Args:
            topic: its name; None: that of the URL.
            options: as in KafkaOptions (acks, linger, batch_size, compression, partitioner …). Producers of a client that have the same
                options share one producer id, and requests; a second one of the same topic has an id of its own.
        Raises:
            UnknownTopicOrPartition: there is no such topic, after `unknown_topic_timeout` seconds. OptionError: an unknown option or a bad
                value.
            TimedOut, Unreachable, AuthError, Closed: the topic cannot be looked up within the option `timeout`.
        """
        from ..flow.topics import TopicsProducer
        from .producer import KafkaProducer

        given = self._options.for_role("producer", options)
        if topic is None and not self.topic:
            drive, opening, forever = self.cluster.drive, KafkaProducer.opening, float("inf")  # the steps have a deadline of their own
            return self.keep(TopicsProducer(lambda name, timeout: drive(opening(self._senders, name, given, timeout), forever)))
        return self.cluster.drive(self.producing(topic, **options), float("inf"))

    def producing(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Steps[KafkaProducer]:
        """Run `producer` as steps, of one topic."""
        from .producer import KafkaProducer

        return self.keep((yield from KafkaProducer.opening(self._senders, self.named(topic), self._options.for_role("producer", options))))

    @operation
    def transactions(self, name: str, *, after: Identity | None = None, **options: Unpack[TransactionsOptions]) -> Steps[KafkaTransactions]:
        """Take a transactional id and make transactions under it: its former user is fenced, and what it left open is rolled back.

        Args:
            name: the transactional id: the same after a restart of this program, another one for each program that runs beside it.
            after: the `identity` of the role whose work this one continues, in this process or another: a program that has taken the name
                since is not fenced (Kafka 2.5).
            options: as of a producer, and `transaction_timeout` (seconds).
        Raises:
            Fenced: another program has taken the name since `after`. OptionError: no name, or options that rule transactions out.
            AuthError, InvalidTransactionTimeout: the cluster does not allow the name, or that time. TimedOut, Unreachable, Closed.
        """
        from .transactions import KafkaTransactions

        given = self._options.for_role("transactions", options)
        return self.keep((yield from KafkaTransactions.opening(self.cluster, name, given, after)), held=True)

    @operation
    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Steps[KafkaReader]:
        """Make a reader without a group. A Position or mapping as `start` or `stop` restricts it to the partitions named.

        Args:
            topic: its name; None: that of the URL.
            start: where to begin: EARLIEST, LATEST, AtTime, a Position, or a mapping of these by (topic, partition).
            stop: the first position not read, in the same forms; LATEST is fixed now; None: follow the log for ever.
            options: as in KafkaOptions, for this reader alone.
        Raises:
            UnknownTopicOrPartition: there is no such topic, after `unknown_topic_timeout` seconds.
            OptionError: an unknown option, a bad value, a place or a partition that does not exist.
            TimedOut, Unreachable, AuthError, Closed: start and stop cannot be found within the option `timeout`.
        """
        from .reader import KafkaReader

        read = self._options.for_role("reader", options)
        return self.keep((yield from KafkaReader.opening(self.cluster, self.named(topic), *self.between(start, stop), read)))

    @operation
    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Steps[KafkaConsumer]:
        """Make a member of a classic group, which joins in its first poll; offers the assignors range and roundrobin.

        Args:
            topics: a name or several; None: that of the URL.
            group: the group's name.
            start: EARLIEST, LATEST or AtTime: where a partition begins for which the group has no committed position.
            options: as in KafkaOptions, for this consumer alone.
        Raises:
            UnknownTopicOrPartition: there is no such topic, after `unknown_topic_timeout` seconds.
            OptionError: no topic, no group, a start that names partitions, an unknown option or a bad value.
            TimedOut, Unreachable, AuthError, Closed: the topics cannot be looked up within the option `timeout`.
        """
        from .consumer import KafkaConsumer

        names = self.all_named(topics)
        given = self._options.for_role("consumer", options)
        return self.keep((yield from KafkaConsumer.opening(self.cluster, names, group, place(start), given)))

    @operation
    def newest(self, message: type[Request], *, timeout: float = 30.0) -> Steps[int | None]:
        """Return the newest version of a request that both a node of the cluster and this client know; None: there is none.

        Args:
            message: a request class of ``wireproto.kafka.messages``.
            timeout: seconds for the whole call.
        Raises:
            TimedOut, Unreachable, AuthError: no node can be reached. Closed.
        """
        until = deadline_after(timeout)
        conn = yield from self.cluster.retrying(lambda: self.cluster.to_any(until), until)
        agreed: Agreed = conn.context
        return agreed.versions.newest(message)

    def admin(self) -> KafkaAdmin:
        """Make an Admin: topics, groups, positions and transactions."""
        from .admin import KafkaAdmin

        return KafkaAdmin(self.cluster)

    @operation
    def queue(self, /, topic: str | None = None, group: str = "", **options: Any) -> Steps[Any]:
        """Raise RoleUnsupported: Kafka's queues (share groups) are not implemented.

        Args:
            topic: not used. group: not used.
        Raises:
            RoleUnsupported: always; `nearest` is the consumer.
        """
        raise RoleUnsupported("Kafka's queues (share groups) come in a later version; use a Consumer", nearest="consumer")

    def tree(self) -> Tree:
        """Raise RoleUnsupported: Kafka has no tree of nodes; `nearest` is the admin."""
        raise RoleUnsupported("Kafka has no tree of nodes; its topics are listed by the Admin", nearest="admin")

    @operation
    def request(self, /, message: Any, *, timeout: float = 30.0, version: int | None = None, **route: Any) -> Steps[Any]:
        """Send any message and return its typed reply, error codes and all.

        Args:
            message: an instance of a request class of ``wireproto.kafka.messages``.
            version: to speak; None takes the newest that the node and we know.
            route: at most one of ``node=3``, ``controller=True``, ``leader=(topic, partition)``, ``group="g"``, ``transaction="t"``,
                ``any=True``. Without it the message decides, as the table in ``kafka.routing`` says: the coordinator of its group or
                transaction, the leader of the first partition that it names, the controller, or any node. A coordinator is looked up
                for each request, since a reply's own error codes are not read here.
            timeout: seconds for the whole call.
        Raises:
            UnsupportedVersion: the node does not offer the version, or none that we know. OptionError: no such route.
            UnknownTopicOrPartition, LeaderNotAvailable: the route's partition has no leader. ValueUnsupported: the version lacks a field.
            TimedOut, Disconnected: the request was sent at most once, and had no answer. Unreachable, AuthError, Closed.
        """
        return self.cluster.requesting(message, deadline_after(timeout), version=version, **route)
