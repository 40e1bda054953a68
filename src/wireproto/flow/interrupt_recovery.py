"""What a signal handler left half done in a sender is put in order again.

What it is: a base of `Sender`. A handler that raises, as Ctrl-C's does, may end any method between two of its lines. That thread notes, in
C, whose turn it was and what it perhaps sent (`SenderCore.break_off`); here the I/O thread, where no handler runs, brings the queues back to
where each batch that is not settled stands in one place, each queue that has something to send is looked at, and a timer is set.

    a batch of a request that perhaps was sent     goes out again in its place, in doubt, when its connection is closed
    one that stands nowhere                        is ready, in order
    one that stands in two places                  stands in the later one
    a queue that waits for what is not in flight   goes on

May assume: the I/O thread's thread. Must not: run user code, or send by a connection that may hold half a request.
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
    """See the module; the attributes are `Sender`'s."""

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

    def _mend(self) -> None:
        """Put in order what was broken into since the last time."""
        links: list[Any] = []
        sendings: list[tuple[Any, int]] = []
        while self.broken:
            doubted, batches = self.broken.pop()
            links += doubted
            sendings += batches
        doubtful = [batch for batch, sending in sendings if batch.attempts == sending]  # else it was answered, and has gone out again
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
        """Batches that are neither open, nor ready, nor in flight, nor settled; and open ones that nobody would miss. Lock held."""
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
    twice: Iterable[Any] = [batch for batch in queue.ready if batch in queue.in_flight]
    for batch in twice:
        queue.ready.remove(batch)
    if queue.open is not None and queue.open.sealed:
        queue.seal()
    queue.settle_gate()
