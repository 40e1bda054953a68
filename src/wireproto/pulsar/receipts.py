"""What waits behind the receipts of `send` for the broker's answer.

What it is: one `Entry` per stored entry on its way (a record, or a batch of them); a receipt (`wireproto._codec.Receipt`) is an entry
and the index of a record within it. Must not: know connections; the partition's producer fills the entries in.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from wireproto._net import Event
from wireproto.position import MessageId


class Owner(Protocol):
    """The partition's producer, as far as an entry knows it."""

    topic: str
    partition: int

    def hurry(self, entry: Entry) -> None:
        """Send it at once if it is an open batch."""


class Entry:
    """One SEND on its way.

    Attributes:
        producer: whose it is.
        event: its outcome: (ledger, entry), or the error.
        sequence_id, last: of its first and last record; -1 while the batch is open.
        size: bytes taken from the send budget.
        buffers: the frame, kept until the receipt so that it can be sent again.
        deadline: monotonic time at which it fails with TimedOut.
        sent: whether it was handed to the present connection.
        doubted: whether the broker found its checksum wrong before.
    """

    __slots__ = ("batched", "buffers", "deadline", "doubted", "event", "last", "producer", "sent", "sequence_id", "size")

    def __init__(self, producer: Owner, event: Event, deadline: float, batched: bool) -> None:
        self.producer = producer
        self.event = event
        self.deadline = deadline
        self.batched = batched
        self.sequence_id = self.last = -1
        self.size = 0
        self.buffers: list[Any] = []
        self.sent = self.doubted = False

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.event.done

    def position(self, index: int, timeout: float | None) -> MessageId:
        """Wait for the broker's receipt; the place of a record. A batch that is still open goes out at once.

        Where deduplication made the broker drop a repeated record, ledger and entry are -1: it is stored, but not known where.
        """
        if not self.event.done:
            self.producer.hurry(self)
        until = self.deadline + 1.0 if timeout is None else time.monotonic() + timeout
        ledger, number = self.event.wait(until)
        owner = self.producer
        return MessageId(owner.topic, owner.partition, ledger, number, index if self.batched else -1)

    def describe(self, index: int) -> str:
        """For a receipt's repr."""
        state = "pending" if not self.done else "failed" if self.event.error else "acknowledged"
        return f"{self.producer.topic}[{self.producer.partition}] record {index} of its batch, {state}"
