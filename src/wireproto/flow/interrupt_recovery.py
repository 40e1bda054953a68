"""Restores the order of a sender's queues after a signal handler has interrupted it.

`InterruptRecovery` is a base of `Sender`. A handler that raises, as Ctrl-C's does, may end any method between two of its lines. The
interrupted thread notes, in C, which queues it worked on and what it perhaps sent (`SenderCore.break_off`); here the I/O thread, where no
handler runs, brings the queues back to a state where each unsettled batch is in one place, each queue that has something to send is looked
at, and a timer is set.

    a batch of a request that perhaps was sent     is sent again in its place, in doubt, when its connection is closed
    one that is in no place                        is ready, in order
    one that is in two places                      is in the later one
    a queue that waits for what is not in flight   continues

It runs in the I/O thread, runs no user code, and sends nothing on a connection that may hold half a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .verdicts import Again

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from wireproto._codec import BriefLock

    from .queue import PartitionQueue
    from .verdicts import Verdict, Wire


class InterruptRecovery:
    """The recovery of a `Sender`, whose attributes it uses."""

    broken: list[tuple[list[Any], list[tuple[Any, int]]]]
    _lock: BriefLock
    _wire: Any
    _queues: dict[Hashable, PartitionQueue]
    _unlinked: dict[Hashable, PartitionQueue]
    _wanted: set[Hashable]
    _alive: Any
    _lingering: Any
    _parted: dict[Any, Any]

    if TYPE_CHECKING:
        settle: Callable[[Sequence[tuple[Any, Verdict]]], None]
        _note: Callable[[PartitionQueue], None]

    def _recover(self) -> None:
        """Restore the order of the queues after the interruptions since the last call."""
        links: list[Any] = []
        sendings: list[tuple[Any, int]] = []
        while self.broken:
            doubted, batches = self.broken.pop()
            links += doubted
            sendings += batches
        doubtful = [batch for batch, sending in sendings if batch.attempts == sending]  # else it was answered, and was sent again
        with self._lock:
            for queue in self._queues.values():
                _in_one_place(queue)
            self._find_lost()
            for queue in self._queues.values():
                if queue.ready or any(batch not in self._lingering for batch in queue.taking()):
                    self._note(queue)
            self._wanted |= self._unlinked.keys()
        wire: Wire = self._wire
        for link in links:
            wire.drop(link)
        self.settle([(batch, Again(None, doubtful=True)) for batch in doubtful])

    def _find_lost(self) -> None:
        """Put back batches that are neither open, nor ready, nor in flight, nor settled; note open ones in `_alive`. Lock held."""
        placed: set[Any] = set()
        for queue in self._queues.values():
            opened = queue.taking()
            self._alive.update(dict.fromkeys(batch for batch in opened if batch not in self._alive))
            placed.update(opened, queue.ready, queue.in_flight)
        for batch in [batch for batch in self._alive if batch not in placed and batch not in self._parted]:
            if batch.count and not batch.over:
                batch.seal()
                batch.doubtful = batch.doubtful or batch.attempts > 0
                batch.queue.put_back(batch)
            elif not batch.count:
                self._alive.pop(batch, None)


def _in_one_place(queue: PartitionQueue) -> None:
    """Take batches that are in flight out of the ready ones, and seal an open batch that is sealed."""
    twice: Iterable[Any] = [batch for batch in queue.ready if batch in queue.in_flight]
    for batch in twice:
        queue.ready.remove(batch)
    if queue.open is not None and queue.open.sealed:
        queue.seal()
    queue.settle_gate()
