"""What a producer has sent and not yet seen answered: one object a request, and the receipts that wait for it.

What it is: `Pending`, a send on its way (one message, or the batch body of several), and `RocketReceipt`, one record's share in it. No
thread of its own: whoever waits for a receipt reads the reply, decodes it and, when it was a refusal that may pass, hands the send back
to the producer.
Must not: choose brokers, or retry.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .._net import Event
from ..errors import TimedOut, WireprotoError
from ..position import LogOffset

if TYPE_CHECKING:
    from .._net import Call, Loop
    from .producer import RocketProducer
    from .route import Queue


class Pending:
    """A send that is not settled.

    Attributes:
        sequence: order of taking; what is sent again goes in this order.
        queue: where it goes; free tells whether another queue will do when this one's broker refuses.
        code, sys_flag, born, properties, body: of the command.
        count: records in it; size: bytes that it holds of the buffer.
        call: the request on the wire; None while it waits to be sent (again). `moved` is set when that changes.
        offset: queue offset of its first record, once acknowledged. error: why it failed for good.
    """

    __slots__ = (
        "attempts", "body", "born", "call", "code", "count", "deadline", "error", "free", "moved", "not_before", "offset", "properties",
        "queue", "sequence", "size", "sys_flag", "warning",
    )  # fmt: skip

    def __init__(
        self, sequence: int, queue: Queue, code: int, sys_flag: int, born: int, properties: str, body: bytes, count: int, deadline: float
    ) -> None:
        self.sequence, self.queue, self.code, self.sys_flag, self.born = sequence, queue, code, sys_flag, born
        self.properties, self.body, self.count, self.deadline = properties, body, count, deadline
        self.size = len(body) + len(properties) + 512
        self.free = False
        self.attempts = 0
        self.not_before = 0.0
        self.call: Call | None = None
        self.moved: Event | None = None
        self.offset = -1
        self.warning = 0
        self.error: WireprotoError | None = None

    def __lt__(self, other: Pending) -> bool:
        return self.sequence < other.sequence

    @property
    def settled(self) -> bool:
        return self.offset >= 0 or self.error is not None

    def park(self, loop: Loop) -> None:
        """It waits to be sent (again)."""
        self.call = None
        if self.moved is None or self.moved.done:
            self.moved = Event(loop)

    def launch(self, call: Call) -> None:
        """It is on the wire."""
        self.attempts += 1
        self.call = call
        if self.moved is not None:
            self.moved.set()

    def succeed(self, offset: int, warning: int) -> None:
        self.offset, self.warning = offset, warning
        self._end()

    def fail(self, error: WireprotoError) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.body, self.properties = b"", ""
        if self.moved is not None:
            self.moved.set()


class RocketReceipt:
    """One record's receipt (of a batch: its last record's).

    `position` gives the place of the record. `warning` is 0, or after success the code by which the broker said that it stored the
    record less safely than configured: 10 not yet on disk, 11 no slave, 12 slave late.
    """

    __slots__ = ("_index", "_pending", "_producer")

    def __init__(self, producer: RocketProducer, pending: Pending, index: int) -> None:
        self._producer, self._pending, self._index = producer, pending, index

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        self._producer.look(self._pending)
        return self._pending.settled

    @property
    def warning(self) -> int:
        return self._pending.warning

    def position(self, timeout: float | None = None) -> LogOffset:
        """Wait for the acknowledgement; the record's place.

        Args:
            timeout: seconds; None takes the producer's delivery timeout.
        Raises:
            TimedOut: not known in time; the record may still arrive.
            BrokerError, TransportError: it was refused, or every retry failed.
        """
        pending = self._pending
        if not pending.settled:
            limit = self._producer.options.delivery_timeout if timeout is None else timeout
            self._producer.wait(pending, time.monotonic() + limit)
        if pending.error is not None:
            raise pending.error
        queue = pending.queue
        return LogOffset(self._producer.topic, queue.partition, pending.offset + self._index)

    def __repr__(self) -> str:
        pending = self._pending
        state = repr(pending.error) if pending.error else "pending" if pending.offset < 0 else str(pending.offset + self._index)
        return f"<RocketReceipt {self._producer.topic}[{pending.queue.partition}] {state}>"


def late(topic: str, pending: Pending) -> TimedOut:
    """The error of a wait that ran out."""
    return TimedOut("no acknowledgement in time; the record may still arrive", topic=topic, partition=pending.queue.partition)
