"""What a producer sends: commands of one record or of neighbours, and their receipts.

What it is:

    RocketBatch     one command: a record (310), or neighbours of one queue and one timestamp (320); a batch of `flow.queue`
    RocketReceipt   one record's share in it

May assume: the sender's lock round all that puts records in. Must not: choose brokers, send, or retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wireproto._codec import Receipt, RocketBatchBuilder

if TYPE_CHECKING:
    from wireproto._net import Event
    from wireproto.flow.producer import BatchProducer
    from wireproto.flow.queue import PartitionQueue
    from wireproto.position import QueueOffset

SINGLE, BATCH = 310, 320
OVERHEAD = 256
"""Bytes of the send budget that a record is counted for beyond its own."""


class RocketBatch:
    """See `wireproto.flow.queue.Batch`, whose attributes it has, and:

    Attributes:
        born: its records' timestamp; stamped tells whether the caller gave it (else it is the first one's time of sending).
        lone: body and properties of a record that is alone. rows: the records of a batch; body: that batch, once it was to be sent.
        sys_flag: of a compressed body. size: bytes of the send budget that it holds. sealed: no more records join.
        anywhere: any queue will do. waiting: the key of a record that is alone in a lane (see `lanes.Routing`).
        warning: see `RocketReceipt`.
    """

    __slots__ = (
        "anywhere", "attempts", "body", "born", "count", "created", "doubtful", "lone", "number", "outcome", "over", "owner", "queue",
        "rows", "sealed", "serial", "size", "stamped", "sys_flag", "waiting", "warning",
    )  # fmt: skip

    def __init__(self, queue: PartitionQueue, serial: int, created: float, outcome: Event, owner: BatchProducer) -> None:
        self.queue, self.serial, self.created, self.outcome, self.owner = queue, serial, created, outcome, owner
        self.lone: tuple[bytes, bytes] | None = None
        self.rows: RocketBatchBuilder | None = None
        self.body: bytes | None = None
        self.waiting: bytes | None = None
        self.number = self.attempts = self.count = self.size = self.sys_flag = self.warning = self.born = 0
        self.stamped = self.sealed = self.doubtful = self.over = False
        self.anywhere = True

    @property
    def key(self) -> int:
        """Its partition, or the lane that it waits in."""
        key: int = self.queue.key  # type: ignore[assignment]
        return key

    @property
    def home(self) -> int:
        """Its partition, or the one whose keys it waits for."""
        return self.key if self.key >= 0 else ~self.key

    def takes(self, timestamp: int | None, size: int, limit: int) -> bool:
        """Whether a record with that timestamp may join; a command carries one timestamp."""
        if not self.count:
            return True
        same = not self.stamped if timestamp is None else self.stamped and self.born == timestamp
        return same and not self.sys_flag and self.size + size <= limit

    def begin(self, timestamp: int | None, now_ms: int) -> None:
        """The first record comes."""
        self.stamped = timestamp is not None
        self.born = now_ms if timestamp is None else timestamp

    def add(self, body: bytes, properties: bytes, size: int, anywhere: bool) -> int:
        """Take a record; its index. size: what was taken of the send budget for it."""
        if self.count:
            self.batch().add(body, properties)
            self.anywhere = self.anywhere and anywhere
        else:
            self.lone = body, properties
            self.anywhere = anywhere
        self.size += size
        self.count += 1
        return self.count - 1

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
        self.size += size
        self.count = len(self.batch())
        self.anywhere = self.anywhere and anywhere
        return self.count - 1

    def seal(self) -> None:
        self.sealed = True

    def content(self) -> tuple[int, bytes, bytes]:
        """Code, properties and body of the command. An empty body travels as a batch of one: 5.x brokers fail on it otherwise."""
        if self.lone is not None and self.lone[0]:
            body, properties = self.lone
            return SINGLE, properties, body
        if self.body is None:
            self.body, self.rows = self.batch().finish(), None
        return BATCH, b"", self.body

    def release(self) -> int:
        """Its outcome is known: the bytes of the send budget that it held."""
        size, self.size = self.size, 0
        return size

    def forget(self) -> None:
        """It is stored: nobody sends it again."""
        self.lone = self.rows = self.body = None

    # what a receipt asks

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome.done

    def position(self, index: int, timeout: float | None) -> QueueOffset:
        """The place of a record; see `BatchProducer.position_in`."""
        place: QueueOffset = self.owner.position_in(self, index, timeout)
        return place

    def describe(self, index: int) -> str:
        """For a receipt's repr."""
        outcome: Any = self.outcome
        state = "pending" if not outcome.done else repr(outcome.error) if outcome.error else str(outcome.value + index)
        return f"{self.owner.topic}[{self.home}] {state}"


class RocketReceipt(Receipt):
    """One record's receipt (of a batch: its last record's).

    `position` gives the place of the record. `warning` is 0, or after success the code by which the broker said that it stored the
    record less safely than configured: 10 not yet on disk, 11 no slave, 12 slave late.
    """

    __slots__ = ()

    @property
    def warning(self) -> int:
        warning: int = self.batch.warning
        return warning

    @property
    def sequence(self) -> int:
        """Number of the command that carries the record; records with the same one went out together."""
        sequence: int = self.batch.serial
        return sequence
