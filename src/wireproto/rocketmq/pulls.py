"""Which pulls of a queue are out, and in which order their replies are handed on. Sans-IO.

What it is: one `QueuePulls` per queue. Brokers answer a pull with at most 32 messages (their default), so reading one reply at a time is
bound by round trips. Queue offsets have no holes, so the next pulls can be sent before the first is answered:

    known end 200, step 32     out: 0 32 64 96 …      replies may come in any order
    reply to 0 ends at 20      20 … 31 are missing: pull 20 is sent, the others stay good
    at the end                 one pull with "suspend": the broker answers it when there is a message, or after a while with none

Offsets:   next      first record not yet handed on
           upto      where the replies end that follow `next` without a hole
           sent      everything from `upto` to here is out or behind a hole: where to look for the next pull to send
           stop      first record not wanted, or None
           end       the broker's max offset as last heard
Must not: know connections, clocks or bodies' contents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wireproto._codec import Slice

BROKER_LIMIT = 32
"""Messages a broker puts in one reply, unless it is configured otherwise."""


@dataclass(slots=True)
class Answer:
    """A reply that waits for its turn: its place, where the next record is, and the stored messages."""

    offset: int
    next_offset: int
    body: bytes | Slice


@dataclass(slots=True)
class QueuePulls:
    """State of one queue's reading.

    Attributes:
        ahead: how many pulls may be out at once. No more than as many may be out or waiting, once `least` bytes wait.
        least: bytes of replies that are worth a batch, while more is known to be stored.
        generation: pulls of an earlier generation (before a seek) are of no use; the caller passes it back with each reply.
    """

    next: int
    stop: int | None = None
    ahead: int = 8
    least: int = 1
    end: int = -1
    step: int = BROKER_LIMIT
    generation: int = 0
    upto: int = field(init=False)
    sent: int = field(init=False)
    _edge: int = field(init=False)  # no pull or reply begins behind it
    _size: int = 0  # bytes of `_run`
    _waiting: int = 0  # bytes of `_run` and `_later`
    _stuck: bool = False  # a pull failed: what is there is handed on without waiting for more
    _out: dict[int, int] = field(default_factory=dict)
    _run: deque[Answer] = field(default_factory=deque)
    _later: dict[int, Answer] = field(default_factory=dict)  # behind a hole

    def __post_init__(self) -> None:
        self.upto = self.sent = self._edge = self.next

    @property
    def done(self) -> bool:
        """Whether the stop is reached."""
        return self.stop is not None and self.next >= self.stop

    @property
    def idle(self) -> bool:
        """Whether nothing is out."""
        return not self._out

    def seek(self, offset: int) -> None:
        """Go on from there; what is out or waiting is dropped."""
        self.next = self.upto = self.sent = self._edge = offset
        self.generation += 1
        self._size = self._waiting = 0
        self._stuck = False
        self._out.clear()
        self._run.clear()
        self._later.clear()

    def wanted(self) -> Iterator[tuple[int, int, bool]]:
        """Pulls to send now, as (offset, number of messages, suspend). The caller sends each one that it takes; they count as out."""
        at = self.sent
        while self._may_send(at) and (self.stop is None or at < self.stop):
            if answer := self._later.get(at):
                at = answer.next_offset
                continue
            if out := self._out.get(at):
                at += out
                continue
            beyond_end = at >= self.end
            if beyond_end and (self._out or self._run or self._later):
                return  # the end may have moved meanwhile; the replies that are out will tell
            size = self._room(at)
            self._out[at] = size
            self.sent = at + size
            if self.sent > self._edge:
                self._edge = self.sent
            yield at, size, beyond_end
            if beyond_end:
                return
            at += size

    def _may_send(self, at: int) -> bool:
        out = len(self._out)
        if out >= self.ahead:
            return False
        if self._waiting < self.least or out + len(self._run) + len(self._later) < self.ahead:
            return True
        return at == self.upto and self._size < self.least  # the very pull that everything waits for

    def _room(self, at: int) -> int:
        """How many messages to ask for at `at`: a step, but not what a later pull already covers, nor past the stop."""
        limit = self.step
        if at < self._edge:
            limit = min((offset - at for offset in (*self._out, *self._later) if offset > at), default=limit)
        if self.stop is not None:
            limit = min(limit, self.stop - at)
        return max(1, min(limit, self.step))

    def answered(self, offset: int, next_offset: int, end: int, body: bytes | Slice) -> None:
        """A reply of this generation with messages."""
        asked = self._out.pop(offset, 0)
        self.end = end
        taken = next_offset - offset
        if taken != asked:
            self.sent = self.upto  # what it left open is to be asked for
        if taken <= 0 or offset < self.upto:
            return  # nothing in it, or overtaken
        if taken < asked and next_offset < end:
            self.step = taken  # large messages: the broker's byte limit cut the reply
        elif taken >= self.step:
            self.step = min(BROKER_LIMIT, self.step * 2)
        self._keep(Answer(offset, next_offset, body), len(body))

    def empty(self, offset: int, next_offset: int, end: int) -> None:
        """A reply of this generation without messages: the end (19), or all filtered out up to `next_offset` (20)."""
        self._out.pop(offset, None)
        self.end = end
        self.sent = self.upto
        if next_offset > offset and offset >= self.upto:
            self._keep(Answer(offset, next_offset, b""), 0)

    def failed(self, offset: int) -> None:
        """No usable reply: the pull is to be sent again."""
        self._out.pop(offset, None)
        self.sent = self.upto
        self._stuck = True

    def _keep(self, answer: Answer, size: int) -> None:
        self._waiting += size
        if answer.offset != self.upto:
            self._later[answer.offset] = answer
            return
        self._run.append(answer)
        self._size += size
        self.upto = answer.next_offset
        if self._later:
            self._join()
        if self.sent < self.upto:
            self.sent = self.upto

    def _join(self) -> None:
        """Replies that were behind a hole, now that it is filled."""
        while (answer := self._later.pop(self.upto, None)) is not None:
            self._run.append(answer)
            self._size += len(answer.body)
            self.upto = answer.next_offset
        for offset in [offset for offset in self._later if offset < self.upto]:
            self._waiting -= len(self._later.pop(offset).body)

    @property
    def has_ready(self) -> bool:
        return bool(self._run)

    @property
    def ripe(self) -> bool:
        """Whether what is ready is worth a batch: enough of it, or nothing is known that will come soon."""
        if not self._run:
            return False
        if self._size >= self.least or not self._size or self._stuck:
            return True
        return self.upto >= self.end or (self.stop is not None and self.upto >= self.stop)

    def take(self, max_bytes: int) -> list[Answer]:
        """The answers that follow `next` without a hole, up to `max_bytes` of bodies (at least one); moves `next`.

        The last one may reach beyond the stop: what is stored as one inner batch (5.x) comes whole.
        """
        taken: list[Answer] = []
        size = 0
        while self._run and (not taken or size + len(self._run[0].body) <= max_bytes):
            answer = self._run.popleft()
            taken.append(answer)
            size += len(answer.body)
            self.next = answer.next_offset if self.stop is None else min(answer.next_offset, self.stop)
        self._size -= size
        self._waiting -= size
        self._stuck = False
        return taken
