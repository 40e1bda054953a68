"""Counts a batch's delivery timeout from the last progress of its queue: the sender of a RocketMQ producer.

It is `flow.sender.Sender` except for when a batch's delivery timeout begins. One command of a queue is in flight at a time, so where
brokers are slow the last records of a large backlog wait for minutes without any error. So the timeout counts

    for a batch that was not sent yet   from its first record, or from when its queue stored something last, whichever is later
    for one that was                    from the same moment, as it was when it was sent first: so repeated attempts end

and for one in a lane (`queue_selector`) by the queue that it waits for.
A queue's `mark` is when it stored something last, in seconds of the sender's clock, or None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wireproto.flow.parts import Parts
from wireproto.flow.sender import FOREVER, Sender

if TYPE_CHECKING:
    from wireproto.flow.queue import PartitionQueue
    from wireproto.flow.verdicts import Elsewhere


class ProgressSender(Sender):
    """Sends batches of the type `RocketBatch`; see the module."""

    def ends(self, batch: Any) -> float:
        """Return when the delivery timeout of a batch ends, in seconds of the sender's clock."""
        since: float = batch.since
        if not batch.attempts:
            home = self._queues.get(batch.home)
            since = max(since, home.mark or 0.0) if home is not None else since
        return since + self.pace.delivery_timeout

    def _move(self, queue: PartitionQueue, to: Elsewhere | None) -> None:
        if to is not None:
            self._seal(queue)
            for batch in queue.ready:
                if not batch.attempts:
                    batch.since = self.ends(batch) - self.pace.delivery_timeout
        super()._move(queue, to)

    def _overdue(self, now: float) -> Iterator[Any]:
        for queue in list(self._queues.values()):
            while (batch := _next(queue)) is not None and now >= self.ends(batch):
                while type(batch.owner) is Parts:  # the parts of a split batch are given up together
                    batch = batch.owner.whole
                gone = self._take_out(batch)
                if batch.count:
                    yield from gone

    def wakeup(self) -> float:
        """Return when there is something to do next, as the base does."""
        waiting = (_next(queue) for queue in self._queues.values())
        soonest = min((self.ends(batch) for batch in waiting if batch is not None), default=FOREVER)
        lingers = next(iter(self._lingering), None)
        if lingers is not None:
            soonest = min(soonest, lingers.created + self.pace.linger)
        held = min((queue.held_until for queue in self._paused.values()), default=FOREVER)
        return min(soonest, held, self._held_back.ends())


def _next(queue: PartitionQueue) -> Any:
    """Return the batch of a queue whose delivery timeout ends first; None where it holds none."""
    flying = next((batch for batch in queue.in_flight if not batch.over), None)
    return flying or (queue.ready[0] if queue.ready else queue.open)
