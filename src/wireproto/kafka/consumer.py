"""The Consumer: a member of a group, its batches and its commits.

What it is: the coordinator says which partitions are ours, the fetcher reads them from where the group resumes, and `poll` is where
both go on: rebalances, callbacks and automatic commits happen there and nowhere else.
May assume: one thread at a time. Must not: commit what poll has not handed out, or hand out what is not ours any more.

    at a rebalance, in this order       automatic commit of what was handed out · on_revoked · join, sync · committed offsets of what
    is ours ·
                                        `start` where there is none · on_assigned · fetching
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
from ..flow.parting import PartingRole
from ..flow.resolve import Request, named, shown
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
"""Seconds for the goodbye of a member that the program has let go of."""
_MISSING = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
"""Waits until a topic that is not there is looked for again: Java's retry.backoff.ms and retry.backoff.max.ms."""
Offsets = dict[TopicPartition, int]
Resumed = tuple[Offsets, Offsets, Offsets, dict[TopicPartition, Request], Offsets]


class KafkaConsumer(PartingRole, AbandonedRole):
    """See `wireproto.roles.Consumer`. Made by `KafkaClient.consumer`."""

    waits = True

    @classmethod
    def opening(cls, cluster: KafkaCluster, topics: tuple[str, ...], group: str, start: Where, options: KafkaOptions) -> Steps[Self]:
        """Look the topics up, and make a consumer, which joins in its first poll."""
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
        self._resuming: tuple[int, Task[Resumed]] | None = None  # the generation, and where its partitions go on
        self._saving: tuple[dict[TopicPartition, int], Task[offsets.Codes]] | None = None
        self._last = False  # the automatic commit before a join has begun
        self._looking: Task[None] | None = None
        self._counts: dict[str, int] = {}
        self._first_counts: dict[str, int] = {}  # as of our opening: what lies beyond came later
        self._look_at = time.monotonic() + options.metadata_max_age
        self._missing = Waits(_MISSING)
        self._saved: dict[TopicPartition, int] = {}
        self._saved_at = time.monotonic()
        self._stored: dict[TopicPartition, int] = {}  # the ends at which the group begins, and which were committed as it did
        self._began: dict[TopicPartition, int] = {}  # where each partition that is ours began to be read, or was set to
        self._handed: dict[TopicPartition, int] = {}  # where the newest batch of each partition ended, since it was given to us or set
        self._in_work: tuple[TopicPartition, int | None] | None = None  # the newest batch's partition, and what `_handed` had of it before
        self._torn: tuple[tuple[Cursor, int] | None, tuple[TopicPartition, int | None] | None] | None = None  # … as a broken poll began
        self._dropped: set[TopicPartition] = set()  # handed out, not committed, and gone with a rebalance: what the next commit tells
        self._known_gone: set[TopicPartition] = set()  # of which a commit has told that they are gone

    # --- polling ---

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """See `wireproto.roles.Consumer.poll`.

        Raises:
            OffsetOutOfRange: the log does not hold the group's position any more; seek to go on. What cannot be decoded, with its place.
            DataLoss: the log was cut before the position, or its topic made again, and goes on with other records; seek to go on
            (`diverges_at` tells where).
            The group's own errors: GroupAuthorizationFailed, FencedInstanceId, InconsistentGroupProtocol …
        """
        self._mend()
        noted, before = self._in_work, self._fetcher.plan.handed
        try:
            return self._tasks.drive(self.polling(timeout), _NEVER)
        except WireprotoError:
            raise
        except BaseException:
            self._torn = before, noted
            self._mend()
            raise

    def _mend(self) -> None:
        """Take back what a poll would have returned that a signal handler broke into, so that no commit covers it. Another one may break in
        here: then it is done at the next call."""
        if self._torn is not None:
            before, noted = self._torn
            self._fetcher.broken_off(before)
            self._unnote(noted)
            self._torn = None

    def _unnote(self, noted: tuple[TopicPartition, int | None] | None) -> None:
        """As before the poll that began with `noted` being worked on."""
        if self._in_work is not noted and self._in_work is not None:
            key, before = self._in_work
            if before is None:
                self._handed.pop(key, None)
            else:
                self._handed[key] = before
            self._in_work = noted

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """`poll`, as steps."""
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
                # A poll that waits for longer than max_poll_interval is no poll that stays away.
                batch = yield from self._fetcher.polling(min(deadline, time.monotonic() + self._options.max_poll_interval / 3))
                if batch is not None or time.monotonic() >= deadline:
                    self._coordinator.polled_at = time.monotonic()
                    self._note(batch)
                    return batch

    def _note(self, batch: Batch | None) -> None:
        """What is being worked on from now on."""
        if batch is None:
            self._in_work = None
            return
        for key in batch.next_positions:
            self._in_work = key, self._handed.get(key)
            self._handed[key] = self._fetcher.plan.cursors[key].position

    def _settling(self, deadline: float) -> Steps[bool]:
        """Whether we are a settled member that fetches what is its own."""
        member = self._coordinator.membership
        self._watch_partitions()
        if member.state == STABLE and self._settled == member.generation:
            return True
        if self._settled < 0:
            self._drop_partitions()  # where a signal handler broke into giving up or taking: no commit of a later generation may cover them
        elif not (yield from self._give_up_partitions(deadline)):
            return False
        if not (yield from self._coordinator.settling(deadline)):
            return False
        generation, mine = member.generation, member.assignment
        if generation < 0:  # the I/O thread has just been told that we are no member any more
            return False
        return (yield from self._take_partitions(generation, mine, deadline))

    def _give_up_partitions(self, deadline: float) -> Steps[bool]:
        """Before we join again: what we held goes back, once what was handed out of it is committed."""
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
        finally:  # whatever the user's code comes to, they are not ours any more
            self._drop_partitions()
        return True

    def _drop_partitions(self) -> None:
        """Fetch no more of what we held; each of these lines may be run again where a signal handler broke into the next."""
        if not self._options.auto_commit:
            self._dropped |= {key for key in self._unsaved() if key in self._handed} - self._known_gone
        self._known_gone.clear()
        for key in list(self._fetcher.plan.cursors):
            self._fetcher.plan.remove(key)
        self._fetcher.placing.drop()
        self._fetcher.placed.clear()
        self._fetcher.calm()
        self._saved.clear()

    def _take_partitions(self, generation: int, mine: frozenset[TopicPartition], deadline: float) -> Steps[bool]:
        """Begin to fetch what is ours, from where the group resumes; whether that is known by the deadline."""
        resuming = self._resuming
        if resuming is None or resuming[0] != generation:
            if resuming is not None:
                resuming[1].cancel(Closed("the group has moved on"))
            until = time.monotonic() + self._options.request_timeout
            task = self._cluster.tasks.spawn(self._resume(generation, mine, until), f"resuming group {self._coordinator.group!r}")
            resuming = self._resuming = generation, task
        if not (yield resuming[1], deadline):
            return False
        try:
            resume, begin, epochs, later, stored = resuming[1].result()
        except (TransportError, UnstableOffsetCommit):  # a transaction that commits offsets of the group ends some time
            self._resuming = None
            return False
        except BaseException:
            self._resuming = None
            raise
        self._saved = resume | stored
        self._stored = stored
        self._handed.clear()
        self._began = {key: resume.get(key, begin.get(key, 0)) for key in sorted(mine) if key not in later}
        for key, offset in self._began.items():
            self._fetcher.asking.add(*key, offset, epoch=epochs.get(key, -1))
            if isinstance(self._start, Earliest):  # any other place is known to nobody: the next commit tells it, as that of Java's client
                self._saved.setdefault(key, begin.get(key, -1))
        self._fetcher.placing.add(later, timing.finding)
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
        """Partitions of ours that had no leader have got one, and began to be read."""
        for key, offset in [*self._fetcher.placed.items()]:
            self._began.setdefault(key, offset)
            if isinstance(self._start, Earliest):
                self._saved.setdefault(key, offset)
            self._fetcher.placed.pop(key)

    def _resume(self, generation: int, mine: frozenset[TopicPartition], until: float) -> Steps[Resumed]:
        """Where the group goes on in our partitions, where we begin in those for which it has no position, the leader epochs of the
        former, where those are to begin that have no leader who could tell, and what of that the group has for its position since.

        Where the group begins at the end, that becomes its position: or a rebalance before the first commit would have it begin at the end
        of then, and pass over what came in between.
        """
        cluster, group, to = self._cluster, self._coordinator.group, self._coordinator.route
        epochs: dict[TopicPartition, int] = {}
        resume: dict[TopicPartition, int] = {}
        if mine:
            resume = yield from offsets.fetching(cluster, group, mine, until, to=to, epochs=epochs)
        begin = positions.PLACES.requests(self._start, [key for key in sorted(mine) if key not in resume])
        if isinstance(self._start, Latest):  # all of a partition that came later has been written since
            begin |= {key: EARLIEST for key in begin if key[1] >= self._first_counts.get(key[0], 0)}
        leaderless: set[TopicPartition] = set()
        found = yield from timing.finding(cluster, begin, until, self._options, leaderless=leaderless)
        ends = {key: offset for key, offset in found.items() if isinstance(begin[key], Latest)}
        if ends:
            codes = yield from self._storing(ends, until, self._coordinator.membership.member, generation)
            ends = {key: offset for key, offset in ends.items() if not codes.get(key)}  # refused: the group has moved on, and so do we
        return resume, found, epochs, {key: begin[key] for key in sorted(leaderless)}, ends

    def _call_back(self, function: object, partitions: frozenset[TopicPartition]) -> None:
        """User code may commit, seek or pause from within."""
        with self._only.outside():
            function(partitions)  # type: ignore[operator]

    def _partition_counts(self) -> dict[str, int]:
        """Of our topics; of a leader: of all that the group reads, for other members may not look at each other's."""
        return self._cluster.metadata.counts(self._coordinator.membership.wanted_topics())

    def _watch_partitions(self) -> None:
        """Join again when a topic has got more partitions, or is there again."""
        if self._looking is not None:
            if self._looking.done:
                self._looking = None
                self._plan_look()
                if self._settled >= 0 and self._partition_counts() != self._counts:
                    self._coordinator.rejoin()
        elif self._settled >= 0 and time.monotonic() >= self._look_at:
            self._looking = self._cluster.look(self._coordinator.membership.wanted_topics())

    def _plan_look(self) -> None:
        """When to look for partitions next: soon where a topic is missing, as Java's client does."""
        wait = self._options.metadata_max_age
        if all(self._counts.get(topic) for topic in self._coordinator.membership.wanted_topics()):
            self._missing.over()
        else:
            wait = min(self._missing.next(), wait)
        self._look_at = time.monotonic() + wait

    # --- committing ---

    @operation
    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """See `wireproto.roles.Consumer.commit`."""
        positions = places(positions, "commit")
        with self._only:
            yield from self._commit(positions, deadline_after(timeout))

    def _commit(self, given: Mapping[TopicPartition, Position] | None, deadline: float) -> Steps[None]:
        yield from self._saved_by(deadline)
        mine = self.assignment
        if given is None:
            wanted = self._unsaved()
        else:
            wanted = {key: positions.offset_in(key, position, "commit") for key, position in given.items()}
        strange = tuple(sorted(key for key in wanted if key not in mine))
        ours = {key: offset for key, offset in wanted.items() if key in mine}
        gone: tuple[TopicPartition, ...] = ()
        member = self._coordinator.membership
        if ours:
            if member.lost or member.generation < 0:
                gone = tuple(sorted(ours))
            else:
                gone = self._committed(ours, (yield from self._committing(ours, deadline)))
        self._saved_at = time.monotonic()
        self._known_gone.update(gone)
        if given is None:
            strange, self._dropped = tuple(self._dropped.difference(gone)), set()
        else:
            self._dropped -= ours.keys()
        if strange or gone:
            lost = tuple(sorted(strange + gone))
            raise _not_ours(lost)

    def _unsaved(self) -> dict[TopicPartition, int]:
        self._take_in_placed()
        return {key: cursor.position for key, cursor in self._fetcher.plan.cursors.items() if cursor.position != self._saved.get(key)}

    def _committing(self, ours: dict[TopicPartition, int], until: float) -> Steps[offsets.Codes]:
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
        """Take in what a commit was answered with; the partitions that are not ours any more."""
        gone = tuple(sorted(key for key, code in codes.items() if code))
        if gone:
            self._coordinator.refused_commit(codes[gone[0]])
        self._saved.update({key: offset for key, offset in ours.items() if key not in gone})
        return gone

    # What a transaction commits for us: see kafka.transactions.

    def standing(self, given: Mapping[TopicPartition, Position] | None = None) -> offsets.Standing:
        """Our place in the group, and what a commit of these positions would store, for who commits it within a transaction.

        A partition that went back with a rebalance and is ours again comes again from where the group resumes: positions noted before
        that are refused, or what was made of its records would stand twice. `rewind` makes them good again.

        Raises:
            UsageError: the consumer commits by itself. Revoked: as `commit`, and for such positions.
        """
        if self._options.auto_commit:
            raise UsageError("a consumer whose positions a transaction commits must not commit by itself: auto_commit=False")
        with self._only:
            asked, cursors, member = places(given, "commit_positions"), self._fetcher.plan.cursors, self._coordinator.membership
            if asked is None:
                wanted = self._unsaved()
                gone = self._dropped
            else:
                wanted = {key: positions.offset_in(key, position, "commit_positions") for key, position in asked.items()}
                gone = {key for key in wanted if key not in cursors or key in self._dropped}
            if gone or (wanted and (member.lost or member.generation < 0)):
                lost = tuple(sorted(gone or wanted))
                raise _not_ours(lost)
            return offsets.Standing(
                self._coordinator.group,
                member.member,
                member.generation,
                self._options.group_instance_id,
                wanted,
                {key: cursors[key].position_epoch for key, offset in wanted.items() if offset == cursors[key].position},
            )

    def stored(self, standing: offsets.Standing) -> None:
        """A transaction has committed this. Any thread."""
        if standing.generation == self._settled:
            self._saved.update(standing.offsets)

    @operation
    def rewind(self, *, timeout: float = 30.0) -> Steps[None]:
        """Go back to where the group resumes, in all that is assigned: what was handed out since comes again. For who has rolled back.

        A partition for which nothing was committed yet goes back to where it began to be read here, or to where it was last sought.
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
                self._handed.pop(key, None)
            self._dropped.clear()

    # An automatic commit is a task: what fails is read again by whoever goes on.

    def _commit_sometimes(self) -> Steps[None]:
        due = time.monotonic() - self._saved_at >= self._options.auto_commit_interval
        if self._options.auto_commit and (yield from self._saved_by(0.0)) and due:
            self._save()

    def _save(self) -> None:
        """Begin to commit what was handed out."""
        self._saved_at = time.monotonic()
        ours, member = self._unsaved(), self._coordinator.membership
        if ours and not member.lost and member.generation >= 0:
            steps = self._committing(ours, self._saved_at + self._options.request_timeout)
            self._saving = ours, self._cluster.tasks.spawn(steps, f"committing for group {self._coordinator.group!r}")

    def _saved_by(self, deadline: float) -> Steps[bool]:
        """Whether no automatic commit is under way (any more)."""
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
        """Commit all that was handed out; False: that is still under way. It is tried once."""
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
        """Where the group resumes, in the partitions assigned to us (of all its topics while none are); without those never committed.

        Raises:
            UnstableOffsetCommit: an open transaction is about to move those of the partitions that it names, all the while.
        """
        with self._only:
            deadline = deadline_after(timeout)
            keys = sorted(self.assignment) or self._all_partitions()
            found = yield from offsets.fetching(self._cluster, self._coordinator.group, keys, deadline, to=self._coordinator.route)
            return positions.log_positions(found)

    def _all_partitions(self) -> list[TopicPartition]:
        known = self._cluster.metadata.topics
        return [(topic, number) for topic in self._topics if topic in known for number in known[topic].partitions]

    @operation
    def lag(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, int]]:
        """Offsets between what poll hands out next and the end, of each assigned partition.

        Raises:
            LeaderNotAvailable: a partition has no leader for a second, or had none yet to tell where it begins; it names that one, and
            `known` has what the others lag behind, as any error has.
        """
        with self._only:
            cursors, waiting = self._fetcher.plan.cursors, self._fetcher.placing.waiting
            return (yield from lagging(self._cluster, cursors, waiting, deadline_after(timeout), committed=self._committed_only))

    # --- moving ---

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`; a rebalance ends the pause."""
        with self._only:
            self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._only:
            self._set_paused(partitions, False)

    def _set_paused(self, keys: Iterable[TopicPartition], paused: bool) -> None:
        for key in keys:
            self._cursor_key(key)
            cursor, waiting = self._fetcher.plan.cursors.get(key), self._fetcher.placing.paused
            if cursor is not None:
                cursor.paused = paused
            else:
                (waiting.add if paused else waiting.discard)(key)

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Go on from there in the assigned partitions; a Position or mapping moves only those that it names.

        A partition that has no leader who could tell where that is holds up no others: it goes on from there when it has one.
        """
        with self._only:
            for key in named(where) or ():
                self._cursor_key(key)
            requests = positions.PLACES.requests(where, sorted(self.assignment), "seek")
            placing = self._fetcher.placing
            leaderless: set[TopicPartition] = set()
            found = yield from timing.finding(self._cluster, requests, deadline_after(timeout), self._options, leaderless=leaderless)
            self._fetcher.place_later({key: requests[key] for key in sorted(leaderless)}, timing.finding)
            for key, offset in found.items():
                (self._fetcher.place if key in placing.waiting else self._fetcher.plan.seek)(key, offset)
                self._began[key] = offset
            for key in leaderless:
                self._began.pop(key, None)
                self._saved.setdefault(key, _UNKNOWN)  # the next commit tells it, as it does of the others
            for key in requests:
                self._handed.pop(key, None)
                self._dropped.discard(key)

    def _cursor_key(self, key: TopicPartition) -> TopicPartition:
        if key not in self._fetcher.plan.cursors and key not in self._fetcher.placing.waiting:
            raise Revoked(f"{key[0]}[{key[1]}] is not assigned to this consumer", partitions=(key,))
        return key

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is ours; changes only in `poll`."""
        return frozenset(self._fetcher.plan.cursors) | self._fetcher.placing.waiting.keys()

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """What poll hands out next; without partitions that have had no leader yet to tell where they begin."""
        return {key: LogOffset(*key, cursor.position) for key, cursor in self._fetcher.plan.cursors.items()}

    # --- ending ---

    def _work_failed(self) -> None:
        key, before = self._in_work or (("", -1), None)
        cursor = self._fetcher.plan.cursors.get(key)
        if cursor is None or self._saved.get(key) == cursor.position:
            return
        if before is None:
            self._saved[key] = cursor.position  # nothing to commit
        else:
            cursor.position, cursor.position_epoch = before, -1

    def _wake(self) -> None:
        self._fetcher.wake()
        self._coordinator.wake()
        if self._resuming is not None:
            self._resuming[1].cancel(Closed("the consumer was closed"))

    def _parting(self, deadline: float) -> Steps[None]:
        """Commit if that is automatic, leave the group, close our connections."""
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
    return Revoked(f"not ours any more, and not committed: {shown(lost)}", partitions=lost)


def _give_back(cluster: KafkaCluster, fetcher: Fetcher, purpose: str, coordinator: Coordinator) -> None:
    """What a member has that nobody closed, and nobody has any more: it leaves its group. In the I/O thread."""
    fetcher.close()
    cluster.give_back(purpose, keep=False)
    cluster.tasks.spawn(_leave(coordinator), f"leaving group {coordinator.group!r}")


def _leave(coordinator: Coordinator) -> Steps[None]:
    with suppress(WireprotoError):  # as above
        yield from coordinator.closing(time.monotonic() + _LEAVING)
