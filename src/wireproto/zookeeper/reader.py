"""Reads a queue's messages in order of arrival, without taking them (the Reader role over the queue's layout).

Messages are read in runs of pipelined get requests; those that a worker finished meanwhile are skipped. The replies that come in time are
returned; the next `poll` takes in the rest. A stop at LATEST is the ensemble's counter when the reader opens: every message acknowledged by
then lies before it. A reader belongs to one thread at a time.

A queue that is deleted and created again counts from 0 again. The reader knows its queue by the transaction that created it (czxid), and
checks that a message that it has found is older than the list; anything else is DataLoss, at each `poll` until a `seek`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from .._codec import ColumnsBuilder
from ..deadlines import deadline_after
from ..errors import BrokerError, DataLoss, TimedOut, WireprotoError
from ..flow.role import Role
from ..net.task import NEVER, Steps, operation, steps
from ..position import EARLIEST, AtTime, Position, TopicPartition, Where
from ..records import Batch
from .call import going_on
from .codes import NoNode
from .errors import NotYet
from .layout import ENTRIES, Entry, by_sequence, next_sequence, position, queue_path, resolve
from .paths import join
from .request_path import is_transient

if TYPE_CHECKING:
    from .call import Call
    from .messages import Stat
    from .tree import Tree
    from .watch import Watch

AHEAD_BYTES = 4 << 20
"""Bytes of data to request at once."""
AHEAD = 512
"""Messages to request at once, at most."""
LEAST = 0.1
"""Seconds that a `poll` has for requests and replies however short its timeout is, so that polling without waiting makes progress."""
STALE = 10.0
"""Seconds after which messages that were requested and did not come are requested again."""
FOLLOW = 1.0
"""Seconds that iterating a reader without a stop waits for more messages before it polls again."""


@dataclass(slots=True)
class Listing:
    """A request that lists the queue, in flight."""

    watch: Watch | None
    call: Call[tuple[list[str], Stat]]
    asked_at: float


class QueueReader(Role):
    """Reads one queue. Positions are the servers' counters. Made by `opening`."""

    def __init__(self, tree: Tree, topic: str) -> None:
        super().__init__("reader", tree.loop)
        self.topic = topic
        self._tree = tree
        self._tasks = tree.tasks
        self._entries = join(queue_path(topic), ENTRIES)
        self._found: deque[Entry] = deque()
        self._asked: deque[tuple[Entry, Call[tuple[bytes | None, Stat]]]] = deque()
        self._asked_at = 0.0
        self._listing: Listing | None = None
        self._checking: Call[Stat | None] | None = None
        self._watch: Watch | None = None
        self._size = AHEAD_BYTES // 16
        self._next = 0
        self._made = 0  # zxid of the transaction that created this queue
        self._listed = 0  # a zxid that is not older than any message that was found
        self._stop: int | None = None

    @classmethod
    def opening(cls, tree: Tree, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, timeout: float = 30.0) -> Steps[Self]:
        """Make a reader. Steps.

        Args:
            topic: the queue's path below the chroot. start: EARLIEST, LATEST, AtTime or a position. stop: likewise; None: wait for more
                messages.
            timeout: seconds for all requests.

        Raises:
            NoNode: there is no such queue. OptionError: `start` or `stop` is no position of this queue. TimedOut, SessionExpired, Closed.
        """
        made = cls(tree, topic)
        deadline = deadline_after(timeout)
        made._next = yield from made._resolve(start, deadline, "start")
        if stop is not None:
            made._stop = yield from made._resolve(stop, deadline, "stop")
        return made

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(FOLLOW)
            if batch is not None:
                yield batch

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next messages, or None when none came within `timeout` or the stop is reached.

        Args:
            timeout: seconds to wait.

        Raises:
            DataLoss: the queue was deleted, or created again, or ends before the position; seek to continue.
            ConcurrentUse: another thread uses the reader. Closed. BrokerError: the server's error, NoAuth for instance.
        """
        return self._tasks.drive(self.polling(timeout), NEVER)

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        deadline = deadline_after(timeout)
        until = max(deadline, time.monotonic() + LEAST)
        with self._only:
            try:
                return (yield from self._poll(deadline, until))
            except TimedOut:
                return None  # no server answered in time; the session is kept in the background
            except BrokerError as why:
                if not is_transient(why):
                    raise
                yield until  # a server answered "not now" as long as there was time to repeat the request
                return None

    def _poll(self, deadline: float, until: float) -> Steps[Batch | None]:
        while not self.done:
            if not self._found and not self._asked:
                yield from self._list(until)
            if not self._found and not self._asked:
                self._still_open()
                if self._watch is None or not (yield from self._watch.waiting(deadline)):
                    return None  # there is no watch where there is a stop: it is reached then
                continue
            batch = yield from self._read(until)
            if batch is not None:
                return batch
        return None

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Continue from another position.

        Args:
            where: EARLIEST, LATEST, AtTime or a position. timeout: seconds for all requests.

        Raises:
            NoNode: there is no such queue. OptionError: `where` is no position of this queue. ConcurrentUse, TimedOut, SessionExpired,
                Closed.
        """
        with self._only:
            self._next = yield from self._resolve(where, deadline_after(timeout), "seek")
            self._found.clear()
            self._asked.clear()
            self._checking = None
            self._forget_watch()

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return where the queue is read next."""
        return {(self.topic, 0): position(self.topic, self._next)}

    @property
    def done(self) -> bool:
        """Return whether the stop is reached."""
        return self._only.closed or (self._stop is not None and self._next >= self._stop)

    def _wake(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.wake()

    def _let_go(self, deadline: float) -> None:
        """Forget the watch: nothing else is held at the servers."""
        self._forget_watch()

    def _forget_watch(self) -> None:
        listing, self._listing = self._listing, None
        watch, self._watch = self._watch, None
        for one in (watch, listing.watch if listing is not None else None):
            if one is not None and (self._only.closed or not one.fired):
                self._tree.forget(one, self._entries)

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _resolve(self, where: Where, deadline: float, what: str) -> Steps[int]:
        yield from steps(self._tree.catch_up)(self._entries, timeout=deadline - time.monotonic())
        names, stat = yield from steps(self._tree.children)(self._entries, timeout=deadline - time.monotonic())
        end = next_sequence(stat)
        if what != "stop":
            self._made = stat.czxid
        at = resolve(where, self.topic, end, what)
        if isinstance(at, AtTime):
            return (yield from first_since(self._tree, self._entries, by_sequence(names), at, end, deadline))
        return at

    def _list(self, deadline: float) -> Steps[None]:
        """List what lies between the position and the stop, and watch for more.

        When time runs out (TimedOut) the request stays in flight, and the next call takes its reply: a reply may take longer than each call
        has.
        """
        if self._watch is not None and not self._watch.fired:
            return
        try:
            if self._listing is None:
                yield from self._ask_list(deadline)
            if (listing := self._listing) is None:  # closed meanwhile
                return
            yield from going_on(listing.call, listing.asked_at, STALE, deadline, "the queue is not listed")
            names, stat = yield from listing.call.getting(deadline)
            if (why := self._lost(stat)) is not None:
                raise why
        except NotYet:
            raise
        except BaseException:  # the next listing sets a watch of its own
            self._forget_watch()
            raise
        found = [
            entry for entry in by_sequence(names) if entry.sequence >= self._next and (self._stop is None or entry.sequence < self._stop)
        ]
        self._listed = stat.pzxid
        self._found, self._watch, self._listing = deque(found), listing.watch, None
        if not found and self._stop is not None:
            self._next = self._stop  # counters below the stop were assigned before it was set: nothing more can come

    def _ask_list(self, deadline: float) -> Steps[None]:
        self._forget_watch()
        watch = None if self._stop is not None else self._tree.watch()
        try:
            call = yield from steps(self._tree.children_async)(self._entries, watch=watch, timeout=max(deadline - time.monotonic(), 0.0))
            self._listing = Listing(watch, call.unordered(), time.monotonic())
        except BaseException:
            self._listing = None
            if watch is not None:
                self._tree.forget(watch, self._entries)
            raise

    def _lost(self, stat: Stat | None) -> DataLoss | None:
        """Return what is wrong with the queue as it is now, or None."""
        end = 0 if stat is None else next_sequence(stat)
        if stat is None:
            text = f"the queue was deleted, and was read up to {self._next}"
        elif stat.czxid != self._made:
            text = f"the queue was deleted and made again, and was read up to {self._next}"
        elif end < self._next:
            text = f"the queue ends at {end}, and was to be read from {self._next}: it was made again since, perhaps"
        else:
            return None
        at = end if stat is not None and stat.czxid == self._made else 0
        return DataLoss(f"{text}; seek to continue", topic=self.topic, partition=0, position=self._next, diverges_at=at)

    def _still_there(self, deadline: float) -> Steps[None]:
        """Raise DataLoss if the queue was deleted, and not only one message of it; NotYet as `_list`."""
        if self._checking is None:
            look = yield from steps(self._tree.exists_async)(self._entries, timeout=max(deadline - time.monotonic(), 0.0))
            self._checking = look.unordered()
        yield from going_on(self._checking, 0.0, NEVER, deadline, "whether the queue is still there is not known")
        checking, self._checking = self._checking, None
        stat = yield from checking.getting(max(deadline, time.monotonic() + LEAST))
        if (why := self._lost(stat)) is not None:
            raise why

    def _read(self, until: float) -> Steps[Batch | None]:
        """Return what a run of gets brings until then; None when its messages are all gone. Raises TimedOut when nothing came in time."""
        if not self._asked:
            yield from self._ask(until)
        builder = ColumnsBuilder("sequence")
        read: list[Entry] = []
        size = 0
        sure = self._stop is None  # without a stop the next listing shows it
        try:
            while self._asked:
                entry, call = self._asked[0]
                if not (yield from call.waiting(until)):
                    break
                try:
                    data, stat = yield from call.getting(until)
                except NoNode:  # a worker has finished it
                    if not sure:
                        yield from self._still_there(until)
                        sure = True
                else:
                    if stat.czxid > self._listed:  # another message of that name
                        yield from self._still_there(until)
                    builder.append(data, timestamp=stat.ctime, position=entry.sequence)
                    size += stat.data_length
                read.append(entry)
                self._asked.popleft()
        except BaseException as why:
            if not isinstance(why, NotYet):
                self._ask_again()
            if not isinstance(why, WireprotoError) or not read:
                self._found.extendleft(reversed(read))
                raise
        if not read:
            if time.monotonic() - self._asked_at > STALE:
                self._ask_again()
            raise TimedOut("no message in time", topic=self.topic)
        self._size = max(size // max(len(builder), 1), 256)
        self._next = read[-1].sequence + 1
        if not len(builder):
            return None
        return Batch(self.topic, 0, builder.finish(), position(self.topic, self._next))

    def _ask(self, until: float) -> Steps[None]:
        """Send a run of get requests."""
        self._asked_at = time.monotonic()
        for _ in range(min(len(self._found), AHEAD, max(AHEAD_BYTES // max(self._size, 1), 1))):
            path = join(self._entries, self._found[0].name)
            call = yield from steps(self._tree.get_async)(path, timeout=max(until - time.monotonic(), 0.0))
            self._asked.append((self._found.popleft(), call.unordered()))

    def _ask_again(self) -> None:
        """Put what was not answered back, so that it is requested again."""
        self._found.extendleft(entry for entry, _ in reversed(self._asked))
        self._asked.clear()


def first_since(tree: Tree, entries: str, found: list[Entry], at: AtTime, end: int, deadline: float) -> Steps[int]:
    """Return the counter of the first message that came at or after a time; `end` when there is none. Steps."""
    low, high = 0, len(found)
    while low < high:  # the leader's clock may step back: then the first of the messages around the step may be missed by that step
        middle = (low + high) // 2
        stat = yield from steps(tree.exists)(join(entries, found[middle].name), timeout=deadline - time.monotonic())
        if stat is None:
            del found[middle]
            high -= 1
        elif stat.ctime < at.ms:
            low = middle + 1
        else:
            high = middle
    return found[low].sequence if low < len(found) else end
