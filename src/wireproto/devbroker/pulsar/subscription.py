"""Implements subscriptions: a cursor, the entries that are delivered and not yet acknowledged, and which consumer gets the next entry.

    entries   … acked … | mark | acked or pending or waiting to be delivered again … | next | never delivered …

`mark` is the first entry that is not acknowledged, `next` the first that was never delivered. Entries between them are done, pending
with a consumer, or in `again`. A batch may be acknowledged in parts: its remaining bits are kept and sent with the next delivery.

    | type       | which consumer gets an entry                                                |
    |------------|-----------------------------------------------------------------------------|
    | Exclusive  | the one consumer                                                            |
    | Failover   | the active one: failover.py                                                 |
    | Shared     | the next one in turn that has permits                                       |
    | Key_Shared | the one that has its key's hash (key_shared.py), in the order of each hash  |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...pulsar import PulsarApi_pb2 as api
from ...pulsar.topics import parse_topic
from .buffer import TxnId
from .failover import active_of
from .key_shared import KeyShared
from .pending_acks import Conflict, PendingAcks

if TYPE_CHECKING:
    from ..log import Entry
    from .facts import Facts
    from .settings import Settings

SubType = api.CommandSubscribe.SubType
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = SubType.Exclusive, SubType.Shared, SubType.Failover, SubType.Key_Shared
AHEAD = 2000
"""Number of entries for each consumer of a Key_Shared subscription that may wait while later ones are delivered."""


class Source(Protocol):
    """The topic, as far as a subscription needs it."""

    name: str
    ledger: int
    facts: list[Facts]
    settings: Settings
    terminated: bool

    @property
    def end(self) -> int:
        """Return the entry id that the next message gets."""

    @property
    def readable(self) -> int:
        """Return the entry id before which readers stop."""

    def hidden(self, number: int) -> bool:
        """Return whether readers do not get an entry."""

    def last(self) -> int:
        """Return the id of the last entry that readers may have; -1: there is none."""

    def entry(self, number: int) -> Entry | None:
        """Return an entry by id, or None."""

    def first_at(self, publish_time: int) -> int:
        """Return the first entry published at or after a time (milliseconds since 1970), or the end."""

    def position(self, message_id: Any) -> int:
        """Return the entry id at which a MessageIdData starts."""

    def forget(self, subscription: str) -> None:
        """Remove a subscription."""


class Outlet(Protocol):
    """A session, as far as topics and subscriptions need it."""

    def send(self, command: Any, entry: bytes = b"") -> None:
        """Send one frame; `entry` follows the command in MESSAGE."""

    def partition(self, topic: Source) -> int:
        """Return the partition number in the ids of this topic."""

    def close_topic(self, topic: Source) -> None:
        """Close the client's producers and consumers of a topic, and notify it."""

    def close_producers(self, topic: Source) -> None:
        """Close the client's producers of a topic, and notify it."""

    def drop_consumer(self, consumer_id: int, keep: bool = False) -> None:
        """Drop a consumer."""


@dataclass(eq=False, slots=True)
class Consumer:
    """One connected consumer.

    Attributes:
        ranges: of hashes, that it asked for. permits: messages that it may still get.
        pending: entries that it has not acknowledged, with the permits that each took.
        ended: whether it was sent REACHED_END_OF_TOPIC.
    """

    session: Outlet
    id: int
    name: str
    priority: int = 0
    ranges: Sequence[tuple[int, int]] = ()  # of hashes, that it asked for
    permits: int = 0
    pending: dict[int, int] = field(default_factory=dict)  # entry: permits that it took
    ended: bool = False


