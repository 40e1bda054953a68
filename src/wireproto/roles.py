"""Defines the common interface: one `typing.Protocol` for each role. An adapter offers the roles that its protocol can keep.

The module holds types only; `isinstance` is not meant to be used on them. A client that is asked for a role which its protocol does not
have raises RoleUnsupported, which names the nearest role that it has. No method is ever a silent no-op.

Threads: Client, Producer, Tree, Admin and Transactions may be shared. Reader, Consumer and QueueConsumer belong to one thread at a time and
raise ConcurrentUse. Callbacks run in the thread that waits, polls or flushes. Every blocking call takes `timeout` in seconds and keeps it.

Errors: the classes are in ``wireproto.errors``; a broker's error code is a BrokerError of a class of its own, in the protocol's ``codes``.
Any call of a role may also raise Closed (the role or its client was closed) and Forked (the client belongs to the parent process); a
`timeout` that is no number raises OptionError. A call that asks a broker raises TimedOut when the broker has not answered in time, and
Unreachable or another TransportError when no connection can be made.

    | role          | Kafka   | Pulsar              | RocketMQ              | ZooKeeper            |
    |---------------|---------|---------------------|-----------------------|----------------------|
    | Producer      | yes     | yes                 | yes                   | queue recipe         |
    | Reader        | yes     | yes                 | pull by offset        | the recipe's nodes   |
    | Consumer      | group   | exclusive, failover | pull + group offsets  | no                   |
    | QueueConsumer | later   | shared, key-shared  | pull + send-back      | the recipe           |
    | Admin         | yes     | binary + admin HTTP | yes                   | yes                  |
    | Tree          | no      | no                  | no                    | yes                  |
    | Transactions  | yes     | yes                 | no                    | no                   |

A RocketMQ transaction is one message that is committed or rolled back, and so a role of its own: `transactional`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from .position import EARLIEST, LATEST, Position, TopicPartition, Where
from .records import Batch, Delivery, GroupInfo, Headers, Receipt, TopicInfo

if TYPE_CHECKING:
    from .option_types import ConsumerOptions, ProducerOptions, QueueOptions, ReaderOptions, TransactionsOptions


class Closing(Protocol):
    """Everything that holds connections: a context manager with a close that keeps its timeout."""

    def close(self, timeout: float = 30.0) -> None:
        """Finish what is under way and release what the role or client holds. Closing it again does nothing.

        A producer flushes, a consumer with automatic commit commits and leaves its group, a client closes its roles first.

        Args:
            timeout: seconds to wait; afterwards it is closed all the same, unless TimedOut says that another thread is in a call.

        Raises:
            TimedOut: it did not finish in time, or another thread did not leave its call in time (then close again).
            The error of what failed, such as that of a producer's record that was not stored.
        """
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Producer(Closing, Protocol):
    """Appends records to one topic."""

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt:
        """Take one record; returns at once unless the send buffer is full.

        Args:
            value, key: bytes, or None for null where the broker has it.
            headers: a mapping or ordered pairs of name and bytes (or None).
            timestamp: milliseconds since 1970 UTC; None: the client's time of this call.
            partition: the partition's number; None picks it by the key, and without a key keeps to one partition for a batch.
            timeout: seconds to wait for room in the send buffer.

        Returns:
            the record's receipt; `Receipt.position` waits for the broker's answer.

        Raises:
            ValueUnsupported: the broker cannot carry this record, or it is larger than allowed.
            BufferFull: no room within `timeout`; the record was not taken.
            Closed: the producer or its client was closed.
        """
        ...

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]:
        """Take many records at once. Rows of one partition keep their order.

        Args:
            columns: anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` whose columns are named as ours (``value``, and
                any of ``key``, ``headers``, ``timestamp``, ``partition``), one row for each record, or a Columns.
            partition: the partition of all rows; None: each row's own, from its column ``partition`` or its key.
            timeout: seconds to wait for room in the send buffer, for all rows together.

        Returns:
            one receipt per batch that goes out, in order; each holds the position of its last record.

        Raises:
            ValueUnsupported: a row cannot be sent; none was taken.
            BufferFull: no room within `timeout` for the rest. Its `taken` maps each partition to the number of its first rows that were
                taken; those are sent all the same.
            Closed: the producer or its client was closed.
        """
        ...

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until the outcome of every record taken so far is known.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError: the first failure of a record that no receipt and no earlier flush has raised yet.
            TimedOut: not every outcome is known in time.
        """
        ...


class Reader(Closing, Protocol):
    """Reads a topic's partitions from `start` to `stop` without a group. Iterating yields non-empty batches and ends at the stop."""

    def __iter__(self) -> Iterator[Batch]: ...

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout` or the stop is reached (see `done`).

        Args:
            timeout: seconds to wait for a record.

        Raises:
            DataLoss: records at the position are not there any more. What the protocol raises for a position that the log does not hold.
            ChecksumMismatch, DecompressionError, Malformed: a record cannot be decoded; the error has its topic, partition and position.
            ConcurrentUse: another thread is in a call of this reader.
            Closed: the reader or its client was closed.
        """
        ...

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Continue reading at another place; drops what was fetched ahead.

        Args:
            where: EARLIEST, LATEST, AtTime, a position, or a mapping of those by partition. A position or mapping moves only the
                partitions that it names.
            timeout: seconds to look the place up.

        Raises:
            OptionError: `where` is no place, or names a partition that this reader does not read.
            TimedOut, Unreachable: the place could not be looked up.
            ConcurrentUse: another thread is in a call of this reader.
        """
        ...

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """The position that each partition is read at next."""
        ...

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        ...


