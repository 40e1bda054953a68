"""Implements the Consumer: a member of a consumer group, its batches and its commits.

The coordinator says which partitions are assigned, the fetcher reads them from where the group resumes, and `poll` drives both:
rebalances, callbacks and automatic commits happen there and nowhere else. One thread at a time. Nothing is committed that poll has not
returned, and nothing is returned of a partition that is not assigned any more.

    at a rebalance, in this order       automatic commit of what poll returned · on_revoked · join, sync · committed offsets of the
                                        assigned partitions · `start` for those without one · on_assigned · fetching
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from ..deadlines import deadline_after
from ..errors import BrokerError, Closed, OptionError, Revoked, TransportError, UsageError, WireprotoError
from ..flow.abandoned_role import AbandonedRole
from ..flow.closing_role import ClosingRole
from ..flow.resolve import Request, all_assigned, named, shown
from ..net.retry import Policy, Waits
from ..net.task import Steps, Task, operation
from ..position import EARLIEST, Earliest, Latest, LogOffset, Position, TopicPartition, Where, places
from ..records import Batch
from . import offsets, positions, timing
from .codes import IllegalGeneration, RebalanceInProgress, UnknownMemberId, UnstableOffsetCommit
from .coordinator import Coordinator
from .fetcher import Fetcher
from .group import STABLE
from .lag import lagging

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .fetch import Cursor
    from .options import KafkaOptions

_NOT_OURS = (IllegalGeneration.code, UnknownMemberId.code, RebalanceInProgress.code)
_NEVER = float("inf")
_UNKNOWN = -1
_LEAVING = 10.0
"""Seconds for leaving the group when a consumer was garbage-collected without a close."""
_MISSING = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
"""Pauses before a missing topic is looked up again: Java's retry.backoff.ms and retry.backoff.max.ms."""
Offsets = dict[TopicPartition, int]
Resumed = tuple[Offsets, Offsets, Offsets, dict[TopicPartition, tuple[Request, WireprotoError]], Offsets]