class Subscription:
    """One subscription of one topic.

    Args:
        start: first entry to deliver.
        durable: kept when its last consumer leaves.

    Attributes:
        done: acknowledged entries at or after `mark`. partial: bits still open of entries, 64 to a word.
        again: entries to deliver again. attempts: redelivery count by entry. acks: those of open transactions.
        active: the consumer that gets everything (Exclusive, Failover). keys: of Key_Shared.
    """

    def __init__(self, topic: Source, name: str, kind: Any, start: int, durable: bool) -> None:
        self.topic = topic
        self.name = name
        self.kind = kind
        self.durable = durable
        self.mark = start
        self.next = start
        self.done: set[int] = set()  # acknowledged entries at or after mark
        self.partial: dict[int, list[int]] = {}  # entry: bits still open, 64 to a word
        self.again: set[int] = set()
        self.attempts: dict[int, int] = {}
        self.acks = PendingAcks()
        self.consumers: list[Consumer] = []
        self.active: Consumer | None = None
        self.keys: KeyShared[Consumer] | None = None
        self._turn = 0
        self._changing: asyncio.TimerHandle | None = None
        self._partition = parse_topic(topic.name).partition

    # -- consumers --------------------------------------------------------------------------------------------------------

    def begin(self, kind: Any, meta: Any) -> None:
        """Set the type and KeySharedMeta, before the first consumer is added; others must agree."""
        self.kind = kind
        if kind != KEY_SHARED:
            self.keys = None
        elif self.keys is None or not self.keys.agrees(meta):
            self.keys = KeyShared(meta, lambda number: self.topic.facts[number].sticky)

    def agrees(self, meta: Any) -> bool:
        """Return whether a consumer with this KeySharedMeta fits the others."""
        return self.keys is None or self.keys.agrees(meta)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer; raises RangeTaken."""
        if self.keys is not None:
            self.keys.add(consumer, self.consumers)
        self.consumers.append(consumer)
        if not self._change_active() and self.kind == FAILOVER:
            self._tell_active(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer: its pending entries are delivered again.

        That does not count as a redelivery, unless the consumer had asked for one.
        """
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self._give_back(consumer.pending)
        consumer.pending = {}
        if self.keys is not None:
            self.keys.remove(consumer, self.consumers)
        if not self.consumers:
            self.attempts.clear()
        self._change_active()
        self.dispatch()

    def _change_active(self) -> bool:
        """Choose the active consumer, in the exclusive and failover types; returns whether it changed."""
        before = self.active
        if not self.consumers or self.kind not in (EXCLUSIVE, FAILOVER):
            self.active = None
            return False
        self.active = active_of(self.topic.name, self._partition, self.consumers, self.topic.settings.failover_ring)
        if self.active is before:
            return False
        delay = self.topic.settings.failover_delay if self.kind == FAILOVER else 0.0
        if delay <= 0:
            self._redeliver_to_active()
        elif self._changing is None:
            self._changing = asyncio.get_running_loop().call_later(delay, self._changed)
        return True

    def _changed(self) -> None:
        """Continue after the failover delay."""
        self._changing = None
        self._redeliver_to_active()
        self.dispatch()

    def _redeliver_to_active(self) -> None:
        """Take back all pending entries, which the active consumer is to get."""
        for each in self.consumers:
            self._give_back(each.pending)
            each.pending = {}
        if self.kind == FAILOVER:
            self._tell_active(*self.consumers)

    def _tell_active(self, *consumers: Consumer) -> None:
        for each in consumers:
            each.session.send(api.CommandActiveConsumerChange(consumer_id=each.id, is_active=each is self.active))

    # -- delivery ---------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Deliver as many entries as consumers have permits for."""
        if self._changing is not None:
            return
        if self.keys is None:
            self._deliver_in_order()
        else:
            self._deliver_by_key(self.keys)
        if self.topic.terminated and self.next >= self.topic.end and not self.again:
            for each in self.consumers:
                if not each.ended:
                    each.ended = True
                    each.session.send(api.CommandReachedEndOfTopic(consumer_id=each.id))

    def _deliver_in_order(self) -> None:
        """Deliver entries in order."""
        while self.consumers:
            again = [each for each in self.again if not self._taken(each)] if self.acks else self.again
            number = min(again, default=self.next)
            if number >= self.topic.readable:
                return
            if number in self.done or self._hide(number):
                self._step(number)
                continue
            consumer = self.active if self.kind in (EXCLUSIVE, FAILOVER) else self._in_turn()
            if consumer is None or consumer.permits <= 0:
                return
            self._step(number)
            self._deliver(consumer, number)

    def _deliver_by_key(self, keys: KeyShared[Consumer]) -> None:
        """Deliver entries in the order of each hash: one that cannot be delivered delays those of its hash, and no others."""
        waiting: set[int] = set()
        for number in sorted(self.again):
            if not self._may_deliver():
                return
            if not self._hide(number):
                self._offer(keys, number, waiting)
        while self.next < self.topic.readable and len(self.again) < AHEAD * len(self.consumers) and self._may_deliver():
            number = self.next
            self.next += 1
            if number not in self.done and not self._hide(number):
                self.again.add(number)
                self._offer(keys, number, waiting)

    def _may_deliver(self) -> bool:
        return any(each.permits > 0 for each in self.consumers)

    def _offer(self, keys: KeyShared[Consumer], number: int, waiting: set[int]) -> None:
        slot = keys.slot(number)
        consumer = None if slot in waiting else keys.select(slot)
        if consumer is not None and consumer.permits > 0 and not self._taken(number):
            self.again.discard(number)
            self._deliver(consumer, number)
        elif keys.ordered:
            waiting.add(slot)

    def _hide(self, number: int) -> bool:
        """Return whether readers do not get an entry; if so, it counts as acknowledged."""
        if not self.topic.hidden(number):
            return False
        self._finish(number)
        self._advance()
        return True

    def _taken(self, number: int) -> bool:
        """Return whether transactions have acknowledged all that is left of an entry."""
        taken = self.acks.taken(number)
        return bool(taken) and not self._left(number) & ~taken

    def _left(self, number: int) -> int:
        """Return the bits of an entry's messages that are not acknowledged."""
        words = self.partial.get(number)
        if words is None:
            return (1 << self.topic.facts[number].messages) - 1
        return sum(word << 64 * at for at, word in enumerate(words))

    def _step(self, number: int) -> None:
        if number in self.again:
            self.again.discard(number)
        else:
            self.next = number + 1

    def _in_turn(self) -> Consumer | None:
        for step in range(len(self.consumers)):
            consumer = self.consumers[(self._turn + step) % len(self.consumers)]
            if consumer.permits > 0:
                self._turn = (self._turn + step + 1) % len(self.consumers)
                return consumer
        return None

    def _deliver(self, consumer: Consumer, number: int) -> None:
        entry = self.topic.entry(number)
        assert entry is not None
        cost = self.topic.facts[number].messages
        command = api.CommandMessage(
            consumer_id=consumer.id,
            message_id=api.MessageIdData(ledgerId=self.topic.ledger, entryId=number, partition=consumer.session.partition(self.topic)),
            redelivery_count=self.attempts.get(number, 0) if self.kind in (SHARED, KEY_SHARED) else 0,
        )
        taken = self.acks.taken(number)
        if number in self.partial or taken:
            left = self._left(number) & ~taken
            command.ack_set.extend(_signed(word) for word in _words(left, self.topic.facts[number].messages))
            cost = left.bit_count()
        consumer.permits -= cost
        consumer.pending[number] = cost
        consumer.session.send(command, entry.data)

    # -- acknowledgement --------------------------------------------------------------------------------------------------

    def ack(self, consumer: Consumer, command: Any) -> None:
        """Apply an ACK, individual or cumulative, with or without batch bits."""
        cumulative = command.ack_type == api.CommandAck.AckType.Cumulative
        if cumulative and (self.kind in (SHARED, KEY_SHARED) or len(command.message_id) != 1):
            return  # ignored, but answered
        for message_id in command.message_id:
            number = message_id.entryId
            if message_id.ledgerId != self.topic.ledger or not self.mark <= number < self.topic.end:
                continue
            if cumulative:
                for each in range(self.mark, number):
                    self._finish(each)
            if message_id.ack_set and not self.topic.settings.batch_index_acks:
                continue
            if message_id.ack_set:
                self._ack_part(number, [word & (2**64 - 1) for word in message_id.ack_set])
            else:
                self._finish(number)
        self._advance()
        self.dispatch()

    def take(self, transaction: TxnId, command: Any) -> None:
        """Apply an ACK of a transaction: it holds when that commits.

        Raises:
            Conflict: a message is acknowledged already; ids before it in the command stay applied.
        """
        cumulative = command.ack_type == api.CommandAck.AckType.Cumulative
        if cumulative and self.kind in (SHARED, KEY_SHARED):
            return  # ignored, but answered
        for message_id in command.message_id:
            number = message_id.entryId
            if message_id.ledgerId != self.topic.ledger or number >= self.topic.end:
                continue
            still_open = sum((word & (2**64 - 1)) << 64 * at for at, word in enumerate(message_id.ack_set))
            bits = ((1 << self.topic.facts[number].messages) - 1) & ~still_open
            if number < self.mark or number in self.done or (bits & ~self._left(number) and not cumulative):
                raise Conflict(f"entry {number} has been acknowledged")
            if not cumulative:
                self.acks.take(transaction, number, bits)
            elif still_open:
                self.acks.take_up_to(transaction, number, bits)
            else:
                self.acks.take_up_to(transaction, number + 1, 0)

    def end_transaction(self, transaction: TxnId, committed: bool) -> None:
        """Acknowledge what a committed transaction has acknowledged; of one that was rolled back, deliver individual ones again."""
        taken, (whole, part) = self.acks.ended(transaction)
        if not committed:
            for consumer in self.consumers:
                held = {number: consumer.pending.pop(number) for number in taken if number in consumer.pending}
                self._give_back(held)
                for number in held.keys() & self.again:
                    self.attempts[number] = self.attempts.get(number, 0) + 1
            return
        for number in range(self.mark, whole):
            self._finish(number)
        if part:
            taken[whole] = part
        for number, bits in taken.items():
            if self.mark <= number and number not in self.done:
                self._ack_part(number, _words(self._left(number) & ~bits, self.topic.facts[number].messages))
        self._advance()

    def _advance(self) -> None:
        while self.mark in self.done:
            self.done.discard(self.mark)
            self.mark += 1
        self.next = max(self.next, self.mark)

    def _ack_part(self, number: int, still_open: list[int]) -> None:
        size = self.topic.facts[number].messages
        before = self.partial.get(number) or [(1 << min(64, size - at)) - 1 for at in range(0, size, 64)]
        now = [have & (still_open[at] if at < len(still_open) else 0) for at, have in enumerate(before)]
        if any(now):
            self.partial[number] = now
        else:
            self._finish(number)

    def _finish(self, number: int) -> None:
        self.done.add(number)
        self.partial.pop(number, None)
        self.attempts.pop(number, None)
        self.again.discard(number)
        for each in self.consumers:
            each.pending.pop(number, None)

    def redeliver(self, consumer: Consumer, message_ids: Any) -> None:
        """Deliver again what a consumer holds: the given ids, or all when none are given, and always all in Exclusive and Failover."""
        if self.kind in (EXCLUSIVE, FAILOVER):
            if consumer is not self.active or self._changing is not None:
                return
            message_ids = ()
        wanted = [m.entryId for m in message_ids if m.ledgerId == self.topic.ledger] if message_ids else list(consumer.pending)
        held = {number: consumer.pending.pop(number) for number in wanted if number in consumer.pending}
        self._give_back(held)
        for number in held.keys() & self.again:
            self.attempts[number] = self.attempts.get(number, 0) + 1
        self.dispatch()

    def _give_back(self, numbers: dict[int, int]) -> None:
        for number in numbers:
            if number not in self.done and number >= self.mark:
                self.again.add(number)

    def reset(self, start: int) -> None:
        """Move to an entry: everything before it counts as acknowledged, everything from it on as new."""
        self.mark = self.next = start
        self.done.clear()
        self.partial.clear()
        self.again.clear()
        self.attempts.clear()
        self.acks.clear()
        for each in self.consumers:
            each.pending = {}
            each.ended = False

    @property
    def backlog(self) -> int:
        """Return the number of messages that are not acknowledged."""
        return sum(self.topic.facts[n].messages for n in range(self.mark, self.topic.end) if n not in self.done)


def _words(bits: int, messages: int) -> list[int]:
    """Return bits as ack sets have them, 64 to a word."""
    return [bits >> at & (2**64 - 1) for at in range(0, messages, 64)]


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
