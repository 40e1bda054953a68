"""Stores the decisions of an exactly-once sink's driver: records in a topic of the prefix, to which one driver at a time may write.

    kind       what it has beside the driver's epoch and name
    taken      a driver has taken the topic: everything before this was decided earlier, and no other driver decides after it
    decided    a decision (`exactly.Decided`): [task, transaction, when its time is over], …; where its outbox and its log of attempts begin
    ended      the number of a decision, all of whose transactions are committed
    dropped    the prefix is forgotten

The driver's producer is exclusive (access mode ``exclusive-with-fencing``), and its epoch is higher than that of the driver before. The
broker fences the older driver when the newer one connects, but a SEND of the older one that had passed the broker's checks may be stored
behind the newer one's first record; and two that connect while the broker stores an epoch may both be given it, and stay
(AbstractTopic.incrementTopicEpochIfNeeded of 4.2.4). So the order of the log decides: the driver of the last `taken` record has the topic,
unless that record's epoch is lower than one before it, and what others store behind it is void. This holds both for a driver that looks
for decisions and for one that has made a decision, and reads that it counts before it continues. A fenced driver leaves at most one such
record, since it waits for each.

The topic is read from its end backwards, which is quick. Nothing in it may be transactional, so that nothing keeps readers from its end.
This module must not know what a decision is about.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ..errors import Fenced, TimedOut, WireprotoError
from ..position import EARLIEST, MessageId
from ..pulsar.codes import ProducerFenced
from ..pulsar.transactions import TransactionId
from .exactly import Decided, logger, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from ..position import Earliest, Position, TopicPartition
    from ..pulsar.client import PulsarClient
    from ..pulsar.producer import PulsarProducer

_BACK = (64, 10_000)
"""Numbers of entries before the end that are read first; if that is not enough, all are read."""
_BEFORE = 16
"""Records that must be read before a decision, if there are as many: a void one comes soon after the `taken` record that makes it void."""


class Leader(NamedTuple):
    """A driver, by its topic's epoch and a unique name."""

    epoch: int
    who: str


