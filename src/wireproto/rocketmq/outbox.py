"""What a producer has taken and not yet seen answered: commands, the lanes in which they queue, and receipts.

What it is:

    Pending         one command: a record, or neighbours of one queue and one timestamp
    Owner           the producer, as far as commands, lanes and receipts know it
    Lane            one queue's commands in order: those on the wire, those that wait; brokers handle the commands of a connection on
                    several threads, so only a lane with one command on the wire keeps its records in order
    RocketReceipt   one record's share in a Pending

May assume: the producer's lock around every change. Must not: choose brokers, send, or retry.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from wireproto._codec import Receipt, RocketBatchBuilder

if TYPE_CHECKING:
    from wireproto._net import Call, Event, Timer
    from wireproto.errors import WireprotoError
    from wireproto.position import QueueOffset

    from .options import RocketOptions
    from .route import Queue

SINGLE, BATCH = 310, 320
REPENT = 5.0
"""Seconds after which a lane that failed, and from which all was moved away, is tried again."""
OVERHEAD = 256
"""Bytes of the send buffer that a record is counted for beyond its own."""


class Owner(Protocol):
    """The producer that lanes belong to."""

    topic: str
    options: RocketOptions

    def look(self) -> None:
        """Take in what has come, without waiting."""

    def wait(self, pending: Pending, deadline: float) -> None:
        """Until this command is sent or settled; raises TimedOut."""

    def learn_keys(self) -> None:
        """In the client's worker: ask whether the topic's records need keys."""


class Pending:
    """A command that is not settled.

    Attributes:
        lane: where it queues. sequence: order of taking.
        born: its records' timestamp; stamped tells whether the caller gave it (else it is now).
        lone: body and properties of a record that is alone. rows: the records of a batch; body: that batch, once it was to be sent.
        sys_flag: of a compressed body.
        size: bytes of the buffer that it holds. sealed: no more records join. free: any queue will do.
        call: the request on the wire. moved: set when it is sent or settled, for whoever waits.
        offset: queue offset of the first record, once acknowledged. error: why it failed for good. warning: see `RocketReceipt`.
    """

    __slots__ = (
        "body", "born", "call", "count", "deadline", "error", "free", "lane", "lone", "moved", "offset", "rows", "sealed", "sequence",
        "size", "stamped", "sys_flag", "warning",
    )  # fmt: skip

    def __init__(self, lane: Lane, sequence: int, born: int, stamped: bool, deadline: float) -> None:
        self.lane, self.sequence, self.born, self.stamped, self.deadline = lane, sequence, born, stamped, deadline
        self.lone: tuple[bytes, bytes] | None = None
        self.rows: RocketBatchBuilder | None = None
        self.body: bytes | None = None
        self.count = self.size = self.sys_flag = self.warning = 0
        self.sealed = False
        self.free = True
        self.call: Call | None = None
        self.moved: Event | None = None
        self.offset = -1
        self.error: WireprotoError | None = None

    @property
    def settled(self) -> bool:
        return self.offset >= 0 or self.error is not None

    def add(self, body: bytes, properties: bytes, free: bool) -> int:
        """Take a record; its index."""
        if not self.count:
            self.lone = body, properties
        else:
            self.batch().add(body, properties)
        self.size += len(body) + len(properties) + OVERHEAD
        self.free = self.free and free
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

    def content(self) -> tuple[int, bytes, bytes]:
        """Code, properties and body of the command. An empty body travels as a batch of one: 5.x brokers fail on it otherwise."""
        if self.lone is not None and self.lone[0]:
            body, properties = self.lone
            return SINGLE, properties, body
        if self.body is None:
            self.body, self.rows = self.batch().finish(), None
        return BATCH, b"", self.body

    def launch(self, call: Call) -> None:
        self.sealed = True
        self.call = call
        self._tell()

    def succeed(self, offset: int, warning: int) -> None:
        self.offset, self.warning = offset, warning
        self.lone = self.rows = self.body = None
        self._tell()

    def fail(self, error: WireprotoError) -> None:
        self.error = error
        self.lone = self.rows = self.body = None
        self._tell()

    # what a receipt asks

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        if not self.settled:
            self.lane.producer.look()
        return self.settled

    def position(self, index: int, timeout: float | None) -> QueueOffset:
        """Wait for the acknowledgement; the place of a record.

        Args:
            timeout: seconds; None takes the producer's delivery timeout.
        Raises:
            TimedOut: not known in time; the record may still arrive.
            BrokerError, TransportError: it was refused, or every retry failed.
        """
        producer = self.lane.producer
        if self.offset < 0 and self.error is None:
            producer.wait(self, time.monotonic() + (producer.options.delivery_timeout if timeout is None else timeout))
        if self.error is not None:
            raise self.error
        return self.lane.queue.at(producer.topic, self.offset + index)

    def describe(self, index: int) -> str:
        """For a receipt's repr."""
        state = repr(self.error) if self.error else "pending" if self.offset < 0 else str(self.offset + index)
        return f"{self.lane.producer.topic}[{self.lane.queue.partition}] {state}"

    def _tell(self) -> None:
        if self.moved is not None:
            self.moved.set()
            self.moved = None


class Lane:
    """One queue's commands in order.

    Attributes:
        flying: on the wire. waiting: to be sent, oldest first.
        failures: in a row; retry_at: when to try again; problem: the last one. reviving: the worker is at it.
    """

    __slots__ = ("failures", "flying", "problem", "producer", "queue", "retry_at", "reviving", "timer", "waiting")

    def __init__(self, queue: Queue, producer: Owner) -> None:
        self.queue = queue
        self.producer = producer
        self.flying: deque[Pending] = deque()
        self.waiting: deque[Pending] = deque()
        self.failures = 0
        self.retry_at = 0.0
        self.problem: WireprotoError | None = None
        self.reviving = False
        self.timer: Timer | None = None

    def healthy(self, now: float) -> bool:
        """Whether its broker answers, or deserves another try."""
        if self.failures:
            return not self.waiting and not self.flying and not self.reviving and now > self.retry_at + REPENT
        return self.queue.address is not None

    def give_back(self, pending: Pending) -> None:
        """To be sent again, before what was taken later."""
        pending.call = None
        at = next((at for at, other in enumerate(self.waiting) if other.sequence > pending.sequence), len(self.waiting))
        self.waiting.insert(at, pending)

    def joinable(self, timestamp: int | None, size: int, limit: int) -> Pending | None:
        """The newest waiting command, if a record with that timestamp may share it."""
        if not self.waiting:
            return None
        last = self.waiting[-1]
        same = not last.stamped if timestamp is None else last.stamped and last.born == timestamp
        return last if same and last.body is None and not last.sealed and not last.sys_flag and last.size + size <= limit else None


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
        sequence: int = self.batch.sequence
        return sequence
