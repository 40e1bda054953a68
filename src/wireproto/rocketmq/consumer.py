"""Reads a group member's share of the queues, with offsets kept at the brokers: the Consumer role.

`Assignment` reads the queues that are assigned to this member, `commit` writes offsets with a reply. An automatic commit is a task: what
fails is committed by the next one. Batches of the retry topic have its name as their topic and are committed there; the retry topic is not
counted in `assignment`, `lag` and `committed`, and `seek` moves it only where it is named.
Belongs to one thread at a time. Rebalances take effect in `poll` and `commit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, cast

from wireproto.errors import OptionError, Revoked, WireprotoError
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.resolve import all_assigned, named
from wireproto.net.task import NEVER, operation
from wireproto.position import EARLIEST, LATEST, AtTime, Earliest, Latest, LogOffset, Position, TopicPartition, Where, places

from ..deadlines import deadline_after
from .assignment import Assignment
from .offset_lookup import PLACES

if TYPE_CHECKING:
    from wireproto.net.task import Steps, Task
    from wireproto.records import Batch

    from .assignment import Committed
    from .cluster import RocketCluster
    from .fetch import Fetched
    from .options import RocketOptions
    from .route import Queue


class RocketConsumer(ClosingRole):
    """Polls batches of the assigned queues, and commits offsets. Made by `RocketClient.consumer`."""

    def __init__(self, cluster: RocketCluster, topics: Sequence[str], group: str, start: Where, options: RocketOptions) -> None:
        if not topics:
            raise OptionError("a consumer needs a topic")
        super().__init__("consumer", cluster.loop)
        self.options = options
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._uncommitted: dict[TopicPartition, int] = {}  # offsets behind delivered records, not committed yet
        self._in_progress: tuple[TopicPartition, int | None] | None = None  # newest batch: its queue, and what `_uncommitted` was before
        self._read_from: set[TopicPartition] = set()  # queues of which records were delivered since they were assigned
        self._revoked: set[TopicPartition] = set()  # of those, the ones revoked since; until they are assigned and delivered again
        self._lost: set[TopicPartition] = set()  # of those, the ones with something to commit that no commit has reported
        self._reset: set[TopicPartition] = set()  # set to another offset by an administrator, and nothing delivered since
        self._last_commit = time.monotonic()
        self._saving: Task[Committed] | None = None
        self._assignment = Assignment(cluster, topics, group, start, options, giving_up=self._giving_up)

    @classmethod
    def opening(cls, cluster: RocketCluster, topics: Sequence[str], group: str, start: Where, options: RocketOptions) -> Steps[Self]:
        """Join the group, and make a consumer that has its share of the queues."""
        made = cls(cluster, topics, group, start, options)
        yield from made._assignment.opening()
        return made

    @property
    def member_id(self) -> str:
        """Return this member's client id, as brokers list it."""
        return self._assignment.member.id

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout`. Rebalances take effect here.

        Args:
            timeout: seconds; 0: what is here already.
        Raises:
            PullOffsetMoved: the records that come next are gone (with the option reset, reading continues elsewhere).
            BrokerError, TransportError: refused for good, or nothing has worked for `recovery_timeout`.
            TopicNotExist: no name server knows a topic for `recovery_timeout`.
            ProtocolError: what came cannot be decoded; names the position.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        before = self._assignment.fetcher.delivering
        try:
            with self._only:
                deadline = deadline_after(timeout)
                self._begin_poll()
                return self._hand(self._assignment.fetch(deadline))
        except WireprotoError:
            raise
        except BaseException:  # raised by a signal handler: what was not returned comes with the next poll, and no commit covers it
            if self._assignment.fetcher.take_back(before):
                self._work_failed()
                self._in_progress = None
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            self._begin_poll()
            return self._hand((yield from self._assignment.fetching(deadline)))

    def _begin_poll(self) -> None:
        """Take what was delivered as processed: the next automatic commit covers it."""
        self._in_progress = None
        if self.options.auto_commit:
            self._commit_sometimes()

    def _hand(self, found: Fetched | None) -> Batch | None:
        """Note the batch that is delivered now, and return it."""
        self._forget()
        if found is None:
            return None
        for key, position in found.batch.next_positions.items():
            assert isinstance(position, LogOffset)
            self._in_progress = key, self._uncommitted.get(key)
            self._uncommitted[key] = position.offset
            self._read_from.add(key)
            self._revoked.discard(key)
            self._reset.discard(key)
        return found.batch

    def _forget(self) -> None:
        """Forget what was delivered of queues that were revoked since, or set to another offset."""
        assignment = self._assignment
        gone, set_back = frozenset(assignment.gone), frozenset(assignment.set_back)
        for key in gone & self._read_from:
            self._revoked.add(key)
            if key in self._uncommitted:
                self._lost.add(key)
                del self._uncommitted[key]
            self._read_from.discard(key)
        assignment.gone -= gone  # last, so that it is all done again where a signal handler raises before
        for key in set_back:
            self._reset.add(key)
            self._uncommitted.pop(key, None)
        assignment.set_back -= set_back

    # committing --------------------------------------------------------------------------------------------------------------------

    def _giving_up(self, key: TopicPartition, queue: Queue) -> Steps[None] | None:
        """Make the steps of the last automatic commit of a queue that another member gets.

        None: nothing to commit, or no automatic commit: then the next `commit` raises Revoked for what was delivered.
        """
        offset = self._uncommitted.pop(key, None) if self.options.auto_commit else None
        return None if offset is None else self._handing_over(key, queue, offset)

    def _handing_over(self, key: TopicPartition, queue: Queue, offset: int) -> Steps[None]:
        """Commit the offset, unless the queue's new owner has committed a later one."""
        member, saving = self._assignment.member, self._saving
        try:
            if saving is not None:
                yield saving
            until = member.answer_by(queue.address, NEVER)
            if ((yield from member.offsets.committed(key[0], queue, until)) or 0) < offset:
                yield from member.offsets.commit(key[0], queue, offset, until)
        except WireprotoError:  # then the records come again, from the last commit on
            self._lost.add(key)

    def _commit_sometimes(self) -> None:
        """Begin an automatic commit, if one is due: of what was delivered before this poll, of queues that are still assigned."""
        saving, now = self._saving, time.monotonic()
        if saving is not None:
            if not saving.done:
                return
            self._saving = None
            self._saved(*saving.result())
        if now - self._last_commit >= self.options.auto_commit_interval:
            self._last_commit = now
            if wanted := self._unsaved():
                self._saving = self._tasks.spawn(self._assignment.committing(wanted), f"committing for group {self._assignment.group}")
                self._assignment.commits |= dict.fromkeys(wanted, self._saving)

    def _unsaved(self) -> dict[TopicPartition, int]:
        """Return what can be committed of the assigned queues; nothing where this member has left, so that others may have read on."""
        queues = {} if self._assignment.member.left else self._assignment.queues
        return {key: offset for key, offset in self._uncommitted.items() if key in queues}

    def _saved_by(self, until: float) -> Steps[None]:
        """Wait until no automatic commit is under way."""
        saving, self._saving = self._saving, None
        if saving is not None and (yield saving, until):
            self._saved(*saving.result())

    def _saved(self, done: Mapping[TopicPartition, int], problem: WireprotoError | None) -> None:
        """Take in the result of an automatic commit. What failed as a broker was away, or refused for a while, the next one repeats."""
        for key, offset in done.items():
            self._done(key, offset)
        if problem is None:
            self._assignment.transient.over("commit")
        else:
            self._assignment.pass_over("commit", problem)

    def _committing(self, wanted: Mapping[TopicPartition, int], until: float) -> Steps[None]:
        done, problem = yield from self._assignment.committing(wanted, until)
        for key, offset in done.items():
            self._done(key, offset)
        if problem is not None:
            raise problem

    def _done(self, key: TopicPartition, offset: int) -> None:
        if self._uncommitted.get(key, -1) <= offset:
            self._uncommitted.pop(key, None)

    @operation
    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Commit where the group resumes.

        Args:
            positions: the first position not done, by partition; None: behind all that poll has returned. timeout: seconds.
        Raises:
            Revoked: naming the partitions that another member owns now, or that are not to be read; the others are committed.
            OptionError: a position of a partition that there is not, or that may mean several queues.
            TransportError, TimedOut: a broker does not answer; what belongs to the other brokers is committed.
            BrokerError: a broker refuses. ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        positions = places(positions, "commit")
        with self._only:
            deadline = deadline_after(timeout)
            assignment = self._assignment
            given = None if positions is None else (yield from assignment.own(positions, deadline))
            yield from assignment.settling(deadline)
            yield from self._saved_by(deadline)
            self._forget()
            wanted = dict(self._uncommitted) if given is None else {key: at for key, at in given.items() if key not in self._reset}
            lost = list(self._lost) if given is None else []
            for key in list(wanted):
                if key not in assignment.queues or key in self._revoked:
                    lost.append(key)
                    self._done(key, wanted.pop(key))
                    if key not in assignment.queues:
                        self._uncommitted.pop(key, None)
            yield from self._committing(wanted, deadline)
            self._lost.difference_update(lost, wanted)
            if lost:
                raise Revoked(f"{assignment.lost(lost)}; the other positions are committed", partitions=tuple(sorted(lost)))

    @operation
    def committed(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, Position]]:
        """Return the group's committed positions in the assigned partitions; those never committed are left out.

        Args:
            timeout: seconds.
        Raises:
            TransportError, TimedOut: a broker does not answer. BrokerError: a broker refuses.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        with self._only:
            until = deadline_after(timeout)
            yield from self._saved_by(until)
            ours, offsets = self._assignment.asked_for(), self._assignment.member.offsets
            looks = {key: offsets.committed(key[0], queue, until) for key, queue in ours.items()}
            found = yield from self._cluster.gathering(looks, "the offset")
            return {key: ours[key].at(key[0], offset) for key, offset in found.items() if offset is not None}

    @operation
    def lag(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, int]]:
        """Return the number of records that poll has not returned yet, by assigned partition.

        Where the queue ends before the position, since its topic was created again or the end of its log is lost, these are all records
        that it has, or none with `reset="latest"`.

        Args:
            timeout: seconds.
        Raises:
            TransportError, TimedOut: a broker does not answer. BrokerError: a broker refuses. `known` has the lags at the other brokers.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        with self._only:
            until, assignment = deadline_after(timeout), self._assignment
            problem: WireprotoError | None = None
            try:
                ends = yield from assignment.where(LATEST, until)
            except WireprotoError as why:
                problem, ends = why, dict(why.known or {})
            places, lost = assignment.fetcher.positions(), assignment.fetcher.lost()
            out_of_range = {key for key, end in ends.items() if end < places[key] or key in lost}
            starts = {key: places[key] for key in ends.keys() - out_of_range}
            if out_of_range and self.options.reset != "latest":
                try:
                    starts |= yield from assignment.where(EARLIEST, until, out_of_range)
                except WireprotoError as why:
                    problem = problem or why
                    starts |= why.known or {}
                    ends = {key: end for key, end in ends.items() if key in starts}
            lags = {key: max(0, end - starts.get(key, end)) for key, end in ends.items()}
            if problem is not None:
                problem.known = lags
                raise problem
            return lags

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`.

        Args:
            partitions: assigned ones.
        Raises:
            Revoked: one is not assigned to this consumer; none is paused.
        """
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again.

        Args:
            partitions: assigned ones.
        Raises:
            Revoked: one is not assigned to this consumer; none is resumed.
        """
        self._pause(partitions, False)

    def _pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self._only:
            for key in all_assigned(partitions, self._assignment.queues):
                self._assignment.pause(key, paused)

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Continue from there, in the assigned partitions (and of these, in those that `where` names); commits nothing.

        Args:
            where: EARLIEST, LATEST, AtTime (milliseconds since 1970), a position, or a mapping of these by partition. timeout: seconds.
        Raises:
            Revoked: a partition is not assigned to this consumer. OptionError: no position. None was moved.
            TransportError, TimedOut: a broker does not answer. BrokerError: a broker refuses. None was moved.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        with self._only:
            deadline = deadline_after(timeout)
            assignment = self._assignment
            given = named(where)
            if given is None:
                PLACES.requests(where, (), "seek")  # for its checks
                requests = dict.fromkeys(assignment.asked_for(), cast("Earliest | Latest | AtTime", where))
                found: dict[TopicPartition, int] = {}
            else:
                requests = {key: at for key, at in given.items() if isinstance(at, Earliest | Latest | AtTime)}
                found = yield from assignment.own({key: at for key, at in given.items() if key not in requests}, deadline)
                all_assigned([*found, *requests], assignment.queues)
            for at in set(requests.values()):
                found |= yield from assignment.where(at, deadline, {key for key, other in requests.items() if other == at})
            for key, offset in found.items():
                assignment.fetcher.seek(key, offset, earliest=isinstance(requests.get(key), Earliest))
                self._uncommitted.pop(key, None)
                self._revoked.discard(key)
                self._lost.discard(key)
                self._reset.discard(key)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions, without those of the retry topic."""
        return frozenset(self._assignment.asked_for())

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Leave the group: its other members take over at once. Commits nothing, unless auto_commit is on.

        An error that ends a `with` block leaves the newest batch uncommitted: it was not processed.
        """
        problem: WireprotoError | None = None
        try:
            if self.options.auto_commit:
                try:
                    yield from self._saved_by(deadline)
                    yield from self._committing(self._unsaved(), deadline)
                except WireprotoError as why:
                    problem = why
            yield from self._assignment.closing(deadline)
        finally:
            self._assignment.end()
        if problem is not None:
            raise problem

    def _work_failed(self) -> None:
        if self._in_progress is not None:
            key, before = self._in_progress
            self._uncommitted.pop(key, None)
            if before is not None:
                self._uncommitted[key] = before
