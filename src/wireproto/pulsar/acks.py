"""Encodes sets of indexes within a batch, as ACK and MESSAGE carry them, and keeps what a log's reader has acknowledged.

Sans-IO; no clock but what it is given. A set is 64-bit words, least significant bit first; a set bit is a message still wanted. Words are
signed on the wire. A broker may leave out trailing words of zero, so a missing word counts as zeros.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from wireproto.errors import OptionError
from wireproto.position import MessageId

from . import PulsarApi_pb2 as api
from .frames import message_id

WORD = 64
KEPT_IN = 120.0
"""Seconds after which a broker has written a mark-delete position down, so that a crash does not move it back: one a second at most, and
the last of a burst within a minute (managedLedgerCursorPositionFlushSeconds)."""
MOST_SIZES = 10_000
"""Batches of a partition whose size is known, for a commit within one."""


def words(wanted: Iterable[int], size: int) -> tuple[int, ...]:
    """Encode the indexes still wanted, of a batch of `size` messages, as words."""
    bits = 0
    for index in wanted:
        if 0 <= index < size:
            bits |= 1 << index
    return _split(bits, size)


def wanted_after(first: int, size: int) -> tuple[int, ...]:
    """Encode all indexes from `first` on, of a batch of `size` messages: the rest of a batch whose beginning is done."""
    return _split((1 << size) - (1 << min(first, size)), size)


def _split(bits: int, size: int) -> tuple[int, ...]:
    found = []
    for at in range(0, max(size, 1), WORD):
        word = bits >> at & 0xFFFFFFFFFFFFFFFF
        found.append(word - (1 << 64) if word >= 1 << 63 else word)
    return tuple(found)


@dataclass(slots=True)
class Log:
    """What one member of a group was handed of a partition that it reads as a log, and what it committed.

    Attributes:
        handed: where to resume after what was handed out, until that is committed.
        committed: the last position that was.
        acked: (ledger, entry) up to which all is acknowledged.
        marks: some such places, and when they were noted; the last is `acked`.
        sizes: number of messages in the batches handed out and not acknowledged, by (ledger, entry); of the last `MOST_SIZES`.
        last: the furthest entry that was handed out.
        before: by a ledger that followed another, the entry handed out before its first.
        first: the first entry that was handed out since the last commit; None: there is none, or that commit left some out.
    """

    handed: MessageId | None = None
    committed: MessageId | None = None
    acked: tuple[int, int] | None = None
    marks: deque[tuple[float, tuple[int, int]]] = field(default_factory=deque)
    sizes: dict[tuple[int, int], int] = field(default_factory=dict)
    last: tuple[int, int] | None = None
    before: dict[int, tuple[int, int]] = field(default_factory=dict)
    first: tuple[int, int] | None = None

    def passed(self, ledger: int, entry: int, size: int) -> None:
        """Note that an entry is handed out; `size`: number of messages in the batch, 0 outside one."""
        if self.last is not None and ledger > self.last[0]:
            self.before[ledger] = self.last
        if self.handed is None:
            self.first = self.first or (ledger, entry)
        self.last = (ledger, entry) if self.last is None else max(self.last, (ledger, entry))
        if size:
            self.sizes[ledger, entry] = size
            if len(self.sizes) > MOST_SIZES:  # a program that never commits needs none of them
                del self.sizes[next(iter(self.sizes))]

    def target(self, position: MessageId) -> api.MessageIdData | None:
        """Return what a cumulative ACK must name for the subscription to resume at a position.

        Returns:
            None where the mark-delete position stays where it is: the position is the partition's beginning, or lies within a batch that is
            acknowledged, or the entry before it lies in another ledger and was not handed out here.

        Raises:
            OptionError: the position lies within a batch whose size is not known, since it was not handed out here, or long ago.
        """
        ledger, entry, index = position.ledger, position.entry, position.index
        if ledger < 0 or (entry < 0 and position.after):
            return None
        size = self.sizes.get((ledger, entry), 0)
        first_wanted = index + 1 if position.after else max(index, 0)
        if position.after and (index < 0 or first_wanted >= size > 0):
            return message_id(ledger, entry)
        if first_wanted == 0:
            before = (ledger, entry - 1) if entry > 0 else self.before.get(ledger)
            return None if before is None else message_id(*before)
        if self.acked is not None and (ledger, entry) <= self.acked:
            return None
        if size == 0:
            raise OptionError(f"position {position}: the batch's size is not known, as this consumer has not received it recently")
        data = message_id(ledger, entry, first_wanted - 1, ack_set=wanted_after(first_wanted, size))
        data.batch_size = size
        return data

    def moved_back(self, mark: tuple[int, int], now: float | None) -> bool:
        """Return whether the mark-delete position `mark` lies before what was acknowledged.

        Args:
            now: given where the broker may have crashed, as `time.monotonic()`: then only what it must have written down by now counts.
        """
        if now is None:
            return self.acked is not None and mark < self.acked
        return any(mark < place for when, place in self.marks if when <= now - KEPT_IN)

    def taken(self, mark: tuple[int, int]) -> bool:
        """Return whether another member has acknowledged, up to `mark`, what was handed out here and not committed."""
        return self.first is not None and mark >= self.first

    def set_mark_delete(self, mark: tuple[int, int], now: float) -> None:
        """Note the mark-delete position that the broker answered; `now` as `time.monotonic()`."""
        self.marks = deque(one for one in self.marks if one[1] <= mark)
        self._acknowledged(mark, now)

    def _acknowledged(self, place: tuple[int, int], now: float) -> None:
        """Note that all up to `place` is acknowledged; of the marks within one eighth of `KEPT_IN` one is kept."""
        self.acked, marks = place, self.marks
        while len(marks) > 1 and marks[1][0] <= now - KEPT_IN:
            marks.popleft()
        if len(marks) > 1 and now - marks[-2][0] < KEPT_IN / 8:
            marks.pop()
        marks.append((now, place))

    def committed_to(self, position: MessageId, now: float) -> None:
        """Note that the broker has taken a commit; `now` as `time.monotonic()`."""
        self.committed = position
        self.first = None
        if self.handed == position:
            self.handed = None
        place = position.ledger, position.entry
        whole = position.after and (position.index < 0 or position.index + 1 >= self.sizes.get(place, 1))
        before = (position.ledger, position.entry - 1) if position.entry > 0 else self.before.get(position.ledger, (-1, -1))
        acked = max(self.acked or (-1, -1), place if whole else before)
        self._acknowledged(acked, now)
        for known in [known for known in self.sizes if known <= acked]:
            del self.sizes[known]
        for old in [old for old in self.before if (old, 0) <= acked]:
            del self.before[old]
