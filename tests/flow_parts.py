"""What stands for the engine, the core and a connection in the tests of `wireproto.flow.sender`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wireproto._codec import OutBatch, RecordBuilder, WireCore
from wireproto.errors import TimedOut, WireprotoError
from wireproto.flow.parts import Parts
from wireproto.flow.queue import PartitionQueue, UnnumberedSequencer
from wireproto.flow.sender import Sender, SendTimes
from wireproto.kafka.identity import NO_IDENTITY

Sealed = tuple[int, int, int, tuple[int, ...]]
"""A batch as it travels: producer id, epoch, sequence, values."""


class Outcome:
    """Stands for the engine's event."""

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def set(self, value: Any) -> None:
        if not self.done:
            self.done, self.value = True, value

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self.done, self.error = True, error

    def wait(self, deadline: float) -> Any:
        if not self.done:
            raise TimedOut("not in time")
        if self.error is not None:
            raise self.error
        return self.value


class Batch(OutBatch):
    """The core's batch, and its records' values beside it."""

    def __init__(self, queue: PartitionQueue, serial: int, created: float, values: Iterable[int] = ()) -> None:
        super().__init__(queue, serial, created, RecordBuilder(), Outcome(), None, NO_IDENTITY)
        self.values: list[int] = []
        self.settled = False
        for value in values:
            self.hold(value)

    def hold(self, value: int) -> None:
        self.values.append(value)
        self.grow(1, 0)

    def bytes(self) -> Sealed:
        return self.identity.producer_id, self.identity.epoch, self.sequence, tuple(self.values)


def halves(batch: Batch) -> Parts:
    """What a batch goes on in that was too large as one."""
    parts = Parts(batch)
    middle = batch.count // 2
    for start, stop in ((0, middle), (middle, batch.count)):
        part = Batch(batch.queue, batch.serial, batch.created, batch.values[start:stop])
        part.identity, part.sequence = batch.identity, batch.sequence + start if batch.sequence >= 0 else -1
        part.outcome, part.owner = parts.outcome(), parts
        part.seal()
        parts.batches.append(part)
    return parts


class Link:
    """A connection: requests under way, each with the bytes of its batches, and which sending of each it is."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.closed = False
        self.sent: list[list[tuple[Batch, Sealed, int]]] = []


class Quiet(WireCore):
    """A wire of one link that takes all, and a sender with the given pace; `sent` holds the batches of each request."""

    def __init__(self, pace: SendTimes, sequencer: Any = None, log: Any = None) -> None:
        self.now = 0.0
        self.alarms: list[float] = []
        self.link: Link | None = Link(0)
        self.full = False
        self.sent: list[list[Batch]] = []
        self.wanted: list[set[Any]] = []
        self.told: list[tuple[Batch, WireprotoError]] = []
        self.free: list[Batch] = []
        self.sender = Sender(self, sequencer or UnnumberedSequencer(), pace, Batch, self.alarms.append, lambda: self.now, log)

    def target(self, key: Any) -> Link | None:
        return self.link

    def congested(self, link: Link) -> bool:
        return self.full

    def requests(self, link: Link, batches: list[Batch]) -> list[list[Batch]]:
        return [batches]

    def transmit(self, link: Link, batches: list[Batch]) -> None:
        self.sent.append(batches)

    def drop(self, link: Link) -> None:
        link.closed = True

    def want(self, keys: set[Any]) -> None:
        self.wanted.append(keys)

    def settled(self, batches: list[Batch]) -> None:
        self.free += batches

    def failed(self, batch: Batch, why: WireprotoError) -> None:
        self.told.append((batch, why))

    def overdue(self, batch: Batch) -> WireprotoError:
        late: TimedOut = batch.queue.explain(TimedOut("overdue"), batch)
        return late

    def put(self, value: int, key: Any = "a", *, full: bool = False) -> Batch:
        with self.sender.lock:
            batch: Batch = self.sender.current(key)
            batch.hold(value)
            if full:
                self.sender.seal(key)
        if batch.count == 1:
            self.sender.opened(batch)
        return batch
