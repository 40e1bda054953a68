"""Records on their way out: batches, their order, and the numbers that keep a retry from becoming a repeat.

What it is: what a producer must know of each partition of its topic, sans-IO. Times are seconds of one clock, given by the caller.

    append ──► open ──(full, linger over, flush)──► waiting ──take──► flying ──acked──► gone
                                                       ▲                │
                                                       └────── retry ───┘   (in the order of creation, with the same numbers)

How a batch is written exactly once. Each partition writes under an identity (producer id, epoch) and numbers its records. Numbers are given
at the first sending and stay with the batch for every later one, so that a broker which has it already recognises it. A partition
starts again under a new identity, with new numbers for all that is left, in one case only: the broker says that the *oldest*
unanswered batch
does not follow what it has (OUT_OF_ORDER_SEQUENCE_NUMBER and its kin). Then neither this batch nor any after it is in the log. The new
identity is the next epoch of the same producer id (`Identity.raised`), not another id: once its first batch is stored, the broker refuses
whatever of the old epoch was held up on the way and comes late, which would be there twice else.
    - After a refusal the partition sends nothing until all that flies has come back; then it goes on from the oldest.
    - Until the first batch of an identity is acknowledged only one flies: a broker takes any number from a producer it does not know.
    - No batch flies that is five or more behind the oldest unanswered one: brokers recognise a producer's last five batches, so that one
      which was written, and then refused at its second sending, is still recognised at its third.
    - Without idempotence only one batch flies in a partition at a time, so that order holds whatever happens.

May assume: one caller at a time (the producer's lock). Must not: send, read a clock, compress (builders do when they are finished).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._codec import KafkaOpenBatch

MAX_SEQUENCE = 0x7FFFFFFF
LAST_EPOCH = 0x7FFE
"""Java's clients, too, leave the one above alone: brokers take it for a producer that was fenced."""
WINDOW = 5
_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and epoch: from InitProducerId, or raised since."""

    producer_id: int
    epoch: int

    def raised(self) -> Identity | None:
        """The next epoch, which needs nobody's leave; None when they are used up and a new id must be asked for."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < LAST_EPOCH else None


NOBODY = Identity(-1, -1)


class Outgoing(KafkaOpenBatch):
    """One batch. The core puts records into it until it is sealed.

    Attributes:
        builder: the core's batch builder.
        outcome: whatever the producer hands to those who wait.
        owner: the producer, which its receipts ask.
        size: bytes of the send buffer that it holds.
        identity, sequence: given at the first sending; sequence is that of the first record, -1 while it has none.
        doubtful: an earlier sending got no answer, so that it may be in the log.
        number: counts the batches of the partition in the order of their first sending, from 1; 0: not sent yet.
        attempts: sendings so far.
    """

    __slots__ = (
        "attempts",
        "created",
        "doubtful",
        "identity",
        "number",
        "outcome",
        "owner",
        "partition",
        "sequence",
        "serial",
    )

    def __init__(self, partition: int, serial: int, builder: Any, outcome: Any, created: float) -> None:
        self.partition = partition
        self.serial = serial
        self.builder = builder
        self.outcome = outcome
        self.owner: Any = None
        self.created = created
        self.identity = NOBODY
        self.sequence = -1
        self.number = 0
        self.attempts = 0
        self.doubtful = False

    def __lt__(self, other: Outgoing) -> bool:
        return self.serial < other.serial

    def position(self, index: int, timeout: float | None) -> Any:
        """A record's place, as its receipt asks for it."""
        return self.owner.position_in(self, index, timeout)

    def finish(self) -> Any:
        """The record batch as bytes, under its identity."""
        return self.builder.seal(self.identity.producer_id, self.identity.epoch, self.sequence)


