"""Keeps one partition's batches in order on their way out.

A pure state object. Times are seconds of one clock, given by the caller.

    append ──► open ──(full, linger over, flush)──► ready ──take──► in flight ──► settled: acknowledged, refused, expired
                                                      ▲                 │
                                                      └──── again ──────┘   (in the order of creation, with the same numbers)

Rules that keep order, whatever is lost:
    - After anything but an acknowledgement the queue drains (`Gate.DRAINING`): it sends nothing until all that is in flight has come
      back, and continues from the oldest then.
    - A batch whose delivery timeout ends while it is in flight fails at once, but stays in flight until its answer comes or its connection
      is lost, for it may be stored: what follows is numbered and counted with it there. It is not sent again.
    - A batch is numbered at its first sending, by the `Sequencer`, and keeps its numbers for every later one.
    - A batch that is too large is replaced by its parts (`split`), which have its numbers between them.

The protocol's `Sequencer` decides how many batches may be in flight and what numbers mean. One caller at a time (the sender's lock).
A queue sends nothing, reads no clock, and does not set outcomes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import Any, Protocol

from wireproto._codec import QueueCore, UnnumberedCore
from wireproto.errors import TimedOut, WireprotoError


class Gate(Enum):
    """Whether a queue sends."""

    OPEN = "open"
    DRAINING = "draining"
    """Sends nothing until in_flight is empty; then continues from the oldest."""
    FAILED = "failed"
    """Never sends again: `PartitionQueue.error` says why."""


class Sequencer(Protocol):
    """The sequencer of a protocol: gives batches their numbers and decides whether they may be sent.

    One serves many queues; its class is a SequencerCore, and what it keeps of each queue is `PartitionQueue.mark`.
    """

    def window(self, queue: PartitionQueue) -> int:
        """Return how many batches of the queue may be in flight now, if the next one were sent."""
        ...

    def admit(self, queue: PartitionQueue, batch: Any, now: float) -> bool:
        """Give the batch its numbers, once; returns False when it cannot have any yet."""
        ...

    def acked(self, queue: PartitionQueue, batch: Any) -> None:
        """Note that the batch is stored."""
        ...

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        """Note that the broker says that the batch does not follow what it has.

        All that is left may have to be numbered again, once `drained`.
        """
        ...

    def drained(self, queue: PartitionQueue) -> None:
        """Note that the queue, which was draining, has nothing in flight any more."""
        ...


class UnnumberedSequencer(UnnumberedCore):
    """The sequencer of protocols without numbers: one batch in flight, so that order holds whatever happens, or as many as are given."""

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        """Do nothing: there are no numbers."""

    def drained(self, queue: PartitionQueue) -> None:
        """Do nothing: there are no numbers."""


class PartitionQueue(QueueCore):
    """The batches of one key (a partition, a producer id). How one is sent at once, and stored, is the core's.

    Attributes:
        open: takes records; None when there is none. beside: further open batches, by what their records have in common; all are sealed
            together.
        ready: sealed, in order. in_flight: sent and not answered, in order of sending.
        held_until: end of a pause after a failure, in seconds. failures: in a row. last_error: at `last_error_at` (seconds).
        gate, error: see `Gate`. sent: batches numbered so far. mark: what the sequencer keeps here.
    """

    __slots__ = ("last_error", "last_error_at")

    def __init__(self, key: Hashable, sequencer: Sequencer) -> None:
        super().__init__(key, sequencer, deque(), deque(), Gate.OPEN)
        self.beside = {}
        self.last_error: Exception | None = None
        self.last_error_at = 0.0

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.key}: {self.gate.value}, {len(self.ready)} ready, {len(self.in_flight)} in flight>"

    def note_error(self, error: Exception | None, now: float) -> None:
        """Note what keeps the batches waiting; None is ignored."""
        if error is not None:
            self.last_error, self.last_error_at = error, now

    def last_error_text(self, batch: Any) -> str:
        """Return text about the last error while this batch was there, for a TimedOut; often empty."""
        return f"; last trouble: {self.last_error}" if self.last_error is not None and self.last_error_at >= batch.created else ""

    def explain(self, late: TimedOut, batch: Any) -> TimedOut:
        """Add the last error while this batch was there to a TimedOut, as its cause and in its text; return the TimedOut."""
        if named := self.last_error_text(batch):
            late.text += named
            late.__cause__ = self.last_error
        return late

    def taking(self) -> list[Any]:
        """Return the batches that take records, oldest first."""
        opened = [self.open] if self.open is not None else []
        return sorted([*opened, *self.beside.values()], key=_place) if self.beside else opened

    def seal(self) -> bool:
        """Seal the open batches, which are ready now; returns whether there were any with records."""
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
        """Return the batch that everything else in the queue follows; None when there is none."""
        if self.ready and self.in_flight:
            return min(self.ready[0], self.in_flight[0], key=_place)
        if self.in_flight:
            return self.in_flight[0]
        return self.ready[0] if self.ready else self.open

    def next_number(self) -> int:
        """Return the number of the batch that would be sent next."""
        return (self.ready[0].number if self.ready else 0) or self.sent + 1

    def free(self, now: float) -> bool:
        """Return whether a batch may be sent, if there is one."""
        return self.gate is Gate.OPEN and now >= self.held_until and len(self.in_flight) < self.sequencer.window(self)

    def take(self, now: float) -> Any:
        """Return the next batch, now in flight and numbered; None: there is none, or it cannot be numbered yet. The queue is `free`."""
        if not self.ready:
            self.seal()
        if not self.ready:
            return None
        batch = self.ready[0]
        if not self.sequencer.admit(self, batch, now):
            return None
        return self.set_out()

    def dropped(self, batch: Any) -> None:
        """Note that a batch failed for good, or was given up.

        What follows keeps its numbers: if they do not fit any more the broker says so, and the sequencer starts over.
        """
        batch.over = True
        self._take_from_flight(batch)
        if self.ready and batch in self.ready:  # it was to be sent again: an earlier sending, which a signal interrupted, was answered
            self.ready.remove(batch)

    def again(self, batch: Any, now: float, pause: float, *, doubtful: bool) -> None:
        """Have a batch sent again in its place, after all that is in flight has come back and not before `pause` seconds.

        It is not sent again if its delivery timeout is over.
        """
        batch.doubtful = batch.doubtful or doubtful
        if batch not in self.in_flight:
            return  # of an earlier sending, which a signal interrupted: it waits already
        self.drain()
        if pause:
            self.pause_after_failure(now, pause)
        if not batch.over:
            self.put_back(batch)
        self._take_from_flight(batch)

    def split(self, batch: Any, parts: Sequence[Any]) -> bool:
        """Replace a batch by its parts, in its place, as if they had been sent before it was refused.

        They are numbered, and sent again after all that is in flight has come back. Returns False when the batch is over, or was split
        already.
        """
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
        self._take_from_flight(batch)
        return True

    def pause_after_failure(self, now: float, pause: float) -> None:
        """Send nothing before `pause` seconds, since there was no way to send."""
        self.held_until = now + pause
        self.failures += 1

    def hand_over(self, batch: Any, other: PartitionQueue) -> None:
        """Move a ready batch to another queue, in the order of creation there; it is numbered again."""
        self.ready.remove(batch)
        batch.queue, batch.number = other, 0
        other.put_back(batch)

    def start_over(self, batch: Any, now: float, pause: float) -> None:
        """Have a batch sent again that the broker finds out of order; see `again`."""
        if batch in self.in_flight:
            self.sequencer.starts_over(self, batch)
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
        """Note that a batch's delivery timeout is over. In flight it stays until its answer comes."""
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
        """Put a batch among the ready ones, in the order of creation."""
        place = 0
        for other in self.ready:
            if _place(other) > _place(batch):
                break
            place += 1
        self.ready.insert(place, batch)

    def _take_from_flight(self, batch: Any) -> None:
        """Take a batch out of those in flight."""
        flying = self.in_flight
        if flying and flying[0] is batch:
            flying.popleft()
        elif batch in flying:
            flying.remove(batch)
        self.settle_gate()

    def settle_gate(self) -> None:
        """Send again, if the queue drained and nothing is in flight any more."""
        if not self.in_flight and self.gate is Gate.DRAINING:
            self.gate = Gate.OPEN
            self.sequencer.drained(self)


def _place(batch: Any) -> tuple[int, int]:
    """Return the sort key of creation; parts of one batch are numbered in their order."""
    return batch.serial, batch.number
