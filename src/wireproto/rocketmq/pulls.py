"""Which pulls of a queue are out, and in which order their replies are handed on. Sans-IO.

What it is: one `QueuePulls` per queue. Brokers answer a pull with at most 32 messages (their default), so reading one reply at a time is
bound by round trips. Queue offsets have no holes, so the next pulls can be sent before the first is answered:

    known end 200, step 32     out: 0 32 64 96 …      replies may come in any order
    reply to 0 ends at 20      20 … 31 are missing: pull 20 is sent, the others stay good
    at the end                 one pull with "suspend": the broker answers it when there is a message, or after a while with none

Offsets:   next      first record not yet handed on
           stop      first record not wanted, or None
           end       the broker's max offset as last heard
Must not: know connections, clocks or bodies' contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

BROKER_LIMIT = 32
"""Messages a broker puts in one reply, unless it is configured otherwise."""


@dataclass(slots=True)
class Answer:
    """A reply that waits for its turn: its place, where the next record is, and the stored messages."""

    offset: int
    next_offset: int
    body: bytes | memoryview


@dataclass(slots=True)
class QueuePulls:
    """State of one queue's reading.

    Attributes:
        ahead: how many pulls may be out or waiting at once.
        generation: pulls of an earlier generation (before a seek) are of no use; the caller passes it back with each reply.
    """

    next: int
    stop: int | None = None
    ahead: int = 8
    end: int = -1
    step: int = BROKER_LIMIT
    generation: int = 0
    held: bool = False
    _out: dict[int, int] = field(default_factory=dict)
    _ready: dict[int, Answer] = field(default_factory=dict)

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
        self.next = offset
        self.generation += 1
        self._out.clear()
        self._ready.clear()
        self.held = False

    def wanted(self) -> Iterator[tuple[int, int, bool]]:
        """Pulls to send now, as (offset, number of messages, suspend). The caller sends each one that it takes; they count as out."""
        at = self.next
        while len(self._out) + len(self._ready) < self.ahead and (self.stop is None or at < self.stop):
            if answer := self._ready.get(at):
                at = answer.next_offset
                continue
            if out := self._out.get(at):
                at += out
                continue
            beyond_end = at >= self.end
            if beyond_end and (self._out or self._ready):
                return  # the end may have moved meanwhile; the replies that are out will tell
            size = self._room(at)
            self._out[at] = size
            self.held = beyond_end
            yield at, size, beyond_end
            if beyond_end:
                return
            at += size

    def _room(self, at: int) -> int:
        """How many messages to ask for at `at`: a step, but not what a later pull already covers, nor past the stop."""
        later = [offset for offset in (*self._out, *self._ready) if offset > at]
        limit = min(later) - at if later else self.step
        if self.stop is not None:
            limit = min(limit, self.stop - at)
        return max(1, min(limit, self.step))

    def answered(self, offset: int, next_offset: int, end: int, body: bytes | memoryview) -> None:
        """A reply of this generation with messages."""
        asked = self._out.pop(offset, 0)
        self.held = False
        self.end = end
        if next_offset <= offset or offset < self.next:
            return  # nothing in it, or overtaken: wanted() asks again where needed
        taken = next_offset - offset
        if taken < asked and next_offset < end:
            self.step = taken  # large messages: the broker's byte limit cut the reply
        elif taken >= self.step:
            self.step = min(BROKER_LIMIT, self.step * 2)
        self._ready[offset] = Answer(offset, next_offset, body)

    def empty(self, offset: int, next_offset: int, end: int) -> None:
        """A reply of this generation without messages: the end (19), or all filtered out up to `next_offset` (20)."""
        self._out.pop(offset, None)
        self.held = False
        self.end = end
        if next_offset > offset and offset >= self.next:
            self._ready[offset] = Answer(offset, next_offset, b"")

    def failed(self, offset: int) -> None:
        """No usable reply: the pull is to be sent again."""
        self._out.pop(offset, None)
        self.held = False

    @property
    def has_ready(self) -> bool:
        return self.next in self._ready

    def take(self, max_bytes: int) -> list[Answer]:
        """The answers that follow `next` without a hole, up to `max_bytes` of bodies (at least one); moves `next`."""
        taken: list[Answer] = []
        size = 0
        while (answer := self._ready.get(self.next)) is not None and (not taken or size + len(answer.body) <= max_bytes):
            del self._ready[self.next]
            taken.append(answer)
            size += len(answer.body)
            self.next = answer.next_offset
            for stale in [offset for offset in self._ready if offset < self.next]:
                del self._ready[stale]
        return taken
