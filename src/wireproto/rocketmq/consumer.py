"""The Consumer role: a member of a group that reads its share of the queues, with offsets kept at the brokers.

What it is: `Assignment` reads the queues that are ours, `commit` writes offsets with a reply. An automatic commit is a task: what fails is
committed by the next one. The retry topic's batches bear its name and are committed there; it is not counted in `assignment`, `lag` and
`committed`, and `seek` moves it only by name.
Belongs to one thread at a time. Rebalances are taken in by `poll` and `commit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from wireproto.errors import OptionError, Revoked, WireprotoError
from wireproto.flow.parting import PartingRole
from wireproto.net.task import NEVER, operation
from wireproto.position import EARLIEST, LATEST, Earliest, LogOffset, Position, TopicPartition, Where, places

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


class RocketConsumer(PartingRole):
    """Made by `RocketClient.consumer`."""

    def __init__(self, cluster: RocketCluster, topics: Sequence[str], group: str, start: Where, options: RocketOptions) -> None:
        if not topics:
            raise OptionError("a consumer needs a topic")
        super().__init__("consumer", cluster.loop)
        self.options = options
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._handed: dict[TopicPartition, int] = {}  # not committed yet
        self._in_work: tuple[TopicPartition, int | None] | None = None  # the newest batch's queue, and what was handed out of it before
        self._given: set[TopicPartition] = set()  # queues out of which something was handed out since they are ours
        self._revoked: set[TopicPartition] = set()  # of those, the ones given up since; until they are ours and handed out again
        self._lost: set[TopicPartition] = set()  # of those, the ones with something to commit that no commit has told of
        self._elsewhere: set[TopicPartition] = set()  # set back or forth, and nothing handed out since
        self._last_commit = time.monotonic()
        self._saving: Task[Committed] | None = None
        self._assignment = Assignment(cluster, topics, group, start, options, giving_up=self._giving_up)

    @classmethod
    def opening(cls, cluster: RocketCluster, topics: Sequence[str], group: str, start: Where, options: RocketOptions) -> Steps[Self]:
        """Join, and make a consumer that has its share."""
        made = cls(cluster, topics, group, start, options)
        yield from made._assignment.opening()
        return made

    @property
    def member_id(self) -> str:
        """Our client id, as brokers list it."""
        return self._assignment.member.id

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout`. Rebalances happen here.

        Raises: as `RocketReader.poll`.
        """
        before = self._assignment.fetcher.handing
        try:
            with self._only:
                deadline = deadline_after(timeout)
                self._begin_poll()
                return self._hand(self._assignment.fetch(deadline))
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's: what was not returned comes with the next poll, and no commit covers it
            if self._assignment.fetcher.take_back(before):
                self._work_failed()
                self._in_work = None
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """`poll`, as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            self._begin_poll()
            return self._hand((yield from self._assignment.fetching(deadline)))

    def _begin_poll(self) -> None:
        """What was handed out is done with."""
        self._in_work = None
        if self.options.auto_commit:
            self._commit_sometimes()

    def _hand(self, found: Fetched | None) -> Batch | None:
        """What is being worked on from now on."""
        self._forget()
        if found is None:
            return None
        for key, position in found.batch.next_positions.items():
            assert isinstance(position, LogOffset)
            self._in_work = key, self._handed.get(key)
            self._handed[key] = position.offset
            self._given.add(key)
            self._revoked.discard(key)
            self._elsewhere.discard(key)
        return found.batch

    def _forget(self) -> None:
        """What was handed out of queues that were given up since, or set to another place, counts no more."""
        assignment = self._assignment
        gone, set_back = frozenset(assignment.gone), frozenset(assignment.set_back)
        for key in gone & self._given:
            self._revoked.add(key)
            if key in self._handed:
                self._lost.add(key)
                del self._handed[key]
            self._given.discard(key)
        assignment.gone -= gone  # last: where a signal breaks in, it is done again
        for key in set_back:
            self._elsewhere.add(key)
            self._handed.pop(key, None)
        assignment.set_back -= set_back

    # committing --------------------------------------------------------------------------------------------------------------------

    def _giving_up(self, key: TopicPartition, queue: Queue) -> Steps[None] | None:
        """Auto commit: what was handed out of a queue that falls to another member. Without it the next commit tells that it is lost."""
        offset = self._handed.pop(key, None) if self.options.auto_commit else None
        return None if offset is None else self._giving(key, queue, offset)

    def _giving(self, key: TopicPartition, queue: Queue, offset: int) -> Steps[None]:
        """Commit it, unless its new owner has got further already."""
        member, saving = self._assignment.member, self._saving
        try:
            if saving is not None:
                yield saving
            until = member.answer_by(queue.address, NEVER)
            if ((yield from member.offsets.committed(key[0], queue, until)) or 0) < offset:
                yield from member.offsets.commit(key[0], queue, offset, until)
        except WireprotoError:  # then it comes again, from the last commit on
            self._lost.add(key)

    def _commit_sometimes(self) -> None:
        """Auto commit: what was handed out before this poll; of queues that are still ours."""
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

    def _unsaved(self) -> dict[TopicPartition, int]:
        """What was handed out of queues that are ours; nothing if others may have read on."""
        queues = {} if self._assignment.member.left else self._assignment.queues
        return {key: offset for key, offset in self._handed.items() if key in queues}

    def _saved_by(self, until: float) -> Steps[None]:
        """No automatic commit is under way any more."""
        saving, self._saving = self._saving, None
        if saving is not None and (yield saving, until):
            self._saved(*saving.result())

    def _saved(self, done: Mapping[TopicPartition, int], problem: WireprotoError | None) -> None:
        """Take in an automatic commit. A broker that was not there, or refused for a while, is asked again by the next one."""
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
        if self._handed.get(key, -1) <= offset:
            self._handed.pop(key, None)

    @operation
    def commit(self, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0) -> Steps[None]:
        """Commit where to resume; None commits what poll has handed out.

        Raises:
            Revoked: naming the partitions that another member owns now, or that are not to be read; the others are committed.
            TransportError: a broker cannot be asked; what belongs to the others is committed.
        """
        positions = places(positions, "commit")
        with self._only:
            deadline = deadline_after(timeout)
            assignment = self._assignment
            given = None if positions is None else (yield from assignment.own(positions, deadline))
            yield from assignment.settling(deadline)
            yield from self._saved_by(deadline)
            self._forget()
            wanted = dict(self._handed) if given is None else {key: at for key, at in given.items() if key not in self._elsewhere}
            lost = list(self._lost) if given is None else []
            for key in list(wanted):
                if key not in assignment.queues or key in self._revoked:
                    lost.append(key)
                    self._done(key, wanted.pop(key))
                    if key not in assignment.queues:
                        self._handed.pop(key, None)
            yield from self._committing(wanted, deadline)
            self._lost.difference_update(lost)
            if lost:
                raise Revoked(f"{assignment.lost(lost)}; the other positions are committed", partitions=tuple(sorted(lost)))

    @operation
    def committed(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, Position]]:
        """Where the group resumes in the partitions that are ours; those never committed are left out."""
        with self._only:
            until = deadline_after(timeout)
            yield from self._saved_by(until)
            ours, offsets = self._assignment.asked_for(), self._assignment.member.offsets
            looks = {key: offsets.committed(key[0], queue, until) for key, queue in ours.items()}
            found = yield from self._cluster.gathering(looks, "the offset")
            return {key: ours[key].at(key[0], offset) for key, offset in found.items() if offset is not None}

    @operation
    def lag(self, *, timeout: float = 30.0) -> Steps[Mapping[TopicPartition, int]]:
        """Records that poll has not handed out yet, by partition that is ours.

        Where the queue ends before the position, since its topic was made again or its log's end is lost, these are all records that it
        has, or none with `reset="latest"`.
        """
        with self._only:
            until, assignment = deadline_after(timeout), self._assignment
            ends = yield from assignment.where(LATEST, until)
            places, lost = assignment.fetcher.positions(), assignment.fetcher.lost()
            astray = {key for key, end in ends.items() if end < places[key] or key in lost}
            starts = {key: places[key] for key in ends.keys() - astray}
            if astray and self.options.reset != "latest":
                starts |= yield from assignment.where(EARLIEST, until, astray)
            return {key: max(0, end - starts.get(key, end)) for key, end in ends.items()}

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`."""
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        self._pause(partitions, False)

    def _pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self._only:
            for key in partitions:
                if key not in self._assignment.queues:
                    raise Revoked(f"{key[0]}[{key[1]}] is not assigned to this consumer", partitions=(key,))
                self._assignment.pause(key, paused)

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Go on from there, in the partitions that are ours (and that `where` names)."""
        with self._only:
            deadline = deadline_after(timeout)
            assignment = self._assignment
            if isinstance(where, Position):
                where = {(where.topic, where.partition): where}
            if isinstance(where, Mapping):
                found = yield from assignment.own(where, deadline)
                if missing := found.keys() - assignment.queues.keys():
                    raise OptionError(f"not assigned to this consumer: {sorted(missing)}")
            else:
                PLACES.requests(where, (), "seek")  # for its checks
                found = yield from assignment.where(where, deadline)
            for key, offset in found.items():
                assignment.fetcher.seek(key, offset, earliest=isinstance(where, Earliest))
                self._handed.pop(key, None)
                self._revoked.discard(key)
                self._elsewhere.discard(key)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours, of the topics asked for."""
        return frozenset(self._assignment.asked_for())

    def _parting(self, deadline: float) -> Steps[None]:
        """Leave the group: its other members take over at once. Commits nothing, unless auto_commit is on.

        An error that ends a `with` block leaves the newest batch uncommitted: its work was not done.
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
        if self._in_work is not None:
            key, before = self._in_work
            self._handed.pop(key, None)
            if before is not None:
                self._handed[key] = before
