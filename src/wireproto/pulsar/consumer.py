"""The Consumer role: a member of a durable subscription that reads a log and commits positions.

What it is: a failover (or exclusive) consumer on each partition of each topic. A commit is a cumulative acknowledgement with a reply.
Within a batch it carries the set of indexes still wanted; a broker that keeps no such sets takes the entry before, and the batch comes
again after a restart: never lost, perhaps repeated.

    what was handed out is remembered per partition, so that a reconnect repeats nothing that this member has seen;
    a partition that another member took (ACTIVE_CONSUMER_CHANGE, also as the first word after a reconnect) is forgotten: it comes back
    with what was not committed, and the next commit says once that it was not.

Belongs to one thread at a time. Must not: acknowledge what was not handed out, or commit by itself unless `auto_commit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from wireproto._codec import decode_pulsar
from wireproto.errors import OptionError, Revoked, TransportError
from wireproto.flow.resolve import Request
from wireproto.flow.role import Role
from wireproto.position import AtTime, Earliest, Latest, MessageId, Position, TopicPartition, Where, places
from wireproto.records import Batch

from . import PulsarApi_pb2 as api
from .acks import wanted_after
from .feed import Feed
from .frames import message_id
from .partition_consumer import EXCLUSIVE, FAILOVER, PartitionConsumer, Subscription
from .places import Cursor, resolver, unread
from .topics import parse_topic

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions

NEWEST, OLDEST = 0, 1
"""CommandSubscribe.InitialPosition."""
SOON = 1.0
"""Seconds that an automatic commit may take beside a poll's own."""


