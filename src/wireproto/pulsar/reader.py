"""The Reader role: partitions from a start to a stop, without a subscription that stays.

What it is: an exclusive, non-durable subscription per partition; what was handed out is known here, so that after a loss reading goes
on behind it: nothing is skipped and nothing repeated.

    AtTime as a start    the place of the first entry published then or later is found first
    LATEST as a stop     GET_LAST_MESSAGE_ID when the reader opens, inclusive
    behind the end       a start that no entry has come to yet, in a ledger of another topic, say, is the topic's end, with a warning
    gone                 a start in a ledger that is deleted is an error of each poll until `seek`, or as the option `reset` says
    not kept             a non-persistent topic is read from now on, whatever the start; LATEST as a stop ends that at once
    the end              the entry at the stop was seen, or the broker has no more before it: the last ones may be gone, or markers;
                         or the topic is terminated and read through

Belongs to one thread at a time. Must not: acknowledge for anybody.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from wireproto._codec import decode_pulsar
from wireproto.errors import DataLoss, TransportError, WireprotoError
from wireproto.flow.parting import PartingRole
from wireproto.flow.resolve import Request
from wireproto.net.task import NEVER, Steps, operation
from wireproto.position import LATEST, AtTime, Latest, MessageId, TopicPartition, Where
from wireproto.records import Batch

from ..due import due
from . import PulsarApi_pb2 as api
from .feed import Feed
from .frames import message_id
from .partition_consumer import PartitionConsumer
from .places import FROM_NOW, Cursor, resolver, unread
from .positions import finding
from .reset import going_on, is_behind, is_gone, passed_over
from .subscription import EXCLUSIVE, Subscription

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions

NOWHERE = (-1, -1)
IDLE_CHECK = 1.0
"""Seconds without a message after which the broker is asked whether there is one before the stop."""
ENDS = 0.8
"""Seconds that this question may take, be there less left of a poll."""


class PulsarReader(PartingRole):
    """Reads one topic; made by `client.reader`."""

    def __init__(self, cluster: PulsarCluster, topic: str, names: list[tuple[str, int, str]], options: PulsarOptions) -> None:
        super().__init__("reader", cluster.loop)
        self.topic = topic
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._options = options
        subscription = Subscription(
            "reader",
            EXCLUSIVE,
            durable=False,
            renamed=True,
            consumer_name=options.consumer_name,
            read_compacted=options.read_compacted,
            create_topic=options.create_topic,
        )
        window, patience = options.receive_memory, options.timeout
        self._feed = Feed(cluster, names, subscription, window=window, patience=patience, flow=False, opened=self._opened)
        self._checked = time.monotonic()

    @classmethod
    def opening(
        cls, cluster: PulsarCluster, topic: str, start: Where, stop: Where | None, options: PulsarOptions, deadline: float
    ) -> Steps[Self]:
        """A reader that is subscribed at its starts. Steps."""
        names = dict((yield from cluster.naming(topic, deadline, create=options.create_topic)))
        keys = [(topic, number) for number in names]
        starts, stops = resolver(keys).ranges(start, stop, keys)
        chosen = [(*key, names[key[1]]) for key in keys if key in starts]
        made = cls(cluster, topic, chosen, options)
        try:
            yield from made._open({part: starts[part.owner] for part in made._feed.parts}, stops, deadline)
            if stop is None and len(chosen) == len(names):
                made._feed.grow()
        except Exception:
            yield from made._feed.closing(min(deadline, time.monotonic() + 1.0))
            raise
        except BaseException:
            made._feed.end()
            raise
        return made

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self, starts: Mapping[PartitionConsumer, Request], stops: Mapping[TopicPartition, Request], deadline: float) -> Steps[None]:
        """Subscribe at the starts and fix the stops; permits come last."""
        feed = self._feed
        starts = {part: start if part.kept else LATEST for part, start in starts.items()}
        times = {part.owner: start for part, start in starts.items() if isinstance(start, AtTime)}
        found: dict[TopicPartition, MessageId] = {}
        if times:
            found = yield from finding(self._cluster, self.topic, {part.partition: part.name for part in starts}, times, deadline)
        for part, start in starts.items():
            place = found.get(part.owner, start)
            if isinstance(place, MessageId):
                part.cursor.start_at(place)
            elif isinstance(place, Latest):
                part.cursor.begin = FROM_NOW
        yield from feed.opening(deadline, starts)
        for part, start in starts.items():
            cursor = part.cursor
            end, mark = (yield from feed.place(part, deadline)) if part.kept else (NOWHERE, NOWHERE)
            if not part.kept:
                pass  # it begins now, wherever that is
            elif isinstance(start, Latest):
                cursor.start_at(MessageId(self.topic, part.partition, *end, after=True))
            elif not isinstance(found.get(part.owner, start), MessageId):
                cursor.start_at(MessageId(self.topic, part.partition, *mark, after=True))
            elif isinstance(start, MessageId) and is_gone(start, mark[0], self._options):
                yield from self._go_on(part, start, end, mark, deadline)
            elif isinstance(start, MessageId) and is_behind(start, end, mark):
                self._cluster.told.warning(
                    ("behind", part.name, start),
                    "%s[%d]: %s lies behind the topic's end, %d:%d, where reading begins instead",
                    *part.owner,
                    start,
                    *end,
                )
                yield from self._go_to_end(part, end, deadline)
            if part.owner in stops:
                self._set_stop(cursor, stops[part.owner], end, mark)
            if cursor.done or cursor.starts_beyond_stop():
                cursor.error = None  # nothing was to be read
                self._retire(part)
            elif cursor.error is None:
                part.flowing = True
                part.flow()

    def _go_on(
        self, part: PartitionConsumer, start: MessageId, end: tuple[int, int], mark: tuple[int, int], deadline: float
    ) -> Steps[None]:
        """The place to begin at is gone: its consumer stands behind `mark`, before the first entry that is left."""
        cursor = part.cursor
        try:
            where = going_on(start, mark[0], self._options, self._cluster.told)
        except DataLoss as why:
            cursor.error = why
            return
        if isinstance(where, Latest):
            yield from self._go_to_end(part, end, deadline)
        else:
            cursor.start_at(MessageId(self.topic, part.partition, *mark, after=True))

    def _go_to_end(self, part: PartitionConsumer, end: tuple[int, int], deadline: float) -> Steps[None]:
        """Subscribe anew, at the end."""
        part.cursor.start_at(MessageId(self.topic, part.partition, *end, after=True))
        self._feed.stop(part)
        yield from self._feed.attached(part, deadline)

    def _opened(self, part: PartitionConsumer, mark: tuple[int, int], closed: bool) -> None:
        """Open again behind a loss. Of a ledger that was deleted meanwhile all may have been read: the log is told, and reading goes on."""
        place = part.cursor.next
        if is_gone(place, mark[0], self._options):
            passed_over(place, mark[0], self._cluster.told)

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
        part.cursor.done = True
        self._feed.stop(part)
        if self.done:
            self._feed.hang_up()

    # -- reading ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout` or every partition is read to its stop.

        Raises:
            DataLoss: the place to begin at is gone; again at each poll until `seek` (with the option reset, reading goes on elsewhere).
            ChecksumMismatch, DecompressionError, Malformed: an entry cannot be read, with its place; again at each poll until `seek`,
                unless the reader was told to skip.
        """
        self._feed.handing = None
        try:
            batch = self._tasks.drive(self.polling(timeout), NEVER)
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's
            self._feed.take_back()
            raise
        self._feed.handing = None
        return batch

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """`poll`, as steps."""
        with self._only:
            return (yield from self._poll(due(timeout)))

    def _poll(self, deadline: float) -> Steps[Batch | None]:
        while not self.done:
            for part in self._feed.parts:
                if part.cursor.error is not None:
                    raise part.cursor.error
            until = min(deadline, self._checked + IDLE_CHECK)
            got = yield from self._feed.next(until)
            now = time.monotonic()
            if got is None:
                for part in self._feed.parts:
                    if part.ended and not part.frames and not part.cursor.done:
                        self._retire(part)  # the topic is terminated: there will never be more
                if now >= self._checked + IDLE_CHECK:
                    self._acknowledge()
                    if any(part.cursor.bounded_by_end and not part.cursor.done for part in self._feed.parts):
                        with contextlib.suppress(TransportError):  # asked again when nothing came again; what lasts, `next` raises
                            yield from self._check_ends(max(deadline, now + ENDS))
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
        cursor = part.cursor
        columns, facts = decode_pulsar(
            frames,
            topic=self.topic,
            partition=part.partition,
            check_crc=self._options.check_crc,
            after=cursor.after,
            before=cursor.before,
            columns=self._options.columns,
        )
        part.handed(sum([fact.permits for fact in facts]), sum(map(len, frames)), new=len(columns) > 0)
        if self._options.on_corrupt == "skip":
            self._feed.tell_skipped(part, facts)
        kept = len(columns)
        passed = None
        for fact in facts:
            if fact.error is not None and self._options.on_corrupt == "raise":
                cursor.error = part.unreadable(fact)
                kept = fact.start
                break
            if cursor.until is not None and fact.publish_time >= cursor.until:
                kept = fact.start
                if passed is not None:
                    part.passed(passed.ledger, passed.entry)
                    passed = None
                cursor.stop_at(part.place(fact.ledger, fact.entry))
                cursor.done = True
                break
            passed = fact
            if cursor.reached(fact.ledger, fact.entry):
                cursor.done = True
                break
        if passed is not None:
            part.passed(passed.ledger, passed.entry)
        if cursor.done:
            self._retire(part)
        if kept != len(columns):
            columns = columns[:kept]
        return Batch(self.topic, part.partition, columns, cursor.next) if kept else None

    def _acknowledge(self) -> None:
        """While nothing comes: acknowledge what was handed out; without that the broker does not tell of a terminated topic's end."""
        for part in self._feed.parts:
            cursor = part.cursor
            if cursor.moved and not cursor.done and cursor.acknowledged != cursor.begin:
                cursor.acknowledged = cursor.begin
                ack = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                ack.message_id.append(message_id(cursor.begin[0], cursor.begin[1]))
                part.tell(ack)

    def _check_ends(self, deadline: float) -> Steps[None]:
        """Nothing came for a while: partitions whose stop lies behind all that the broker still has are done."""
        for part in self._feed.parts:
            cursor = part.cursor
            if cursor.done or not cursor.bounded_by_end or not part.open or part.frames:
                continue
            if cursor.moved:
                ack = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                ack.message_id.append(message_id(cursor.begin[0], cursor.begin[1]))
                yield from self._feed.ask_again(part, ack, deadline)
            stats = yield from self._feed.ask_again(part, api.CommandConsumerStats(), deadline)
            if stats.msgBacklog == 0 and not part.frames:
                self._retire(part)

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None:
                yield batch

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Go on from there; drops what was fetched ahead. The stop stays."""
        with self._only:
            deadline = due(timeout)
            parts = {part.owner: part for part in self._feed.parts}
            starts = {parts[key]: place for key, place in resolver(parts).requests(where, parts, "seek").items()}
            for part in starts:
                old = part.cursor
                fresh = part.cursor = Cursor(unread(*part.owner))
                fresh.before, fresh.last, fresh.until, fresh.bounded_by_end = old.before, old.last, old.until, old.bounded_by_end
                self._feed.stop(part)
                part.flowing = False
            yield from self._open(starts, {}, deadline)

    @property
    def positions(self) -> Mapping[TopicPartition, MessageId]:
        """Where each partition is read next."""
        return {part.owner: part.cursor.next for part in self._feed.parts}

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        return all(part.cursor.done for part in self._feed.parts)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _parting(self, deadline: float) -> Steps[None]:
        """Close the consumers at their brokers."""
        yield from self._feed.closing(deadline)
        self._cluster.roles.forget(self)
