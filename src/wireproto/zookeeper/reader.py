"""QueueReader: reads a queue's messages in order of arrival, without taking them.

What it is: the Reader role over the queue's layout. Messages are read in runs of pipelined gets; those that a worker finished meanwhile are
passed over. A stop at LATEST is the server's counter when the reader opens, after a sync with the leader. Belongs to one thread
at a time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .._codec import ColumnsBuilder
from ..errors import Closed, ConcurrentUse, TimedOut
from ..position import EARLIEST, AtTime, Position, TopicPartition, Where
from ..records import Batch
from .codes import NoNode
from .layout import ENTRIES, Entry, by_sequence, next_sequence, position, queue_path, resolve
from .paths import join

if TYPE_CHECKING:
    from .tree import Tree
    from .watch import Watch

AHEAD_BYTES = 4 << 20
"""Bytes of data to ask for at once."""
AHEAD = 512
"""Messages to ask for at once, at most."""
LEAST = 0.1
"""Seconds that an answer gets however short the timeout of `poll` is, so that polling without waiting gets on."""
FOLLOW = 1.0
"""Seconds that iterating a reader without a stop waits for more before it looks again."""


class QueueReader:
    """Reads one queue.

    Args:
        start, stop: see `Client.reader`; positions are the servers' counters.
    """

    def __init__(self, tree: Tree, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, timeout: float = 30.0) -> None:
        self.topic = topic
        self._tree = tree
        self._entries = join(queue_path(topic), ENTRIES)
        self._busy = threading.Lock()
        self._closed = False
        self._found: deque[Entry] = deque()
        self._watch: Watch | None = None
        self._size = AHEAD_BYTES // 16
        deadline = time.monotonic() + timeout
        self._next = self._resolve(start, deadline)
        self._stop = None if stop is None else self._resolve(stop, deadline)

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(FOLLOW)
            if batch is not None:
                yield batch

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next messages, or None when none came within `timeout` or the stop is reached."""
        deadline = time.monotonic() + timeout
        self._enter()
        try:
            while not self.done:
                if not self._found:
                    self._list(max(deadline, time.monotonic() + LEAST))
                if not self._found:
                    if self.done or self._watch is None or not self._watch.wait(deadline - time.monotonic()):
                        return None
                    continue
                batch = self._read(deadline)
                if batch is not None:
                    return batch
            return None
        except TimedOut:
            return None  # no server answered in time; the session goes on in the background
        finally:
            self._busy.release()

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Go on from there."""
        self._enter()
        try:
            self._next = self._resolve(where, time.monotonic() + timeout)
            self._found.clear()
            self._watch = None
        finally:
            self._busy.release()

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Where it is read next."""
        return {(self.topic, 0): position(self.topic, self._next)}

    @property
    def done(self) -> bool:
        """Whether the stop is reached."""
        return self._closed or (self._stop is not None and self._next >= self._stop)

    def close(self, timeout: float = 30.0) -> None:
        """Read no more."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        if self._closed:
            raise Closed("the reader is closed", topic=self.topic)
        if not self._busy.acquire(blocking=False):
            raise ConcurrentUse("the reader is in use by another thread", topic=self.topic)

    def _resolve(self, where: Where, deadline: float) -> int:
        self._tree.sync(self._entries, timeout=deadline - time.monotonic())
        names, stat = self._tree.children(self._entries, timeout=deadline - time.monotonic())
        end = next_sequence(stat)
        at = resolve(where, self.topic, end)
        return first_since(self._tree, self._entries, by_sequence(names), at, end, deadline) if isinstance(at, AtTime) else at

    def _list(self, deadline: float) -> None:
        """What lies between here and the stop; with a watch for more."""
        if self._watch is not None and not self._watch.fired:
            return
        watch = None if self._stop is not None else self._tree.watch()
        names, _ = self._tree.children(self._entries, watch=watch, timeout=max(deadline - time.monotonic(), 0.0))
        self._watch = watch
        self._found.extend(
            entry for entry in by_sequence(names) if entry.sequence >= self._next and (self._stop is None or entry.sequence < self._stop)
        )
        if not self._found and self._stop is not None:
            self._next = self._stop  # counters below the stop were given out before it was set: nothing more can come

    def _read(self, deadline: float) -> Batch | None:
        """One run of gets. What was not answered in time is asked for again by the next poll."""
        run = [self._found.popleft() for _ in range(min(len(self._found), AHEAD, max(AHEAD_BYTES // max(self._size, 1), 1)))]
        calls = [(entry, self._tree.get_async(join(self._entries, entry.name))) for entry in run]
        builder = ColumnsBuilder("sequence")
        size = 0
        try:
            for entry, call in calls:
                try:
                    data, stat = call.result(max(deadline, time.monotonic() + LEAST) - time.monotonic())
                except NoNode:
                    continue
                size += stat.data_length
                builder.append(data, timestamp=stat.ctime, position=entry.sequence)
        except BaseException:
            self._found.extendleft(reversed(run))
            raise
        self._size = max(size // max(len(builder), 1), 256)
        self._next = run[-1].sequence + 1
        if not len(builder):
            return None
        return Batch(self.topic, 0, builder.finish(), position(self.topic, self._next))


def first_since(tree: Tree, entries: str, found: list[Entry], at: AtTime, end: int, deadline: float) -> int:
    """Counter of the first message that came at or after a time; `end` when there is none."""
    low, high = 0, len(found)
    while low < high:  # the leader's clock may step back: then the first of the messages around the step may be missed by that step
        middle = (low + high) // 2
        stat = tree.exists(join(entries, found[middle].name), timeout=deadline - time.monotonic())
        if stat is None:
            del found[middle]
            high -= 1
        elif stat.ctime < at.ms:
            low = middle + 1
        else:
            high = middle
    return found[low].sequence if low < len(found) else end
