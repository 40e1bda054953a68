"""What the roles hand out and take in: records, batches, receipts, topic descriptions.

What it is: the types that a user touches, the same for all four protocols. `Batch` wraps the core's `Columns`, which it exports to
Arrow and iterates as lazy records; a record never becomes a Python object unless it is asked for.
May assume: the core is importable. Must not: know an adapter.

The common record, field by field (what a broker cannot carry raises ValueUnsupported before sending):

    value      bytes or None      empty is not null
    key        bytes or None
    headers    ((name, value or None), …)   order and duplicates kept
    timestamp  int, milliseconds since 1970 UTC, or None
    partition  int
    position   the record's own place
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Union

from .errors import OptionError
from .position import Position, TopicPartition

if TYPE_CHECKING:
    from ._codec import Columns

Headers = Union[Mapping[str, bytes | None], Sequence[tuple[str, bytes | None]], None]


class Record(Protocol):
    """One record, as batches yield it. Frozen; fields as in the module's table."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def position(self) -> Position: ...
    @property
    def timestamp(self) -> int | None: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


class Batch:
    """Records of one partition, in order, as columns.

    ``pyarrow.record_batch(batch)`` (or polars, duckdb, pandas …) takes the columns through the Arrow C data interface; iteration
    makes `Record` objects on demand.

    Attributes:
        topic, partition: where the records come from.
        columns: the core's columns.
        next_positions: ``{(topic, partition): Position}`` to resume after this batch; also set when the batch has no record,
            because compacted, aborted or control records were passed over.
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
        """All values, as a list of bytes or None."""
        return self.columns.values()

    def keys(self) -> list[bytes | None]:
        """All keys, as a list of bytes or None."""
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
    """What `send` returns at once; the broker's answer arrives later."""

    @property
    def done(self) -> bool:
        """Whether the outcome is known (either way)."""
        ...

    def position(self, timeout: float | None = None) -> Position:
        """Wait until the broker has acknowledged the record, and return its place.

        Args:
            timeout: seconds; None takes the producer's delivery timeout.
        Raises:
            TimedOut: not known in time; the record may still arrive.
            BrokerError, TransportError: it was refused, or every retry failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds until a released message comes back, longer with each attempt: ``delivery.release(after=Backoff())``.

    Attributes:
        first: seconds after the first attempt. factor: growth from one attempt to the next. most: seconds at most.
    """

    first: float = 10.0
    factor: float = 2.0
    most: float = 600.0

    def __call__(self, attempt: int) -> float:
        return float(min(self.first * self.factor ** min(attempt - 1, 64), self.most))


@dataclass(frozen=True, slots=True)
class Delivery:
    """A queue message in hand: a record, and its two ways to end. Made by QueueConsumer.

    Attributes:
        attempt: which time this is that the message is handed out, as the broker counts: 1 for the first one.
    """

    record: Record
    attempt: int
    _end: Any = field(repr=False)
    _end_later: Any = field(default=None, repr=False)
    _sent_to: str | None = field(default=None, repr=False)

    @property
    def topic(self) -> str:
        """The topic that it was sent to; `record.topic` is the one that it lies in, RocketMQ's retry topic where it was given back."""
        return self._sent_to or self.record.topic

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self.record.headers

    @property
    def position(self) -> Position:
        return self.record.position

    def ack(self, timeout: float = 30.0, *, wait: bool = False) -> None:
        """Done with it: this worker is not handed it again.

        Args:
            timeout: seconds for the call.
            wait: return when the broker has said that it took it, as all but Pulsar's do by themselves. Those are sent in groups (option
                `ack_group_time`), and one that is refused is raised by `receive`, `flush` or `close`.
        Raises:
            Revoked: the message was no longer ours.
        """
        self._end(self, True, timeout, wait)

    def release(self, timeout: float = 30.0, *, after: float | Callable[[int], float] | None = None) -> None:
        """Give it back: the broker hands it out again, to this or another consumer.

        Args:
            timeout: seconds for the call.
            after: seconds until it is given back, or what tells them for `attempt` (`Backoff`); None: when the broker sees fit.
        Raises:
            OptionError: `after` with a broker whose own delay it is (RocketMQ), or that has none (ZooKeeper).
            Revoked: the message was no longer ours.
        """
        if after is None:
            self._end(self, False, timeout)
            return
        if self._end_later is None:
            raise OptionError("after= is Pulsar's: RocketMQ's messages come back by retry_level, ZooKeeper's at once")
        self._end_later(self, float(after(self.attempt) if callable(after) else after))


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its number, who leads it (``host:port`` or None while nobody does), and protocol facts."""

    partition: int
    leader: str | None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic, its partitions in order, and protocol facts (topic id, cleanup policy, queue permissions …)."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group and what it holds."""

    member: str
    client: str
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group (Pulsar: subscription): its state as the broker names it, and its members."""

    name: str
    state: str
    members: tuple[GroupMember, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
