"""One partition's batches on their way out, in order.

What it is: a pure state object. Times are seconds of one clock, given by the caller.

    append ──► open ──(full, linger over, flush)──► ready ──take──► in flight ──► settled: acknowledged, refused, expired
                                                      ▲                 │
                                                      └──── again ──────┘   (in the order of creation, with the same numbers)

Rules that keep order, whatever is lost:
    - After anything but an acknowledgement the queue drains (`Gate.DRAINING`): it sends nothing until all that is in flight has come
      back, and goes on from the oldest then.
    - A batch whose time is over while it is in flight fails at once, but stays in flight until its answer comes or its connection is lost,
      for it may be stored: what follows is numbered and counted with it there. It is not sent again.
    - A batch is numbered at its first sending, by the `Stamp`, and keeps its numbers for every later one.
    - A batch that is too large as one is replaced by its parts (`split`), which have its numbers between them.

How many may be in flight, and what numbers mean, is the protocol's: its `Stamp`.
May assume: one caller at a time (the sender's lock). Must not: send, read a clock, or settle a batch towards those who wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Protocol

from wireproto._codec import FreeNumbers, QueueCore
from wireproto.errors import WireprotoError


class Gate(Enum):
    """Whether a queue sends."""

    OPEN = "open"
    DRAINING = "draining"
    """Nothing until in_flight is empty; then on from the oldest."""
    FAILED = "failed"
    """Never again: `PartitionQueue.error` says why."""


class Stamp(Protocol):
    """What number a batch has, and whether it may leave. One for many queues; its class is a StampCore, what it keeps of each queue is
    `PartitionQueue.mark`."""

    def window(self, queue: PartitionQueue) -> int:
        """How many batches of the queue may be in flight now, were the next one sent."""
        ...

    def admit(self, queue: PartitionQueue, batch: Any, now: float) -> bool:
        """Give the batch its numbers, once. False: it cannot have any yet."""
        ...

    def acked(self, queue: PartitionQueue, batch: Any) -> None:
        """The batch is stored."""
        ...

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        """The broker says that the batch does not follow what it has: all that is left may be to be numbered anew, once `drained`."""
        ...

    def drained(self, queue: PartitionQueue) -> None:
        """The queue was draining, and nothing of it is in flight any more."""
        ...


class FreeStamp(FreeNumbers):
    """For protocols without numbers: one batch in flight, or as many as are given, so that order holds whatever happens."""

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        """Nothing is kept."""

    def drained(self, queue: PartitionQueue) -> None:
        """Nothing is kept."""


class PartitionQueue(QueueCore):
    """The batches of one key (a partition, a producer id). How one leaves at once, and is stored, is the core's.

    Attributes:
        open: takes records; None when there is none. beside: more that do, by what their records have in common; all are sealed together.
        ready: sealed, in order. in_flight: sent and not answered, in order of sending.
        held_until: a pause after a failure. failures: in a row. trouble: what was met last, at `troubled_at`.
        gate, error: see `Gate`. sent: batches numbered so far. mark: what the stamp keeps here.
    """

    __slots__ = ("trouble", "troubled_at")

    def __init__(self, key: Hashable, stamp: Stamp) -> None:
        super().__init__(key, stamp, deque(), deque(), Gate.OPEN)
        self.beside = {}
        self.trouble: Exception | None = None
        self.troubled_at = 0.0

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.key}: {self.gate.value}, {len(self.ready)} ready, {len(self.in_flight)} in flight>"

    def meets(self, trouble: Exception | None, now: float) -> None:
        """Something keeps its batches waiting."""
        if trouble is not None:
            self.trouble, self.troubled_at = trouble, now

    def last_trouble(self, batch: Any) -> str:
        """What was met while this batch was there, to be said behind a TimedOut; often nothing."""
        return f"; last trouble: {self.trouble}" if self.trouble is not None and self.troubled_at >= batch.created else ""

    def taking(self) -> list[Any]:
        """The batches that take records, oldest first."""
        opened = [self.open] if self.open is not None else []
        return sorted([*opened, *self.beside.values()], key=_place) if self.beside else opened

    def seal(self) -> bool:
        """No more records into the open batches; they are ready now. Whether there were any with records."""
        if self.beside:
            filled = [batch for batch in self._shut() if batch.count]
            self.ready.extend(filled)
            return bool(filled)
        return self.seal_open()

    def _shut(self) -> list[Any]:
        opened = self.taking()
        self.open = None
        self.beside.clear()
        for batch in opened:
            batch.seal()
        return opened

    def oldest(self) -> Any:
        """The batch that everything else in the queue follows; None when there is none."""
        if self.ready and self.in_flight:
            return min(self.ready[0], self.in_flight[0], key=_place)
        if self.in_flight:
            return self.in_flight[0]
        return self.ready[0] if self.ready else self.open

    def next_number(self) -> int:
        """The number of the batch that would leave next."""
        return (self.ready[0].number if self.ready else 0) or self.sent + 1

    def free(self, now: float) -> bool:
        """Whether a batch may leave, if there is one."""
        return self.gate is Gate.OPEN and now >= self.held_until and len(self.in_flight) < self.stamp.window(self)

    def take(self, now: float) -> Any:
        """The next batch, now in flight and numbered; None: there is none, or the stamp cannot number it yet. The queue is `free`."""
        if not self.ready:
            self.seal()
        if not self.ready:
            return None
        batch = self.ready[0]
        if not self.stamp.admit(self, batch, now):
            return None
        return self.set_out()

    def dropped(self, batch: Any) -> None:
        """It failed for good, or was given up. What follows keeps its numbers: if they do not fit any more the broker says so, and
        the stamp starts over."""
        batch.over = True
        self._land(batch)
        if self.ready and batch in self.ready:  # it was to be sent again: an earlier sending, which a signal broke into, was answered
            self.ready.remove(batch)

    def again(self, batch: Any, now: float, pause: float, *, doubtful: bool) -> None:
        """To be sent again in its place, unless its time is over, after all that is in flight has come back and not before `pause`
        seconds."""
        batch.doubtful = batch.doubtful or doubtful
        if batch not in self.in_flight:
            return  # of an earlier sending, which a signal broke into: it waits already
        self.drain()
        if pause:
            self.stumble(now, pause)
        if not batch.over:
            self.put_back(batch)
        self._land(batch)

    def split(self, batch: Any, parts: Sequence[Any]) -> bool:
        """It goes on in these, in its place, as if they had been sent before it was refused: numbered, and to be sent again, after all that
        is in flight has come back. False: it does not go on any more, or did already."""
        if batch not in self.in_flight:
            return False
        if batch.over:
            self.dropped(batch)
            return False
        self.drain()
        for other in (*self.in_flight, *self.ready):
            if other.number > batch.number:
                other.number += len(parts) - 1
        self.sent += len(parts) - 1
        for number, part in enumerate(parts, batch.number):
            part.number = number
            self.put_back(part)
        batch.over = True
        self._land(batch)
        return True

    def stumble(self, now: float, pause: float) -> None:
        """There was no way to send: nothing before `pause` seconds."""
        self.held_until = now + pause
        self.failures += 1

    def hand_over(self, batch: Any, other: PartitionQueue) -> None:
        """A ready batch goes by another queue, in the order of creation there, and is numbered anew."""
        self.ready.remove(batch)
        batch.queue, batch.number = other, 0
        other.put_back(batch)

    def start_over(self, batch: Any, now: float, pause: float) -> None:
        """As `again`, for a batch that the broker finds out of order."""
        if batch in self.in_flight:
            self.stamp.starts_over(self, batch)
        self.again(batch, now, pause, doubtful=False)

    def drain(self) -> None:
        """Send nothing until what is in flight has come back."""
        if self.gate is Gate.OPEN:
            self.gate = Gate.DRAINING

    def fail(self, why: WireprotoError) -> list[Any]:
        """Never send again. Returns what was not settled, oldest first."""
        self.gate = Gate.FAILED
        self.error = why
        return self.clear()

    def clear(self) -> list[Any]:
        """Take out all that is not settled, oldest first; what is in flight stays there until its answer comes."""
        gone = [*(batch for batch in self.in_flight if not batch.over), *self.ready, *self._shut()]
        self.ready.clear()
        return sorted(gone, key=_place)

    def expire(self, batch: Any) -> None:
        """Its time is over. In flight it stays until its answer comes."""
        batch.over = True
        if self.open is batch:
            self.open = None
            batch.seal()
        elif batch in self.ready:
            self.ready.remove(batch)
        elif batch in self.beside.values():
            self.beside = {lane: other for lane, other in self.beside.items() if other is not batch}
            batch.seal()

    def put_back(self, batch: Any) -> None:
        """Among the ready ones, in the order of creation."""
        place = 0
        for other in self.ready:
            if _place(other) > _place(batch):
                break
            place += 1
        self.ready.insert(place, batch)

    def _land(self, batch: Any) -> None:
        """It is not in flight any more."""
        flying = self.in_flight
        if flying and flying[0] is batch:
            flying.popleft()
        elif batch in flying:
            flying.remove(batch)
        self.settle_gate()

    def settle_gate(self) -> None:
        """Go on, if it drained and nothing is in flight any more."""
        if not self.in_flight and self.gate is Gate.DRAINING:
            self.gate = Gate.OPEN
            self.stamp.drained(self)


def _place(batch: Any) -> tuple[int, int]:
    """Order of creation; parts of one batch are numbered in their order."""
    return batch.serial, batch.number
