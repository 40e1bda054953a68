"""Defines positions of records in their partitions, and the places where reading starts and stops.

They are small frozen values, the same for all protocols where they mean the same. A `Position` is that of one record: a start there reads
the record again. The position to resume at is another one (offset + 1; "after" an id). A position has topic and partition, so that
comparing across partitions, which has no meaning, raises TypeError.

Text of a position (`text()` and `parse`), without topic and partition:

    Kafka, ZooKeeper   ``123``              offset, sequence number
    RocketMQ           ``broker-a/3:123``   name of the broker, queue id, queue offset
    Pulsar             ``12:3:-1``          ledger:entry:batch index; a trailing ``+`` means "after it"

A mapping of positions is written ``0=123,1=456`` (partition=position), or as JSON ``{"topic": {"0": "123"}}``.
RocketMQ has no partition numbers: each client numbers the queues that it sees. So its positions name the queue, and their partition is only
the number that the client which made them uses; a client that is given them finds the queue by its name. The module knows no adapter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import total_ordering
from typing import Any, Final, Union
from urllib.parse import quote, unquote

from .errors import OptionError


@total_ordering
@dataclass(frozen=True, slots=True)
class Position:
    """Base of the kinds of position. Positions are ordered within one partition only.

    Attributes:
        topic: topic name as the user gave it (for ZooKeeper the queue's path).
        partition: partition or queue number; -1 where the topic is not partitioned.
    """

    topic: str
    partition: int

    def _parts(self) -> tuple[int, ...]:
        """Return the numbers by which positions of one partition are ordered."""
        raise NotImplementedError

    def _log(self) -> tuple[object, ...]:
        """Return the partition's identity, within which positions are ordered."""
        return self.topic, self.partition

    def text(self) -> str:
        """Return the position as text, without topic and partition; `parse_position` reads it."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.text()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Position):
            return NotImplemented
        if type(self) is not type(other) or self._log() != other._log():
            raise TypeError(f"positions of different partitions have no order: {self!r} and {other!r}")
        return self._parts() < other._parts()


@dataclass(frozen=True, slots=True)
class LogOffset(Position):
    """A number that the broker counts: Kafka's offset, ZooKeeper's sequence number; RocketMQ's are `QueueOffset`.

    Attributes:
        offset: the number.
    """

    offset: int

    def _parts(self) -> tuple[int, ...]:
        return (self.offset,)

    def text(self) -> str:
        """Return the position as text; see `Position.text`."""
        return str(self.offset)

    __lt__ = Position.__lt__


@dataclass(frozen=True, slots=True, eq=False)
class QueueOffset(LogOffset):
    """A RocketMQ queue offset, with its queue. Two are equal if queue and offset are, whatever number their clients gave the queue.

    Attributes:
        partition: the number that the client which made it gave the queue; another client may have another number for it.
        broker: name of the broker.
        queue: the queue's id there.
    """

    broker: str
    queue: int

    def _log(self) -> tuple[object, ...]:
        return self.topic, self.broker, self.queue

    def text(self) -> str:
        """Return the position as text; see `Position.text`."""
        return f"{queue_name(self.broker, self.queue)}:{self.offset}"

    def __eq__(self, other: object) -> bool:
        if type(other) is not QueueOffset:
            return NotImplemented
        return (self._log(), self.offset) == (other._log(), other.offset)

    def __hash__(self) -> int:
        return hash((self._log(), self.offset))

    __lt__ = Position.__lt__


@dataclass(frozen=True, slots=True)
class MessageId(Position):
    """A Pulsar message id.

    Attributes:
        ledger, entry: ids of the ledger, and of the entry in it.
        index: place of the message within a batched entry; -1: not batched.
        after: whether the position behind the message is meant.
    """

    ledger: int
    entry: int
    index: int = -1
    after: bool = False

    def _parts(self) -> tuple[int, ...]:
        return (self.ledger, self.entry, self.index, int(self.after))

    def text(self) -> str:
        """Return the position as text; see `Position.text`."""
        return f"{self.ledger}:{self.entry}:{self.index}" + ("+" if self.after else "")

    __lt__ = Position.__lt__


@dataclass(frozen=True, slots=True)
class UnknownPosition(Position):
    """The position of a stored record that the broker does not return, as for a repeated record under Pulsar's deduplication.

    Reading cannot start at it.
    """

    def _parts(self) -> tuple[int, ...]:
        return ()

    def text(self) -> str:
        """Return the position as text; see `Position.text`."""
        return "unknown"

    __lt__ = Position.__lt__


@dataclass(frozen=True, slots=True)
class Earliest:
    """The place of the first record that the broker still has."""

    def __repr__(self) -> str:
        return "EARLIEST"


@dataclass(frozen=True, slots=True)
class Latest:
    """The place behind the last record. As a start: only records written from now on. As a stop: the end at the time the reader is made."""

    def __repr__(self) -> str:
        return "LATEST"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The place of the first record at or after a time.

    Attributes:
        ms: milliseconds since 1970 UTC.

    Raises:
        OptionError: `ms` is no int.
    """

    ms: int

    def __post_init__(self) -> None:
        if type(self.ms) is not int:
            raise OptionError(f"AtTime takes milliseconds since 1970 as an int, not {self.ms!r}; AtTime.of takes an aware datetime")

    @classmethod
    def of(cls, when: datetime) -> AtTime:
        """Make it from an aware datetime. Raises OptionError for a naive one, whose time zone is not known."""
        if when.tzinfo is None:
            raise OptionError(f"{when!r} has no time zone; AtTime needs an aware datetime or milliseconds")
        return cls(int(when.timestamp() * 1000))


EARLIEST: Final = Earliest()
LATEST: Final = Latest()

TopicPartition = tuple[str, int]
Where = Union[Earliest, Latest, AtTime, Position, Mapping[TopicPartition, Union[Earliest, Latest, AtTime, Position]]]


def place(where: object, what: str = "start") -> Any:
    """Return `where` if it is a place. Raises OptionError, in which `what` names the argument."""
    if not isinstance(where, Earliest | Latest | AtTime | Position | Mapping):
        raise OptionError(f"{what} is EARLIEST, LATEST, AtTime, a position or a mapping of positions, not {where!r}")
    return where


def places(positions: object, what: str) -> Any:
    """Return `positions` if they are a mapping or None. Raises OptionError, in which `what` names the call."""
    if positions is not None and not isinstance(positions, Mapping):
        raise OptionError(f"{what} takes a mapping of positions by partition, such as a batch's next_positions, not {positions!r}")
    return positions


def queue_name(broker: str, queue: int) -> str:
    """Return a RocketMQ queue as text, like ``broker-a/3``; special characters of the broker's name are quoted as in URLs."""
    return f"{quote(broker, safe='')}/{queue}"


def parse_queue(text: str) -> tuple[str, int]:
    """Read what `queue_name` wrote; returns the broker's name and the queue id. Raises ValueError."""
    broker, slash, queue = text.rpartition("/")
    if not (slash and broker and queue.isdecimal()):
        raise ValueError(f"{text!r} is no queue of RocketMQ: broker/queue id (broker-a/3)")
    return unquote(broker), int(queue)


def parse_position(text: str, topic: str, partition: int) -> Position:
    """Read what `Position.text` wrote, for a topic and partition. Raises OptionError."""
    body = text.strip()
    try:
        if "/" in body:
            name, _, offset = body.rpartition(":")
            return QueueOffset(topic, partition, int(offset), *parse_queue(name))
        if ":" in body:
            after = body.endswith("+")
            ledger, entry, *index = (int(part) for part in body.rstrip("+").split(":"))
            if len(index) > 1:
                raise ValueError("too many parts")
            return MessageId(topic, partition, ledger, entry, index[0] if index else -1, after)
        return LogOffset(topic, partition, int(body))
    except ValueError as why:
        forms = "an offset (123), broker/queue:offset (broker-a/3:123) or ledger:entry:index (12:3:-1)"
        raise OptionError(f"{text!r} is not a position: {forms}") from why


def parse_positions(text: str, topic: str) -> dict[TopicPartition, Position]:
    """Read ``0=123,1=456`` as positions of a topic. Raises OptionError.

    A position without a number is that of partition 0, or of -1 for a Pulsar id. RocketMQ's need no number, since they name the queue.
    """
    found: dict[TopicPartition, Position] = {}
    for item in text.split(","):
        name, eq, value = item.partition("=")
        if not eq:
            name, value = (str(len(found)) if "/" in item else "-1" if ":" in item else "0"), item
        try:
            partition = int(name)
        except ValueError as why:
            raise OptionError(f"{item!r} is not partition=position") from why
        found[topic, partition] = parse_position(value, topic, partition)
    return found


def format_positions(positions: Mapping[TopicPartition, Position]) -> str:
    """Write ``0=123,1=456``, in order of partition. Raises OptionError for positions of several topics."""
    if len({topic for topic, _ in positions}) > 1:
        raise OptionError("positions of several topics have no short text; use positions_to_json")
    return ",".join(f"{partition}={positions[topic, partition].text()}" for topic, partition in sorted(positions))


def positions_to_json(positions: Mapping[TopicPartition, Position]) -> str:
    """Write JSON like ``{"topic": {"0": "123"}}``, with sorted keys, so that equal mappings give equal text."""
    tree: dict[str, dict[str, str]] = {}
    for (topic, partition), position in positions.items():
        tree.setdefault(topic, {})[str(partition)] = position.text()
    return json.dumps(tree, sort_keys=True)


def positions_from_json(text: str) -> dict[TopicPartition, Position]:
    """Read what `positions_to_json` wrote. Raises OptionError."""
    try:
        tree = json.loads(text)
        return {
            (topic, int(partition)): parse_position(value, topic, int(partition))
            for topic, partitions in tree.items()
            for partition, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as why:
        raise OptionError(f"not a JSON mapping of positions: {why}") from why
