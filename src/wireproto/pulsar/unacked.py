"""Keeps what a worker has of one partition of a shared subscription, message by message.

Sans-IO; sends nothing. Holds the entries in hand, and which of their messages were acknowledged; a broker may send an entry again that is
in hand, or that was fetched before it received an acknowledgement.

    wanted         no acknowledgement is known yet
    waiting        decoded, not returned to the user yet
    held           with the user
    delayed        released, to be given back later; or with a transaction, until that has ended
    done           acknowledged since the consumer was opened
    unconfirmed    of these: the broker has not answered the acknowledgement yet

A message whose acknowledgement is unconfirmed is skipped whenever it is redelivered, on any consumer, and its entry is kept for that. A
broker counts the redeliveries of an entry, not of a message: those that were not for a message, as this worker knows, are left out of the
message's own count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partition_consumer import PartitionConsumer

Key = tuple[int, int]
"""(ledger, entry)"""
KEPT = 1000
"""Entries whose counts are kept; some are redelivered to other workers, which this one is not informed of."""


@dataclass(slots=True, eq=False)
class HeldEntry:
    """An entry that this worker has messages of, by their indexes; see the module for the sets.

    Attributes:
        part: its partition. key: its ledger and entry.
        size: messages in the batch, 0 outside one.
        sent: number of redeliveries, as the broker said last.
        consumer: consumer id that it came to last.
    """

    part: PartitionConsumer
    key: Key
    size: int
    sent: int = 0
    consumer: int = 0
    wanted: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    delayed: set[int] = field(default_factory=set)
    unconfirmed: set[int] = field(default_factory=set)

    @property
    def idle(self) -> bool:
        """Whether this worker has nothing of it."""
        return not (self.held or self.waiting or self.delayed)

    def arrives_first(self, indexes: list[int]) -> bool:
        """Take in the messages of an entry of which this worker had nothing; return False, and change nothing, where it had something."""
        if self.wanted or self.done or self.held or self.delayed or self.waiting:
            return False
        self.wanted.update(indexes)
        self.waiting.update(indexes)
        return True

    def arrives(self, index: int) -> bool:
        """Take in a message; return whether the user is to receive it."""
        if index in self.held or index in self.waiting or index in self.done or index in self.delayed:
            return False
        self.wanted.add(index)
        self.waiting.add(index)
        return True


class Unacked:
    """The entries of one partition.

    Attributes:
        entries: those that this worker has messages of.
        unconfirmed: those with acknowledgements that the broker has not answered.
        looked_at: number of frames that have come.
    """

    def __init__(self, part: PartitionConsumer) -> None:
        self._part = part
        self.entries: dict[Key, HeldEntry] = {}
        self.unconfirmed: dict[Key, HeldEntry] = {}
        self.looked_at = 0
        self._unmet: dict[Key, dict[int, int]] = {}  # times that a message was sent again and not handed out, by index
        self._done: dict[Key, int] = {}  # acknowledged whole, oldest first: passed over until `looked_at` has this value

    def begins(self) -> None:
        """Prepare for a new consumer: messages that the user did not receive are redelivered, except those that were acknowledged."""
        self._done.clear()
        for entry in self.unconfirmed.values():
            entry.done &= entry.unconfirmed
        for key, entry in list(self.entries.items()):
            entry.waiting.clear()
            entry.done &= entry.unconfirmed
            self._drop_idle(key, entry)

    def looks_at(self, key: Key, size: int) -> HeldEntry | None:
        """Take in an entry; return None when all of it was acknowledged before it was fetched.

        Args:
            key: its ledger and entry. size: messages in the batch, 0 outside one.
        """
        self.looked_at += 1
        if key in self._done:
            return None
        entry = self.entries.get(key)
        if entry is None:
            entry = self.unconfirmed.get(key)
            if entry is None:
                entry = HeldEntry(self._part, key, size)
            elif not entry.wanted:
                return None
            self.entries[key] = entry
        return entry

    def attempt(self, key: Key, index: int, sent: int) -> int | None:
        """Take in a message of an entry that has come.

        Args:
            key: of the entry. index: of the message. sent: number of redeliveries of the entry.

        Returns:
            which time the message is handed out now, from 1; None: it is not to be.
        """
        entry = self.entries[key]
        if entry.arrives(index):
            return 1 + max(0, sent - self._unmet.get(key, {}).get(index, 0))
        if sent > entry.sent and index in entry.wanted:
            self._not_met(key, index, sent - entry.sent)
        return None

    def _not_met(self, key: Key, index: int, times: int) -> None:
        counts = self._unmet.setdefault(key, {})
        counts[index] = counts.get(index, 0) + times
        if len(self._unmet) > KEPT:
            del self._unmet[next(iter(self._unmet))]

    def exhausted(self, key: Key) -> bool:
        """Return whether nothing of an entry is left to acknowledge, after each of its messages was taken in; it is forgotten then."""
        if self.entries[key].wanted:
            return False
        del self.entries[key]
        return True

    def acknowledged(self, key: Key, index: int, ahead: int) -> None:
        """Note that one message is done. It is in hand to the last, so that what a signal handler breaks into may be done again.

        Args:
            key: of the entry. index: of the message.
            ahead: frames that may have been sent before the broker received the acknowledgement.
        """
        entry = self.entries[key]
        entry.done.add(index)
        entry.wanted.discard(index)
        entry.delayed.discard(index)
        if entry.wanted:
            entry.held.discard(index)
            return
        self._unmet.pop(key, None)
        self._done[key] = self.looked_at + ahead
        del self.entries[key]

    def ack_begun(self, entry: HeldEntry, index: int, waiting: dict[HeldEntry, None]) -> None:
        """Note that one message is done, and that its acknowledgement waits. It is in hand to the last, as in `acknowledged`.

        Args:
            entry: of the message. index: of the message. waiting: gets the entry.
        """
        key = entry.key
        entry.unconfirmed.add(index)
        entry.done.add(index)
        self.unconfirmed[key] = entry
        entry.wanted.discard(index)
        if not entry.wanted:
            self._unmet.pop(key, None)
            self.entries.pop(key, None)
        waiting[entry] = None
        entry.held.discard(index)

    def ack_undone(self, entry: HeldEntry, index: int) -> None:
        """Note that one message is not done: it is in hand still, since a signal handler raised while it was acknowledged."""
        entry.wanted.add(index)
        self.entries[entry.key] = entry
        entry.done.discard(index)
        self.settled(entry, {index}, 0)

    def settled(self, entry: HeldEntry, indexes: set[int], ahead: int) -> None:
        """Note that the broker has taken acknowledgements of an entry's messages.

        Args:
            entry: of the messages. indexes: of the messages. ahead: as in `acknowledged`.
        """
        entry.unconfirmed -= indexes
        if entry.unconfirmed or self.unconfirmed.get(entry.key) is not entry:
            return
        if not entry.wanted:
            self._done[entry.key] = self.looked_at + ahead
        del self.unconfirmed[entry.key]

    def refused(self, entry: HeldEntry, indexes: set[int]) -> None:
        """Note that the broker has refused acknowledgements of an entry's messages: they are redelivered."""
        indexes &= entry.unconfirmed
        entry.done -= indexes
        entry.wanted |= indexes
        self.settled(entry, indexes, 0)

    def released(self, key: Key, index: int) -> None:
        """Note that one message is given back; what of its entry was not handed out is redelivered with it. May be repeated."""
        entry = self.entries.get(key)
        if entry is None:
            return
        entry.held.discard(index)
        for other in entry.waiting:
            self._not_met(key, other, 1)
        entry.waiting.clear()
        self._drop_idle(key, entry)

    def back(self, key: Key, index: int) -> None:
        """Note that the delay of a message is over: it is in no worker's hands until it is redelivered."""
        entry = self.entries.get(key)
        if entry is not None:
            entry.delayed.discard(index)
            self._drop_idle(key, entry)

    def forget(self) -> None:
        """Forget what was acknowledged so long ago that it cannot be in flight any more."""
        while self._done:
            oldest, until = next(iter(self._done.items()))
            if self.looked_at < until:
                return
            del self._done[oldest]

    def _drop_idle(self, key: Key, entry: HeldEntry) -> None:
        if entry.idle:
            del self.entries[key]