class Consumer(Closing, Protocol):
    """A member of a group that shares a log: positions and cumulative commit."""

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout`. Rebalances happen here; callbacks run here.

        Args:
            timeout: seconds to wait for a record.

        Raises:
            DataLoss: records at the position are not there any more. What the protocol raises for a position that the log does not hold.
            ChecksumMismatch, DecompressionError, Malformed: a record cannot be decoded; the error has its topic, partition and position.
            BrokerError: the broker refuses the group or this member.
            ConcurrentUse: another thread is in a call of this consumer.
            Closed: the consumer or its client was closed.
        """
        ...

    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """Commit where the group resumes.

        Args:
            positions: the first position not processed, by (topic, partition), such as a batch's `next_positions`; None: behind the
                records that poll has returned.
            timeout: seconds to wait for the broker.

        Raises:
            Revoked: its `partitions` belong to another member now, or were reassigned (raised once) after poll returned records of them,
                which will be delivered again. The other partitions are committed.
            OptionError: `positions` is no mapping of positions.
            TimedOut, Unreachable: no answer; the commit may have been stored.
            ConcurrentUse: another thread is in a call of this consumer.
        """
        ...

    def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Return the group's committed positions of the partitions assigned here; partitions without one are left out.

        Args:
            timeout: seconds to wait for the broker.

        Raises:
            TimedOut, Unreachable: the broker could not be asked. ConcurrentUse: another thread is in a call of this consumer.
        """
        ...

    def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        """Return how far each assigned partition is behind its end.

        Kafka and RocketMQ count offsets that poll has still to return, Pulsar's brokers entries behind the committed position.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: a partition has no leader, say; `known` of the error has the lags of the others.
            TimedOut, Unreachable: a broker could not be asked. ConcurrentUse: another thread is in a call of this consumer.
        """
        ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions from poll until `resume` (Kafka: or until a rebalance).

        Args:
            partitions: pairs of topic and partition.

        Raises:
            Revoked: a partition is not assigned to this consumer; none is changed. ConcurrentUse: another thread is in a call of this
                consumer.
        """
        ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End the pause of these partitions.

        Args:
            partitions: pairs of topic and partition.

        Raises:
            Revoked: a partition is not assigned to this consumer; none is changed. ConcurrentUse: another thread is in a call of this
                consumer.
        """
        ...

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Continue reading the assigned partitions at another place; drops what was fetched ahead.

        Pulsar moves the subscription itself, for all its members; the others commit nothing.

        Args:
            where: EARLIEST, LATEST, AtTime, a position, or a mapping of those by partition. A position or mapping moves only the
                partitions that it names.
            timeout: seconds to look the place up.

        Raises:
            Revoked: `where` names a partition that is not assigned to this consumer; nothing is moved. OptionError: `where` is no place.
            TimedOut, Unreachable: the place could not be looked up. ConcurrentUse: another thread is in a call of this consumer.
        """
        ...

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member has, as pairs of topic and partition; changes only in `poll`."""
        ...


class QueueConsumer(Closing, Protocol):
    """A worker on a queue: each message is acked or given back; see `Delivery`. Pulsar's and RocketMQ's have `flush`, too."""

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """Return the next message, or None when none came within `timeout`.

        Args:
            timeout: seconds to wait for a message.

        Raises:
            BrokerError: an earlier acknowledgement was refused (Pulsar and RocketMQ send them in groups), or the broker refuses this
                consumer.
            Revoked: a queue was lost before what was acknowledged of it was committed (RocketMQ); those messages come again.
            ChecksumMismatch, DecompressionError, Malformed: a message cannot be decoded; the error has its topic, partition and position.
            ConcurrentUse: another thread is in a call of this consumer.
            Closed: the consumer or its client was closed.
        """
        ...


class Admin(Closing, Protocol):
    """Topics, groups and positions."""

    def list_topics(self, *, timeout: float = 30.0) -> list[str]:
        """Return the names of all topics, without the brokers' internal ones.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            TimedOut, Unreachable, AuthError: the cluster could not be asked, or does not allow it.
        """
        ...

    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo:
        """Return a topic's partitions, their leaders and the protocol's own details.

        Args:
            topic: its name.
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such topic, or it may not be seen; of the protocol's own class.
            TimedOut, Unreachable: the cluster could not be asked.
        """
        ...

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        """Create a topic; returns when it can be used.

        Args:
            topic: its name. partitions: how many it has (RocketMQ: queues, over all brokers).
            config: the topic's settings, by the broker's names for them; None: the broker's defaults.
            timeout: seconds to wait until it can be used.

        Raises:
            BrokerError: it exists already, or the broker refuses the name or a setting; of the protocol's own class.
            TimedOut, Unreachable: not created in time, as far as is known.
        """
        ...

    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None:
        """Delete a topic and its records.

        Args:
            topic: its name.
            timeout: seconds to wait until it is gone.

        Raises:
            BrokerError: there is no such topic, or it may not be deleted; of the protocol's own class.
            TimedOut, Unreachable: not deleted in time, as far as is known.
        """
        ...

    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Mapping[TopicPartition, Position]:
        """Return the position that a place has now in each partition.

        Args:
            topic: its name.
            at: EARLIEST, LATEST (the position behind the last record), AtTime, or a mapping of those by partition.
            partitions: numbers of the partitions to look at; None: all.
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: no such topic, or a partition without a leader; `known` of the error has the positions of the others.
            TimedOut, Unreachable: a broker could not be asked; `known` as above. OptionError: `at` is no place.
        """
        ...

    def list_groups(self, *, timeout: float = 30.0) -> list[str]:
        """Return the names of all consumer groups (Pulsar: subscriptions).

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            TimedOut, Unreachable, AuthError: the cluster could not be asked, or does not allow it.
        """
        ...

    def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupInfo:
        """Return a group's state and members, and what each member is assigned.

        Args:
            group: its name.
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such group, or it may not be seen; of the protocol's own class.
            TimedOut, Unreachable: the cluster could not be asked.
        """
        ...

    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]:
        """Return where a group resumes in a topic: its committed positions; partitions without one are left out.

        Args:
            group: its name. topic: the topic's name.
            timeout: seconds to wait for the brokers.

        Raises:
            BrokerError: there is no such topic or group, or it may not be seen; of the protocol's own class.
            TimedOut, Unreachable: the cluster could not be asked.
        """
        ...

    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> frozenset[TopicPartition]:
        """Store where a group resumes that has no members, such as the progress of a program that reads without a group.

        Args:
            group: its name.
            places: the first position not processed, by partition.
            timeout: seconds to wait for the broker.

        Returns:
            the partitions for which nothing was stored, because they do not exist or cannot be read.

        Raises:
            BrokerError: the group has members (Kafka, Pulsar), or the commit is not allowed; of the protocol's own class.
            TimedOut, Unreachable: no answer; the positions may have been stored.
        """
        ...


class Transaction(Protocol):
    """Records of any topics and the positions where a group resumes: all of it takes effect, or none.

    A ``with`` block commits at its end; an exception rolls the transaction back.
    """

    def send(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt:
        """Take one record of this transaction, like `Producer.send`. Its receipt has a position once the transaction is committed.

        Args:
            value, key: bytes, or None for null where the broker has it. topic: where the record goes.
            headers: a mapping or ordered pairs of name and bytes (or None).
            timestamp: milliseconds since 1970 UTC; None: the client's time of this call.
            partition: the partition's number; None picks it by the key, and without a key keeps to one partition for a batch.
            timeout: seconds to look the topic up, and to wait for room in the send buffer.

        Returns:
            the record's receipt.

        Raises:
            Aborted: the transaction has to be rolled back. UsageError: it has ended, or is ending.
            ValueUnsupported, BufferFull, Closed: see `Producer.send`.
        """
        ...

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """Take many records of this transaction, like `Producer.send_batch`.

        Args:
            columns: rows as of `Producer.send_batch`. topic: where all of them go; None: where each row's column ``topic`` says.
            partition: the partition of all rows; None: each row's own.
            timeout: seconds to look the topics up, and to wait for room in the send buffer.

        Returns:
            one receipt per batch that goes out.

        Raises:
            Aborted: the transaction has to be rolled back. UsageError: it has ended, or is ending.
            ValueUnsupported, BufferFull, Closed: see `Producer.send_batch`.
        """
        ...

    def producer(self, topic: str, timeout: float = 30.0) -> Producer:
        """Return the producer of one topic, which sends in this transaction and in later ones of the same `Transactions`.

        Args:
            topic: its name.
            timeout: seconds to look it up.

        Raises:
            TimedOut, Unreachable, BrokerError: the topic could not be looked up.
        """
        ...

    def commit_positions(
        self, consumer: Consumer, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> None:
        """Commit a consumer's positions with this transaction: the group resumes there if the transaction is committed.

        Args:
            consumer: a member of the group, made with automatic commit off.
            positions: the first position not processed, by partition; None: behind all records that its polls have returned.
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted: the transaction has to be rolled back, because a partition belongs to another member now, say.
            UsageError: the transaction has ended, or the consumer commits by itself.
            TimedOut, Unreachable: no answer.
        """
        ...

    def commit(self, *, timeout: float = 30.0) -> None:
        """Wait until every record is stored, and make all of the transaction visible.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted: it was rolled back instead; `__cause__` says why. Fenced: another program uses this transactional name now.
            OutcomeUnknown: it was committed or rolled back, and no broker can say which.
            TimedOut: it has not ended yet; calling commit again continues.
            UsageError: it was aborted.
        """
        ...

    def abort(self, *, timeout: float = 30.0) -> None:
        """Roll the transaction back: records that were not sent yet are not sent, and those that were are never visible.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Fenced: it is rolled back, and another program uses this transactional name now.
            TimedOut: it has not ended yet; calling abort again continues.
            UsageError: it was committed, or may have been.
        """
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Transactions(Closing, Protocol):
    """Transactions under one transactional name, one after the other."""

    def begin(self, *, timeout: float = 30.0) -> Transaction:
        """Begin the next transaction. If a commit or abort of the one before timed out, it is finished first.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted, OutcomeUnknown: how the commit of the transaction before ended; the next `begin` begins.
            Fenced: another program uses this transactional name now. UsageError: a transaction is open.
            TimedOut, Closed.
        """
        ...


class Tree(Closing, Protocol):
    """ZooKeeper's tree of nodes. `stat` values are the wire's Stat records; data may be null, which is not the same as empty."""

    def get(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> tuple[bytes | None, Any]:
        """Return a node's data and stat.

        Args:
            path: absolute path of the node, below the URL's chroot.
            watch: called with the event when the node is next written or deleted.
            timeout: seconds to wait for the server.

        Raises:
            NoNode: there is none. NoAuth: its access list does not allow it.
            ConnectionLoss, SessionExpired, TimedOut: no answer.
        """
        ...

    def set(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Any:
        """Write a node's data, and return its new stat.

        Args:
            path: absolute path of the node. data: bytes, or None for null.
            version: the data version that the node must have; -1: any.
            timeout: seconds to wait for the server.

        Raises:
            NoNode, BadVersion, NoAuth: the server refused it. ValueUnsupported: larger than servers accept.
            ConnectionLoss, TimedOut: it may have been written. SessionExpired: the session ended.
        """
        ...

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
        acl: Sequence[Any] | None = None,
        timeout: float = 30.0,
    ) -> str:
        """Create a node, and return its path.

        Args:
            path: absolute path. data: bytes, or None for null.
            ephemeral: the node is deleted when this session ends.
            sequence: the server appends a number of ten digits to the name.
            parents: create missing nodes above it, empty and with the same access list.
            acl: its access list, of the wire's ACL records; None: the client's default.
            timeout: seconds to wait for the server.

        Raises:
            NodeExists, NoNode (no parent), NoChildrenForEphemerals, NoAuth: the server refused it.
            ConnectionLoss, TimedOut: it may have been created. SessionExpired: the session ended.
        """
        ...

    def delete(self, path: str, *, version: int = -1, recursive: bool = False, timeout: float = 30.0) -> None:
        """Delete a node.

        Args:
            path: absolute path of the node.
            version: the data version that the node must have; -1: any.
            recursive: delete the nodes below it first.
            timeout: seconds to wait for the server.

        Raises:
            NoNode, NotEmpty, BadVersion, NoAuth: the server refused it.
            ConnectionLoss, TimedOut: it may have been deleted. SessionExpired: the session ended.
        """
        ...

    def exists(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> Any | None:
        """Return a node's stat, or None when there is no such node.

        Args:
            path: absolute path of the node.
            watch: called with the event when the node is next created, written or deleted.
            timeout: seconds to wait for the server.

        Raises:
            ConnectionLoss, SessionExpired, TimedOut: no answer.
        """
        ...

    def children(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> tuple[list[str], Any]:
        """Return the names of a node's children, in no order, and the node's stat.

        Args:
            path: absolute path of the node.
            watch: called with the event when a child is next created or deleted, or the node is deleted.
            timeout: seconds to wait for the server.

        Raises:
            NoNode: there is none. NoAuth: its access list does not allow it.
            ConnectionLoss, SessionExpired, TimedOut: no answer.
        """
        ...

    def multi(self, operations: Sequence[Any], *, timeout: float = 30.0) -> list[Any]:
        """Carry out all of the operations or none, and return their results in order.

        Args:
            operations: `Create`, `Delete`, `Set`, `Check`, or reads alone (`Get`, `Children`), of ``wireproto.zookeeper.multi``.
            timeout: seconds to wait for the server.

        Raises:
            BrokerError: of the class of the operation that failed, whose place in `operations` is the error's `index`; nothing was done.
            ConnectionLoss, TimedOut: they may have been carried out. SessionExpired: the session ended.
        """
        ...

    def sync(self, path: str, *, timeout: float = 30.0) -> str:
        """Let the server catch up with its leader, so that later reads see what the leader shows now. Returns the path.

        Args:
            path: absolute path.
            timeout: seconds to wait for the server.

        Raises:
            ConnectionLoss, SessionExpired, TimedOut: no answer.
        """
        ...

    def get_acl(self, path: str, *, timeout: float = 30.0) -> tuple[Sequence[Any], Any]:
        """Return a node's access list (the wire's ACL records) and stat; `stat.aversion` is the list's version.

        Args:
            path: absolute path of the node.
            timeout: seconds to wait for the server.

        Raises:
            NoNode: there is none. NoAuth: its access list does not allow it.
            ConnectionLoss, SessionExpired, TimedOut: no answer.
        """
        ...

    def set_acl(self, path: str, acl: Sequence[Any], *, version: int = -1, timeout: float = 30.0) -> Any:
        """Replace a node's access list, and return its new stat.

        Args:
            path: absolute path of the node. acl: the new list, of the wire's ACL records.
            version: the version that the list must have (`stat.aversion`); -1: any.
            timeout: seconds to wait for the server.

        Raises:
            NoNode, BadVersion, InvalidAcl, NoAuth: the server refused it.
            ConnectionLoss, TimedOut: it may have been replaced. SessionExpired: the session ended.
        """
        ...


class Client(Closing, Protocol):
    """One program's connection to one cluster: roles are made here and share its connections and memory bounds.

    The keywords here are those of all protocols together; an adapter's own client takes those that it has, so type checkers know more
    where they see its type. Making a role raises OptionError for an option that this protocol's role does not have, RoleUnsupported for a
    role that the protocol does not have, and where it asks the cluster TimedOut, Unreachable or a BrokerError.
    """

    @property
    def protocol(self) -> str:
        """The protocol's name, which is the URL's scheme: ``kafka``, ``pulsar``, ``rocketmq``, ``zookeeper``."""
        ...

    @property
    def timeout(self) -> float:
        """The option `timeout`: seconds that making a client or a role may take, where that waits."""
        ...

    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Producer:
        """Make a producer for one topic.

        Args:
            topic: its name; None, here and in every role: the topic of the URL.
            options: for this role alone, in place of what `connect` was given; so with all roles.

        Raises:
            OptionError: an option that this protocol's producers do not have, or no topic is named.
            TimedOut, Unreachable, BrokerError: the topic could not be looked up.
        """
        ...

    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Reader:
        """Make a reader, which reads a topic without a group.

        Args:
            topic: its name; None: the topic of the URL.
            start: where every partition begins, or a mapping of positions; a mapping's keys are the partitions that are read.
            stop: the first position not read, per partition (a mapping, or one place for all); LATEST is fixed when the reader is made, as
                the position after the last record; None follows the log for ever.
            options: see `producer`.

        Raises:
            OptionError: `start` or `stop` is no place, or an option that this protocol's readers do not have.
            TimedOut, Unreachable, BrokerError: the topic or the places could not be looked up.
        """
        ...

    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """Make a consumer, a member of a group.

        Args:
            topics: one name or several; None: the topic of the URL.
            group: the group's name (Pulsar: subscription).
            start: where a partition begins for which the group has no committed position.
            options: see `producer`.

        Raises:
            OptionError: no group or no topic is named, or an option that this protocol's consumers do not have.
            RoleUnsupported: the protocol has no groups.
            TimedOut, Unreachable, BrokerError: the topics could not be looked up, or the group may not be joined.
        """
        ...

    def queue(self, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> QueueConsumer:
        """Make a queue consumer, which shares a topic's messages with other workers, one by one.

        Args:
            topic: its name (ZooKeeper: the queue's path); None: the topic of the URL.
            group: the group's name (Pulsar: subscription).
            options: see `producer`.

        Raises:
            OptionError: no group or no topic is named, or an option that this protocol's queues do not have.
            RoleUnsupported: the protocol has no queues.
            TimedOut, Unreachable, BrokerError: the topic could not be looked up, or subscribed to.
        """
        ...

    def transactions(self, name: str, **options: Unpack[TransactionsOptions]) -> Transactions:
        """Make the transactions of one transactional name.

        Kafka's brokers keep the name: they roll back what an earlier user of it left open, and refuse that user from now on (Fenced).

        Args:
            name: the same over restarts of the program, and another one for each program that runs at the same time.
            options: as of a producer, and the transactions' own.

        Raises:
            RoleUnsupported: the protocol has no transactions. OptionError: see `producer`.
            TimedOut, Unreachable, BrokerError: the coordinator could not be asked, or refuses the name.
        """
        ...

    def admin(self) -> Admin:
        """Make the admin, which lists, describes and changes topics and groups."""
        ...

    def tree(self) -> Tree:
        """Make ZooKeeper's tree of nodes.

        Raises:
            RoleUnsupported: the protocol has none.
        """
        ...

    def request(self, message: Any, *, timeout: float = 30.0, **route: Any) -> Any:
        """Send any message of the wire to the node it belongs to, and return the typed reply.

        Args:
            message: an instance of a request class of the protocol's ``messages``.
            timeout: seconds to wait for the reply.
            route: which node to ask, as the protocol's own client describes.

        Raises:
            UsageError: the message cannot be sent so. TimedOut, Unreachable, Disconnected: no reply.
        """
        ...
