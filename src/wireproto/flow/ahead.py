"""Reading ahead: what to ask of whom within a bound of bytes, and whose turn it is to be handed out. Sans-IO.

What it is: `ReadAhead`, the plan of a role that reads, and a `Cursor` for each log that it reads (a partition, a queue). A protocol adds
its way of asking (`FetchTargets`: of whom, and which offsets next) and makes answers chunks.

    due() ──► an Ask a link ──► (the broker) ──► answered() ──► push() ──► chunks of a cursor, in order ──► take() ──► moved()
                                     └─► failed(): again, after a pause                    ▲                  │
                                                                                           └─── put_back() ◄──┘
Rules:
- What is held counts from the asking on: a ticket reserves what its answer may bring, a chunk counts until it is handed out; all roles
  of a client count in one `MemoryLimit`. A ticket is sent when it fits. A plan that has nothing to hand out and nothing coming may ask for one
  all the same, so nobody starves: the bound is the room, and one ticket for each reader, paused cursor and given-up ticket more.
- Asked first is who was not asked for longest. Whom an answer passed over for want of room keeps the place that it had.
- Handed out is in turns over the cursors that hold chunks: one `take` each, so that a busy partition does not hold up the others.
- A seek begins a new generation: what was fetched before is dropped, what comes late too. A ticket counts while it is among its cursor's
  `out`: a seek, a removal and another leader (`relink`) end it, and its answer, should one come, only gives its bytes back.

A signal handler may raise in any method: behind a call, where a function begins, where a loop begins anew, and nowhere else (CPython looks
for signals there). So bytes are counted without a call in between; a seek that was begun is done to its end before anything else
(`_seeking`); and whoever was broken into has everything asked for anew (`renew_all`), which is right wherever that was.

May assume: one caller at a time; the room is shared with other threads. Must not: send, read a clock, decode, or know a protocol.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from .._codec import Chunk
from ..net.retry import Policy
from ..position import TopicPartition

NEVER = float("inf")


class MemoryLimit(Protocol):
    """A count of bytes with a bound, shared by the readers of a client."""

    @property
    def limit(self) -> int: ...
    @property
    def held(self) -> int: ...
    def try_take(self, size: int) -> bool:
        """Count these bytes if they fit, or nothing is held."""
        ...

    def add(self, size: int) -> None:
        """Count bytes whether they fit or not; negative: give them back."""
        ...


class Cursor:
    """One log being read.

    Attributes:
        position: next offset to hand out. ahead: next offset to fetch. stop: first offset not wanted, None to follow.
        end: where the log ends, as last told; -1: not yet. paused: neither asked for nor handed out.
        generation: counts seeks. out: its tickets under way, by offset. chunks: what waits to be handed out; held: its bytes.
        asked_at: counts up, as of the last asking.
        short: there was no room for what was to be asked last.
        failures: refusals in a row, since `troubled_since` (0.0 while all is well); not to be asked before `retry_at`.
    """

    __slots__ = (
        "ahead", "asked_at", "chunks", "end", "failures", "generation", "held", "key", "out", "paused", "position", "queued", "retry_at",
        "short", "stop", "troubled_since",
    )  # fmt: skip

    def __init__(self, key: TopicPartition, start: int, stop: int | None = None) -> None:
        self.key = key
        self.position = self.ahead = start
        self.stop = stop
        self.end = -1
        self.paused = self.queued = self.short = False
        self.generation = self.held = self.asked_at = self.failures = 0
        self.out: dict[int, Ticket[Any]] = {}
        self.chunks: deque[Any] = deque()
        self.retry_at = self.troubled_since = 0.0

    @property
    def done(self) -> bool:
        return self.stop is not None and self.position >= self.stop

    def wanting(self, now: float) -> bool:
        """Whether more of it may be asked for now, its own tickets and chunks aside."""
        if self.paused or now < self.retry_at or (self.stop is not None and self.ahead >= self.stop):
            return False
        return not self.chunks or self.chunks[-1].error is None

    def ripe(self, late: bool) -> bool:
        """Whether what it holds is worth handing out; `late`: more is not waited for any longer."""
        return True

    def restart(self, offset: int) -> None:
        """Go on from there: forget what belongs to another place."""
        self.position = self.ahead = offset
        self.failures = 0
        self.retry_at = self.troubled_since = 0.0

    def stand(self) -> None:
        """Go on from where it stands: what was fetched ahead is forgotten."""
        self.ahead = self.position

    def fetched(self, chunk: Any) -> None:
        """A chunk was put behind the others."""
        self.ahead = chunk.next

    def moved(self, chunk: Any, position: int) -> None:
        """The chunk was handed out up to `position`."""
        self.position = position


C = TypeVar("C", bound=Cursor)
A = TypeVar("A", bound=Cursor, contravariant=True)
P = TypeVar("P", bound=Chunk)


@dataclass(slots=True, eq=False)
class Ticket(Generic[C]):
    """One question under way.

    Attributes:
        count: how much was asked for, in bytes or records, as the protocol counts. size: bytes reserved for its answer.
        before: the cursor's `asked_at` until then.
    """

    cursor: C
    link: Hashable
    offset: int
    count: int
    size: int
    before: int


@dataclass(slots=True, eq=False)
class PlannedFetch(Generic[C]):
    """What to ask of one link now. size: bytes that the answers should bring at most."""

    link: Any
    tickets: list[Ticket[C]] = field(default_factory=list)
    size: int = 0


class FetchTargets(Protocol[A]):
    """A protocol's way of asking.

    Attributes:
        most: bytes that the answers to one Ask bring at most; tickets beyond that are named and reserve nothing.
    """

    @property
    def most(self) -> int: ...
    def link(self, cursor: A) -> Hashable | None:
        """Whom to ask; None while that is not known."""
        ...

    def questions(self, cursor: A) -> Iterable[tuple[int, int, int]]:
        """What to ask for next: (offset, count, bytes). Each one that is taken is in `cursor.out` before the next one is looked at."""
        ...


def nobody(link: Hashable) -> bool:
    """No link is busy."""
    return False


class ReadAhead(Generic[C, P]):
    """Cursors, what is asked for, and the chunks that wait to be handed out.

    Args:
        again: pauses between the attempts at a cursor that was refused.
        randomness: returns [0, 1), for the pauses' jitter.

    Attributes:
        cursors: by key, in the order in which they were added.
        handed: the one of which records were handed out last, and from where on.
        handing: the one of which chunks were taken whose records are not handed out yet. A signal handler may raise anywhere in between:
            the next `take` goes back to where it stands, so that nothing is passed over.
    """

    def __init__(self, memory: MemoryLimit, again: Policy, *, randomness: Callable[[], float] = random.random) -> None:
        self.memory = memory
        self.cursors: dict[TopicPartition, C] = {}
        self._again = again
        self._randomness = randomness
        self._turns: deque[C] = deque()
        self._asked = 0
        self._counted = 0
        self._granted: Ticket[C] | None = None
        self._seeking: dict[TopicPartition, int | None] = {}  # not done yet; None: from where it stands
        self.handing: C | None = None
        self.handed: tuple[C, int] | None = None
        self._closed = False

    # --- which cursors ---

    def add(self, cursor: C) -> C:
        """Read this one, too, in place of what was read under its key."""
        self.remove(cursor.key)
        self.cursors[cursor.key] = cursor
        return cursor

    def remove(self, key: TopicPartition) -> None:
        """Read it no more; what was fetched of it is dropped."""
        cursor = self.cursors.get(key)
        if cursor is not None:
            self._drop(cursor)  # first: a signal handler may break in, and nothing of it is handed out then
            self._seeking.pop(key, None)
            self.cursors.pop(key, None)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Go on from there; what was fetched of this one is dropped."""
        self.cursors[key]  # KeyError, before anything
        self._seeking[key] = offset
        self._seek_on()

    def renew_all(self) -> None:
        """Ask for everything anew, from where it stands: a signal handler broke in somewhere."""
        self._seeking = {**dict.fromkeys(self.cursors), **self._seeking}
        self._seek_on()
        for cursor in self.cursors.values():
            cursor.queued = False
        self._turns = deque()

    def _seek_on(self) -> None:
        """Do what `_seeking` holds, to its end."""
        while self._seeking:
            key, offset = next(iter(self._seeking.items()))
            cursor = self.cursors.get(key)
            if cursor is not None:
                self._drop(cursor)
                if offset is None:
                    cursor.stand()
                else:
                    cursor.restart(offset)
            self._seeking.pop(key, None)

    def _drop(self, cursor: C) -> None:
        chunks: deque[Any] = deque()
        out: dict[int, Ticket[Any]] = {}
        held = cursor.held
        cursor.generation += 1
        cursor.chunks, cursor.out, cursor.held = chunks, out, 0
        if held and not self._closed:
            self._counted -= held
            self.memory.add(-held)

    def relink(self, asking: FetchTargets[C]) -> None:
        """Who is to be asked may have changed: what is under way elsewhere counts no more, and can be asked for anew."""
        for cursor in self.cursors.values():
            if cursor.out:
                link = asking.link(cursor)
                if link is not None:
                    for ticket in [ticket for ticket in cursor.out.values() if ticket.link != link]:
                        del cursor.out[ticket.offset]

    @property
    def done(self) -> bool:
        return all(cursor.done for cursor in self.cursors.values())

    # --- asking ---

    def due(self, asking: FetchTargets[C], now: float, busy: Callable[[Any], bool] = nobody) -> list[PlannedFetch[C]]:
        """What to ask now. All of it counts as under way; what cannot be sent is to be given up (`failed`).

        Args:
            busy: links of which nothing can be asked now.
        """
        if self._seeking:
            self._seek_on()
        asks: dict[Any, PlannedFetch[C]] = {}
        held_up: dict[Any, bool] = {}
        most = asking.most
        alone: bool | None = None  # whether one may be asked without room; None: not looked at
        at_end: tuple[C, PlannedFetch[C], tuple[int, int, int]] | None = None
        for cursor in sorted((c for c in self.cursors.values() if c.wanting(now)), key=_ASKED_AT):
            link = asking.link(cursor)
            if link is None:
                continue
            if link not in held_up:
                held_up[link] = busy(link)
            if held_up[link]:
                continue
            ask: PlannedFetch[C] = asks.get(link) or PlannedFetch(link)
            for offset, count, size in asking.questions(cursor):
                if size > most - ask.size:
                    size = most - ask.size
                self._counted += size
                if size and not self.memory.try_take(size):
                    self._counted -= size
                    if alone is None:
                        alone = self._nothing_comes
                    if not alone:
                        cursor.short = True
                        break
                    if 0 <= cursor.end <= offset:
                        at_end = at_end or (cursor, ask, (offset, count, size))
                        cursor.short = True
                        break
                    alone = False
                    self._granted = self._ask(ask, cursor, offset, count, size, granted=True)
                else:
                    self._ask(ask, cursor, offset, count, size)
            else:
                cursor.short = False
            if ask.tickets:
                asks[link] = ask
        if at_end is not None and alone and not asks:
            self._granted = self._ask(at_end[1], at_end[0], *at_end[2], granted=True)
            asks[at_end[1].link] = at_end[1]
        self._asked += 1
        return list(asks.values())

    def _ask(self, ask: PlannedFetch[C], cursor: C, offset: int, count: int, size: int, *, granted: bool = False) -> Ticket[C]:
        ticket = Ticket(cursor, ask.link, offset, count, size, cursor.asked_at)
        if granted:
            self._count(size)
        cursor.out[offset] = ticket
        cursor.asked_at = self._asked + 1
        ask.tickets.append(ticket)
        ask.size += size
        return ticket

    @property
    def _nothing_comes(self) -> bool:
        """Whether there is nothing to hand out, and nothing under way but questions for what is not there yet."""
        granted = self._granted
        if granted is not None and granted.cursor.out.get(granted.offset) is granted:
            return False
        for cursor in self.cursors.values():
            if cursor.chunks and not cursor.paused:
                return False
            if any(cursor.end < 0 or ticket.offset < cursor.end for ticket in cursor.out.values()):
                return False
        return True

    def wakeup(self, now: float) -> float:
        """When a refused cursor may be asked again; infinity when none is."""
        return min((c.retry_at for c in self.cursors.values() if c.retry_at > now and not c.out and not c.paused), default=NEVER)

    # --- answers ---

    def answered(self, ticket: Ticket[C]) -> bool:
        """Its answer is here, or will not come. Whether it still counts: False after a seek, a removal, under another leader."""
        size, ticket.size = ticket.size, 0
        if size and not self._closed:
            self._counted -= size
            self.memory.add(-size)
        out = ticket.cursor.out
        if out.get(ticket.offset) is not ticket:
            return False
        del out[ticket.offset]
        return True

    def renew(self, ticket: Ticket[C], chunk: P) -> None:
        """Its answer is this chunk, which is handed out at once, and the same is asked for behind it: the bytes reserved stay so."""
        self.handing = cursor = ticket.cursor
        cursor.fetched(chunk)
        cursor.out.clear()
        ticket.offset = chunk.next
        cursor.out[ticket.offset] = ticket

    def only_out(self, tickets: Iterable[Ticket[C]]) -> None:
        """Whatever else counts as under way is not; and bytes are counted for nothing else than these, and what waits to be handed out."""
        kept = {id(ticket): ticket for ticket in tickets}
        for cursor in self.cursors.values():
            for ticket in list(cursor.out.values()):
                if id(ticket) not in kept:
                    self.answered(ticket)
        counted = sum(ticket.size for ticket in kept.values()) + sum(cursor.held for cursor in self.cursors.values())
        self._count(counted - self._counted)

    def passed_over(self, ticket: Ticket[C]) -> None:
        """The answer had no room for it: it keeps its place among those that wait to be asked."""
        ticket.cursor.asked_at = ticket.before

    def failed(self, ticket: Ticket[C], now: float) -> bool:
        """No answer comes: again after a pause, if it still counts."""
        counts = self.answered(ticket)
        if counts:
            self.refused(ticket.cursor, now)
        return counts

    def refused(self, cursor: C, now: float) -> None:
        """Not to be asked again for a moment, and for longer each time, until `well`."""
        cursor.failures += 1
        cursor.troubled_since = cursor.troubled_since or now
        self.later(cursor, now, cursor.failures)

    def later(self, cursor: C, now: float, times: int = 1) -> None:
        """Not to be asked again before the pause that follows so many refusals."""
        cursor.retry_at = now + self._again.delay(times, self._randomness)

    def well(self, cursor: C) -> None:
        """It was answered as it should be."""
        cursor.failures = 0
        cursor.troubled_since = 0.0

    def push(self, chunk: P, *, held: bool = False) -> None:
        """Put a chunk behind the others of its cursor. held: it counts already."""
        cursor: C = chunk.cursor
        cursor.fetched(chunk)
        size = 0 if held else chunk.size
        if size and not self._closed:
            cursor.held += size
            self._counted += size
            self.memory.add(size)
        cursor.chunks.append(chunk)
        if not cursor.queued:
            cursor.queued = True
            self._turns.append(cursor)

    # --- handing out ---

    def take(self, most: int = 0, *, late: bool = False) -> Sequence[P]:
        """The next chunks to hand out, all of one cursor and without a gap between them: one, or more up to `most` bytes. An error comes
        alone. Empty: nothing is there, or nothing that is ripe."""
        if self._seeking:
            self._seek_on()
        handing = self.handing
        if handing is not None:
            if self.cursors.get(handing.key) is handing:
                self.seek(handing.key, handing.position)
            self.handing = None
        for _ in range(len(self._turns)):
            cursor = self._turns[0]
            if not cursor.chunks:
                cursor.queued = False
                self._turns.popleft()
                continue
            self._turns.rotate(-1)
            if not cursor.paused and cursor.ripe(late):
                return self._turn(cursor, most)
        return ()

    def _turn(self, cursor: C, most: int) -> list[P]:
        chunks: deque[P] = cursor.chunks
        self.handing = cursor if chunks[0].error is None else None
        first = chunks.popleft()
        taken, size = [first], first.size
        if first.error is not None:
            cursor.retry_at = 0.0  # it is told now: whoever goes on asks at once
        else:
            while chunks:
                chunk = chunks[0]
                if chunk.error is not None or size + chunk.size > most:
                    break
                size += chunk.size
                taken.append(chunks.popleft())
        self.hold(cursor, -size)
        return taken

    def put_back(self, chunk: P) -> None:
        """It could not be handed out after all: it is the next one."""
        cursor: C = chunk.cursor
        if chunk.generation != cursor.generation:
            return
        self.hold(cursor, chunk.size)
        cursor.chunks.appendleft(chunk)
        if cursor.queued:
            self._turns.remove(cursor)
        cursor.queued = True
        self._turns.appendleft(cursor)
        if chunk.start <= cursor.position:
            self.handing = None

    def moved(self, chunk: P, position: int) -> None:
        """Its records are handed out, up to `position`."""
        cursor: C = chunk.cursor
        if chunk.generation == cursor.generation:
            self.handed = cursor, cursor.position
            cursor.moved(chunk, position)
        self.handing = None

    def take_back(self, before: tuple[C, int] | None) -> bool:
        """A signal handler broke into the call that was to bring what was handed out last: it comes again. Whether there was anything.

        Args:
            before: `handed` when that call began.
        """
        handed = self.handed
        if handed is None or handed is before:
            return False
        cursor, position = handed
        if self.cursors.get(cursor.key) is cursor:
            self.seek(cursor.key, position)
        self.handed = before
        return True

    # --- bytes ---

    def hold(self, cursor: C, size: int) -> None:
        """Count bytes of a cursor's that are no chunk of it yet, or (negative) are none any more."""
        cursor.held += size
        if size and not self._closed:
            self._counted += size
            self.memory.add(size)

    def _count(self, size: int) -> None:
        if size and not self._closed:
            self._counted += size
            self.memory.add(size)

    def close(self) -> None:
        """Drop everything; all bytes are free."""
        if not self._closed:
            self._closed = True
            self.memory.add(-self._counted)

    def __del__(self) -> None:
        self.close()


_ASKED_AT = attrgetter("asked_at")
