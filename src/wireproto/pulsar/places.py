"""Computes starts, stops and next positions in one partition.

Sans-IO. A place is (ledger, entry, index); index -1 means the whole entry. From a user's Position follow where the broker is to begin and
which rows are left out, and the same for a stop.

    start               SUBSCRIBE at            left out
    at (l, e, i)        entry e, inclusive      rows before i
    after (l, e, -1)    after entry e           nothing
    after (l, e, i)     entry e, inclusive      rows up to i
    stop                rows kept               over once this entry was passed
    at (l, e, i>0)      before (l, e, i)        (l, e)
    at (l, e, -1 or 0)  before (l, e)           the entry before it, where it is in the same ledger
    after (l, e, i)     up to (l, e, i)         (l, e)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wireproto.flow.resolve import Resolver
from wireproto.position import MessageId, TopicPartition

from .topics import parse_topic

Place = tuple[int, int, int]
Mark = tuple[Place, Place | None, Place | None, MessageId, bool, tuple[int, int] | None, bool, Exception | None]
FIRST: Place = (-1, -1, -1)
"""Where SUBSCRIBE begins for EARLIEST."""
FROM_NOW: Place = (2**63 - 1, 2**63 - 1, -1)
"""Where SUBSCRIBE begins for LATEST."""


@dataclass(slots=True)
class Cursor:
    """How far one partition is read, and how far it shall be.

    Attributes:
        next: where to resume, as the user sees it.
        begin: where the next SUBSCRIBE begins.
        after: rows up to here are left out, or None.
        before: rows from here on are left out, or None.
        last: entry with which the reading is over, or None.
        until: publish time at which it is over, in milliseconds since 1970, or None.
        bounded_by_end: whether the stop lies at or before the end that the topic had when it was set.
        done: whether the stop is reached.
        moved: whether anything was handed out.
        acknowledged: `begin` as it was when it was acknowledged last.
        error: raised by each poll until `seek`, or None.
    """

    next: MessageId
    begin: Place = FIRST
    after: Place | None = None
    before: Place | None = None
    last: tuple[int, int] | None = None
    until: int | None = None
    bounded_by_end: bool = False
    done: bool = False
    moved: bool = False
    acknowledged: Place | None = None
    error: Exception | None = None

    def start_at(self, position: MessageId) -> None:
        """Begin at a position, or after it where the position says so."""
        self.next = position
        ledger, entry, index = position.ledger, position.entry, position.index
        self.after = None
        if ledger < 0:
            self.begin = FIRST
        elif position.after and index < 0:
            self.begin = (ledger, entry, -1)
            self.after = (ledger, entry, -1)
        else:
            self.begin = (ledger, entry, 0)
            if position.after:
                self.after = (ledger, entry, index)
            elif index > 0:
                self.after = (ledger, entry, index - 1)

    def mark(self) -> Mark:
        """Return what the handing out of a batch changes, for `go_back`."""
        return self.begin, self.after, self.before, self.next, self.moved, self.last, self.done, self.error

    def go_back(self, mark: Mark) -> None:
        """Undo the handing out of a batch, by what `mark` returned before."""
        self.begin, self.after, self.before, self.next, self.moved, self.last, self.done, self.error = mark

    def stop_at(self, position: MessageId) -> None:
        """End before a position, or after it where the position says so."""
        ledger, entry, index = position.ledger, position.entry, position.index
        self.last = (ledger, entry)
        if position.after:
            self.before = (ledger, entry, index + 1) if index >= 0 else (ledger, entry + 1, -1)
        elif index > 0:
            self.before = (ledger, entry, index)
        else:
            self.before = (ledger, entry, -1)
            if entry > 0:
                self.last = (ledger, entry - 1)

    def handed(self, ledger: int, entry: int) -> None:
        """Note that an entry was handed out whole: resume after it, also on another connection.

        An entry before the cursor moves nothing, nor does one behind the stop, of which nothing was handed out.
        """
        if self.after is not None and (ledger, entry) <= (self.after[0], self.after[1] - (self.after[2] >= 0)):
            return
        if self.before is not None and (ledger, entry) > self.before[:2]:
            return
        self.begin = self.after = (ledger, entry, -1)
        self.moved = True
        cut = self.before is not None and self.before[:2] == (ledger, entry)
        place = self.before if cut and self.before is not None else (ledger, entry, -1)
        self.next = MessageId(self.next.topic, self.next.partition, ledger, entry, place[2], after=not cut)

    def reached(self, ledger: int, entry: int) -> bool:
        """Return whether the reading is over once this entry was seen."""
        return self.last is not None and (ledger, entry) >= self.last

    def starts_beyond_stop(self) -> bool:
        """Return whether nothing lies between start and stop, as far as their numbers show."""
        if self.before is None or self.begin in (FIRST, FROM_NOW):
            return False
        if self.begin[2] < 0:
            return self.last is not None and self.begin[:2] >= self.last
        first = (self.begin[0], self.begin[1], (self.after[2] + 1) if self.after is not None and self.after[:2] == self.begin[:2] else 0)
        return first >= (self.before[0], self.before[1], max(0, self.before[2]))


def resolver(partitions: Iterable[TopicPartition]) -> Resolver:
    """Return the resolver of places in these partitions.

    It takes topics by any form of their names, and the one partition of a topic without partitions as 0, too.
    """
    known: dict[TopicPartition, TopicPartition] = {}
    for topic, number in partitions:
        full = str(parse_topic(topic))
        known[full, number] = known[full, max(number, 0)] = topic, number
    return Resolver(MessageId, lambda key: known.get((str(parse_topic(key[0])), key[1]), key))


def unread(topic: str, partition: int) -> MessageId:
    """Return the position that means EARLIEST while nothing is known of the partition."""
    return MessageId(topic, partition, -1, -1)
