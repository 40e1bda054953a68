"""What `send` hands out, and what waits behind it for the broker's answer.

What it is: one `Entry` per stored entry on its way (a record, or a batch of them) and one `PulsarReceipt` per record, which is its
entry and its index within it. Must not: know connections; the partition's producer fills the entries in.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from wireproto._net import Event
from wireproto.position import MessageId

if TYPE_CHECKING:
    from .partition_producer import PartitionProducer


class Entry:
    """One SEND on its way.

    Attributes:
        producer: whose it is.
        event: its outcome: (ledger, entry), or the error.
        sequence_id: of its first record; -1 while the batch is open.
        records, size: how many, and bytes taken from the send buffer.
        buffers: the frame, kept until the receipt so that it can be sent again.
        deadline: monotonic time at which it fails with TimedOut.
        sent: whether it was handed to the present connection.
    """

    __slots__ = ("batched", "buffers", "deadline", "event", "producer", "records", "sent", "sequence_id", "size")

    def __init__(self, producer: PartitionProducer, event: Event, deadline: float, batched: bool) -> None:
        self.producer = producer
        self.event = event
        self.deadline = deadline
        self.batched = batched
        self.sequence_id = -1
        self.records = 0
        self.size = 0
        self.buffers: list[Any] = []
        self.sent = False


class PulsarReceipt:
    """The outcome of one record; see `wireproto.records.Receipt`."""

    __slots__ = ("_entry", "_index")

    def __init__(self, entry: Entry, index: int) -> None:
        self._entry = entry
        self._index = index

    @property
    def entry(self) -> Entry:
        """The stored entry that the record goes into."""
        return self._entry

    @property
    def done(self) -> bool:
        return self._entry.event.done

    def position(self, timeout: float | None = None) -> MessageId:
        """Wait for the broker's receipt. A batch that is still open goes out at once.

        Where deduplication made the broker drop a repeated record, ledger and entry are -1: it is stored, but not known where.
        """
        entry = self._entry
        if not entry.event.done:
            entry.producer.hurry(entry)
        until = entry.deadline + 1.0 if timeout is None else time.monotonic() + timeout
        ledger, number = entry.event.wait(until)
        owner = entry.producer
        return MessageId(owner.topic, owner.partition, ledger, number, self._index if entry.batched else -1)

    def __repr__(self) -> str:
        state = "pending" if not self.done else "failed" if self._entry.event.error else "acknowledged"
        return f"<Receipt {self._entry.producer.topic}[{self._entry.producer.partition}] {state}>"
