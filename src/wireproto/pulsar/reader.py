"""The Reader role: partitions from a start to a stop, without a subscription that stays.

What it is: an exclusive, non-durable subscription per partition; what was handed out is known here, so that after a loss reading goes
on behind it: nothing is skipped and nothing repeated.

    AtTime as a start    the place of the first entry published then or later is found first
    LATEST as a stop     GET_LAST_MESSAGE_ID when the reader opens, inclusive
    the end              the entry at the stop was seen, or the broker has no more before it: the last ones may be gone, or markers;
                         or the topic is terminated and read through

Belongs to one thread at a time. Must not: acknowledge for anybody.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wireproto._codec import decode_pulsar
from wireproto.flow.resolve import Request
from wireproto.flow.role import Role
from wireproto.position import AtTime, Latest, MessageId, TopicPartition, Where
from wireproto.records import Batch

from . import PulsarApi_pb2 as api
from .feed import Feed
from .frames import message_id
from .partition_consumer import EXCLUSIVE, PartitionConsumer, Subscription
from .places import FROM_NOW, Cursor, resolver, unread
from .positions import find

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions

IDLE_CHECK = 1.0
"""Seconds without a message after which the broker is asked whether there is one before the stop."""


class PulsarReader(Role):
    """Reads one topic; made by `client.reader`."""

    def __init__(
        self, cluster: PulsarCluster, topic: str, start: Where, stop: Where | None, options: PulsarOptions, deadline: float
    ) -> None:
        super().__init__("reader", cluster.loop)
        self.topic = topic
        self._cluster = cluster
        self._options = options
        names = dict(cluster.names(topic, deadline, create=options.create_topic))
        keys = [(topic, number) for number in names]
        starts, stops = resolver(keys).ranges(start, stop, keys)
        chosen = [number for key, number in zip(keys, names, strict=True) if key in starts]
        self._cursors = {number: Cursor(unread(topic, number)) for number in chosen}
        subscription = Subscription(
            "reader",
            EXCLUSIVE,
            durable=False,
            consumer_name=options.consumer_name,
            read_compacted=options.read_compacted,
            create_topic=options.create_topic,
        )
        self._feed = Feed(
            cluster,
            [(topic, number, names[number]) for number in chosen],
            subscription,
            window=options.receive_memory,
            patience=options.timeout,
            prepare=self._prepare,
        )
        self._checked = time.monotonic()
        try:
            for part in self._feed.parts:
                self._open(part, starts[topic, part.partition], stops.get((topic, part.partition)), deadline)
        except BaseException:
            self._feed.close(min(deadline, time.monotonic() + 1.0))
            raise

    # -- opening ------------------------------------------------------------------------------------------------

    def _prepare(self, part: PartitionConsumer) -> None:
        """Before each SUBSCRIBE: where it begins, under a name of its own. A broker lets the former one go in a thread of its own.

        Under the same name it would give us what is left of that, which begins where the former one stood, or take the new one's
        cursor away by its name, and then nothing comes any more (PersistentSubscription.removeConsumer).
        """
        part.start = self._cursors[part.partition].begin
        part.subscription = replace(part.subscription, name=f"reader-{uuid.uuid4().hex[:12]}")

    def _open(self, part: PartitionConsumer, start: Request, stop: Request | None, deadline: float) -> None:
        """Subscribe at the start and fix the stop; permits come last."""
        cursor = self._cursors[part.partition]
        feed = self._feed
        if isinstance(start, AtTime):
            names = {part.partition: part.name}
            start = find(self._cluster, self.topic, names, {(self.topic, part.partition): start}, deadline)[self.topic, part.partition]
        if isinstance(start, MessageId):
            cursor.start_at(start)
        elif isinstance(start, Latest):
            cursor.begin = FROM_NOW
        feed.attached(part, deadline, flow=False)
        end, mark = feed.place(part, deadline, flow=False)
        if isinstance(start, Latest):
            cursor.start_at(MessageId(self.topic, part.partition, *end, after=True))
        elif not isinstance(start, MessageId):
            cursor.start_at(MessageId(self.topic, part.partition, *mark, after=True))
        if stop is not None:
            self._set_stop(cursor, stop, end, mark)
        if cursor.done:
            self._retire(part)
        else:
            part.grant()

    def _set_stop(self, cursor: Cursor, stop: Request, end: tuple[int, int], mark: tuple[int, int]) -> None:
        if isinstance(stop, MessageId):
            cursor.stop_at(stop)
            cursor.bounded_by_end = cursor.last is not None and cursor.last <= end
            cursor.done = stop.ledger < 0 or cursor.starts_beyond_stop()
            return
        if isinstance(stop, AtTime):
            cursor.until = stop.ms
        elif not isinstance(stop, Latest):
            cursor.done = True  # EARLIEST: nothing lies before it
            return
        cursor.stop_at(MessageId(cursor.next.topic, cursor.next.partition, *end, after=True))
        cursor.bounded_by_end = True
        cursor.done = mark >= end or cursor.starts_beyond_stop()

    def _retire(self, part: PartitionConsumer) -> None:
        """The partition is read to its stop."""
        self._cursors[part.partition].done = True
        self._feed.retire(part)
        if self.done:
            self._feed.hang_up()

    # -- reading ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout` or every partition is read to its stop.

        Raises:
            ChecksumMismatch, DecompressionError, Malformed: an entry cannot be read, with its place; again at each poll until `seek`,
                unless the reader was told to skip.
        """
        with self._only:
            return self._poll(time.monotonic() + timeout)

    def _poll(self, deadline: float) -> Batch | None:
        while not self.done:
            for cursor in self._cursors.values():
                if cursor.error is not None:
                    raise cursor.error
            until = min(deadline, self._checked + IDLE_CHECK)
            got = self._feed.next(until)
            now = time.monotonic()
            if got is None:
                for part in self._feed.parts:
                    if part.ended and not part.frames and not self._cursors[part.partition].done:
                        self._retire(part)  # the topic is terminated: there will never be more
                if now >= self._checked + IDLE_CHECK:
                    self._acknowledge()
                    if any(cursor.bounded_by_end and not cursor.done for cursor in self._cursors.values()):
                        self._check_ends(max(deadline, now + 1.0))
                    self._checked = time.monotonic()
                if time.monotonic() >= deadline:
                    return None
                continue
            self._checked = now
            batch = self._decode(*got)
            if batch is not None:
                return batch
        return None

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> Batch | None:
        cursor = self._cursors[part.partition]
        columns, facts = decode_pulsar(
            frames,
            topic=self.topic,
            partition=part.partition,
            check_crc=self._options.check_crc,
            after=cursor.after,
            before=cursor.before,
            columns=self._options.columns,
        )
        part.handed(sum([fact.permits for fact in facts]), sum(map(len, frames)))
        if self._options.on_corrupt == "skip":
            self._feed.tell_skipped(part, facts)
        kept = len(columns)
        passed = None
        for fact in facts:
            if fact.error is not None and self._options.on_corrupt == "raise":
                place = MessageId(self.topic, part.partition, fact.ledger, fact.entry)
                cursor.error = fact.error.with_context(topic=self.topic, partition=part.partition, position=place)
                kept = fact.start
                break
            if cursor.until is not None and fact.publish_time >= cursor.until:
                kept = fact.start
                if passed is not None:
                    cursor.handed(passed.ledger, passed.entry)
                    passed = None
                cursor.stop_at(MessageId(self.topic, part.partition, fact.ledger, fact.entry))
                cursor.done = True
                break
            passed = fact
            if cursor.reached(fact.ledger, fact.entry):
                cursor.done = True
                break
        if passed is not None:
            cursor.handed(passed.ledger, passed.entry)
        if cursor.done:
            self._retire(part)
        if kept != len(columns):
            columns = columns[:kept]
        return Batch(self.topic, part.partition, columns, cursor.next) if kept else None

    def _acknowledge(self) -> None:
        """While nothing comes: acknowledge what was handed out; without that the broker does not tell of a terminated topic's end."""
        for part in self._feed.parts:
            cursor = self._cursors[part.partition]
            if cursor.moved and not cursor.done and cursor.acknowledged != cursor.begin:
                cursor.acknowledged = cursor.begin
                ack = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                ack.message_id.append(message_id(cursor.begin[0], cursor.begin[1]))
                part.tell(ack)

    def _check_ends(self, deadline: float) -> None:
        """Nothing came for a while: partitions whose stop lies behind all that the broker still has are done."""
        for part in self._feed.parts:
            cursor = self._cursors[part.partition]
            if cursor.done or not cursor.bounded_by_end or part.conn is None or part.frames:
                continue
            if cursor.moved:
                ack = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                ack.message_id.append(message_id(cursor.begin[0], cursor.begin[1]))
                self._feed.ask_again(part, ack, deadline)
            stats = self._feed.ask_again(part, api.CommandConsumerStats(), deadline)
            if stats.msgBacklog == 0 and not part.frames:
                self._retire(part)

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None:
                yield batch

    def seek(self, where: Where) -> None:
        """Go on from there; drops what was fetched ahead. The stop stays."""
        with self._only:
            deadline = self._cluster.deadline()
            keys = [(self.topic, number) for number in self._cursors]
            requests = resolver(keys).requests(where, keys, "seek")
            for part in self._feed.parts:
                if (self.topic, part.partition) not in requests:
                    continue
                old = self._cursors[part.partition]
                fresh = self._cursors[part.partition] = Cursor(unread(self.topic, part.partition))
                fresh.before, fresh.last, fresh.until, fresh.bounded_by_end = old.before, old.last, old.until, old.bounded_by_end
                part.close(deadline)
                part.detach()
                self._open(part, requests[self.topic, part.partition], None, deadline)
                if fresh.starts_beyond_stop():
                    self._retire(part)

    @property
    def positions(self) -> Mapping[TopicPartition, MessageId]:
        """Where each partition is read next."""
        return {(self.topic, number): cursor.next for number, cursor in self._cursors.items()}

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        return all(cursor.done for cursor in self._cursors.values())

    # -- ends ---------------------------------------------------------------------------------------------------

    def _let_go(self, deadline: float) -> None:
        """Close the consumers at their brokers."""
        self._feed.close(deadline)
        self._cluster.roles.forget(self)
