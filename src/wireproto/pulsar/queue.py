"""The QueueConsumer role: a worker on a shared or key-shared subscription; each message is acked or given back.

What it is: entries in hand, message by message. Within a batch one message is acknowledged by the set of those still wanted; when the
last of an entry is done the entry itself is acknowledged, so that a broker that keeps no such sets gives up whole batches only.
A release asks for the entry again. What of it is still in this worker's hands is passed over when it comes, and stays in hand; so is what
was acknowledged since the consumer was attached, since an entry may have been fetched before that.

    release(after=)     the message stays here, out of sight; the keeper's timer asks for its entry again, also while the user works
    cannot be read      raised once each time it is handed out, and given back after a pause that grows with that; with on_corrupt="skip"
                        acknowledged, with the reason (validation_error), as Java's client does

Belongs to one thread at a time; the timers touch connections and `_over` alone. Must not: acknowledge by itself what can be read.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wireproto._codec import decode_pulsar
from wireproto.errors import BufferFull, ChecksumMismatch, DecompressionError, OptionError, Revoked, WireprotoError
from wireproto.flow.role import Role
from wireproto.net.retry import Policy
from wireproto.position import MessageId
from wireproto.records import Delivery

from . import PulsarApi_pb2 as api
from .acks import words
from .feed import Feed
from .frames import encode, message_id
from .partition_consumer import KEY_SHARED, SHARED, PartitionConsumer, Subscription

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions

Key = tuple[int, int, int]
"""(partition, ledger, entry)"""


UNREADABLE = Policy(first=1.0, factor=2.0, ceiling=60.0, jitter=0.2)
"""After how long an entry that cannot be read is given back."""
FULL = Policy(first=0.1, factor=1.0, ceiling=0.1, jitter=0.2)
"""How long until what a connection had no room for is tried again; several deliveries wait for it beside each other."""


@dataclass(slots=True)
class InHand:
    """An entry that this worker has messages of.

    Attributes:
        size: messages in the batch, 0 outside one.
        wanted: indexes that nobody has acknowledged yet.
        held: indexes handed to the user and not ended.
        waiting: indexes decoded and not yet handed out.
        done: indexes acknowledged since the consumer was attached.
        delayed: indexes released that are given back later.
    """

    size: int
    wanted: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    delayed: set[int] = field(default_factory=set)

    @property
    def idle(self) -> bool:
        """Whether this worker has nothing of it."""
        return not (self.held or self.waiting or self.delayed)


class PulsarQueue(Role):
    """A worker on a subscription; made by `client.queue`."""

    def __init__(self, cluster: PulsarCluster, topic: str, group: str, options: PulsarOptions, deadline: float) -> None:
        super().__init__("queue consumer", cluster.loop)
        if options.mode not in (None, "shared", "key-shared"):
            raise OptionError(f"a QueueConsumer's mode is shared or key-shared, not {options.mode}; those are Consumers")
        self.topic = topic
        self.group = group
        self._cluster = cluster
        self._options = options
        names = [(topic, number, full) for number, full in cluster.names(topic, deadline, create=options.create_topic)]
        subscription = Subscription(
            group,
            KEY_SHARED if options.mode == "key-shared" else SHARED,
            initial=1,
            consumer_name=options.consumer_name,
            priority=options.priority,
            create_topic=options.create_topic,
        )
        self._feed = Feed(cluster, names, subscription, window=options.receive_memory, patience=options.timeout, prepare=self._prepare)
        self._parts = {part.partition: part for part in self._feed.parts}
        self._entries: dict[Key, InHand] = {}
        self._done: dict[int, dict[Key, int]] = {number: {} for number in self._parts}
        """By partition what was acknowledged whole, oldest first: passed over until so many frames of it were looked at."""
        self._over: deque[tuple[Key, int]] = deque()  # messages whose delay is over; from the keeper
        self._looked_at: dict[int, int] = dict.fromkeys(self._parts, 0)
        self._next: deque[tuple[Any, int, Key, int]] = deque()
        try:
            self._feed.open(deadline)
        except BaseException:
            self._feed.close(min(deadline, time.monotonic() + 1.0))
            raise

    def _prepare(self, part: PartitionConsumer) -> None:
        """Before a partition is attached again: what was not handed out yet comes again, without what the broker was told is done."""
        kept = deque(item for item in self._next if item[2][0] != part.partition)
        for _, _, key, index in self._next:
            if key[0] == part.partition:
                self._entries[key].waiting.discard(index)
        self._next = kept
        for key in [key for key, entry in self._entries.items() if key[0] == part.partition and entry.idle]:
            del self._entries[key]
        for key, entry in self._entries.items():
            if key[0] == part.partition:
                entry.done.clear()
        self._done[part.partition].clear()

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """The next message, or None when none came within `timeout`."""
        with self._only:
            deadline = time.monotonic() + timeout
            while True:
                if self._next:
                    record, attempt, key, index = self._next.popleft()
                    entry = self._entries[key]
                    entry.waiting.discard(index)
                    entry.held.add(index)
                    return Delivery(record, attempt, self._end, self._end_later)
                got = self._feed.next(deadline)
                if got is None:
                    return None
                self._decode(*got)

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> None:
        self._take_up()
        columns, facts = decode_pulsar(frames, topic=self.topic, partition=part.partition, check_crc=self._options.check_crc)
        if self._options.on_corrupt == "skip":
            self._feed.tell_skipped(part, facts)
        records = list(columns.records(self.topic, part.partition))
        done = self._done[part.partition]
        for number, (fact, frame) in enumerate(zip(facts, frames, strict=True)):
            if fact.error is not None and self._options.on_corrupt == "raise":
                rest = frames[number + 1 :]
                part.frames.extendleft(reversed(rest))
                self._feed.requeue(part)
                part.handed(fact.permits, len(frame))
                place = MessageId(self.topic, part.partition, fact.ledger, fact.entry)
                self._give_back_in(UNREADABLE.delay(fact.redelivery_count + 1), part, (part.partition, fact.ledger, fact.entry), -1)
                raise fact.error.with_context(topic=self.topic, partition=part.partition, position=place)
            part.handed(fact.permits, len(frame))
            key = (part.partition, fact.ledger, fact.entry)
            self._looked_at[part.partition] += 1
            if fact.error is not None:
                self._discard(part, key, fact.error)
                continue
            if key in done:
                continue
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = InHand(fact.batch_size)
            for record in records[fact.start : fact.stop]:
                index = record.position.index  # type: ignore[attr-defined]
                if index in entry.held or index in entry.waiting or index in entry.done or index in entry.delayed:
                    continue
                entry.wanted.add(index)
                entry.waiting.add(index)
                self._next.append((record, fact.redelivery_count, key, index))
            if not entry.wanted:
                # nothing of it is left for anybody: compacted, or all acknowledged
                del self._entries[key]
                if fact.start == fact.stop:
                    self._acknowledge(part, key, None, time.monotonic(), wait=False)
        while done:
            oldest, until = next(iter(done.items()))
            if self._looked_at[part.partition] < until:
                break
            del done[oldest]

    # -- ends of a delivery -------------------------------------------------------------------------------------

    def _held(self, delivery: Delivery) -> tuple[PartitionConsumer, Key, InHand, int]:
        """Where a delivery's message is; raises Revoked when it is not in hand."""
        position = delivery.position
        if not isinstance(position, MessageId):
            raise OptionError(f"not a delivery of this queue: {delivery!r}")
        key = (position.partition, position.ledger, position.entry)
        entry = self._entries.get(key)
        if entry is None or position.index not in entry.held:
            raise Revoked("the message was ended before", partitions=((self.topic, position.partition),), position=position)
        return self._parts[position.partition], key, entry, position.index

    def _end(self, delivery: Delivery, done: bool, timeout: float) -> None:
        with self._only:
            deadline = time.monotonic() + timeout
            held = self._held(delivery)
            if done:
                self._ack(*held, deadline)
            else:
                self._release(*held, deadline)

    def _end_later(self, delivery: Delivery, seconds: float) -> None:
        with self._only:
            part, key, entry, index = self._held(delivery)
            entry.held.discard(index)
            entry.delayed.add(index)
            self._give_back_in(seconds, part, key, index)

    def _ack(self, part: PartitionConsumer, key: Key, entry: InHand, index: int, deadline: float) -> None:
        left = entry.wanted - {index}
        self._acknowledge(part, key, words(left, entry.size) if left else None, deadline, index=index if left else -1, size=entry.size)
        entry.held.discard(index)
        entry.wanted.discard(index)
        entry.done.add(index)
        if not entry.wanted:
            self._entries.pop(key, None)
            self._done[part.partition][key] = self._looked_at[part.partition] + self._feed.ahead(part)

    def _acknowledge(
        self,
        part: PartitionConsumer,
        key: Key,
        wanted: tuple[int, ...] | None,
        deadline: float,
        *,
        index: int = -1,
        size: int = 0,
        wait: bool = True,
    ) -> None:
        """Individual ACK: of the entry, or with the set of what is still wanted of it."""
        command = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Individual)
        data = message_id(key[1], key[2], index, ack_set=wanted or ())
        if wanted:
            data.batch_size = size
        command.message_id.append(data)
        if not wait:
            part.tell(command)
            return
        self._feed.ask_again(part, command, deadline)

    def _release(self, part: PartitionConsumer, key: Key, entry: InHand, index: int, deadline: float) -> None:
        entry.held.discard(index)
        # what of the entry still waits here comes again with it
        for waiting in [item for item in self._next if item[2] == key]:
            self._next.remove(waiting)
        entry.waiting.clear()
        if entry.idle:
            self._entries.pop(key, None)
        self._feed.attached(part, deadline)
        part.tell(_redeliver(part, key))

    def _give_back_in(self, seconds: float, part: PartitionConsumer, key: Key, index: int) -> None:
        self._cluster.loop.call_at(time.monotonic() + seconds, self._give_back, part, key, index)

    def _give_back(self, part: PartitionConsumer, key: Key, index: int) -> None:
        """A delay is over: ask for the entry again; without a connection it comes with the next one. Keeper thread."""
        conn = part.conn
        if self._only.closed:
            return
        self._over.append((key, index))
        if conn is not None:
            try:
                conn.send(encode(_redeliver(part, key)))
            except BufferFull:
                self._give_back_in(FULL.delay(1), part, key, index)
            except WireprotoError:
                pass  # the connection is lost

    def _take_up(self) -> None:
        """Messages whose delay is over are nobody's until they come again."""
        while self._over:
            key, index = self._over.popleft()
            entry = self._entries.get(key)
            if entry is not None:
                entry.delayed.discard(index)
                if entry.idle:
                    del self._entries[key]

    def _discard(self, part: PartitionConsumer, key: Key, why: Exception) -> None:
        """Acknowledge what cannot be read, with the reason: else it stands in the subscription's way for ever."""
        command = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Individual)
        command.message_id.append(message_id(key[1], key[2]))
        command.validation_error = api.CommandAck.BatchDeSerializeError
        if isinstance(why, ChecksumMismatch):
            command.validation_error = api.CommandAck.ChecksumMismatch
        elif isinstance(why, DecompressionError):
            command.validation_error = api.CommandAck.DecompressionError
        part.tell(command)

    # -- the end ------------------------------------------------------------------------------------------------

    def _let_go(self, deadline: float) -> None:
        """Leave the subscription: what is in hand and not acked goes to other workers."""
        self._feed.close(deadline)
        self._cluster.roles.forget(self)


def _redeliver(part: PartitionConsumer, key: Key) -> api.CommandRedeliverUnacknowledgedMessages:
    command = api.CommandRedeliverUnacknowledgedMessages(consumer_id=part.id)
    command.message_ids.append(message_id(key[1], key[2]))
    return command