class PulsarConsumer(Role):
    """A member of a subscription; made by `client.consumer`."""

    def __init__(
        self, cluster: PulsarCluster, topics: Sequence[str], group: str, start: Where, options: PulsarOptions, deadline: float
    ) -> None:
        super().__init__("consumer", cluster.loop)
        if options.mode not in (None, "failover", "exclusive"):
            raise OptionError(f"a Consumer's mode is failover or exclusive, not {options.mode}; shared ones are queues")
        if not topics:
            raise OptionError("a consumer needs a topic")
        self.group = group
        self._cluster = cluster
        self._options = options
        names = [(topic, number, full) for topic in topics for number, full in cluster.names(topic, deadline, create=options.create_topic)]
        self._cursors = {(topic, number): Cursor(unread(topic, number)) for topic, number, _ in names}
        self._batch_sizes: dict[tuple[str, int, int, int], int] = {}
        self._committed: dict[TopicPartition, MessageId] = {}
        self._handed: dict[TopicPartition, MessageId] = {}
        self._in_work: tuple[TopicPartition, MessageId | None] | None = None  # the newest batch's, and what `_handed` had before
        self._saved_at = time.monotonic()
        self._dropped: set[TopicPartition] = set()  # handed out, not committed, another's now: what the next commit tells
        initial = self._initial(start, names, deadline)
        subscription = Subscription(
            group,
            EXCLUSIVE if options.mode == "exclusive" else FAILOVER,
            initial=initial,
            since=start.ms if isinstance(start, AtTime) else None,
            consumer_name=options.consumer_name,
            priority=options.priority,
            read_compacted=options.read_compacted,
            create_topic=options.create_topic,
        )
        self._feed = Feed(cluster, names, subscription, window=options.receive_memory, patience=options.timeout, changed=self._changed)
        try:
            self._feed.open(deadline)
        except BaseException:
            self._feed.close(min(deadline, time.monotonic() + 1.0))
            raise

    def _initial(self, start: Where, names: Sequence[tuple[str, int, str]], deadline: float) -> int:
        """How SUBSCRIBE makes a new subscription begin; explicit positions are set by the admin interface beforehand."""
        if isinstance(start, (Earliest, AtTime)):
            return OLDEST
        if isinstance(start, Latest):
            return NEWEST
        from .admin import PulsarAdmin  # needed by positions that are given, alone

        admin = PulsarAdmin(self._cluster)
        keys = [(topic, number) for topic, number, _ in names]
        for (topic, number), where in resolver(keys).requests(start, keys).items():
            if not isinstance(where, MessageId):
                raise OptionError(f"a subscription begins at one place for all partitions, or at a position in each, not at {where!r}")
            admin.create_group(self.group, parse_topic(topic).of_partition(number), where, timeout=deadline - time.monotonic())
        return OLDEST

    # -- reading ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout`. Partitions come and go here."""
        with self._only:
            deadline = time.monotonic() + timeout
            if self._options.auto_commit and time.monotonic() - self._saved_at >= self._options.auto_commit_interval:
                self._commit_by_itself(max(deadline, time.monotonic() + SOON))
            self._in_work = None
            while True:
                got = self._feed.next(deadline)
                if got is None:
                    return None
                batch = self._decode(*got)
                if batch is not None:
                    return batch

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> Batch | None:
        owner = (part.topic, part.partition)
        cursor = self._cursors[owner]
        columns, facts = decode_pulsar(
            frames,
            topic=part.topic,
            partition=part.partition,
            check_crc=self._options.check_crc,
            after=cursor.after,
            columns=self._options.columns,
        )
        if self._options.on_corrupt == "skip":
            self._feed.tell_skipped(part, facts)
        kept = len(columns)
        for number, (fact, frame) in enumerate(zip(facts, frames, strict=True)):
            if fact.error is not None and self._options.on_corrupt == "raise":
                part.frames.extendleft(reversed(frames[number:]))
                self._feed.requeue(part)
                if fact.start:
                    kept = fact.start  # first what came before it; the entry itself is met again at the next poll
                    break
                place = MessageId(part.topic, part.partition, fact.ledger, fact.entry)
                raise fact.error.with_context(topic=part.topic, partition=part.partition, position=place)
            part.handed(fact.permits, len(frame))
            cursor.handed(fact.ledger, fact.entry)
            if fact.batch_size:
                self._batch_sizes[(*owner, fact.ledger, fact.entry)] = fact.batch_size
        if not kept:
            return None
        columns = columns[:kept] if kept != len(columns) else columns
        self._in_work = owner, self._handed.get(owner)
        self._handed[owner] = cursor.next
        return Batch(part.topic, part.partition, columns, cursor.next)

    def _changed(self, part: PartitionConsumer) -> None:
        """Another member is fed: what this one was handed is that one's now, and comes again when it comes back."""
        if part.active:
            self._cluster.told.rebalanced(self.group, [(part.topic, part.partition)], ())
            return
        owner = (part.topic, part.partition)
        self._cluster.told.rebalanced(self.group, (), [owner])
        if self._handed.pop(owner, None) is not None:
            self._dropped.add(owner)
        self._cursors[owner] = Cursor(unread(*owner))
        self._batch_sizes = {key: size for key, size in self._batch_sizes.items() if key[:2] != owner}

    # -- committing ---------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> None:
        """Commit where to resume; None commits what poll has handed out.

        Raises:
            Revoked: naming the partitions that another member is fed from, or was since they were handed out: that comes again. The others
                are committed.
        """
        positions = places(positions, "commit")
        with self._only:
            self._commit(None if positions is None else dict(positions), time.monotonic() + timeout)

    def _commit_by_itself(self, deadline: float) -> None:
        """An automatic commit: what fails is read again by whoever goes on, or committed the next time."""
        if self._handed:
            with suppress(Revoked, TransportError):
                self._commit(None, deadline)
        self._dropped.clear()

    def _commit(self, positions: dict[TopicPartition, Position] | None, deadline: float) -> None:
        parts = {(part.topic, part.partition): part for part in self._feed.parts}
        everything = positions is None
        self._saved_at = time.monotonic()
        positions = dict(self._handed) if positions is None else positions
        for owner in positions:
            if owner not in parts:
                raise OptionError(f"partition {owner[1]} of {owner[0]!r} is not read by this consumer")
        lost: set[TopicPartition] = set()
        for owner, position in positions.items():
            if not isinstance(position, MessageId):
                raise OptionError(f"a Pulsar position is ledger:entry:index, not {position!r}")
            part = parts[owner]
            self._feed.attached(part, deadline)
            if not self._feeds(part, deadline):
                lost.add(owner)
                continue
            ack = self._acknowledgement(part, position)
            if ack is not None and self._feed.ask_again(part, ack, deadline, partial(self._feeds, part, deadline)) is None:
                lost.add(owner)
                continue
            self._committed[owner] = position
            if self._handed.get(owner) == position:
                del self._handed[owner]
        if everything:
            lost |= self._dropped
        self._dropped -= lost
        if lost:
            shown = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(lost))
            raise Revoked(f"another member is fed now, or was meanwhile: not committed is {shown}", partitions=tuple(sorted(lost)))

    def _feeds(self, part: PartitionConsumer, deadline: float) -> bool:
        """Whether this member is fed from an attached partition; of failover, one of the members is.

        One that has not been told yet may be: it commits what it was handed, which a broker takes from any member.
        """
        self._feed.settle(part, deadline)
        return part.active or not part.told

    def _acknowledgement(self, part: PartitionConsumer, position: MessageId) -> api.CommandAck | None:
        """The cumulative ACK that makes the subscription resume at a position; None when that is its beginning."""
        ledger, entry, index = position.ledger, position.entry, position.index
        if ledger < 0 or (entry < 0 and position.after):
            return None
        size = self._batch_sizes.get((part.topic, part.partition, ledger, entry), 0)
        first_wanted = index + 1 if position.after else max(index, 0)
        command = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
        if position.after and (index < 0 or first_wanted >= size > 0):
            command.message_id.append(message_id(ledger, entry))
            self._forget(part, ledger, entry)
        elif first_wanted == 0:
            if entry == 0:
                return None  # the entry before lies in another ledger: its commit stands
            command.message_id.append(message_id(ledger, entry - 1))
        elif size == 0:
            raise OptionError(f"position {position}: this consumer was not handed that batch, so its size is not known")
        else:
            data = message_id(ledger, entry, first_wanted - 1, ack_set=wanted_after(first_wanted, size))
            data.batch_size = size
            command.message_id.append(data)
        return command

    def _forget(self, part: PartitionConsumer, ledger: int, entry: int) -> None:
        known = self._batch_sizes
        for key in [key for key in known if key[:2] == (part.topic, part.partition) and key[2:] <= (ledger, entry)]:
            del known[key]

    def committed(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, MessageId]:
        """Where each partition would be resumed: this member's last commit, or what the broker keeps, which counts whole entries."""
        with self._only:
            deadline = time.monotonic() + timeout
            found = {}
            for part in self._feed.parts:
                owner = (part.topic, part.partition)
                _, mark = self._feed.place(part, deadline)
                kept = MessageId(*owner, *mark, after=True)
                mine = self._committed.get(owner)
                found[owner] = mine if mine is not None and mine > kept else kept
            return found

    def lag(self, *, timeout: float = 30.0) -> Mapping[TopicPartition, int]:
        """Entries behind the committed position by the broker's statistics; a batch is one entry."""
        with self._only:
            deadline = time.monotonic() + timeout
            found = {}
            for part in self._feed.parts:
                stats = self._feed.ask_again(part, api.CommandConsumerStats(), deadline)
                found[part.topic, part.partition] = int(stats.msgBacklog)
            return found

    # -- control ------------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        parts = {(part.topic, part.partition): part for part in self._feed.parts}
        with self._only:
            for owner in partitions:
                if owner not in parts:
                    raise Revoked(f"{owner[0]}[{owner[1]}] is not assigned to this consumer", partitions=(owner,))
                parts[owner].paused = paused
                if not paused:
                    parts[owner].grant()

    def seek(self, where: Where, *, timeout: float = 30.0) -> None:
        """Move the subscription itself, for all its members; what was fetched ahead is dropped."""
        with self._only:
            deadline = time.monotonic() + timeout
            parts = {(part.topic, part.partition): part for part in self._feed.parts}
            for key, place in resolver(parts).requests(where, parts, "seek").items():
                self._seek(parts[key], place, deadline)

    def _seek(self, part: PartitionConsumer, place: Request, deadline: float) -> None:
        owner = (part.topic, part.partition)
        self._feed.attached(part, deadline)
        target = api.CommandSeek()
        fresh = Cursor(unread(*owner))
        if isinstance(place, AtTime):
            target.message_publish_time = place.ms
        elif isinstance(place, Earliest):
            target.message_id.CopyFrom(message_id(-1, -1))
        elif isinstance(place, Latest):
            target.message_id.CopyFrom(message_id(2**63 - 1, 2**63 - 1))
        else:
            assert isinstance(place, MessageId)
            fresh.start_at(place)
            ledger, entry, index = fresh.begin
            # SEEK goes to the entry named; "after" a whole entry is the one behind it
            target.message_id.CopyFrom(message_id(ledger, entry + 1 if index < 0 and ledger >= 0 else entry))
        self._cursors[owner] = Cursor(unread(*owner))
        self._feed.rewind(part, target, deadline)
        self._cursors[owner] = fresh
        fresh.after = fresh.after if fresh.after is not None and fresh.after[2] >= 0 else None
        self._handed.pop(owner, None)
        self._dropped.discard(owner)
        self._committed.pop(owner, None)
        part.grant()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member is fed from."""
        return frozenset((part.topic, part.partition) for part in self._feed.parts if part.active and part.conn is not None)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _work_failed(self) -> None:
        if self._in_work is not None and self._handed.pop(self._in_work[0], None) is not None and self._in_work[1] is not None:
            self._handed[self._in_work[0]] = self._in_work[1]

    def _let_go(self, deadline: float) -> None:
        """Leave the subscription; with `auto_commit` what was handed out is committed first, but for what an error left half done."""
        try:
            if self._options.auto_commit and self._handed:
                with suppress(Revoked):
                    self._commit(None, deadline)
        finally:
            self._feed.close(deadline)
            self._cluster.roles.forget(self)
