"""Batches that are still open: neighbours of one queue and one timestamp, to share a command 320.

What it is: one open batch a partition. It is closed, and sent, when it is full, when a record with another timestamp comes, when its time
is up, or when somebody waits for one of its receipts. Records without a timestamp take the batch's.
May assume: the producer's lock is held around every method. Must not: wait.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import record
from .outbox import Pending, RocketReceipt

if TYPE_CHECKING:
    from .._net import Timer
    from .producer import RocketProducer
    from .route import Queue

BATCH = 320


class OpenBatch:
    """Entries so far, and the pending send that they will be."""

    __slots__ = ("entries", "pending", "size", "stamped", "timer")

    def __init__(self, pending: Pending, stamped: bool) -> None:
        self.pending = pending
        self.stamped = stamped
        self.entries: list[bytes] = []
        self.size = 0
        self.timer: Timer | None = None


class Linger:
    """Open batches of one producer.

    Args:
        seconds: how long a batch may stay open; 0 turns it off, infinity leaves closing to the caller.
        batch_size: bytes of a batch's body above which it is closed.
    """

    def __init__(self, producer: RocketProducer, seconds: float, batch_size: int) -> None:
        self._producer = producer
        self._seconds = seconds
        self._limit = batch_size
        self._open: dict[int, OpenBatch] = {}
        self.sent: list[Pending] = []

    @property
    def on(self) -> bool:
        return self._seconds > 0

    def add(self, queue: Queue, body: bytes, properties: str, timestamp: int | None, now_ms: int) -> RocketReceipt:
        """Put a record into its partition's batch."""
        entry = record.batch_entry(body, properties)
        batch = self._open.get(queue.partition)
        if batch is not None:
            same = not batch.stamped if timestamp is None else batch.stamped and batch.pending.born == timestamp
            if not same or batch.size + len(entry) > self._limit:
                self.close_batch(queue.partition)
                batch = None
        if batch is None:
            born = now_ms if timestamp is None else timestamp
            pending = self._producer.make(queue, BATCH, 0, born, "", b"", 0)
            batch = self._open[queue.partition] = OpenBatch(pending, timestamp is not None)
            if self._seconds != float("inf"):
                loop = self._producer._loop
                batch.timer = loop.call_at(time.monotonic() + self._seconds, self._due, queue.partition, batch)
            else:
                self.sent.append(pending)
        batch.entries.append(entry)
        batch.size += len(entry)
        batch.pending.count += 1
        receipt = RocketReceipt(self._producer, batch.pending, batch.pending.count - 1)
        if batch.size >= self._limit:
            self.close_batch(queue.partition)
        return receipt

    def _due(self, partition: int, batch: OpenBatch) -> None:
        with self._producer._lock:
            if self._open.get(partition) is batch:
                self.close_batch(partition)

    def close_batch(self, partition: int) -> None:
        """Send what a partition's batch holds."""
        batch = self._open.pop(partition, None)
        if batch is None:
            return
        if batch.timer is not None:
            batch.timer.cancel()
        pending = batch.pending
        pending.body = b"".join(batch.entries)
        pending.size += batch.size
        self._producer.dispatch(pending)

    def close_all(self) -> None:
        for partition in list(self._open):
            self.close_batch(partition)

    def close_holding(self, pending: Pending) -> None:
        """Send the batch that this pending send belongs to, if it is still open."""
        if not self._open:
            return
        with self._producer._lock:
            batch = self._open.get(pending.queue.partition)
            if batch is not None and batch.pending is pending:
                self.close_batch(pending.queue.partition)
