"""What the driver of an exactly-once sink to Pulsar has decided: records in a topic of the prefix's own, which one driver has at a time.

    kind       beside the driver's epoch and name
    taken      a driver has come: what stands before this was decided before it had the topic, and behind it nobody else decides
    decided    a decision (`exactly.Decided`): [task, transaction, when its time is over], …; where its outbox and its log of attempts begin
    ended      the number of a decision, all of whose transactions are committed
    dropped    the prefix is forgotten

The topic is had alone (``exclusive-with-fencing``), and a driver's epoch is higher than that of the one before. The broker throws the older
driver out as the newer one comes, but a SEND of it that was past the broker's checks may be stored behind the newer one's first record;
and two that come while the broker stores an epoch may both be given it, and stay (AbstractTopic.incrementTopicEpochIfNeeded of 4.2.4). So
the log's own order decides: whose `taken` came last, unless of a lower epoch, has the topic, and what anybody else stores behind it is
void, for who looks for decisions and for who has made one, and looks for it before going on. Of a driver thrown out there is one such
record at most, for each is waited for.

It is read from its end backwards, which is soon done. May assume: nothing in the topic is transactional, so that nothing keeps readers
from its end. Must not: know what a decision is about.
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
"""Entries from the end that are read first; then all."""
_BEFORE = 16
"""Records that are seen before a decision that is found, unless there are fewer: one that is void stands just behind what makes it so."""


class Leader(NamedTuple):
    """A driver, by its topic's epoch and a name of its own."""

    epoch: int
    who: str


@dataclass(frozen=True, slots=True)
class Handed:
    """An attempt's transaction that was handed over.

    Attributes:
        expires: when its coordinator rolls it back, in seconds since 1970 by the worker's clock.
    """

    task: int
    id: TransactionId
    expires: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where what a micro-batch leaves begins in the log of attempts and in the outbox: texts of positions; None: with all that is there."""

    begun: str | None
    outbox: str


@dataclass(frozen=True, slots=True)
class Decision(Decided[Handed]):
    """See `exactly.Decided`, and:

    Attributes:
        places: where its attempts are noted, and its outbox begins.
    """

    places: Places | None = None

    @property
    def begun(self) -> str | None:
        """Where its attempts are noted."""
        return None if self.places is None else self.places.begun

    def to_facts(self) -> dict[str, Any]:
        places = self.places and [self.places.begun, self.places.outbox]
        return self.parts() | {"places": places, "transactions": [[one.task, *one.id, round(one.expires)] for one in self.transactions]}

    @classmethod
    def of(cls, found: Mapping[str, Any], ended: bool) -> Decision:
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
        decision: the last one; None: there is none. at: where it stands. leader: who has the topic; None: who had it before these.
        sure: whether enough was seen before the decision.
    """

    decision: Decision | None
    at: MessageId | None
    leader: Leader | None
    sure: bool


class Decisions:
    """The decisions of one prefix.

    Args:
        timeout: seconds for each call.
    """

    def __init__(self, client: PulsarClient, topic: str, prefix: str, timeout: float) -> None:
        self._client = client
        self.topic = topic
        self.prefix = prefix
        self.timeout = timeout

    def take(self, leader: Leader | None = None) -> Driver:
        """Have the topic alone: an older driver is thrown out.

        Args:
            leader: the driver that goes on here; None: a new one.
        Raises:
            Fenced: another one has come since.
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
        """What is raised for an older driver."""
        return Fenced(f"another driver of the transactionalIdPrefix {self.prefix} has come: {why}")

    def until(self, last: MessageId) -> Found:
        """What stands up to a record, that one included."""
        key = (self.topic, -1)
        starts: list[Position | Earliest] = [MessageId(*key, last.ledger, max(0, last.entry - back)) for back in _BACK]
        for start in (*starts[: 2 if last.entry > _BACK[0] else 1], EARLIEST):
            found = judged(self._read(start, last))
            if found.sure or start is EARLIEST:
                break
        return found

    def _read(self, start: Position | Earliest, last: MessageId) -> Iterator[tuple[MessageId, dict[str, Any]]]:
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
    """Who has the topic alone, until he is thrown out.

    Attributes:
        leader: who it is, in another process too.
    """

    def __init__(self, decisions: Decisions, out: PulsarProducer, leader: Leader) -> None:
        self._decisions = decisions
        self._out = out
        self.leader = leader

    @property
    def epoch(self) -> int:
        return self.leader.epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._out.close(self._decisions.timeout if kind is None else 1.0)
        except WireprotoError as why:
            logger.info("pulsar-wire: %s: %s", self._decisions.topic, why)  # all that was written was waited for

    def _write(self, kind: str, **facts: Any) -> MessageId:
        text = json.dumps({"kind": kind, **self.leader._asdict(), **facts}, separators=(",", ":")).encode()
        timeout = self._decisions.timeout
        try:
            place = self._out.send(text, key=kind.encode(), timeout=timeout).position(timeout)
        except ProducerFenced as why:
            raise self._decisions.fenced(str(why)) from why
        assert isinstance(place, MessageId)
        return place

    def find(self) -> Found:
        """What was decided before, by whichever driver: none of them decides any more. Raises Fenced where a newer one has come."""
        found = self._decisions.until(self._write("taken"))
        if found.leader != self.leader:
            raise self._fenced(found)
        return found

    def _fenced(self, found: Found) -> Fenced:
        return self._decisions.fenced(f"{found.leader} has the decisions' topic, this one is {self.leader}")

    def decide(self, decision: Decision) -> None:
        """Returns when it is decided. Raises Fenced: it is not, nor will be."""
        found = self._decisions.until(self._write("decided", **decision.to_facts()))
        if found.decision is None or found.decision.number != decision.number:
            raise self._fenced(found)

    def end(self, decision: Decision) -> None:
        """Note that all of a decision is carried out."""
        self._write("ended", id=decision.number)

    def drop(self) -> None:
        """Forget the prefix."""
        self._write("dropped")


def read(text: bytes | None) -> dict[str, Any]:
    """A record. Raises Malformed."""
    try:
        found = json.loads(text or b"")
        return {"kind": str(found["kind"]), **found, "leader": Leader(int(found["epoch"]), str(found["who"]))}
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise unreadable(text or b"") from why


def judged(records: Iterator[tuple[MessageId, dict[str, Any]]]) -> Found:
    """What these say, in their order: behind a driver who has come nothing of another one counts."""
    leader: Leader | None = None
    certain = False  # whether its coming is among these
    last, at, before, ended = None, None, 0, ""
    for count, (place, record) in enumerate(records):
        who, kind = record["leader"], record["kind"]
        if leader is not None and who.epoch < leader.epoch:
            continue
        if kind == "taken":
            leader, certain = who, True
        elif leader is None or who.epoch > leader.epoch:
            leader, certain = who, False
        elif who != leader:
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
