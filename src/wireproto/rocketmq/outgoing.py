"""What a producer sends: commands of one record or of neighbours, and their receipts.

What it is:

    RocketBatch     one command: a record (310), or neighbours of one queue and one timestamp (320); a batch of `flow.queue`
    RocketReceipt   one record's share in it

May assume: the sender's lock round all that puts records in. Must not: choose brokers, send, or retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wireproto._codec import OutBatch, Receipt, RecordBuilder, RocketBatchBuilder
from wireproto.flow.parts import Parts, found

if TYPE_CHECKING:
    from wireproto._net import Event
    from wireproto.flow.producer import BatchProducer
    from wireproto.flow.queue import PartitionQueue

SINGLE, BATCH = 310, 320
_NO_BUILDER = RecordBuilder()
OVERHEAD = 256
"""Bytes of the send budget that a record is counted for beyond its own."""


LANE = 20
"""Bits of a partition in a lane's key."""


def lane(queue: int, coming: int) -> int:
    """The key of the lane for records whose keys went to one queue and go to another one once they may; less than 0."""
    return ~(queue << LANE | coming)


def lane_ends(key: int) -> tuple[int, int]:
    """What `lane` was made of."""
    return ~key >> LANE, ~key & ((1 << LANE) - 1)


class RocketBatch(OutBatch):
    """An OutBatch that fills no builder of its base's, but a command, and:

    Attributes:
        born: its records' timestamp; stamped tells whether the caller gave it (else it is the first one's time of sending).
        lone: body and properties of a record that is alone. rows: the records of a batch; body: that batch, once it was to be sent.
        sys_flag: of a compressed body. anywhere: any queue will do. warning: see `RocketReceipt`. link: of its last sending.
    """

    __slots__ = ("anywhere", "body", "born", "link", "lone", "rows", "stamped", "sys_flag", "warning")

    def __init__(self, queue: PartitionQueue, serial: int, created: float, outcome: Event, owner: BatchProducer) -> None:
        OutBatch.__init__(self, queue, serial, created, _NO_BUILDER, outcome, owner, None)
        self.lone: tuple[bytes, bytes] | None = None
        self.rows: RocketBatchBuilder | None = None
        self.body: bytes | None = None
        self.sys_flag = self.warning = self.born = 0
        self.stamped = False
        self.anywhere = True
        self.link: Any = None

    @property
    def home(self) -> int:
        """Its partition, or the one whose keys it waits for."""
        key: int = self.key
        return key if key >= 0 else lane_ends(key)[0]

    def takes(self, timestamp: int | None, size: int, limit: int) -> bool:
        """Whether a record with that timestamp may join those that are there; a command carries one timestamp."""
        same = not self.stamped if timestamp is None else self.stamped and self.born == timestamp
        return same and not self.sys_flag and self.size + size <= limit

    def begin(self, timestamp: int | None, now_ms: int) -> None:
        """The first record comes."""
        self.stamped = timestamp is not None
        self.born = now_ms if timestamp is None else timestamp

    def join(self, body: bytes, properties: bytes, size: int, anywhere: bool) -> int:
        """Take a record; its index. size: what was taken of the send budget for it."""
        if self.count:
            self.batch().add(body, properties)
            self.anywhere = self.anywhere and anywhere
        else:
            self.lone = body, properties
            self.anywhere = anywhere
        return self.grow(1, size)

    def batch(self) -> RocketBatchBuilder:
        """The records as the body of a batch."""
        if self.rows is None:
            self.rows = RocketBatchBuilder(0x7FFFFFFF)
        if self.lone is not None:
            self.rows.add(*self.lone)
            self.lone = None
        return self.rows

    def grown(self, size: int, anywhere: bool) -> int:
        """Rows were put into `batch`, which hold so much of the send budget: the last one's index."""
        self.anywhere = self.anywhere and anywhere
        return self.grow(len(self.batch()) - self.count, size)

    def content(self) -> tuple[int, bytes, bytes]:
        """Code, properties and body of the command. An empty body travels as a batch of one: 5.x brokers fail on it otherwise."""
        if self.lone is not None and self.lone[0]:
            body, properties = self.lone
            return SINGLE, properties, body
        if self.body is None:
            self.body, self.rows = self.batch().finish(), None
        return BATCH, b"", self.body

    def forget(self) -> None:
        """It is stored: nobody sends it again."""
        self.lone = self.rows = self.body = None

    def describe(self, index: int) -> str:
        """For a receipt's repr."""
        outcome: Any = self.outcome
        if type(outcome.value) is Parts:
            part, at = found(self, index)
            return str(part.describe(at))
        state = "pending" if not outcome.done else repr(outcome.error) if outcome.error else str(outcome.value + index)
        return f"{self.topic}[{self.home}] {state}"

    @property
    def topic(self) -> str:
        """Its producer's."""
        owner: Any = self.owner
        while type(owner) is Parts:
            owner = owner.whole.owner
        topic: str = owner.topic
        return topic


def halves(batch: RocketBatch) -> Parts | None:
    """What goes on in the place of a batch that its broker refused as one, so that a record which is refused keeps no other one back; None:
    there is nothing to part."""
    body = batch.body
    if body is None or batch.count < 2:
        return None
    ends, at = [0], 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4])
        ends.append(at)
    parts, middle = Parts(batch), batch.count // 2
    for first, last in ((0, middle), (middle, batch.count)):
        half = RocketBatch(batch.queue, batch.serial, batch.created, parts.outcome(), parts)  # type: ignore[arg-type]
        half.stamped, half.born, half.anywhere = batch.stamped, batch.born, batch.anywhere
        half.body = body[ends[first] : ends[last]]
        if last - first == 1:
            half.lone, half.body = _alone(half.body), None
        half.grow(last - first, 0)
        half.seal()
        parts.batches.append(half)
    return parts


def _alone(message: bytes) -> tuple[bytes, bytes]:
    """Body and properties of a message as a batch has it: size, three numbers, body by its size (4 bytes), properties by theirs (2)."""
    end = 20 + int.from_bytes(message[16:20])
    return message[20:end], message[end + 2 :]


class RocketReceipt(Receipt):
    """One record's receipt (of a batch: its last record's).

    `position` gives the place of the record. `warning` is 0, or after success the code by which the broker said that it stored the
    record less safely than configured: 10 not yet on disk, 11 no slave, 12 slave late.
    """

    __slots__ = ()

    @property
    def warning(self) -> int:
        part, _ = found(self.batch, self.index)
        warning: int = part.warning
        return warning

    @property
    def sequence(self) -> int:
        """Number of the command that carries the record; records with the same one went out together."""
        sequence: int = self.batch.serial
        return sequence