class KafkaConsumer(ClosingRole, AbandonedRole):
    """Implements `wireproto.roles.Consumer` for Kafka. Made by `KafkaClient.consumer`."""

    waits = True

    @classmethod
    def opening(cls, cluster: KafkaCluster, topics: tuple[str, ...], group: str, start: Where, options: KafkaOptions) -> Steps[Self]:
        """Look the topics up, and make a consumer, which joins the group in its first poll."""
        made = cls(cluster, topics, group, start, options)
        deadline = cluster.deadline(options.timeout)
        for topic in topics:
            made._first_counts[topic] = len((yield from cluster.looking_up(topic, deadline)).partitions)
        return made

    def __init__(self, cluster: KafkaCluster, topics: tuple[str, ...], group: str, start: Where, options: KafkaOptions) -> None:
        if not topics:
            raise OptionError("a consumer needs at least one topic")
        if not group:
            raise OptionError("a consumer needs the name of a group")
        if named(start) is not None:
            raise OptionError("a group starts at EARLIEST, LATEST or AtTime where it has no committed position; seek to go elsewhere")
        positions.PLACES.requests(start, ())  # for its checks
        super().__init__("consumer", cluster.loop)
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._options = options
        self._start = start
        self._topics = topics
        self._committed_only = options.isolation == "committed"
        self._purpose = cluster.bulk()
        self._fetcher = Fetcher(cluster, options, self._purpose)
        self._coordinator = Coordinator(cluster, group, topics, options, self._fetcher.wake)
        self._when_abandoned(cluster.loop, partial(_give_back, cluster, self._fetcher, self._purpose, self._coordinator))
        self._settled = -1
        self._resuming: tuple[int, Task[Resumed]] | None = None  # the generation, and the look-up of where its partitions resume
        self._saving: tuple[dict[TopicPartition, int], Task[offsets.Codes]] | None = None
        self._last = False  # the automatic commit before a join has begun
        self._looking: Task[None] | None = None
        self._counts: dict[str, int] = {}
        self._first_counts: dict[str, int] = {}  # partitions by topic as of our opening: those beyond were added later
        self._look_at = time.monotonic() + options.metadata_max_age
        self._missing = Waits(_MISSING)
        self._saved: dict[TopicPartition, int] = {}
        self._saved_at = time.monotonic()
        self._stored: dict[TopicPartition, int] = {}  # ends of partitions, committed when the group began there
        self._began: dict[TopicPartition, int] = {}  # where each assigned partition began to be read, or was sought to
        self._delivered: dict[TopicPartition, int] = {}  # end of each partition's newest batch, since it was assigned or sought
        # the newest batch's partition, and what `_delivered` had of it before
        self._in_work: tuple[TopicPartition, int | None] | None = None
        # the plan's `delivered`, and `_in_work`, before a poll that a signal handler ended
        self._interrupted_poll: tuple[tuple[Cursor, int] | None, tuple[TopicPartition, int | None] | None] | None = None
        self._dropped: dict[TopicPartition, int] = {}  # returned up to there, not committed, and revoked: the next commit raises Revoked
        self._reported_revoked: set[TopicPartition] = set()  # of which a commit has raised Revoked already

    # --- polling ---

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout`. Rebalances, callbacks and automatic commits happen here.

        Args:
            timeout: seconds to wait for a batch.
        Raises:
            OffsetOutOfRange: the log does not hold the group's position any more; seek to continue.
            ChecksumMismatch, DecompressionError, Malformed: a batch that cannot be decoded; with topic, partition and position.
            DataLoss: the log was cut before the position, or its topic made again, and continues with other records; seek to continue
                (`diverges_at` says where).
            GroupAuthorizationFailed, FencedInstanceId, InconsistentGroupProtocol … the group's own errors. Closed, ConcurrentUse.
        """
        self._undo_interrupted_poll()
        noted, before = self._in_work, self._fetcher.plan.delivered
        try:
            return self._tasks.drive(self.polling(timeout), _NEVER)
        except WireprotoError:
            raise
        except BaseException:
            self._interrupted_poll = before, noted
            self._undo_interrupted_poll()
            raise

    def _undo_interrupted_poll(self) -> None:
        """Take back what a poll would have returned when a signal handler interrupted it, so that no commit covers it.

        Another handler may interrupt this; then it is done at the next call.
        """
        if self._interrupted_poll is not None:
            before, noted = self._interrupted_poll
            self._fetcher.undo_poll(before)
            self._unnote(noted)
            self._interrupted_poll = None

    def _unnote(self, noted: tuple[TopicPartition, int | None] | None) -> None:
        """Restore `_delivered` and `_in_work` as they were before the poll that began with `noted` as the batch in work."""
        if self._in_work is not noted and self._in_work is not None:
            key, before = self._in_work
            if before is None:
                self._delivered.pop(key, None)
            else:
                self._delivered[key] = before
            self._in_work = noted

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            while True:
                self._still_open()
                self._coordinator.polled_at = time.monotonic()
                if not (yield from self._settling(deadline)):
                    if time.monotonic() >= deadline:
                        return None
                    continue
                yield from self._commit_sometimes()
                # A poll that waits for longer than max_poll_interval does not count as missing.
                batch = yield from self._fetcher.polling(min(deadline, time.monotonic() + self._options.max_poll_interval / 3))
                if batch is not None or time.monotonic() >= deadline:
                    self._coordinator.polled_at = time.monotonic()
                    self._note(batch)
                    return batch

    def _note(self, batch: Batch | None) -> None:
        """Note which batch the user works on from now on, and where it ends."""
        if batch is None:
            self._in_work = None
            return
        for key in batch.next_positions:
            self._in_work = key, self._delivered.get(key)
            self._delivered[key] = self._fetcher.plan.cursors[key].position

    def _settling(self, deadline: float) -> Steps[bool]:
        """Join, if need be; return whether this is a stable member that fetches its assignment."""
        member = self._coordinator.membership
        self._watch_partitions()
        if member.state == STABLE and self._settled == member.generation:
            return True
        if self._settled < 0:
            self._drop_partitions()  # where a signal handler interrupted a rebalance: no commit of a later generation may cover them
        elif not (yield from self._give_up_partitions(deadline)):
            return False
        if not (yield from self._coordinator.settling(deadline)):
            return False
        generation, mine = member.generation, member.assignment
        if generation < 0:  # the I/O thread has just learned that we are no member any more
            return False
        return (yield from self._take_partitions(generation, mine, deadline))

    def _give_up_partitions(self, deadline: float) -> Steps[bool]:
        """Commit what poll returned, if commits are automatic, then give the assigned partitions up: done before joining again."""
        held = self.assignment
        lost = self._coordinator.membership.lost
        if self._options.auto_commit and not lost and not (yield from self._save_last(deadline)):
            return False
        self._cluster.log.rebalanced(self._coordinator.group, (), held)
        callback = self._options.on_lost if lost and self._options.on_lost is not None else self._options.on_revoked
        self._settled = -1
        try:
            if held and callback is not None:
                self._call_back(callback, held)
        finally:  # whatever the user's code raises, they are not ours any more
            self._drop_partitions()
        return True

    def _drop_partitions(self) -> None:
        """Fetch no more of the assigned partitions; each line may be run again where a signal handler interrupts the next."""
        if not self._options.auto_commit:
            self._dropped |= {
                key: end for key, end in self._unsaved().items() if key in self._delivered and key not in self._reported_revoked
            }
        self._reported_revoked.clear()
        for key in list(self._fetcher.plan.cursors):
            self._fetcher.plan.remove(key)
        self._fetcher.placing.drop()
        self._fetcher.placed.clear()
        self._fetcher.reset_failing()
        self._saved.clear()

    def _take_partitions(self, generation: int, mine: frozenset[TopicPartition], deadline: float) -> Steps[bool]:
        """Begin to fetch the assigned partitions, from where the group resumes; return whether that is known by the deadline."""
        resuming = self._resuming
        if resuming is None or resuming[0] != generation:
            if resuming is not None:
                resuming[1].cancel(Closed("the group has a new generation"))
            until = time.monotonic() + self._options.request_timeout
            task = self._cluster.tasks.spawn(self._resume(generation, mine, until), f"resuming group {self._coordinator.group!r}")
            resuming = self._resuming = generation, task
        if not (yield resuming[1], deadline):
            return False
        try:
            resume, begin, epochs, later, stored = resuming[1].result()
        except (TransportError, UnstableOffsetCommit):  # passing: a transaction that commits offsets of the group will end
            self._resuming = None
            return False
        except BaseException:
            self._resuming = None
            raise
        self._saved = resume | stored
        self._stored = stored
        self._delivered.clear()
        self._began = {key: resume.get(key, begin.get(key, 0)) for key in sorted(mine) if key not in later}
        for key, offset in self._began.items():
            self._fetcher.asking.add(*key, offset, epoch=epochs.get(key, -1))
            if isinstance(self._start, Earliest):  # any other start is stored nowhere: the next commit stores it, as that of Java's client
                self._saved.setdefault(key, begin.get(key, -1))
        waiting = {key: request for key, (request, _) in later.items()}
        self._fetcher.placing.add(waiting, {key: why for key, (_, why) in later.items()}, timing.finding)
        leading = self._coordinator.membership.leading
        self._counts = self._coordinator.counts if leading else self._partition_counts()
        self._plan_look()
        self._cluster.log.rebalanced(self._coordinator.group, mine, ())
        self._resuming = None
        self._settled = generation
        if self._options.on_assigned is not None:
            self._call_back(self._options.on_assigned, mine)
        return True

    def _take_in_placed(self) -> None:
        """Note where partitions begin that were assigned without a leader, have got one, and are read now."""
        for key, offset in [*self._fetcher.placed.items()]:
            self._began.setdefault(key, offset)
            if isinstance(self._start, Earliest):
                self._saved.setdefault(key, offset)
            self._fetcher.placed.pop(key)

    def _resume(self, generation: int, mine: frozenset[TopicPartition], until: float) -> Steps[Resumed]:
        """Find out where to read the assigned partitions.

        Where the group begins at the end (start=LATEST), that offset is committed: or a rebalance before the first commit would have the
        group begin at the end of that time, and pass over what came in between.

        Returns:
            a tuple: offsets where the group resumes; offsets where to begin for partitions without a committed offset; the leader epochs of
                the
            former; the requests of partitions whose leader has not told where they begin, and why; the ends that were committed just now.
        """
        cluster, group, to = self._cluster, self._coordinator.group, self._coordinator.route
        epochs: dict[TopicPartition, int] = {}
        resume: dict[TopicPartition, int] = {}
        if mine:
            resume = yield from offsets.fetching(cluster, group, mine, until, to=to, epochs=epochs)
        begin = positions.PLACES.requests(self._start, [key for key in sorted(mine) if key not in resume])
        if isinstance(self._start, Latest):  # all records of a partition that was added later are new
            begin |= {key: EARLIEST for key in begin if key[1] >= self._first_counts.get(key[0], 0)}
        later: dict[TopicPartition, WireprotoError] = {}
        found = yield from timing.finding(cluster, begin, until, self._options, later=later)
        ends = {key: offset for key, offset in found.items() if isinstance(begin[key], Latest)}
        if ends:
            codes = yield from self._storing(ends, until, self._coordinator.membership.member, generation)
            ends = {key: offset for key, offset in ends.items() if not codes.get(key)}  # refused: a new generation has begun, which we join
        return resume, found, epochs, {key: (begin[key], later[key]) for key in sorted(later)}, ends

    def _call_back(self, function: object, partitions: frozenset[TopicPartition]) -> None:
        """Call the user's function, which may commit, seek or pause."""
        with self._only.outside():
            function(partitions)  # type: ignore[operator]

    def _partition_counts(self) -> dict[str, int]:
        """Return the partition counts of our topics; for the leader: of all topics of the group, as members may not see each other's."""
        return self._cluster.metadata.counts(self._coordinator.membership.wanted_topics())

    def _watch_partitions(self) -> None:
        """Join again when a topic has got more partitions, or exists again."""
        if self._looking is not None:
            if self._looking.done:
                self._looking = None
                self._plan_look()
                if self._settled >= 0 and self._partition_counts() != self._counts:
                    self._coordinator.rejoin()
        elif self._settled >= 0 and time.monotonic() >= self._look_at:
            self._looking = self._cluster.look(self._coordinator.membership.wanted_topics())

    def _plan_look(self) -> None:
        """Set when to look for new partitions: soon where a topic is missing, as Java's client does."""
        wait = self._options.metadata_max_age
        if all(self._counts.get(topic) for topic in self._coordinator.membership.wanted_topics()):
            self._missing.over()
        else:
            wait = min(self._missing.next(), wait)
        self._look_at = time.monotonic() + wait

    # --- committing ---

    @operation
    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Commit where the group resumes.

        Args:
            positions: the first position not processed, by (topic, partition); None: behind all that poll has returned.
            timeout: seconds for the whole call.
        Raises:
            Revoked: partitions that another member owns now, or (once) that were ours when poll returned records of them and have been
                reassigned since: those records are delivered again. The other partitions are committed.
            OptionError: a position of another partition or protocol. BrokerError: the coordinator refuses. TimedOut, Closed, ConcurrentUse.
        """
        positions = places(positions, "commit")
        with self._only:
            yield from self._commit(positions, deadline_after(timeout))

    def _commit(self, given: Mapping[TopicPartition, Position] | None, deadline: float) -> Steps[None]:
        """Commit positions, or all that poll has returned (None); raises Revoked once the others are committed."""
        yield from self._saved_by(deadline)
        mine = self.assignment
        if given is None:
            wanted = self._unsaved()
        else:
            wanted = {key: positions.offset_in(key, position, "commit") for key, position in given.items()}
        foreign = tuple(sorted(key for key in wanted if key not in mine))
        ours = {key: offset for key, offset in wanted.items() if key in mine}
        gone: tuple[TopicPartition, ...] = ()
        member = self._coordinator.membership
        if ours:
            if member.lost or member.generation < 0:
                gone = tuple(sorted(ours))
            else:
                gone = self._committed(ours, (yield from self._committing(ours, deadline)))
        self._saved_at = time.monotonic()
        self._reported_revoked.update(gone)
        if given is None:
            foreign, self._dropped = tuple(self._dropped.keys() - set(gone)), {}
        else:
            for key in ours:
                self._dropped.pop(key, None)
        if foreign or gone:
            lost = tuple(sorted(foreign + gone))
            raise _not_ours(lost)

    def _unsaved(self) -> dict[TopicPartition, int]:
        """Return the offsets behind what poll has returned, where they differ from the committed ones."""
        self._take_in_placed()
        return {key: cursor.position for key, cursor in self._fetcher.plan.cursors.items() if cursor.position != self._saved.get(key)}

    def _committing(self, ours: dict[TopicPartition, int], until: float) -> Steps[offsets.Codes]:
        """Commit these offsets as this member, with the leader epochs that are known of them."""
        cursors, member = self._fetcher.plan.cursors, self._coordinator.membership
        epochs = {key: cursors[key].position_epoch for key, offset in ours.items() if key in cursors and offset == cursors[key].position}
        return self._storing(ours, until, member.member, member.generation, epochs)

    def _storing(
        self,
        ours: dict[TopicPartition, int],
        until: float,
        member: str,
        generation: int,
        epochs: dict[TopicPartition, int] | None = None,
    ) -> Steps[offsets.Codes]:
        """Commit offsets; returns the codes of `_NOT_OURS` that partitions were refused with."""
        return offsets.committing(
            self._cluster,
            self._coordinator.group,
            ours,
            until,
            to=self._coordinator.route,
            member=member,
            generation=generation,
            static_name=self._options.group_instance_id,
            ours=_NOT_OURS,
            epochs=epochs,
        )

    def _committed(self, ours: dict[TopicPartition, int], codes: offsets.Codes) -> tuple[TopicPartition, ...]:
        """Take in a commit's reply; return the partitions that are not ours any more."""
        gone = tuple(sorted(key for key, code in codes.items() if code))
        if gone:
            self._coordinator.refused_commit(codes[gone[0]])
        self._saved.update({key: offset for key, offset in ours.items() if key not in gone})
        return gone

    # For commits within a transaction: see kafka.transactions.

    def group_commit(self, given: Mapping[TopicPartition, Position] | None = None) -> offsets.GroupCommit:
        """Return this member's identity in the group and the offsets to commit, for a commit within a transaction.

        A partition that went away with a rebalance and was assigned again is read again from where the group resumes: positions noted
        before that are refused, or what was made of its records would be there twice. After `rewind` they are good again.

        Args:
            given: positions by (topic, partition); None: behind all that poll has returned.
        Raises:
            UsageError: the consumer commits automatically. Revoked: as `commit`, and for such positions.
            OptionError: a position of another partition or protocol. Closed, ConcurrentUse.
        """
        if self._options.auto_commit:
            raise UsageError("a consumer whose positions a transaction commits must not commit by itself: auto_commit=False")
        with self._only:
            asked, cursors, member = places(given, "commit_positions"), self._fetcher.plan.cursors, self._coordinator.membership
            if asked is None:
                wanted = self._unsaved()
                gone = set(self._dropped)
            else:
                wanted = {key: positions.offset_in(key, position, "commit_positions") for key, position in asked.items()}
                gone = {key for key in wanted if key not in cursors or key in self._dropped}
            if gone or (wanted and (member.lost or member.generation < 0)):
                lost = tuple(sorted(gone or wanted))
                raise _not_ours(lost)
            return offsets.GroupCommit(
                self._coordinator.group,
                member.member,
                member.generation,
                self._options.group_instance_id,
                wanted,
                {key: cursors[key].position_epoch for key, offset in wanted.items() if offset == cursors[key].position},
            )

    def stored(self, group_commit: offsets.GroupCommit) -> None:
        """Take in that a transaction has committed these offsets. Called by any thread.

        A partition that was revoked meanwhile is not reported as lost if all records that poll had returned of it are committed.

        Args:
            group_commit: what `group_commit` returned for the transaction.
        """
        if group_commit.generation == self._settled:
            self._saved.update(group_commit.offsets)
            return
        for key, offset in group_commit.offsets.items():
            if self._dropped.get(key) == offset:
                self._dropped.pop(key, None)

    @operation
    def rewind(self, *, timeout: float = 30.0) -> Steps[None]:
        """Go back to where the group resumes, in all assigned partitions: what poll has returned since is read again. For a rollback.

        A partition without a committed offset goes back to where it began to be read here, or to where it was last sought.

        Args:
            timeout: seconds for the whole call.
        Raises:
            UnstableOffsetCommit: an open transaction is about to move the committed offsets, for all of `timeout`.
            BrokerError: the coordinator refuses. TimedOut, Closed, ConcurrentUse.
        """
        with self._only:
            deadline = deadline_after(timeout)
            mine = frozenset(self._fetcher.plan.cursors)
            resume: dict[TopicPartition, int] = {}
            epochs: dict[TopicPartition, int] = {}
            if mine:
                group, to = self._coordinator.group, self._coordinator.route
                resume = yield from offsets.fetching(self._cluster, group, mine, deadline, to=to, epochs=epochs)
            self._take_in_placed()
            for key in mine & self._fetcher.plan.cursors.keys():
                place = resume.get(key)
                self._fetcher.plan.seek(key, self._began[key] if place in (None, self._stored.get(key)) else place)
                self._fetcher.plan.cursors[key].position_epoch = epochs.get(key, -1)
                self._delivered.pop(key, None)
            self._dropped.clear()

    # An automatic commit is a task: when it fails, the next owner of the partition reads the records again.

    def _commit_sometimes(self) -> Steps[None]:
        """Begin an automatic commit when its interval is over and none is under way."""
        due = time.monotonic() - self._saved_at >= self._options.auto_commit_interval
        if self._options.auto_commit and (yield from self._saved_by(0.0)) and due:
            self._save()

    def _save(self) -> None:
        """Begin to commit, as a task, what poll has returned."""
        self._saved_at = time.monotonic()
        ours, member = self._unsaved(), self._coordinator.membership
        if ours and not member.lost and member.generation >= 0:
            steps = self._committing(ours, self._saved_at + self._options.request_timeout)
            self._saving = ours, self._cluster.tasks.spawn(steps, f"committing for group {self._coordinator.group!r}")

    def _saved_by(self, deadline: float) -> Steps[bool]:
        """Return whether no automatic commit is under way at the deadline; takes in the reply of one that has ended."""
        saving = self._saving
        if saving is None:
            return True
        if not saving[1].done and (deadline <= 0.0 or not (yield saving[1], deadline)):
            return False
        self._saving = None
        with suppress(BrokerError, TransportError):
            self._committed(saving[0], saving[1].result())
        return True

    def _save_last(self, deadline: float) -> Steps[bool]:
        """Commit all that poll has returned; False: that is still under way. It is tried once."""
        if not (yield from self._saved_by(deadline)):
            return False
        if not self._last:
            self._last = True
            self._save()
        if not (yield from self._saved_by(deadline)):
            return False
        self._last = False
        return True

    @operation
    def committed(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, Position]]:
        """Return where the group resumes in the assigned partitions, without those never committed; unassigned: in all of its topics.

        Args:
            timeout: seconds for the whole call.
        Returns:
            positions by (topic, partition).
        Raises:
            UnstableOffsetCommit: an open transaction is about to move those of the partitions that it names, for all of `timeout`.
            BrokerError: the coordinator refuses. TimedOut, Closed, ConcurrentUse.
        """
        with self._only:
            deadline = deadline_after(timeout)
            keys = sorted(self.assignment) or self._all_partitions()
            found = yield from offsets.fetching(self._cluster, self._coordinator.group, keys, deadline, to=self._coordinator.route)
            return positions.log_positions(found)

    def _all_partitions(self) -> list[TopicPartition]:
        """List the partitions of the consumer's topics, as far as the metadata has them."""
        known = self._cluster.metadata.topics
        return [(topic, number) for topic in self._topics if topic in known for number in known[topic].partitions]

    @operation
    def lag(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, int]]:
        """Return the lag of each assigned partition: offsets between what poll returns next and the end.

        Args:
            timeout: seconds for the whole call.
        Returns:
            the number of offsets by (topic, partition).
        Raises:
            LeaderNotAvailable: a partition has had no leader for a second, or none yet that could say where it begins; the error names it.
            TransportError: a leader does not answer in time. `known` of both has the lags of the others. Closed, ConcurrentUse.
        """
        with self._only:
            cursors, waiting = self._fetcher.plan.cursors, self._fetcher.placing.reasons
            return (yield from lagging(self._cluster, cursors, waiting, deadline_after(timeout), committed=self._committed_only))

    # --- moving ---

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause partitions: poll returns nothing of them until `resume`. A rebalance ends the pause.

        Args:
            partitions: pairs of topic and number.
        Raises:
            Revoked: a partition is not assigned to this consumer; none is changed. Closed, ConcurrentUse.
        """
        with self._only:
            self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """End the pause of these partitions.

        Args:
            partitions: pairs of topic and number.
        Raises:
            Revoked: a partition is not assigned to this consumer; none is changed. Closed, ConcurrentUse.
        """
        with self._only:
            self._set_paused(partitions, False)

    def _set_paused(self, keys: Iterable[TopicPartition], paused: bool) -> None:
        """Pause or resume partitions; raises Revoked, before any is changed, where one is not assigned."""
        for key in all_assigned(keys, self.assignment):
            cursor, waiting = self._fetcher.plan.cursors.get(key), self._fetcher.placing.paused
            if cursor is not None:
                cursor.paused = paused
            else:
                (waiting.add if paused else waiting.discard)(key)

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Continue from another place in the assigned partitions; a Position or mapping moves only those that it names.

        A partition without a leader, or with a silent one, does not delay the others: it is moved when a leader answers.

        Args:
            where: EARLIEST, LATEST, AtTime, a Position, or a mapping of these by (topic, partition).
            timeout: seconds for the whole call.
        Raises:
            Revoked: a partition is not assigned to this consumer. OptionError: no such place.
            BrokerError: a leader refuses. TimedOut, Closed, ConcurrentUse.
        """
        with self._only:
            all_assigned(named(where) or (), self.assignment)
            requests = positions.PLACES.requests(where, sorted(self.assignment), "seek")
            placing = self._fetcher.placing
            later: dict[TopicPartition, WireprotoError] = {}
            deadline = deadline_after(timeout)
            found = yield from timing.finding(self._cluster, requests, deadline, self._options, later=later)
            if later and not found and any(isinstance(why, TransportError) for why in later.values()):  # no leader has answered
                found, later = (yield from timing.finding(self._cluster, requests, deadline, self._options)), {}
            self._fetcher.place_later({key: requests[key] for key in sorted(later)}, later, timing.finding)
            for key, offset in found.items():
                (self._fetcher.place if key in placing.waiting else self._fetcher.plan.seek)(key, offset)
                self._began[key] = offset
            for key in later:
                self._began.pop(key, None)
                self._saved.setdefault(key, _UNKNOWN)  # the next commit stores it, as it does for the others
            for key in requests:
                self._delivered.pop(key, None)
                self._dropped.pop(key, None)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions; they change only in `poll`."""
        return frozenset(self._fetcher.plan.cursors) | self._fetcher.placing.waiting.keys()

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return where poll continues, by (topic, partition); without partitions that have had no leader yet to say where they begin."""
        return {key: LogOffset(*key, cursor.position) for key, cursor in self._fetcher.plan.cursors.items()}

    # --- ending ---

    def _work_failed(self) -> None:
        """Leave the batch in work out of what is committed next: the user's code failed with it."""
        key, before = self._in_work or (("", -1), None)
        cursor = self._fetcher.plan.cursors.get(key)
        if cursor is None or self._saved.get(key) == cursor.position:
            return
        if before is None:
            self._saved[key] = cursor.position  # nothing to commit
        else:
            cursor.position, cursor.position_epoch = before, -1

    def _wake(self) -> None:
        """End a poll that waits in another thread."""
        self._fetcher.wake()
        self._coordinator.wake()
        if self._resuming is not None:
            self._resuming[1].cancel(Closed("the consumer was closed"))

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Commit, if commits are automatic, leave the group, and close our connections."""
        if self._options.auto_commit and self._settled >= 0:
            yield from self._save_last(deadline)
        for under_way in (self._saving, self._resuming):
            if under_way is not None:
                under_way[1].cancel(Closed("the consumer was closed"))
        self._fetcher.close()
        self._cluster.give_back(self._purpose, keep=False)
        with suppress(TransportError):  # the coordinator will notice by itself, at the session time-out
            yield from self._coordinator.closing(deadline)


def _not_ours(lost: tuple[TopicPartition, ...]) -> Revoked:
    """Make the error for partitions that are not ours any more."""
    return Revoked(f"not committed, since these partitions are no longer assigned to this consumer: {shown(lost)}", partitions=lost)


def _give_back(cluster: KafkaCluster, fetcher: Fetcher, purpose: str, coordinator: Coordinator) -> None:
    """Release what a consumer holds that was garbage-collected unclosed: it leaves its group. Runs in the I/O thread."""
    fetcher.close()
    cluster.give_back(purpose, keep=False)
    cluster.tasks.spawn(_leave(coordinator), f"leaving group {coordinator.group!r}")


def _leave(coordinator: Coordinator) -> Steps[None]:
    """Leave the group; errors are dropped: the coordinator notices by itself, at the session timeout."""
    with suppress(WireprotoError):  # as above
        yield from coordinator.closing(time.monotonic() + _LEAVING)
