"""Topics: entries with what dispatch needs to know of them, producers' names, subscriptions.

    stored entry   [0x0e01 u16 · crc32c u32] · u32 metadata size · MessageMetadata · payload

An entry is kept as it came in SEND; the checksum covers metadata size, metadata and payload. A topic is one ledger.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...pulsar import PulsarApi_pb2 as api
from .buffer import Buffer, TxnId
from .dedup import Deduplication
from .facts import facts_of
from .settings import Settings

if TYPE_CHECKING:
    from ..log import Entry, PartitionLog
    from .subscription import Outlet, Subscription

COMMITTED, ROLLED_BACK = 21, 22  # MarkerType's TXN_COMMIT and TXN_ABORT


class Topic:
    """One topic or one partition of one.

    Attributes:
        name: full name.
        ledger: number of its one ledger.
        log: its entries; the offset of an entry is its entry id.
        producers: connected ones by name. alone: whether the one that there is excludes others. epoch: of the last that did.
        subscriptions: by name.
        buffer: what transactions have in it.
        dedup: what its producers have stored; None where repeated entries are stored again.
        settings: the broker's.
        terminated: no more messages; readers are told when they reach the end.
    """

    def __init__(self, name: str, ledger: int, log: PartitionLog, settings: Settings | None = None) -> None:
        self.name = name
        self.ledger = ledger
        self.log = log
        self.settings = settings or Settings()
        self.facts = [facts_of(entry.data) for entry in log]
        self.producers: dict[str, Outlet] = {}
        self.alone = False
        self.epoch = -1
        self.subscriptions: dict[str, Subscription] = {}
        self.buffer = Buffer()
        self.dedup: Deduplication | None = None
        self.terminated = False

    @property
    def end(self) -> int:
        """Entry id that the next message gets."""
        return self.log.end

    @property
    def readable(self) -> int:
        """Entry id up to which readers may go."""
        return self.buffer.readable(self.end)

    def hidden(self, number: int) -> bool:
        """Whether an entry is not for readers."""
        return number in self.buffer.hidden

    def last(self) -> int:
        """Entry id of the last one that readers may have; -1: there is none."""
        return next((number for number in reversed(range(self.readable)) if not self.hidden(number)), -1)

    def deduplicate(self, on: bool, *, stored: bool = False) -> None:
        """Drop repeated entries from now on, or no more. `stored`: it did so before, and goes by what is there."""
        if not on:
            self.dedup = None
        elif self.dedup is None:
            self.dedup = Deduplication()
            for facts in self.facts if stored else ():
                self.dedup.stored(facts.origin)

    def append(self, data: bytes, transaction: TxnId | None = None) -> int:
        """Store an entry and hand it out, of a transaction when that is over; its id, -1 for one that is there already. Raises when its
        bytes are wrong."""
        facts = facts_of(data, check=True)
        if self.dedup is not None:
            if self.dedup.repeated(facts.origin):
                return -1
            self.dedup.stored(facts.origin)
        self.facts.append(facts)
        entry = self.log.append(data, timestamp=facts.publish_time)
        if transaction is not None:
            self.buffer.stored(transaction, entry.base)
        for subscription in self.subscriptions.values():
            subscription.dispatch()
        return entry.base

    def end_transaction(self, transaction: TxnId, committed: bool) -> None:
        """Store the marker of its end. Nothing is handed out yet."""
        now = int(time.time() * 1000)
        data = marker(transaction, committed, now)
        self.facts.append(facts_of(data))
        self.buffer.ended(transaction, committed, self.log.append(data, timestamp=now).base)

    def forget(self, subscription: str) -> None:
        """A subscription is over."""
        self.subscriptions.pop(subscription, None)

    def entry(self, number: int) -> Entry | None:
        """An entry by id."""
        return self.log.entry(number)

    def first_at(self, publish_time: int) -> int:
        """The first entry published at or after a time, or the end."""
        return next((number for number, facts in enumerate(self.facts) if facts.publish_time >= publish_time), self.end)

    def position(self, message_id: Any) -> int:
        """Entry id that a MessageIdData means as a place to start: earliest, latest, an entry of this ledger, or beyond."""
        ledger: int = message_id.ledgerId - 2**64 if message_id.ledgerId >= 2**63 else message_id.ledgerId
        entry: int = message_id.entryId - 2**64 if message_id.entryId >= 2**63 else message_id.entryId
        if ledger < self.ledger:
            return 0
        if ledger > self.ledger:
            return self.end
        return min(max(entry, 0), self.end)


def marker(transaction: TxnId, committed: bool, now: int) -> bytes:
    """The entry that tells of a transaction's end, as Markers.newTxnCommitMarker and newTxnAbortMarker make it."""
    metadata = api.MessageMetadata(producer_name="pulsar.txn.marker", sequence_id=0, publish_time=now)
    metadata.marker_type = COMMITTED if committed else ROLLED_BACK
    metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    data: bytes = metadata.SerializeToString()
    return len(data).to_bytes(4, "big") + data
