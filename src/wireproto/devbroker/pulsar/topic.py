"""Keeps a topic: entries with the facts that dispatch needs, producers' names, subscriptions.

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
        facts: of each entry.
        producers: connected ones by name. alone: whether the connected one is exclusive. epoch: of the last exclusive one.
        subscriptions: by name.
        buffer: its transactions.
        dedup: sequence ids of its producers; None where repeated entries are stored again.
        settings: the broker's.
        terminated: no more messages are accepted; consumers are notified when they reach the end.
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
        """Return the entry id that the next message gets."""
        return self.log.end

    @property
    def readable(self) -> int:
        """Return the entry id before which readers stop."""
        return self.buffer.readable(self.end)

    def hidden(self, number: int) -> bool:
        """Return whether readers do not get an entry."""
        return number in self.buffer.hidden

    def last(self) -> int:
        """Return the id of the last entry that readers may have; -1: there is none."""
        return next((number for number in reversed(range(self.readable)) if not self.hidden(number)), -1)

    def deduplicate(self, on: bool, *, stored: bool = False) -> None:
        """Drop repeated entries from now on, or not.

        Args:
            stored: take the sequence ids of the entries that are stored already.
        """
        if not on:
            self.dedup = None
        elif self.dedup is None:
            self.dedup = Deduplication()
            for facts in self.facts if stored else ():
                self.dedup.stored(facts.origin)

    def append(self, data: bytes, transaction: TxnId | None = None) -> int:
        """Store an entry and dispatch it (one of a transaction when that is committed).

        Returns:
            its id, or -1 for an entry that is stored already.
        Raises:
            ProtocolError: its bytes are wrong. Unserved: it needs a feature that this broker does not have.
        """
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
        """Store the marker of a transaction's end. Nothing is dispatched yet."""
        now = int(time.time() * 1000)
        data = marker(transaction, committed, now)
        self.facts.append(facts_of(data))
        self.buffer.ended(transaction, committed, self.log.append(data, timestamp=now).base)

    def forget(self, subscription: str) -> None:
        """Remove a subscription."""
        self.subscriptions.pop(subscription, None)

    def entry(self, number: int) -> Entry | None:
        """Return an entry by id, or None."""
        return self.log.entry(number)

    def first_at(self, publish_time: int) -> int:
        """Return the first entry published at or after a time (milliseconds since 1970), or the end."""
        return next((number for number, facts in enumerate(self.facts) if facts.publish_time >= publish_time), self.end)

    def position(self, message_id: Any) -> int:
        """Return the entry id at which a MessageIdData starts: of earliest, latest, an entry of this ledger, or beyond."""
        ledger: int = message_id.ledgerId - 2**64 if message_id.ledgerId >= 2**63 else message_id.ledgerId
        entry: int = message_id.entryId - 2**64 if message_id.entryId >= 2**63 else message_id.entryId
        if ledger < self.ledger:
            return 0
        if ledger > self.ledger:
            return self.end
        return min(max(entry, 0), self.end)


def marker(transaction: TxnId, committed: bool, now: int) -> bytes:
    """Return the entry that marks a transaction's end, as Markers.newTxnCommitMarker and newTxnAbortMarker make it."""
    metadata = api.MessageMetadata(producer_name="pulsar.txn.marker", sequence_id=0, publish_time=now)
    metadata.marker_type = COMMITTED if committed else ROLLED_BACK
    metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    data: bytes = metadata.SerializeToString()
    return len(data).to_bytes(4, "big") + data
