"""Plans reading ahead: what to request from which connection within a limit of bytes, and whose chunks to deliver next. Sans-IO.

`ReadAhead` is the plan of a role that reads; it has a `Cursor` for each log that the role reads (a partition, a queue). A protocol adds its
way of requesting (`FetchTargets`: from which connection, and which offsets next) and turns replies into chunks.

    due() ──► a PlannedFetch a link ──► (the broker) ──► answered() ──► push() ──► chunks of a cursor, in order ──► take() ──► moved()
                                            └─► failed(): again, after a pause                   ▲                  │
                                                                                                 └─── put_back() ◄──┘
Rules:
- Bytes count from the request on: a ticket reserves what its reply may bring, a chunk counts until it is delivered; all roles of a client
  count in one `MemoryLimit`. A ticket is sent when it fits. A plan that has nothing to deliver and nothing coming may request one all the
  same, so that none starves: the bound is the limit, and one ticket more for each reader, paused cursor and given-up ticket.
- The cursor that was not requested for longest is requested first. One that a reply left out for want of room keeps its place.
- Delivery is in turns over the cursors that hold chunks: one `take` each, so that a busy partition does not hold up the others.
- A seek begins a new generation: what was fetched before is dropped, and so is what comes late. A ticket counts while it is among its
  cursor's `out`: a seek, a removal and another leader (`relink`) end it, and its reply, should one come, only gives its bytes back.

A signal handler may raise in any method: behind a call, where a function begins, where a loop begins its next round, and nowhere else
(CPython looks for signals there). So bytes are counted without a call in between; a seek that was begun is completed before anything else
(`_seeking`); and a caller that was interrupted has everything requested again (`renew_all`), which is right wherever it was interrupted.

One caller at a time; the memory limit is shared with other threads. Nothing here sends, reads a clock, decodes, or knows a protocol.
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
    """A count of bytes with a limit, shared by the readers of a client."""

    @property
    def limit(self) -> int:
        """Return the limit, in bytes."""
        ...

    @property
    def held(self) -> int:
        """Return the bytes that are counted now."""
        ...

    def try_take(self, size: int) -> bool:
        """Count these bytes if they fit, or if nothing is counted; returns whether they are counted."""
        ...

    def add(self, size: int) -> None:
        """Count bytes whether they fit or not; negative: give them back."""
        ...


class Cursor:
    """One log being read.

    Attributes:
        position: next offset to deliver. ahead: next offset to fetch. stop: first offset not wanted, None to follow the log.
        end: where the log ended when it was last known; -1: not known. paused: neither requested nor delivered.
        generation: number of seeks. out: its tickets in flight, by offset. chunks: what waits to be delivered. held: bytes of `chunks`.
        asked_at: number of the planning round (`due`) of its last request; grows.
        queued: whether it is among the cursors that have chunks to deliver.
        short: whether there was no room for its last request.
        failures: refusals in a row, since `failing_since` (seconds; 0.0 without failures). retry_at: not to be requested before (seconds).
    """

    __slots__ = (
        "ahead",
        "asked_at",
        "chunks",
        "end",
        "failing_since",
        "failures",
        "generation",
        "held",
        "key",
        "out",
        "paused",
        "position",
        "queued",
        "retry_at",
        "short",
        "stop",
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
        self.retry_at = self.failing_since = 0.0

    @property
    def done(self) -> bool:
        """Return whether everything before the stop is delivered."""
        return self.stop is not None and self.position >= self.stop

    def wanting(self, now: float) -> bool:
        """Return whether more of it may be requested now, apart from its own tickets and chunks.

        Args:
            now: seconds of the role's clock.
        """
        if self.paused or now < self.retry_at or (self.stop is not None and self.ahead >= self.stop):
            return False
        return not self.chunks or self.chunks[-1].error is None

    def ready_to_deliver(self, late: bool) -> bool:
        """Return whether it holds enough to deliver.

        Args:
            late: whether more must not be waited for.
        """
        return True

    def restart(self, offset: int) -> None:
        """Continue from `offset`: forget what belongs to another position."""
        self.position = self.ahead = offset
        self.failures = 0
        self.retry_at = self.failing_since = 0.0

    def drop_fetched_ahead(self) -> None:
        """Continue from `position`: forget what was fetched ahead."""
        self.ahead = self.position

    def fetched(self, chunk: Any) -> None:
        """Note that a chunk was put behind the others."""
        self.ahead = chunk.next

    def moved(self, chunk: Any, position: int) -> None:
        """Note that the chunk was delivered up to `position`."""
        self.position = position


C = TypeVar("C", bound=Cursor)
A = TypeVar("A", bound=Cursor, contravariant=True)
P = TypeVar("P", bound=Chunk)


@dataclass(slots=True, eq=False)
class Ticket(Generic[C]):
    """One request in flight for a cursor.

    Attributes:
        cursor: what is requested. link: the connection. offset: of the first record requested.
        count: how much was requested, in bytes or records, as the protocol counts. size: bytes reserved for its reply.
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
    """What to request from one connection now.

    Attributes:
        link: the connection. tickets: what to request. size: bytes that the replies should bring at most.
    """

    link: Any
    tickets: list[Ticket[C]] = field(default_factory=list)
    size: int = 0


