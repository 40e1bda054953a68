"""Reads a log as a member of a durable subscription, and commits positions: the Consumer role.

Opens a failover (or exclusive) consumer on each partition of each topic. A commit is a cumulative acknowledgement with a reply. Within a
batch it carries the set of indexes still wanted; a broker that keeps no such sets acknowledges up to the entry before, so that the batch
is redelivered after a restart: never lost, perhaps repeated.

What poll returned is remembered per partition, so that a reconnect repeats nothing that this member has seen. It is forgotten

    where another member was made active for the partition (ACTIVE_CONSUMER_CHANGE, also as the first word after a reconnect): it comes
        back with what was not committed, and the next commit says once that it was not;
    where the subscription was reset to before where this member was, or to before what it has committed since.

Belongs to one thread at a time. It never acknowledges what poll did not return, nor by itself unless `auto_commit` is set.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from wireproto._codec import decode_pulsar
from wireproto.errors import OptionError, Revoked, TransportError, UsageError, WireprotoError
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.resolve import Request, all_assigned, named, shown
from wireproto.net.task import NEVER, Steps, operation, steps
from wireproto.position import AtTime, Earliest, Latest, MessageId, Position, TopicPartition, Where, places
from wireproto.records import Batch

from ..deadlines import deadline_after
from . import PulsarApi_pb2 as api
from .acks import Log
from .codes import SubscriptionNotFound, TopicNotFound
from .frames import message_id
from .message_stream import MessageStream
from .partition_consumer import PartitionConsumer
from .places import Cursor, resolver, unread
from .positions import finding
from .reset import first_ledgers, going_on, is_gone
from .subscriber import Place
from .subscriber import places as entries
from .subscription import EXCLUSIVE, FAILOVER, NEWEST, OLDEST, Subscription

if TYPE_CHECKING:
    from .acking_transaction import AckingTransaction
    from .admin import PulsarAdmin
    from .cluster import PulsarCluster
    from .options import PulsarOptions

T = TypeVar("T")
Begins = dict[TopicPartition, tuple[int, int, int] | None]
SOON = 1.0
"""Seconds that an automatic commit may take beside a poll's own."""


