"""Defines what the roles take and return: records, batches, receipts, deliveries, descriptions of topics and groups.

The types are the same for all protocols; the module knows no adapter. `Batch` wraps the core's `Columns`, which it exports to Arrow and
iterates as lazy records: a record becomes a Python object only when it is iterated.

The common record, field by field (what a broker cannot carry raises ValueUnsupported before sending):

    value      bytes or None      empty is not null
    key        bytes or None
    headers    ((name, value or None), …)   order and duplicates kept
    timestamp  int, milliseconds since 1970 UTC, or None
    partition  int
    position   the record's own position
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Union

from .errors import OptionError, Revoked
from .position import Position, TopicPartition

if TYPE_CHECKING:
    from ._codec import Columns

Headers = Union[Mapping[str, bytes | None], Sequence[tuple[str, bytes | None]], None]


class Record(Protocol):
    """One record, as batches yield it. Frozen."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def partition(self) -> int:
        """The partition's number."""
        ...

    @property
    def position(self) -> Position:
        """The record's position: a start there reads this record again."""
        ...

    @property
    def timestamp(self) -> int | None:
        """Milliseconds since 1970 UTC, or None."""
        ...

    @property
    def key(self) -> bytes | None:
        """The key; None where the record has none."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value; None is null, which is not the same as empty."""
        ...

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Pairs of name and value, in the order sent; a name may occur several times."""
        ...


class Batch:
    """Records of one partition, in order, as columns.

    ``pyarrow.record_batch(batch)`` (or polars, duckdb, pandas …) takes the columns through the Arrow C data interface; iteration
    makes `Record` objects on demand.

    Attributes:
        topic, partition: where the records come from.
        columns: the core's columns.
        next_positions: ``{(topic, partition): Position}`` to resume after this batch. A batch without records has it, too: compacted,
            aborted or control records were skipped.
    """

    __slots__ = ("columns", "next_positions", "partition", "topic")

    def __init__(self, topic: str, partition: int, columns: Columns, next_position: Position) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = columns
        self.next_positions: dict[TopicPartition, Position] = {(topic, partition): next_position}

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.columns.records(self.topic, self.partition))

    def values(self) -> list[bytes | None]:
        """Return all values, as a list of bytes or None."""
        return self.columns.values()

    def keys(self) -> list[bytes | None]:
        """Return all keys, as a list of bytes or None."""
        return self.columns.keys()

    def __arrow_c_schema__(self) -> object:
        return self.columns.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.columns.__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.columns.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        (position,) = self.next_positions.values()
        return f"<Batch {self.topic}[{self.partition}] {len(self)} records, next {position}>"


class Receipt(Protocol):
    """The result of `send`, returned at once; the broker's answer arrives later."""

    @property
    def done(self) -> bool:
        """Whether the outcome is known: stored, or failed."""
        ...

    def position(self, timeout: float | None = None) -> Position:
        """Wait until the broker has acknowledged the record, and return its position.

        Args:
            timeout: seconds to wait; None: the producer's delivery timeout.

        Raises:
            TimedOut: the outcome is not known in time; the record may still be stored.
            BrokerError, TransportError: the record was refused, or every retry failed.
            Closed: the producer was closed before the record was acknowledged.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays of a released message that grow with each attempt: ``delivery.release(after=Backoff())``.

    Attributes:
        first: seconds after the first attempt.
        factor: growth from one attempt to the next.
        most: longest delay, in seconds.
    """

    first: float = 10.0
    factor: float = 2.0
    most: float = 600.0

    def __call__(self, attempt: int) -> float:
        """Return the seconds until a message whose delivery was the `attempt`-th (from 1) is delivered again."""
        return float(min(self.first * self.factor ** min(attempt - 1, 64), self.most))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A received queue message, to be acknowledged (`ack`) or returned to the broker (`release`). Made by QueueConsumer.

    Attributes:
        record: the message.
        attempt: number of the message's deliveries as the broker counts, this one included: 1 for the first.
    """

    record: Record
    attempt: int
    _end: Any = field(repr=False)
    _end_later: Any = field(default=None, repr=False)
    _sent_to: str | None = field(default=None, repr=False)
    _ended: str | Revoked | None = field(default=None, repr=False, compare=False)  # see flow.ended

    @property
    def topic(self) -> str:
        """The topic that the message was sent to; `record.topic` of a message returned in RocketMQ is its retry topic."""
        return self._sent_to or self.record.topic

    @property
    def value(self) -> bytes | None:
        """The message's value; None is null."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """The message's key; None where it has none."""
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Pairs of name and value, in the order sent."""
        return self.record.headers

    @property
    def position(self) -> Position:
        """The message's position."""
        return self.record.position

    def ack(self, timeout: float = 30.0, *, wait: bool = False) -> None:
        """Acknowledge the message: it has been processed, and is not delivered again.

        Args:
            timeout: seconds for the call.
            wait: return when the broker has confirmed it. ZooKeeper does so always; Pulsar's and RocketMQ's acknowledgements are otherwise
                sent in groups (option `ack_group_time`), and `receive`, `flush` or `close` raises the error of one that is refused.

        Raises:
            UsageError: it was acknowledged or released before. Revoked, which is one: the message was taken away, for another worker, say.
            TimedOut, Unreachable: no answer; the message may be delivered again.
        """
        self._end(self, True, timeout, wait)

    def release(self, timeout: float = 30.0, *, after: float | Callable[[int], float] | None = None) -> None:
        """Return the message to the broker, which delivers it again, to this or another consumer.

        Args:
            timeout: seconds for the call.
            after: seconds until it is returned, or a function of `attempt` that gives them (`Backoff`); None: as the broker decides.

        Raises:
            OptionError: `after` with RocketMQ, which has delays of its own, or ZooKeeper, which has none.
            UsageError: it was acknowledged or released before. Revoked, which is one: the message was taken away, for another worker, say.
            TimedOut, Unreachable: no answer.
        """
        if after is None:
            self._end(self, False, timeout)
            return
        if self._end_later is None:
            raise OptionError("after= is Pulsar's: RocketMQ's messages come back by retry_level, ZooKeeper's at once")
        self._end_later(self, float(after(self.attempt) if callable(after) else after))


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic.

    Attributes:
        partition: its number.
        leader: ``host:port`` of its leader, or None while it has none.
        details: facts of the protocol, by name.
    """

    partition: int
    leader: str | None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic.

    Attributes:
        name: the topic's name. partitions: its partitions, in order.
        details: facts of the protocol, by name (topic id, cleanup policy, queue permissions …).
    """

    name: str
    partitions: tuple[PartitionInfo, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group.

    Attributes:
        member: its id in the group. client: its client id.
        partitions: those that it is assigned, as pairs of topic and partition.
    """

    member: str
    client: str
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group (Pulsar: subscription).

    Attributes:
        name: the group's name. state: as the broker names it. members: those that it has now.
        details: facts of the protocol, by name.
    """

    name: str
    state: str
    members: tuple[GroupMember, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