class FetchTargets(Protocol[A]):
    """A protocol's way of requesting.

    Attributes:
        most: bytes that the replies to one PlannedFetch bring at most; tickets beyond that are listed and reserve nothing.
    """

    @property
    def most(self) -> int:
        """Return the bytes that the replies to one PlannedFetch bring at most."""
        ...

    def link(self, cursor: A) -> Hashable | None:
        """Return the connection to request a cursor from; None while that is not known."""
        ...

    def next_requests(self, cursor: A) -> Iterable[tuple[int, int, int]]:
        """Yield what to request next: (offset, count, bytes).

        Each one that is accepted is in `cursor.out` before the next one is computed.
        """
        ...


def no_link_busy(link: Hashable) -> bool:
    """Return False: no connection is busy."""
    return False


class ReadAhead(Generic[C, P]):
    """Cursors, what is requested, and the chunks that wait to be delivered.

    Args:
        memory: the limit that the readers of a client share.
        again: pauses between the attempts at a cursor that was refused.
        randomness: returns [0, 1), for the pauses' jitter.

    Attributes:
        cursors: by key, in the order in which they were added.
        delivered: the cursor whose records were delivered last, and the position where they began.
        delivering: the cursor of chunks that `take` returned and whose records are not delivered yet. If a signal handler raises before
            they are, the next `take` goes back to the cursor's position, so that no record is left out.
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
        self._seeking: dict[TopicPartition, int | None] = {}  # seeks that are not completed; None: to the cursor's own position
        self.delivering: C | None = None
        self.delivered: tuple[C, int] | None = None
        self._closed = False

    # --- which cursors ---

    def add(self, cursor: C) -> C:
        """Read this cursor, in place of the one that was read under its key."""
        self.remove(cursor.key)
        self.cursors[cursor.key] = cursor
        return cursor

    def remove(self, key: TopicPartition) -> None:
        """Stop reading this key; what was fetched of it is dropped."""
        cursor = self.cursors.get(key)
        if cursor is not None:
            self._drop(cursor)  # first: if a signal handler interrupts, nothing of it is delivered afterwards
            self._seeking.pop(key, None)
            self.cursors.pop(key, None)

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Continue a cursor from `offset`; what was fetched of it is dropped. Raises KeyError."""
        self.cursors[key]  # KeyError, before anything
        self._seeking[key] = offset
        self._seek_on()

    def renew_all(self) -> None:
        """Request everything again, from each cursor's position, since a signal handler interrupted the caller."""
        self._seeking = {**dict.fromkeys(self.cursors), **self._seeking}
        self._seek_on()
        for cursor in self.cursors.values():
            cursor.queued = False
        self._turns = deque()

    def _seek_on(self) -> None:
        """Complete the seeks in `_seeking`."""
        while self._seeking:
            key, offset = next(iter(self._seeking.items()))
            cursor = self.cursors.get(key)
            if cursor is not None:
                self._drop(cursor)
                if offset is None:
                    cursor.drop_fetched_ahead()
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
        """Drop the tickets of cursors that are now requested from another connection, so that they are requested there."""
        for cursor in self.cursors.values():
            if cursor.out:
                link = asking.link(cursor)
                if link is not None:
                    for ticket in [ticket for ticket in cursor.out.values() if ticket.link != link]:
                        del cursor.out[ticket.offset]

    @property
    def done(self) -> bool:
        """Return whether everything before the stops is delivered."""
        return all(cursor.done for cursor in self.cursors.values())

    # --- requests ---

    def due(self, asking: FetchTargets[C], now: float, busy: Callable[[Any], bool] = no_link_busy) -> list[PlannedFetch[C]]:
        """Return what to request now. It counts as in flight; call `failed` for what could not be sent.

        Args:
            asking: the protocol's way of requesting. now: seconds of the role's clock.
            busy: returns whether a connection takes no request now.
        """
        if self._seeking:
            self._seek_on()
        asks: dict[Any, PlannedFetch[C]] = {}
        held_up: dict[Any, bool] = {}
        most = asking.most
        alone: bool | None = None  # whether one may be requested without room; None: not computed yet
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
            for offset, count, size in asking.next_requests(cursor):
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
        """Return whether there is nothing to deliver, and nothing in flight but requests for records that are not there yet."""
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
        """Return when a refused cursor may be requested again; infinity when none was refused."""
        return min((c.retry_at for c in self.cursors.values() if c.retry_at > now and not c.out and not c.paused), default=NEVER)

    # --- replies ---

    def answered(self, ticket: Ticket[C]) -> bool:
        """Note that a ticket's reply is here, or will not come.

        Returns:
            whether the ticket still counts: False after a seek, a removal, or with another leader.
        """
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
        """Note that a ticket's reply is this chunk, which is delivered at once, and request the same after it: the bytes stay reserved."""
        self.delivering = cursor = ticket.cursor
        cursor.fetched(chunk)
        cursor.out.clear()
        ticket.offset = chunk.next
        cursor.out[ticket.offset] = ticket

    def only_out(self, tickets: Iterable[Ticket[C]]) -> None:
        """Keep these tickets alone in flight, and count bytes for nothing but them and the chunks that wait to be delivered."""
        kept = {id(ticket): ticket for ticket in tickets}
        for cursor in self.cursors.values():
            for ticket in list(cursor.out.values()):
                if id(ticket) not in kept:
                    self.answered(ticket)
        counted = sum(ticket.size for ticket in kept.values()) + sum(cursor.held for cursor in self.cursors.values())
        self._count(counted - self._counted)

    def passed_over(self, ticket: Ticket[C]) -> None:
        """Let a cursor that the reply had no room for keep its place in the order of requests."""
        ticket.cursor.asked_at = ticket.before

    def failed(self, ticket: Ticket[C], now: float) -> bool:
        """Note that no reply comes: the cursor is requested again after a pause, if the ticket still counts; returns whether it does."""
        counts = self.answered(ticket)
        if counts:
            self.refused(ticket.cursor, now)
        return counts

    def refused(self, cursor: C, now: float) -> None:
        """Delay the next request of a cursor, for longer each time, until `well`."""
        cursor.failures += 1
        cursor.failing_since = cursor.failing_since or now
        self.later(cursor, now, cursor.failures)

    def later(self, cursor: C, now: float, times: int = 1) -> None:
        """Delay the next request of a cursor by the pause that follows `times` refusals."""
        cursor.retry_at = now + self._again.delay(times, self._randomness)

    def well(self, cursor: C) -> None:
        """Note that a cursor was answered without an error."""
        cursor.failures = 0
        cursor.failing_since = 0.0

    def push(self, chunk: P, *, held: bool = False) -> None:
        """Put a chunk behind the others of its cursor.

        Args:
            held: whether its bytes are counted already.
        """
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

    # --- delivery ---

    def take(self, most: int = 0, *, late: bool = False) -> Sequence[P]:
        """Return the next chunks to deliver, all of one cursor and without a gap between them: one, or more up to `most` bytes.

        An error comes alone. The result is empty when nothing is there, or nothing that is ready_to_deliver.

        Args:
            most: bytes. late: whether more must not be waited for (`Cursor.ready_to_deliver`).
        """
        if self._seeking:
            self._seek_on()
        delivering = self.delivering
        if delivering is not None:
            if self.cursors.get(delivering.key) is delivering:
                self.seek(delivering.key, delivering.position)
            self.delivering = None
        for _ in range(len(self._turns)):
            cursor = self._turns[0]
            if not cursor.chunks:
                cursor.queued = False
                self._turns.popleft()
                continue
            self._turns.rotate(-1)
            if not cursor.paused and cursor.ready_to_deliver(late):
                return self._turn(cursor, most)
        return ()

    def _turn(self, cursor: C, most: int) -> list[P]:
        chunks: deque[P] = cursor.chunks
        self.delivering = cursor if chunks[0].error is None else None
        first = chunks.popleft()
        taken, size = [first], first.size
        if first.error is not None:
            cursor.retry_at = 0.0  # the error is raised now: a caller that continues requests at once
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
        """Put back a chunk that could not be delivered: it is the next one."""
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
            self.delivering = None

    def moved(self, chunk: P, position: int) -> None:
        """Note that a chunk's records are delivered, up to `position`."""
        cursor: C = chunk.cursor
        if chunk.generation == cursor.generation:
            self.delivered = cursor, cursor.position
            cursor.moved(chunk, position)
        self.delivering = None

    def take_back(self, before: tuple[C, int] | None) -> bool:
        """Go back to before the last delivery, since a signal handler interrupted the call that was to return it.

        Args:
            before: `delivered` when that call began.

        Returns:
            whether there was anything to deliver again.
        """
        delivered = self.delivered
        if delivered is None or delivered is before:
            return False
        cursor, position = delivered
        if self.cursors.get(cursor.key) is cursor:
            self.seek(cursor.key, position)
        self.delivered = before
        return True

    # --- bytes ---

    def hold(self, cursor: C, size: int) -> None:
        """Count bytes of a cursor that are no chunk of it yet, or (negative) stop counting them."""
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