class PulsarConsumer(ClosingRole):
    """Member of a subscription; made by `client.consumer`.

    Each call raises Closed when the consumer or its client was closed, and ConcurrentUse when another thread is in a call.
    """

    def __init__(
        self, cluster: PulsarCluster, names: list[tuple[str, int, str]], group: str, start: Where, begins: Begins, options: PulsarOptions
    ) -> None:
        super().__init__("consumer", cluster.loop)
        self._tasks = cluster.tasks
        self.group = group
        self._cluster = cluster
        self._options = options
        self._logs: dict[TopicPartition, Log] = {}
        self._in_work: tuple[Log, MessageId | None] | None = None  # the newest batch's, and what it had handed out before
        self._saved_at = time.monotonic()
        self._fed: set[TopicPartition] = set()  # active on these, as the client's log has it
        self._stored: deque[tuple[TopicPartition, Log, MessageId]] = deque()  # that transactions have committed; from the I/O thread
        self._dropped: dict[TopicPartition, Log] = {}  # handed out, not committed, another member's since: the next commit raises Revoked
        subscription = Subscription(
            group,
            EXCLUSIVE if options.mode == "exclusive" else FAILOVER,
            initial=NEWEST if isinstance(start, Latest) else OLDEST,
            consumer_name=options.consumer_name,
            priority=options.priority,
            read_compacted=options.read_compacted,
            create_topic=options.create_topic,
        )
        self._stream = MessageStream(
            cluster,
            names,
            subscription,
            window=options.receive_memory,
            recovery_timeout=options.timeout,
            opened=self._opened,
            marked=self._marked,
            changed=self._changed,
        )
        for part in self._stream.parts:
            if part.owner in begins:
                part.cursor.after = begins[part.owner]
            elif isinstance(start, AtTime):
                part.given = replace(subscription, since=start.ms)

    @classmethod
    def opening(
        cls, cluster: PulsarCluster, topics: Sequence[str], group: str, start: Where, options: PulsarOptions, deadline: float
    ) -> Steps[Self]:
        """Join the subscription on all partitions of the topics, and return the consumer. Steps.

        Args:
            cluster: of the client. topics: names in any form. group: name of the subscription. start: where a new one begins.
            options: of the role. deadline: as `time.monotonic()`.

        Raises:
            OptionError: the mode is neither failover nor exclusive, there is no topic, or `start` is wrong.
            PulsarError: a broker refuses. DataLoss: a position to start at is gone.
            TransportError: no partition could be opened in time.
        """
        if options.mode not in (None, "failover", "exclusive"):
            raise OptionError(f"a Consumer's mode is failover or exclusive, not {options.mode}; shared ones are queues")
        if not topics:
            raise OptionError("a consumer needs a topic")
        names = []
        for topic in topics:
            found = yield from cluster.naming(topic, deadline, create=options.create_topic)
            names += [(topic, number, full) for number, full in found]
        begins = yield from _beginning(cluster, group, start, names, options, deadline)
        made = cls(cluster, names, group, start, begins, options)
        try:
            yield from made._stream.opening(deadline)
            made._stream.grow()
        except Exception:
            yield from made._stream.closing(min(deadline, time.monotonic() + 1.0))
            raise
        except BaseException:
            made._stream.end()
            raise
        return made

    # -- reading ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout`. Partitions are taken over and given up here.

        Args:
            timeout: seconds to wait. An automatic commit may take a second more.

        Raises:
            ChecksumMismatch, DecompressionError, Malformed: an entry cannot be read; the error has its position. It is raised again
                whenever it is the partition's turn, until `seek` moves behind the entry, unless the option `on_corrupt` is ``"skip"``.
            PulsarError: a topic is gone, or a broker has refused to open a partition again for the option `timeout`.
            Closed: the consumer was closed. ConcurrentUse: another thread is in a call.
        """
        self._stream.poll = None
        try:
            batch = self._tasks.drive(self.polling(timeout), NEVER)
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's
            if self._stream.take_back():
                self._work_failed()
            raise
        self._stream.poll = None
        return batch

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            self._take_in_stored()
            if self._options.auto_commit and time.monotonic() - self._saved_at >= self._options.auto_commit_interval:
                yield from self._commit_by_itself(max(deadline, time.monotonic() + SOON))
            self._in_work = None
            while True:
                got = yield from self._stream.next(deadline)
                if got is None:
                    return None
                batch = self._decode(*got)
                if batch is not None:
                    return batch

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> Batch | None:
        cursor, log = part.cursor, self._log(part.owner)
        columns, facts = decode_pulsar(
            frames,
            topic=part.topic,
            partition=part.partition,
            check_crc=self._options.check_crc,
            after=cursor.after,
            columns=self._options.columns,
        )
        if self._options.on_corrupt == "skip":
            self._stream.tell_skipped(part, facts)
        kept = len(columns)
        for number, (fact, frame) in enumerate(zip(facts, frames, strict=True)):
            if fact.error is not None and self._options.on_corrupt == "raise":
                part.frames.extendleft(reversed(frames[number:]))
                if fact.start:
                    kept = fact.start  # first what came before it; the entry itself is met again at the next poll
                    break
                raise part.unreadable(fact)
            part.handed(fact.permits, len(frame))
            part.passed(fact.ledger, fact.entry)
            log.passed(fact.ledger, fact.entry, fact.batch_size)
        if not kept:
            return None
        columns = columns[:kept] if kept != len(columns) else columns
        self._in_work = log, log.handed
        log.handed = cursor.next
        return Batch(part.topic, part.partition, columns, cursor.next)

    def _changed(self, part: PartitionConsumer, before: bool) -> None:
        """Forget what this member was handed of a partition when another member is active, or may have been: that one has read on."""
        if before or not part.active:
            if part.owner in self._fed:
                self._cluster.log.rebalanced(self.group, (), [part.owner])
                self._fed.discard(part.owner)
            self._begin_anew(part)
        if part.active:
            self._cluster.log.rebalanced(self.group, [part.owner], ())
            self._fed.add(part.owner)

    def _opened(self, part: PartitionConsumer, mark: Place, closed: bool) -> None:
        """Note the mark-delete position of a partition that was opened again; one that was moved back is a new beginning.

        A broker whose connection was lost, and that closed nothing itself, may have forgotten what it was sent last.
        """
        now = time.monotonic()
        if self._log(part.owner).moved_back(mark, None if closed else now):
            self._begin_anew(part)
        self._log(part.owner).set_mark_delete(mark, now)

    def _marked(self, part: PartitionConsumer, mark: Place) -> None:
        """Note the mark-delete position of a partition as this member becomes active."""
        log = self._log(part.owner)
        if log.acked is None or mark > log.acked:
            log.set_mark_delete(mark, time.monotonic())

    def _begin_anew(self, part: PartitionConsumer) -> None:
        log = self._log(part.owner)
        if log.handed is not None:
            self._dropped[part.owner] = log
        self._logs[part.owner] = Log()
        part.cursor = Cursor(unread(*part.owner))

    def _log(self, owner: TopicPartition) -> Log:
        found = self._logs.get(owner)
        if found is None:
            found = self._logs[owner] = Log()
        return found

    # -- committing ---------------------------------------------------------------------------------------------

    @operation
    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Commit where the subscription resumes (cumulative acknowledgement). This only moves forward; `seek` moves back.

        Args:
            positions: where to resume, by (topic, partition), such as a batch's `next_positions`; None: after all that poll returned.
            timeout: seconds for the call.

        Raises:
            Revoked: names the partitions that another member reads now, or has read since poll returned from them: that is delivered again.
                The others are committed.
            OptionError: a partition is not read by this consumer, or a position is not Pulsar's, or lies in another partition, or within a
                batch that poll did not return; nothing is committed.
            TimedOut: not all was acknowledged in time. PulsarError: a broker refuses.
        """
        positions = places(positions, "commit")
        with self._only:
            yield from self._commit(None if positions is None else dict(positions), deadline_after(timeout))

    def _commit_by_itself(self, deadline: float) -> Steps[None]:
        """Commit automatically; what fails is committed the next time, or delivered again to the member that reads on."""
        if self._handed():
            with suppress(Revoked, TransportError):
                yield from self._commit(None, deadline)
        self._dropped.clear()

    def _commit(self, positions: dict[TopicPartition, Position] | None, deadline: float) -> Steps[None]:
        self._take_in_stored()
        everything = positions is None
        self._saved_at = time.monotonic()
        lost: set[TopicPartition] = set()
        for part, position in self._targets(self._handed() if positions is None else positions):
            owner = part.owner
            yield from self._stream.attached(part, deadline)
            feeds, log = (yield from self._feeds(part, deadline)), self._log(owner)
            if not feeds or (everything and log.handed != position):  # it began again meanwhile
                lost.add(owner)
                continue
            target = log.target(position)
            if target is not None:  # else there is nothing to acknowledge, and `committed` is what the broker keeps
                ack = api.CommandAck(ack_type=api.CommandAck.Cumulative, message_id=[target])
                if (yield from self._stream.ask_again(part, ack, deadline, partial(self._goes_on, part, log, deadline))) is None:
                    lost.add(owner)
                    continue
                log.committed_to(position, time.monotonic())
            if not everything:
                self._dropped.pop(owner, None)
        if everything:
            lost |= self._dropped.keys()
        self._forget_dropped(lost)
        if lost:
            text = f"the broker sends to another member of the subscription now, or did meanwhile; not committed: {shown(lost)}"
            raise Revoked(text, partitions=tuple(sorted(lost)))

    def _forget_dropped(self, reported: Iterable[TopicPartition]) -> None:
        for owner in reported:
            self._dropped.pop(owner, None)

    def _feeds(self, part: PartitionConsumer, deadline: float) -> Steps[bool]:
        """Return whether this member is active on an attached partition; in a failover subscription one of the members is.

        A member that has not been informed yet may be: it commits what it was handed, which a broker accepts from any member.
        """
        yield from self._stream.settle(part, deadline)
        return part.active or not part.active_known

    def _goes_on(self, part: PartitionConsumer, log: Log, deadline: float) -> Steps[bool]:
        """Return whether this member is active, and did not have to begin again."""
        return (yield from self._feeds(part, deadline)) and self._log(part.owner) is log

    def _handed(self) -> dict[TopicPartition, Position]:
        """Return what poll has returned and is not committed, by partition."""
        return {owner: log.handed for owner, log in self._logs.items() if log.handed is not None}

    def _parts(self) -> dict[TopicPartition, PartitionConsumer]:
        return {part.owner: part for part in self._stream.parts}

    @operation
    def committed(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, MessageId]]:
        """Return where each partition would be resumed.

        That is this member's last commit, or the broker's mark-delete position, which counts whole entries.

        Args:
            timeout: seconds for the call.

        Raises:
            TransportError, PulsarError: a partition gives no answer in time; the error names it, and `known` has the positions of the
                others.
        """
        with self._only:
            deadline = deadline_after(timeout)
            self._take_in_stored()

            def resumes(part: PartitionConsumer, reply: api.CommandGetLastMessageIdResponse) -> MessageId:
                _, mark = entries(reply)
                kept = MessageId(*part.owner, *mark, after=True)
                mine = self._log(part.owner).committed
                return mine if mine is not None and mine > kept else kept

            return (yield from self._of_each(api.CommandGetLastMessageId, resumes, deadline))

    @operation
    def lag(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, int]]:
        """Return the number of entries behind the committed position of each partition, by the broker's statistics; a batch is one entry.

        Args:
            timeout: seconds for the call.

        Raises:
            TransportError, PulsarError: a partition gives no answer in time; the error names it, and `known` has the numbers of the others.
        """
        with self._only:
            return (yield from self._of_each(api.CommandConsumerStats, lambda _, stats: int(stats.msgBacklog), deadline_after(timeout)))

    def _of_each(self, command: type[Any], read: Callable[[PartitionConsumer, Any], T], deadline: float) -> Steps[dict[TopicPartition, T]]:
        """Ask the brokers of all partitions at the same time. Raises the first failure, with what the others answered."""
        parts = self._stream.parts
        replies, failed = yield from self._stream.ask_each(parts, lambda _: command(), deadline)
        found = {part.owner: read(part, replies[part]) for part in parts if part in replies}
        for problem in failed.values():
            if isinstance(problem, WireprotoError):
                problem.known = found
            raise problem
        return found

    # -- in a transaction: see transactions.PulsarTransactions --------------------------------------------------

    def of(self, cluster: PulsarCluster) -> bool:
        """Return whether the consumer is of this client.

        Args:
            cluster: of the client.
        """
        return cluster is self._cluster

    def committing_within(
        self, turn: AckingTransaction, positions: Mapping[TopicPartition, Position] | None, deadline: float
    ) -> Steps[None]:
        """Commit positions as part of a transaction, as `commit` would when that commits. Steps.

        Positions of a partition that another member had since poll returned from it are refused, also where it is this member's again: its
        records come again, and what was made of them would be there twice. After `rewind` they are good again.

        Args:
            turn: the transaction. positions: where to resume, by (topic, partition); None: after all that poll returned.
            deadline: as `time.monotonic()`.

        Raises:
            Aborted: another member reads a partition now, or did since poll returned from it; nothing is committed, and the transaction has
                to be rolled back.
            UsageError: the consumer commits automatically. OptionError: a partition is not read here, or a position is not Pulsar's.
            TransportError, PulsarError: an ACK was refused or not answered.
        """
        if self._options.auto_commit:
            raise UsageError("a consumer whose positions a transaction commits must not commit by itself: auto_commit=False")
        with self._only:
            self._take_in_stored()
            given = places(positions, "commit_positions")
            everything = given is None
            targets = self._targets(self._handed() if given is None else dict(given))
            gone = self._dropped.keys() if everything else self._dropped.keys() & {part.owner for part, _ in targets}
            if gone:
                raise self._lost_to(turn, frozenset(gone))
            for part, position in targets:
                yield from turn.registering(part.name, self.group, deadline)
                yield from self._stream.attached(part, deadline)
                feeds, log = (yield from self._feeds(part, deadline)), self._log(part.owner)
                if not feeds or (everything and log.handed != position):
                    raise self._lost_to(turn, {part.owner})
                yield from self._acking_within(turn, part, log, position, deadline)

    def _targets(self, positions: Mapping[TopicPartition, Position]) -> list[tuple[PartitionConsumer, MessageId]]:
        """Return what is to be committed, by partition; raises OptionError where a position cannot be."""
        parts, found = self._parts(), []
        here = resolver(parts)
        for key, position in positions.items():
            owner = here.normal(key)
            if owner not in parts:
                raise OptionError(f"partition {key[1]} of {key[0]!r} is not read by this consumer", topic=key[0])
            place = here.position(owner, position, "commit")
            assert isinstance(place, MessageId)
            self._log(owner).target(place)
            found.append((parts[owner], place))
        return found

    def _lost_to(self, turn: AckingTransaction, lost: Iterable[TopicPartition]) -> WireprotoError:
        """Have the transaction rolled back because another member is active, and return the error."""
        why = Revoked(
            f"the broker sends to another member of the subscription now, or did meanwhile: {shown(lost)}", partitions=tuple(sorted(lost))
        )
        turn.fails(why)
        self._forget_dropped(lost)
        made = turn.lost("the transaction has to be rolled back")
        made.__cause__ = why
        return made

    def _acking_within(
        self, turn: AckingTransaction, part: PartitionConsumer, log: Log, position: MessageId, deadline: float
    ) -> Steps[None]:
        """Send the ACK, unless it repeats an earlier one, which a broker would take for a conflict."""
        target, known = log.target(position), (id(self), part.owner)
        if target is None or position in (log.committed, turn.committed.get(known)):
            return
        turn.committed[known] = position
        turn.holds(partial(self._settled, part, log, position))
        ack = api.CommandAck(ack_type=api.CommandAck.Cumulative, message_id=[target])
        ack.txnid_most_bits, ack.txnid_least_bits = turn.id
        yield from self._stream.ask_once(part, ack, turn.asked, deadline)
        _, mark = yield from self._stream.place(part, deadline)  # from here on no other transaction can move it
        if log.taken(mark):
            raise self._lost_to(turn, {part.owner})

    def _settled(self, part: PartitionConsumer, log: Log, position: MessageId, committed: bool) -> None:
        """Note that the transaction has ended. I/O thread."""
        if committed:
            self._stored.append((part.owner, log, position))

    def _take_in_stored(self) -> None:
        """Note what transactions have committed; each is forgotten after it was noted, since a signal handler may raise anywhere.

        A partition that another member took meanwhile is not reported as lost if all that poll had returned of it is committed.
        """
        while self._stored:
            owner, log, position = self._stored[0]
            log.committed_to(position, time.monotonic())
            if log.handed is None and self._dropped.get(owner) is log:
                del self._dropped[owner]
            self._stored.popleft()

    @operation
    def rewind(self, *, timeout: float = 30.0) -> Steps[None]:
        """Go back to where the subscription resumes, in all partitions, after a rollback: what poll returned since is delivered again.

        Args:
            timeout: seconds for the call.

        Raises:
            TransportError: a partition was not open again in time. PulsarError: a broker refuses.
        """
        with self._only:
            deadline = deadline_after(timeout)
            self._take_in_stored()
            again = [part for part in self._stream.parts if part.open]  # the others get all of it again when they are opened
            for part in self._stream.parts:
                if part in again:
                    yield from self._stream.anew(part, deadline)
                part.cursor = Cursor(unread(*part.owner))
                self._logs[part.owner] = Log()
            self._dropped.clear()
            for part in again:
                yield from self._stream.attached(part, deadline)

    # -- control ------------------------------------------------------------------------------------------------

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these partitions from `poll` until `resume`.

        Args:
            partitions: (topic, partition) pairs.

        Raises:
            Revoked: this consumer does not read one of them; none is paused.
        """
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again.

        Args:
            partitions: (topic, partition) pairs.

        Raises:
            Revoked: this consumer does not read one of them; none is resumed.
        """
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self._only:
            parts = self._parts()
            for owner in all_assigned(partitions, parts):
                parts[owner].paused = paused
                if not paused:
                    parts[owner].flow()

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Move the subscription itself, for all its members (SEEK); drop what was fetched ahead.

        Args:
            where: EARLIEST, LATEST or AtTime for all partitions; a position for its own; or a mapping of places by (topic, partition).
            timeout: seconds for the call.

        Raises:
            DataLoss: a position lies in a deleted ledger, and the option `reset` is ``"raise"``; nothing is moved.
            Revoked: a partition is not read by this consumer. OptionError: `where` is no place.
            TimedOut: not all partitions were moved and open again in time. PulsarError: a broker refuses.
        """
        with self._only:
            deadline = deadline_after(timeout)
            parts = self._parts()
            here = resolver(parts)
            all_assigned(map(here.normal, named(where) or ()), parts)
            requests = dict(here.requests(where, parts, "seek"))
            kept = {owner: part.name for owner, part in parts.items() if part.kept}
            firsts = yield from first_ledgers(self._cluster, kept, requests, deadline)
            for key, place in requests.items():
                if isinstance(place, MessageId) and is_gone(place, firsts.get(key, -1), self._options):
                    requests[key] = going_on(place, firsts[key], self._options, self._cluster.log)
            for key, place in requests.items():
                yield from self._seek(parts[key], place, deadline)

    def _seek(self, part: PartitionConsumer, place: Request, deadline: float) -> Steps[None]:
        yield from self._stream.attached(part, deadline)
        target = api.CommandSeek()
        fresh = Cursor(unread(*part.owner))
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
            fresh.after = fresh.after if fresh.after is not None and fresh.after[2] >= 0 else None
        part.cursor = Cursor(unread(*part.owner))
        self._logs[part.owner] = Log()
        try:
            yield from self._stream.rewind(part, target, deadline)
            part.cursor = fresh
            self._dropped.pop(part.owner, None)
        finally:
            part.flowing = True
            part.flow()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member is active on; of non-persistent topics, those of which messages have come.

        A broker does not announce the active member of a non-persistent topic.
        """
        return frozenset(part.owner for part in self._stream.parts if part.active and part.open)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _work_failed(self) -> None:
        if self._in_work is not None:
            log, before = self._in_work
            log.handed = before if log.handed is not None else None

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Leave the subscription; with `auto_commit` what poll returned is committed first, except for a batch whose work failed."""
        problem: Exception | None = None
        try:
            try:
                if self._options.auto_commit and self._handed():
                    with suppress(Revoked):
                        yield from self._commit(None, deadline)
            except Exception as why:
                problem = why
            yield from self._stream.closing(deadline)
        finally:
            self._stream.end()
            self._cluster.roles.forget(self)
        if problem is not None:
            raise problem


def _beginning(
    cluster: PulsarCluster, group: str, start: Where, names: Sequence[tuple[str, int, str]], options: PulsarOptions, deadline: float
) -> Steps[Begins]:
    """Create the subscription over the admin interface where it is to begin at positions or a time, and does not exist yet.

    Returns:
        the partitions of which that is done; and within which batch the new one begins: behind this record, or None.
    """
    if isinstance(start, (Earliest, Latest)) or (isinstance(start, AtTime) and options.admin is None):
        return {}
    from .admin import PulsarAdmin  # needed by positions and times that are given, alone

    admin = PulsarAdmin(cluster)
    full = {(topic, number): name for topic, number, name in names}
    begins: Begins = {}
    if isinstance(start, AtTime):
        for key, place in (yield from _places_at(cluster, start, full, deadline)).items():
            yield from steps(admin.create_group)(group, full[key], place, timeout=deadline - time.monotonic())
            begins[key] = None
        return begins
    requests = {key: _position(where) for key, where in resolver(full).requests(start, full).items()}  # before any is created
    firsts = yield from first_ledgers(cluster, full, requests, deadline)
    for key, where in requests.items():
        place = where
        if is_gone(where, firsts.get(key, -1), options):
            if (yield from _exists(admin, group, full[key], deadline)):
                continue
            instead = {key: going_on(where, firsts[key], options, cluster.log)}
            place = (yield from finding(cluster, key[0], {key[1]: full[key]}, instead, deadline))[key]
        made = yield from steps(admin.create_group)(group, full[key], place, timeout=deadline - time.monotonic())
        cursor = Cursor(unread(*key))
        cursor.start_at(place)
        begins[key] = cursor.after if made and cursor.after is not None and cursor.after[2] >= 0 else None
    return begins


def _position(where: Request) -> MessageId:
    """Return a position at which a subscription is to begin; raises OptionError for any other place."""
    if not isinstance(where, MessageId):
        raise OptionError(f"a subscription begins at one place for all partitions, or at a position in each, not at {where!r}")
    return where


def _places_at(
    cluster: PulsarCluster, start: AtTime, full: Mapping[TopicPartition, str], deadline: float
) -> Steps[dict[TopicPartition, MessageId]]:
    """Return the places of a time; without partitions that are not there yet, keep nothing, or do not answer."""
    places: dict[TopicPartition, MessageId] = {}
    until = time.monotonic() + (deadline - time.monotonic()) / 2
    for topic in {topic for topic, _ in full}:
        numbers = {number: name for (of, number), name in full.items() if of == topic and name.startswith("persistent:")}
        try:
            places |= yield from finding(cluster, topic, numbers, dict.fromkeys([(topic, number) for number in numbers], start), until)
        except (TopicNotFound, TransportError) as why:
            places |= {key: place for key, place in (why.known or {}).items() if isinstance(place, MessageId)}
    return places


def _exists(admin: PulsarAdmin, group: str, name: str, deadline: float) -> Steps[bool]:
    """Return whether a partition has the subscription."""
    try:
        yield from steps(admin.group_positions)(group, name, timeout=deadline - time.monotonic())
    except SubscriptionNotFound:
        return False
    return True