@dataclass(frozen=True, slots=True)
class Handed:
    """An attempt's transaction that was handed over.

    Attributes:
        task: number of its task. id: the transaction's.
        expires: when its coordinator rolls it back, in seconds since 1970 by the worker's clock.
    """

    task: int
    id: TransactionId
    expires: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where the records of a micro-batch begin in the log of attempts (`begun`) and in the outbox.

    Both are texts of positions; None: at the beginning of the topic.
    """

    begun: str | None
    outbox: str


@dataclass(frozen=True, slots=True)
class Decision(Decided[Handed]):
    """A decision of Pulsar's sink; see `exactly.Decided`.

    Attributes:
        places: where the micro-batch's records begin in the log of attempts and in the outbox.
    """

    places: Places | None = None

    @property
    def begun(self) -> str | None:
        """Return where its attempts are noted."""
        return None if self.places is None else self.places.begun

    def to_facts(self) -> dict[str, Any]:
        """Return what its record holds."""
        places = self.places and [self.places.begun, self.places.outbox]
        return self.parts() | {"places": places, "transactions": [[one.task, *one.id, round(one.expires)] for one in self.transactions]}

    @classmethod
    def of(cls, found: Mapping[str, Any], ended: bool) -> Decision:
        """Make the decision from its record; raises KeyError, TypeError, ValueError or AttributeError for one that is no decision."""
        rows = tuple(Handed(int(task), TransactionId(int(most), int(least)), end) for task, most, least, end in found["transactions"])
        places = None
        if found["places"]:
            begun, outbox = found["places"]
            places = Places(None if begun is None else str(begun), str(outbox))
        return cls(transactions=rows, ended=ended, places=places, **cls.taken(found))


@dataclass(frozen=True, slots=True)
class Found:
    """What the log says up to some record.

    Attributes:
        decision: the last one; None where there is none. at: its position.
        leader: the driver that has the topic; None where no record shows it.
        sure: whether enough records before the decision were read to know that it counts.
    """

    decision: Decision | None
    at: MessageId | None
    leader: Leader | None
    sure: bool


class Decisions:
    """The decisions of one prefix.

    Args:
        client: of the driver. topic: where decisions are stored. prefix: the sink's transactionalIdPrefix.
        timeout: seconds for each call.
    """

    def __init__(self, client: PulsarClient, topic: str, prefix: str, timeout: float) -> None:
        self._client = client
        self.topic = topic
        self.prefix = prefix
        self.timeout = timeout

    def take(self, leader: Leader | None = None) -> Driver:
        """Take the topic exclusively: an older driver is fenced.

        Args:
            leader: the driver that continues here; None: a new one.
        Raises:
            Fenced: another driver has taken it since.
        """
        options: dict[str, Any] = {"batching": False, "delivery_timeout": self.timeout, "timeout": self.timeout}
        options["topic_epoch"] = None if leader is None else leader.epoch
        try:
            out = self._client.producer(self.topic, access_mode="exclusive-with-fencing", **options)
        except ProducerFenced as why:
            raise self.fenced(str(why)) from why
        (epoch,) = out.topic_epochs.values()
        return Driver(self, out, leader or Leader(epoch, uuid.uuid4().hex))

    def fenced(self, why: str) -> Fenced:
        """Build the error for an older driver."""
        return Fenced(f"another driver of the transactionalIdPrefix {self.prefix} has come: {why}")

    def until(self, last: MessageId) -> Found:
        """Return what the log says up to a record, that one included; raises TimedOut, Malformed."""
        key = (self.topic, -1)
        starts: list[Position | Earliest] = [MessageId(*key, last.ledger, max(0, last.entry - back)) for back in _BACK]
        for start in (*starts[: 2 if last.entry > _BACK[0] else 1], EARLIEST):
            found = judged(self._read(start, last))
            if found.sure or start is EARLIEST:
                break
        return found

    def _read(self, start: Position | Earliest, last: MessageId) -> Iterator[tuple[MessageId, dict[str, Any]]]:
        """Yield positions and records from `start` up to and including `last`; raises TimedOut."""
        key: TopicPartition = (self.topic, -1)
        stop = MessageId(*key, last.ledger, last.entry, after=True)
        deadline = time.monotonic() + self.timeout
        with self._client.reader(self.topic, start={key: start}, stop={key: stop}, create_topic=False, reset="earliest") as reader:
            while not reader.done:
                for record in reader.poll(max(0.0, deadline - time.monotonic())) or ():
                    assert isinstance(record.position, MessageId)
                    yield record.position, read(record.value)
                if not reader.done and time.monotonic() >= deadline:
                    raise TimedOut(f"{self.topic} cannot be read up to {last}, which is stored there")


class Driver:
    """The driver that has the topic exclusively, until another one fences it. Leaving the `with` block closes its producer.

    Attributes:
        leader: its identity, which another process may continue with.
    """

    def __init__(self, decisions: Decisions, out: PulsarProducer, leader: Leader) -> None:
        self._decisions = decisions
        self._out = out
        self.leader = leader

    @property
    def epoch(self) -> int:
        """Return the topic's epoch of this driver."""
        return self.leader.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._out.close(self._decisions.timeout if kind is None else 1.0)
        except WireprotoError as why:
            logger.info("pulsar-wire: %s: %s", self._decisions.topic, why)  # harmless: `_write` has waited for every record

    def _write(self, kind: str, **facts: Any) -> MessageId:
        """Store a record, and return its position; raises Fenced."""
        text = json.dumps({"kind": kind, **self.leader._asdict(), **facts}, separators=(",", ":")).encode()
        timeout = self._decisions.timeout
        try:
            place = self._out.send(text, key=kind.encode(), timeout=timeout).position(timeout)
        except ProducerFenced as why:
            raise self._decisions.fenced(str(why)) from why
        assert isinstance(place, MessageId)
        return place

    def find(self) -> Found:
        """Return the last decision of any earlier driver; none of them can decide any more.

        Raises:
            Fenced: a newer driver has taken the topic.
        """
        found = self._decisions.until(self._write("taken"))
        if found.leader != self.leader:
            raise self._fenced(found)
        return found

    def _fenced(self, found: Found) -> Fenced:
        return self._decisions.fenced(f"{found.leader} has the decisions' topic, this one is {self.leader}")

    def decide(self, decision: Decision) -> None:
        """Store a decision; when this returns, it counts.

        Raises:
            Fenced: it does not count, nor will it.
        """
        found = self._decisions.until(self._write("decided", **decision.to_facts()))
        if found.decision is None or found.decision.number != decision.number:
            raise self._fenced(found)

    def end(self, decision: Decision) -> None:
        """Note that a decision is carried out."""
        self._write("ended", id=decision.number)

    def drop(self) -> None:
        """Note that the prefix is forgotten."""
        self._write("dropped")


def read(text: bytes | None) -> dict[str, Any]:
    """Parse a record; raises Malformed."""
    try:
        found = json.loads(text or b"")
        return {"kind": str(found["kind"]), **found, "leader": Leader(int(found["epoch"]), str(found["who"]))}
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise unreadable(text or b"") from why


def judged(records: Iterator[tuple[MessageId, dict[str, Any]]]) -> Found:
    """Judge records in their order: behind a driver's `taken`, records of other drivers are void.

    Raises:
        Malformed: the last decision cannot be parsed.
    """
    leader: Leader | None = None
    certain = False  # whether the leader's `taken` is among these records
    last, at, before, ended = None, None, 0, ""
    for count, (place, record) in enumerate(records):
        writer, kind = record["leader"], record["kind"]
        if leader is not None and writer.epoch < leader.epoch:
            continue
        if kind == "taken":
            leader, certain = writer, True
        elif leader is None or writer.epoch > leader.epoch:
            leader, certain = writer, False
        elif writer != leader:
            continue
        if kind == "decided":
            last, at, before = record, place, count if certain else 0
        elif kind == "dropped":
            last, at, before = None, None, count if certain else 0
        elif kind == "ended":
            ended = record["id"]
    try:
        decision = None if last is None else Decision.of(last, last["id"] == ended)
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise unreadable(json.dumps(last).encode()) from why
    return Found(decision, at, leader, before >= _BEFORE)
