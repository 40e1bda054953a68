"""The common interface: one Protocol per role. An adapter offers the roles that are true for its protocol.

What it is: types only; `isinstance` is not meant to be used on them. Asking a client for a role that its protocol does not have
raises RoleUnsupported, which names the nearest one that it has. No method is ever a silent no-op.

Threads: Client, Producer, Tree, Admin and Transactions may be shared. Reader, Consumer and QueueConsumer belong to one thread at a time and
raise ConcurrentUse. Callbacks run in the thread that waits, polls or flushes. Every blocking call takes `timeout` in seconds and keeps it.

    | role          | Kafka   | Pulsar              | RocketMQ              | ZooKeeper            |
    |---------------|---------|---------------------|-----------------------|----------------------|
    | Producer      | yes     | yes                 | yes                   | queue recipe         |
    | Reader        | yes     | yes                 | pull by offset        | the recipe's nodes   |
    | Consumer      | group   | exclusive, failover | pull + group offsets  | no                   |
    | QueueConsumer | later   | shared, key-shared  | pull + send-back      | the recipe           |
    | Admin         | yes     | binary + admin HTTP | yes                   | yes                  |
    | Tree          | no      | no                  | no                    | yes                  |
    | Transactions  | yes     | yes                 | no                    | no                   |

RocketMQ's transactions are one message with a verdict, and so a role of its own: `transactional`.
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

    def close(self, timeout: float = 30.0) -> None: ...
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
            timestamp: milliseconds since 1970 UTC; None lets the client stamp it with now.
            partition: None picks by key, or sticky without a key.
            timeout: seconds to wait for room in the send buffer.
        Raises:
            ValueUnsupported: the broker cannot carry this record, or it is larger than allowed.
            BufferFull: no room within `timeout`; the record was not taken.
        """
        ...

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[Receipt]:
        """Take many records at once.

        Args:
            columns: anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` whose columns are named as ours (``value``, and
                any of ``key``, ``headers``, ``timestamp``, ``partition``), or a Columns.
        Returns:
            one receipt per batch that goes out, in order; each holds the position of its last record.
        Raises:
            ValueUnsupported: a row cannot be sent; none was taken. BufferFull: no room within `timeout` for the rest: its `taken` says of
                which partition how many rows were taken, the first ones, which are sent all the same.
        """
        ...

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far has its outcome; raises the first failure that neither a receipt nor a flush has told yet,
        or TimedOut: not all have one."""
        ...


class Reader(Closing, Protocol):
    """Reads a topic's partitions from `start` to `stop` without a group. Iterating yields non-empty batches and ends at the stop."""

    def __iter__(self) -> Iterator[Batch]: ...

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout` or the stop is reached (see `done`)."""
        ...

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Go on from there; drops what was fetched ahead."""
        ...

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Where each partition is read next."""
        ...

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        ...


class Consumer(Closing, Protocol):
    """A member of a group that shares a log: positions and cumulative commit."""

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout`. Rebalances happen here; callbacks run here."""
        ...

    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """Commit where to resume; None commits what poll has handed out.

        Raises:
            Revoked: naming the partitions that another member owns now, or (once) that were ours when poll handed out of them and have been
                reassigned since: that comes again. The others are committed.
        """
        ...

    def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]: ...
    def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]: ...
    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...
    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...
    def seek(self, where: Where, *, timeout: float = 30.0) -> None: ...

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...


class QueueConsumer(Closing, Protocol):
    """A worker on a queue: each message is acked or given back; see `Delivery`. Pulsar's has `flush`, too."""

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """The next message, or None when none came within `timeout`."""
        ...


class Admin(Closing, Protocol):
    """Topics, groups and positions."""

    def list_topics(self, *, timeout: float = 30.0) -> list[str]: ...
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo: ...

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        """Create it; returns when it can be used. Raises the broker's error when it exists."""
        ...

    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None: ...

    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Mapping[TopicPartition, Position]:
        """Where EARLIEST, LATEST or AtTime lie now in each partition, or in these alone. LATEST is the place after the last record."""
        ...

    def list_groups(self, *, timeout: float = 30.0) -> list[str]: ...
    def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupInfo: ...
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Mapping[TopicPartition, Position]: ...

    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> frozenset[TopicPartition]:
        """Say where a group resumes that has no members: for who reads by himself and tells others how far he is.

        Args:
            places: the first places not done, by partition.
        Returns:
            the partitions for which nothing was stored, since they are not there.
        """
        ...


