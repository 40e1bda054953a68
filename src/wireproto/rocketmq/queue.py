"""Delivers single messages, each of which is acked or released: the QueueConsumer role.

A member of a group that reads its share of the topic and of the group's retry topic, and returns one message at a time.

    ack       done: the queue's offset is committed up to the first message that is not done yet, `ack_group_time` later, so that one commit
              confirms many acks; at once, and waited for, where the ack waits
    release   a copy is stored to come back later through the retry topic %RETRY%group (36), with one more attempt; the message itself is
              done then. After `max_attempts` it goes to the group's dead-letter queue, %DLQ%group. Where the broker would not keep it (see
              `retries`) it stays in hand, and `release` raises NotRetried

What was delivered and not ended comes again when this member is gone: nothing is lost; what was acked behind an open message may repeat.
Belongs to one thread at a time; the I/O thread commits, and reads `Prefix.done_to` alone. What commits a queue is one task, which the timer
(`flow.ack_groups`) begins, and an ack that waits, `flush`, `close` and a handing over wait for: so one commit of a queue is in flight at a
time. Brokers may handle two of one connection in another order, and the older offset would stay. Where other members may have read on
since, the task reads what is committed, and takes back nothing. A commit that fails for a passing reason is repeated for
`recovery_timeout`; what keeps acks from being committed is raised once, by `receive`, `flush` or `close`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from wireproto._net import Event
from wireproto.errors import Closed, Forked, Revoked, TimedOut, WireprotoError
from wireproto.flow.ack_groups import PAUSE, AckGroups
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.ended import ended_before, note_ended, refuse_ended, taken_away
from wireproto.net.task import NEVER, operation, quick
from wireproto.position import EARLIEST, TopicPartition
from wireproto.records import Delivery

from ..deadlines import deadline_after
from .assignment import NOT_READ, Assignment
from .errors import NotRetried
from .messages import ConsumerSendMsgBackRequest
from .retries import Retries
from .transient_errors import away, passes

if TYPE_CHECKING:
    from wireproto.net.task import Steps, Task

    from .cluster import Reply, RocketCluster
    from .fetch import Fetched
    from .options import RocketOptions
    from .pulls import Cursor
    from .route import Queue


@dataclass(slots=True, eq=False)
class Prefix:
    """Keeps which messages of one queue are in hand, and up to which offset all are done. Sans-IO.

    Attributes:
        done_to: the first offset that is not done; everything before is. fetched: where the next batch begins.
        saved: the offset that was committed last. acked: whether a message was acked whose commit nothing waits for.
        failures: commits in a row that failed. given: whether the queue falls to another member, and is committed for the last time.
        done: offsets that are done, behind one that is open. open: offsets in hand, in order.
    """

    done_to: int
    fetched: int
    saved: int
    acked: bool = False
    failures: int = 0
    given: bool = False
    done: set[int] = field(default_factory=set)
    open: deque[int] = field(default_factory=deque)

    def fetch(self, offsets: Sequence[int], end: int) -> None:
        """Add a fetched batch; what lies between its offsets the broker skipped.

        Args:
            offsets: of its messages, in order. end: the offset behind the batch.
        """
        self.open, self.fetched = self.opened(offsets), end
        self.advance()

    def opened(self, offsets: Sequence[int]) -> deque[int]:
        """Return `open` with more offsets appended.

        Args:
            offsets: those that come next, in order.
        """
        return deque((*self.open, *offsets))

    def finish(self, offset: int) -> None:
        """Mark a message done.

        Args:
            offset: of the message.
        """
        if offset >= self.done_to:
            self.done.add(offset)
        self.advance()

    @property
    def owes(self) -> bool:
        """Whether messages were acked that are to be committed."""
        return self.acked and self.done_to > self.saved

    def advance(self) -> None:
        """Move `done_to` behind the messages at the front that are done."""
        while self.open and self.open[0] in self.done:
            self.done.remove(self.open.popleft())
        self.done_to = self.open[0] if self.open else self.fetched


@dataclass(slots=True, eq=False)
class Held:
    """Holds what is needed to end a message in hand."""

    key: TopicPartition
    queue: Queue
    prefix: Prefix
    offset: int
    commit_log_offset: int
    unique_id: str | None
    real_topic: str
    sent_back: bool = False


class RocketQueueConsumer(ClosingRole):
    """Receives single messages of the assigned queues. Made by `RocketClient.queue`."""

    def __init__(self, cluster: RocketCluster, topic: str, group: str, options: RocketOptions) -> None:
        super().__init__("queue consumer", cluster.loop)
        self.topic, self.group, self.options = topic, group, options
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._ready: deque[tuple[Delivery, Held]] = deque()
        self._prefixes: dict[TopicPartition, Prefix] = {}
        self._held: dict[int, tuple[Delivery, Held]] = {}
        self._returning: tuple[Delivery, Held] | None = None  # being returned by `receive`
        self._leaving = Event(cluster.loop)
        self._retries = Retries(cluster, group)
        self._alone = options.ack_group_time <= 0  # each ack is a commit of its own
        self._groups = AckGroups(cluster.loop, options.ack_group_time, self._begin_commits)
        self._assignment = Assignment(
            cluster, (topic,), group, EARLIEST, options, facts=True, giving_up=self._giving_up, pausing=self._groups.raise_failure
        )

    @classmethod
    def opening(cls, cluster: RocketCluster, topic: str, group: str, options: RocketOptions) -> Steps[Self]:
        """Join the group, and make a worker that has its share of the queues."""
        made = cls(cluster, topic, group, options)
        yield from made._assignment.opening()
        return made

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """Return the next message, or None when none came within `timeout`, or `max_unacked` are in hand.

        Args:
            timeout: seconds; 0: what is here already.
        Raises:
            PullOffsetMoved: the messages that come next are gone (with the option reset, reading continues elsewhere).
            BrokerError, TransportError: refused for good, or nothing has worked for `recovery_timeout`.
            TopicNotExist: no name server knows the topic for `recovery_timeout`.
            ProtocolError: what came cannot be decoded; names the position.
            Revoked, BrokerError, TransportError: earlier acks could not be committed: those messages may come again (raised once a queue).
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        before, given = self._assignment.fetcher.delivering, self._returning
        try:
            with self._only:
                self._returning = None
                deadline = deadline_after(timeout)
                delivery = self._at_hand()
                return delivery if delivery is not None else self._assignment.fetcher.drive(self._receiving(deadline))
        except WireprotoError:
            raise
        except BaseException:  # raised by a signal handler: what was not returned comes with the next call
            self._take_back(before, given)
            raise

    def receiving(self, timeout: float = 1.0) -> Steps[Delivery | None]:
        """Run `receive` as steps."""
        with self._only:
            return (yield from self._receiving(deadline_after(timeout)))

    def _at_hand(self) -> Delivery | None:
        """Return the next message, if it is here and may be delivered."""
        self._assignment.look()
        self._forget()
        if self._groups.failed:
            self._groups.raise_failure()
        if not self._ready or len(self._held) >= self.options.max_unacked:
            return None
        self._assignment.member.polled()
        self._returning = delivery, _ = self._ready[0]
        self._held[id(delivery)] = self._returning
        self._ready.popleft()
        return delivery

    def _take_back(self, before: tuple[Cursor, int] | None, given: tuple[Delivery, Held] | None) -> None:
        """Put the message that was being returned back in front, and fetch again what was fetched and is not unpacked yet."""
        going = self._returning
        if going is not None and going is not given:
            self._held.pop(id(going[0]), None)
            if going not in self._ready:
                self._ready.appendleft(going)
            self._returning = None
        self._assignment.fetcher.take_back(before)

    def _receiving(self, deadline: float) -> Steps[Delivery | None]:
        while (delivery := self._at_hand()) is None:
            if len(self._held) < self.options.max_unacked:
                found = yield from self._assignment.fetching(deadline)
                self._forget()
                if found is None:
                    return None
                self._unpack(found)
                continue
            if time.monotonic() >= deadline:
                return None
            self._assignment.member.polled()  # a worker that holds `max_unacked` messages is alive
            yield self._leaving, min(deadline, time.monotonic() + self.options.max_poll_interval / 2)
            self._still_open()
        return delivery

    def _unpack(self, found: Fetched) -> None:
        batch, facts = found.batch, found.columns.facts
        key, end = (batch.topic, batch.partition), found.end
        prefix = self._prefixes.get(key)
        if prefix is None or prefix.fetched > found.start:  # assigned again, or the group was set back
            self._ready = deque(item for item in self._ready if item[1].key != key)
            prefix = self._prefixes[key] = Prefix(found.start, found.start, found.start)
        records = list(batch)
        offsets = [record.position.offset for record in records]  # type: ignore[attr-defined]
        items = deque(self._ready)
        for at, record in enumerate(records):
            held = Held(
                key=key,
                queue=found.queue,
                prefix=prefix,
                offset=offsets[at],
                commit_log_offset=facts["commit_log_offset"][at],
                unique_id=facts["unique_id"][at],
                real_topic=facts["real_topic"][at] or batch.topic,
            )
            items.append((Delivery(record, facts["reconsume_times"][at] + 1, self._end, _sent_to=held.real_topic), held))
        opened = prefix.opened(offsets)
        # A signal handler runs only between calls: all of this is done, or nothing of it.
        prefix.open, prefix.fetched, self._ready, self._assignment.fetcher.delivering = opened, end, items, None
        prefix.advance()

    def _forget(self) -> None:
        """Drop what belongs to queues that are not assigned any more, were not for a while, or were set to another offset."""
        assignment = self._assignment
        if not assignment.set_back and not assignment.gone and self._prefixes.keys() <= assignment.queues.keys():
            return
        set_back, gone = frozenset(assignment.set_back), frozenset(assignment.gone)
        over = set_back | gone
        for key in [key for key in self._prefixes if key not in assignment.queues or key in over]:
            self._ready = deque(item for item in self._ready if item[1].key != key)
            if key not in set_back:
                self._report_lost(key, self._prefixes[key], assignment.lost((key,)))
            del self._prefixes[key]
        assignment.set_back -= set_back
        assignment.gone -= gone

    def _ending(self, delivery: Delivery, acked: bool, timeout: float, wait: bool = False) -> Steps[None]:
        """Run `_end` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            self._assignment.member.polled()
            if acked and not wait and not self._alone:
                self._ack_later(delivery)
                return
            yield from self._assignment.settling(deadline)
            held = self._in_hand(delivery)
            if not acked and not held.sent_back:
                yield from self._sending_back(held, deadline)
                held.sent_back = True
            held.prefix.finish(held.offset)
            yield from self._saving(held.key, held.prefix, deadline)
            del self._held[id(delivery)]
            note_ended(delivery, acked)

    @quick(_ending)
    def _end(self, delivery: Delivery, acked: bool, timeout: float, wait: bool = False) -> None:
        """Ack or release a message; `Delivery` calls it."""
        if not acked or wait or self._alone:
            self._tasks.drive(self._ending(delivery, acked, timeout, wait), NEVER)
            return
        deadline_after(timeout)
        with self._only:
            self._assignment.member.polled()
            self._ack_later(delivery)

    def _in_hand(self, delivery: Delivery) -> Held:
        """Return what a delivery holds; raises UsageError or Revoked where it is not in hand."""
        self._forget()
        refuse_ended(delivery)
        if id(delivery) not in self._held:  # a close has let go of it, or a signal handler raised when it had just been ended
            self._still_open()
            raise ended_before(delivery)
        _, held = self._held[id(delivery)]
        if self._prefixes.get(held.key) is not held.prefix:
            del self._held[id(delivery)]
            again = ": the message comes again when it is" if self._assignment.why.get(held.key) == NOT_READ else ""
            raise taken_away(delivery, Revoked(f"{self._assignment.lost((held.key,))}{again}", partitions=(held.key,)))
        return held

    # acks in groups ----------------------------------------------------------------------------------------------------------------

    def _ack_later(self, delivery: Delivery) -> None:
        self._assignment.look()
        held = self._in_hand(delivery)
        held.prefix.acked = True
        held.prefix.finish(held.offset)
        self._groups.more()
        del self._held[id(delivery)]
        note_ended(delivery, True)

    def _begin_commits(self) -> None:
        """Begin to commit what was acked, since the group's time is over. In the I/O thread."""
        if not self._only.closed:
            for key, prefix in self._uncommitted():
                self._commit(key, prefix)

    def _uncommitted(self) -> list[tuple[TopicPartition, Prefix]]:
        """Return what is to be committed of queues that are ours."""
        return [(key, prefix) for key, prefix in list(self._prefixes.items()) if prefix.owes and self._ours(key, prefix)]

    def _ours(self, key: TopicPartition, prefix: Prefix) -> bool:
        """Return whether what was done of a queue may be committed: no administrator has set it to another offset, and it was not lost."""
        assignment = self._assignment
        if assignment.member.left or assignment.is_set(key) or self._prefixes.get(key) is not prefix:
            return False
        return key in assignment.queues and key not in assignment.gone

    def _commit(self, key: TopicPartition, prefix: Prefix, given: Queue | None = None) -> Task[WireprotoError | None]:
        """Return the task that commits what is done of a queue; begins one where there is none.

        Args:
            key: of the queue. prefix: what is done of it. given: the queue, if it falls to another member.
        """
        task = self._assignment.commits[key] = self._tasks.shared(
            ("acks", id(prefix)), partial(self._committing, key, prefix, given), f"committing acks of {key[0]}[{key[1]}]"
        )
        return task

    def _committing(self, key: TopicPartition, prefix: Prefix, given: Queue | None) -> Steps[WireprotoError | None]:
        """Commit what is done of a queue, in the I/O thread; returns why that failed. The next group tries again what may succeed."""
        assignment, done_to = self._assignment, prefix.done_to
        queue = assignment.queues.get(key) if given is None else given
        if queue is None or done_to <= prefix.saved or (given is None and not self._ours(key, prefix)):
            return None
        member = assignment.member
        until = member.answer_by(queue.address, NEVER)
        try:
            committed = 0
            if given is not None or prefix.failures or assignment.stale:  # another member may have read on
                committed = (yield from member.offsets.committed(key[0], queue, until)) or 0
                if given is None and not self._ours(key, prefix):
                    return None
            if committed < done_to:
                yield from member.offsets.commit(key[0], queue, done_to, until)
        except (Closed, Forked):
            raise
        except WireprotoError as why:
            if away(why):
                member.mark_unresponsive(queue.address)
            if not prefix.given:
                self._failed(key, prefix, why)
            return why
        prefix.saved, prefix.failures = max(prefix.saved, done_to), 0
        assignment.transient.over(("acks", key))
        self._groups.settled(key)
        if prefix.owes and self._ours(key, prefix):
            self._groups.more()
        return None

    def _failed(self, key: TopicPartition, prefix: Prefix, why: WireprotoError) -> None:
        """Have acks committed later that could not be; where that cannot help, keep the error until it is raised. In the I/O thread."""
        prefix.failures += 1
        try:
            self._assignment.pass_over(("acks", key), why)
        except WireprotoError:
            if prefix.owes:
                self._warn(key, prefix, str(why))
                why.text += f"; not committed: {_names(key, prefix)}"
                self._groups.refused(key, why)
                self._assignment.fetcher.wake()
        else:
            if prefix.owes and not self._only.closed:
                self._groups.again(prefix.failures)

    def _report_lost(self, key: TopicPartition, prefix: Prefix, why: str) -> None:
        """Have the next call raise that acks of a queue cannot be committed any more; nothing where they are, or still may be."""
        if prefix.owes and not prefix.given:
            self._lose(key, prefix, why)

    def _lose(self, key: TopicPartition, prefix: Prefix, why: str) -> None:
        text = f"{why}; acks are not committed, so that these may come again: {_names(key, prefix)}"
        self._warn(key, prefix, why)
        self._groups.settled(key)  # an earlier error of the same acks
        self._groups.refused(key, Revoked(text, partitions=(key,)))

    def _warn(self, key: TopicPartition, prefix: Prefix, why: str) -> None:
        self._cluster.log.warning(
            ("acks", self.group, key),
            "%s[%d]: acks are not committed, messages from offset %d on may come again: %s",
            *key,
            prefix.saved,
            why,
        )

    def _saving(self, key: TopicPartition, prefix: Prefix, deadline: float) -> Steps[None]:
        """Wait until all that is done of a queue is committed; a failure that passes is waited out until the deadline."""
        done_to, problem = prefix.done_to, None
        while prefix.saved < done_to:
            if prefix.given:  # while this role is being closed: that waits for its last commit
                return
            if not self._ours(key, prefix):
                raise Revoked(self._assignment.lost((key,)), partitions=(key,))
            task = self._commit(key, prefix)
            if not (yield task, deadline):
                raise problem or TimedOut(f"no answer to acks, so that these may come again: {_names(key, prefix)}", topic=key[0])
            problem = task.result()
            if problem is None:
                continue
            self._groups.settled(key)
            again = time.monotonic() + PAUSE.delay(prefix.failures)
            if not passes(problem) or again >= deadline:
                raise problem
            yield again

    def _settling(self, deadline: float) -> Steps[None]:
        """Commit all that was acked, and wait for that; raises why it was not."""
        for commit in self._assignment.last_commits():
            if not (yield commit, deadline):
                raise TimedOut("no answer to the last acks of a queue that fell to another member", topic=self.topic)
        uncommitted, problem = self._uncommitted(), None
        for key, prefix in uncommitted:
            self._commit(key, prefix)
        for key, prefix in uncommitted:
            try:
                yield from self._saving(key, prefix, deadline)
            except WireprotoError as why:
                problem = problem or why
        if problem is not None:
            raise problem
        self._groups.raise_failure()

    def _giving_up(self, key: TopicPartition, queue: Queue) -> Steps[None] | None:
        """Make the steps of the last commit of a queue that another member gets. None: nothing to commit."""
        prefix = self._prefixes.get(key)
        if prefix is None or not prefix.owes or self._assignment.is_set(key):
            return None
        prefix.given = True
        return self._handing_over(key, queue, prefix)

    def _handing_over(self, key: TopicPartition, queue: Queue, prefix: Prefix) -> Steps[None]:
        problem = None
        for _ in range(2):  # the first may be a commit that was under way
            if prefix.owes:
                task = self._commit(key, prefix, queue)
                yield task
                problem = task.result()
        if prefix.owes:
            self._lose(key, prefix, f"{key[0]}[{key[1]}] fell to another member" + (f": {problem}" if problem is not None else ""))

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """Commit what was acked, and wait until the brokers have confirmed all of it.

        What was acked behind a message that is still in hand is confirmed with that one.

        Args:
            timeout: seconds for the call.
        Raises:
            Revoked: a queue fell to another member before its acks were committed: those messages come again.
            BrokerError, TransportError, TimedOut: a broker refuses, or does not answer; the text names the messages that may come again.
                The next group, `flush` or `close` tries again.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        with self._only:
            deadline = deadline_after(timeout)
            self._assignment.member.polled()
            yield from self._assignment.settling(deadline)
            self._forget()
            yield from self._settling(deadline)

    def _sending_back(self, held: Held, until: float) -> Steps[Reply]:
        message = ConsumerSendMsgBackRequest(
            offset=held.commit_log_offset,
            group=self.group,
            delay_level=self.options.retry_level,
            origin_msg_id=held.unique_id,
            origin_topic=held.real_topic,
            unit_mode=False,
            max_reconsume_times=self.options.max_attempts,
        )

        def attempt() -> Steps[Reply]:
            address = yield from self._assignment.member.offsets.address(held.key[0], held.queue, until)
            yield from self._retries.check(address, until)
            return (yield from self._cluster.invoking(address, message, until=until))

        try:
            return (yield from self._cluster.retrying(attempt, until, lambda _: self._cluster.routes.stale(held.key[0])))
        except NotRetried as why:
            position = held.queue.at(held.key[0], held.offset)
            raise why.with_context(topic=held.key[0], partition=held.key[1], position=position) from None

    def _wake(self) -> None:
        self._leaving.set()

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Commit what was acked, and leave the group.

        Messages in hand and not ended come again, to the member that reads their queues next.
        """
        problem: WireprotoError | None = None
        self._assignment.fetcher.close()  # ends the wait of another thread at once
        try:
            try:
                yield from self._settling(deadline)
            except WireprotoError as why:
                problem = why
            self._ready.clear()
            self._held.clear()
            yield from self._assignment.closing(deadline)
            for key, prefix in list(self._prefixes.items()):
                if not self._assignment.is_set(key):
                    self._report_lost(key, prefix, self._assignment.lost((key,)))
        finally:
            self._groups.stop()
            self._assignment.end()
        if problem is not None:
            raise problem
        self._groups.raise_failure()


def _names(key: TopicPartition, prefix: Prefix) -> str:
    """Format which messages of a queue were acked and are not committed."""
    return f"{key[0]}[{key[1]}] from offset {prefix.saved} on"
