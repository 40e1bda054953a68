"""Delivers single messages, each of which is acked or released: the QueueConsumer role.

A member of a group that reads its share of the topic and of the group's retry topic, and returns one message at a time.

    ack       done: the queue's offset is committed up to the first message that is not done yet
    release   a copy is stored to come back later through the retry topic %RETRY%group (36), with one more attempt; the message itself is
              done then. After `max_attempts` it goes to the group's dead-letter queue, %DLQ%group. Where the broker would not keep it (see
              `retries`) it stays in hand, and `release` raises NotRetried

What was delivered and not ended comes again when this member is gone: nothing is lost; what was acked behind an open message may repeat.
Belongs to one thread at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from wireproto._net import Event
from wireproto.errors import Revoked, WireprotoError
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.ended import ended_before, note_ended, refuse_ended, taken_away
from wireproto.net.task import operation
from wireproto.position import EARLIEST, TopicPartition
from wireproto.records import Delivery

from ..deadlines import deadline_after
from .assignment import NOT_READ, Assignment
from .errors import NotRetried
from .messages import ConsumerSendMsgBackRequest
from .retries import Retries

if TYPE_CHECKING:
    from wireproto.net.task import Steps

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
        saved: the offset that was committed last. done: offsets that are done, behind one that is open. open: offsets in hand, in order.
    """

    done_to: int
    fetched: int
    saved: int
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
        self._assignment = Assignment(cluster, (topic,), group, EARLIEST, options, facts=True)

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
        set_back, gone = frozenset(assignment.set_back), frozenset(assignment.gone)
        over = set_back | gone
        for key in [key for key in self._prefixes if key not in assignment.queues or key in over]:
            self._ready = deque(item for item in self._ready if item[1].key != key)
            del self._prefixes[key]
        assignment.set_back -= set_back
        assignment.gone -= gone

    @operation
    def _end(self, delivery: Delivery, acked: bool, timeout: float, wait: bool = False) -> Steps[None]:
        """Ack or release a message; `Delivery` calls it. Both wait until the broker has answered, so `wait` changes nothing."""
        with self._only:
            deadline = deadline_after(timeout)
            self._assignment.member.polled()
            yield from self._assignment.settling(deadline)
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
            if not acked and not held.sent_back:
                yield from self._sending_back(held, deadline)
                held.sent_back = True
            held.prefix.finish(held.offset)
            if held.prefix.done_to > held.prefix.saved:
                done_to = held.prefix.done_to
                yield from self._assignment.member.offsets.commit(held.key[0], held.queue, done_to, deadline)
                held.prefix.saved = done_to
            del self._held[id(delivery)]
            note_ended(delivery, acked)

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
        """Leave the group. Messages in hand and not ended come again, to the member that reads their queues next."""
        self._ready.clear()
        self._held.clear()
        try:
            yield from self._assignment.closing(deadline)
        finally:
            self._assignment.end()