class Lane:
    """One partition's batches."""

    __slots__ = (
        "blocked_until",
        "failures",
        "flying",
        "identity",
        "next_sequence",
        "open",
        "proven",
        "recovering",
        "starting_over",
        "taken",
        "waiting",
    )

    def __init__(self) -> None:
        self.open: Outgoing | None = None
        self.waiting: deque[Outgoing] = deque()
        self.flying: list[Outgoing] = []
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.proven = False
        self.recovering = False
        self.starting_over = False
        self.blocked_until = 0.0
        self.failures = 0
        self.taken = 0

    def seal(self) -> Outgoing | None:
        """No more records into the open batch; returns it if it has some."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.seal()
            if batch.count:
                return batch
        return None

    def oldest(self) -> Outgoing | None:
        """The batch that everything else in the partition follows."""
        heads = [batches[0] for batches in (self.waiting, self.flying) if batches]
        return min(heads) if heads else self.open


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds, and how many batches of a partition may fly."""

    linger: float
    delivery_timeout: float
    backoff: float
    backoff_max: float
    in_flight: int
    idempotent: bool


class Accumulator:
    """All partitions of one topic.

    Args:
        make_builder: a new batch builder.
        make_outcome: what an Outgoing carries as `outcome`.
    """

    def __init__(self, pace: Pace, make_builder: Callable[[], Any], make_outcome: Callable[[], Any]) -> None:
        self._pace = pace
        self._make_builder = make_builder
        self._make_outcome = make_outcome
        self._serial = 0
        self.lanes: dict[int, Lane] = {}

    def lane(self, partition: int) -> Lane:
        lane = self.lanes.get(partition)
        if lane is None:
            lane = self.lanes[partition] = Lane()
        return lane

    def current(self, partition: int, now: float) -> Outgoing:
        """The open batch of a partition, a new one if need be."""
        lane = self.lane(partition)
        if lane.open is None:
            self._serial += 1
            lane.open = Outgoing(partition, self._serial, self._make_builder(), self._make_outcome(), now)
        return lane.open

    def close(self, partition: int) -> None:
        """No more records into the open batch."""
        lane = self.lane(partition)
        batch = lane.seal()
        if batch is not None:
            lane.waiting.append(batch)

    def close_all(self) -> None:
        for partition in self.lanes:
            self.close(partition)

    def sendable(self, now: float) -> list[int]:
        """Partitions of which a batch may leave now, whose open batch waited longest first."""
        ready = [(head.created, partition) for partition, lane in self.lanes.items() if (head := self._head(lane, now)) is not None]
        return [partition for _, partition in sorted(ready)]

    def _head(self, lane: Lane, now: float) -> Outgoing | None:
        if now < lane.blocked_until or (lane.flying and (lane.recovering or lane.starting_over)):
            return None
        if len(lane.flying) >= (self._pace.in_flight if self._pace.idempotent and lane.proven else 1):
            return None
        if lane.waiting:
            batch: Outgoing | None = lane.waiting[0]
            oldest = lane.oldest()
            if oldest is not None and oldest.number and (lane.waiting[0].number or lane.taken + 1) - oldest.number >= WINDOW:
                return None
            return batch
        if lane.flying and lane.taken + 1 - lane.flying[0].number >= WINDOW:
            return None
        batch = lane.open
        return batch if batch is not None and batch.count and now >= batch.created + self._pace.linger else None

    def take(self, partition: int, identity: Identity | None, now: float) -> Outgoing | None:
        """The next batch of a partition, now flying, with its numbers; None when none may leave.

        Args:
            identity: the producer's newest one; None while it has none, which holds back idempotent partitions without their own.
        """
        lane = self.lane(partition)
        if self._head(lane, now) is None:
            return None
        if self._pace.idempotent and lane.identity is None:
            if identity is None:
                return None
            lane.identity, lane.next_sequence, lane.proven = identity, 0, False
        if not lane.waiting:
            self.close(partition)
        batch = lane.waiting.popleft()
        lane.recovering = False
        if lane.identity is not None and batch.sequence < 0:
            batch.identity, batch.sequence = lane.identity, lane.next_sequence
            lane.next_sequence = (batch.sequence + batch.count) & MAX_SEQUENCE
        if not batch.number:
            lane.taken += 1
            batch.number = lane.taken
        batch.attempts += 1
        lane.flying.append(batch)
        return batch

    def landed(self, batch: Outgoing) -> None:
        """The broker has it."""
        lane = self.lane(batch.partition)
        self._ground(lane, batch)
        lane.failures = 0
        lane.blocked_until = 0.0
        if batch.identity is lane.identity:
            lane.proven = True

    def refused(self, batch: Outgoing) -> None:
        """It failed for good. Batches after it keep their numbers: the broker then says that they do not follow, which starts the
        lane over."""
        self._ground(self.lane(batch.partition), batch)

    def retry(self, batch: Outgoing, now: float, *, doubtful: bool, at_once: bool = False) -> None:
        """Send it again, in its place."""
        lane = self.lane(batch.partition)
        batch.doubtful = batch.doubtful or doubtful
        lane.recovering = True
        self._ground(lane, batch)
        insort(lane.waiting, batch)
        if not at_once:
            lane.blocked_until = now + min(self._pace.backoff * 2 ** min(lane.failures, 10), self._pace.backoff_max)
            lane.failures += 1

    def out_of_order(self, batch: Outgoing, now: float) -> Identity | None:
        """The broker says that this batch does not follow what it has. The identity that the partition gives up, if it starts over."""
        lane = self.lane(batch.partition)
        given_up = batch.identity if lane.oldest() is batch else None
        lane.starting_over = lane.starting_over or given_up is not None
        self.retry(batch, now, doubtful=False, at_once=lane.failures < 3)
        return given_up

    def _ground(self, lane: Lane, batch: Outgoing) -> None:
        if batch in lane.flying:
            lane.flying.remove(batch)
        if lane.starting_over and not lane.flying:
            lane.starting_over = False
            lane.identity = None
            for left in (*lane.waiting, batch):
                left.identity, left.sequence = NOBODY, -1

    def expired(self, now: float) -> list[Outgoing]:
        """Batches that were not delivered in time, taken out; what flies is left to its answer."""
        gone: list[Outgoing] = []
        for lane in self.lanes.values():
            while lane.waiting and now >= lane.waiting[0].created + self._pace.delivery_timeout:
                gone.append(lane.waiting.popleft())
            if lane.open is not None and not lane.waiting and now >= lane.open.created + self._pace.delivery_timeout:
                gone += [batch for batch in (lane.seal(),) if batch is not None]
        return gone

    def drain(self) -> list[Outgoing]:
        """Take out everything that has not been answered (on close)."""
        gone: list[Outgoing] = []
        for lane in self.lanes.values():
            left = lane.seal()
            gone += [*lane.flying, *lane.waiting, *([left] if left is not None else [])]
            lane.flying.clear()
            lane.waiting.clear()
        return sorted(gone)

    def unanswered(self) -> list[Outgoing]:
        """Every batch that is not done, oldest first."""
        found = [batch for lane in self.lanes.values() for batch in (*lane.flying, *lane.waiting)]
        found += [lane.open for lane in self.lanes.values() if lane.open is not None and lane.open.count]
        return sorted(found)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not any(lane.waiting or (lane.open is not None and lane.open.count) for lane in self.lanes.values())

    def wakeup(self, now: float) -> float:
        """When something is due next: a linger, the end of a pause, an expiry. Infinity when nothing is."""
        soonest = _FOREVER
        for lane in self.lanes.values():
            head = lane.waiting[0] if lane.waiting else lane.open
            if head is None or not head.count:
                continue
            soonest = min(soonest, head.created + self._pace.delivery_timeout)
            if lane.waiting and lane.blocked_until > now:
                soonest = min(soonest, lane.blocked_until)
            elif not lane.waiting and not lane.flying:
                soonest = min(soonest, max(head.created + self._pace.linger, lane.blocked_until))
        return soonest