class Transaction(Protocol):
    """Records of any topics, and where a group goes on: all of it happens, or none. A ``with`` block commits at its end, or is rolled back
    by an exception."""

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
        """As `Producer.send`. The receipt knows the record's position when the transaction is committed.

        Raises:
            Aborted: it has to be rolled back. UsageError: it is over.
        """
        ...

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """As `Producer.send_batch`, to a topic, or each row to the one that its column ``topic`` names."""
        ...

    def producer(self, topic: str, timeout: float = 30.0) -> Producer:
        """The producer of one topic, in this transaction and those behind it."""
        ...

    def commit_positions(
        self, consumer: Consumer, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> None:
        """Have the group of a consumer that does not commit by itself go on from there; None: behind all that its polls have handed out."""
        ...

    def commit(self, *, timeout: float = 30.0) -> None:
        """Have all of it seen. Raises Aborted, Fenced, OutcomeUnknown, or TimedOut: the same call goes on with it."""
        ...

    def abort(self, *, timeout: float = 30.0) -> None:
        """Roll it back."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class Transactions(Closing, Protocol):
    """Transactions under one name, one after the other."""

    def begin(self, *, timeout: float = 30.0) -> Transaction:
        """The next one. Goes on with a `commit` or `abort` of the one before that was given up, and raises what that came to."""
        ...


class Tree(Closing, Protocol):
    """ZooKeeper's tree of nodes. `stat` values are the wire's Stat records; data may be null, which is not the same as empty."""

    def get(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> tuple[bytes | None, Any]: ...
    def set(self, path: str, data: bytes | None, *, version: int = -1, timeout: float = 30.0) -> Any: ...

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
    ) -> str: ...
    def delete(self, path: str, *, version: int = -1, recursive: bool = False, timeout: float = 30.0) -> None: ...
    def exists(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> Any | None: ...

    def children(self, path: str, *, watch: Callable[[Any], None] | None = None, timeout: float = 30.0) -> tuple[list[str], Any]: ...
    def multi(self, operations: Sequence[Any], *, timeout: float = 30.0) -> list[Any]: ...
    def sync(self, path: str, *, timeout: float = 30.0) -> str: ...
    def get_acl(self, path: str, *, timeout: float = 30.0) -> tuple[Sequence[Any], Any]: ...
    def set_acl(self, path: str, acl: Sequence[Any], *, version: int = -1, timeout: float = 30.0) -> Any: ...


class Client(Closing, Protocol):
    """One program's connection to one cluster: roles are made here and share its connections and memory bounds.

    The keywords here are those of all protocols together; an adapter's own client takes those that it has, so that checkers know more where
    they see its type.
    """

    @property
    def protocol(self) -> str: ...

    @property
    def timeout(self) -> float:
        """The option: seconds that a client or a role may take to be made, where that waits."""
        ...

    def producer(self, topic: str | None = None, **options: Unpack[ProducerOptions]) -> Producer:
        """A producer for one topic; in every role None is the topic of the URL.

        Args:
            options: for this role alone, in place of what `connect` was given; so with all roles. One that this protocol's role does not
                have raises OptionError.
        """
        ...

    def reader(
        self, topic: str | None = None, *, start: Where = EARLIEST, stop: Where | None = None, **options: Unpack[ReaderOptions]
    ) -> Reader:
        """Read without a group.

        Args:
            start: where every partition begins, or a mapping of positions; a mapping's keys are the partitions that are read.
            stop: the first position not read, per partition (a mapping, or one place for all); LATEST is fixed at open as the place
                after the last record; None follows the log for ever.
        """
        ...

    def consumer(
        self, topics: str | Sequence[str] | None = None, group: str = "", *, start: Where = EARLIEST, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """Join a group. `start` holds only where the group has no committed position."""
        ...

    def queue(self, topic: str | None = None, group: str = "", **options: Unpack[QueueOptions]) -> QueueConsumer: ...

    def transactions(self, name: str, **options: Unpack[TransactionsOptions]) -> Transactions:
        """Transactions under a name, which stays the same over restarts of the program."""
        ...

    def admin(self) -> Admin: ...
    def tree(self) -> Tree: ...

    def request(self, message: Any, *, timeout: float = 30.0, **route: Any) -> Any:
        """Send any message of the wire to the node it belongs to and return the typed reply."""
        ...
