"""The QueueConsumer role: each message is acked or given back.

What it is: a member of a group that reads its share of the topic and of the group's retry topic, and hands out one message at a time.

    ack       done: the queue's offset is committed up to the first message that is not done yet
    release   a copy is stored to come back later by way of %RETRY%group (36), with one more attempt; the message itself is done then.
              After `max_attempts` it goes to the group's dead letters, %DLQ%group

What was handed out and not ended comes again when this member is gone: nothing is lost; what was acked behind an open message may repeat.
Belongs to one thread at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wireproto.errors import Revoked, UsageError
from wireproto.flow.role import Role
from wireproto.position import EARLIEST, TopicPartition
from wireproto.records import Delivery

from ..due import due
from .consumer import Sharing
from .messages import ConsumerSendMsgBackRequest

if TYPE_CHECKING:
    from .cluster import RocketCluster
    from .fetch import Fetched
    from .options import RocketOptions
    from .route import Queue


@dataclass(slots=True, eq=False)
class Prefix:
    """Which messages of one queue are in hand, and up to where all are done. Sans-IO.

    `done_to` is the first offset that is not done; everything before is. `fetched` is where the next batch begins, `saved` what the
    broker has been told.
    """

    done_to: int
    fetched: int
    saved: int
    done: set[int] = field(default_factory=set)  # behind one that is open
    _open: deque[int] = field(default_factory=deque)

    def fetch(self, offsets: Sequence[int], end: int) -> None:
        """A batch that reaches to `end` and holds these offsets, in order; the others were passed over by the broker."""
        self._open.extend(offsets)
        self.fetched = end
        self._advance()

    def finish(self, offset: int) -> None:
        """Mark it done."""
        if offset >= self.done_to:
            self.done.add(offset)
        self._advance()

    def _advance(self) -> None:
        while self._open and self._open[0] in self.done:
            self.done.remove(self._open.popleft())
        self.done_to = self._open[0] if self._open else self.fetched


@dataclass(slots=True, eq=False)
class Held:
    """What is needed to end a message in hand."""

    key: TopicPartition
    queue: Queue
    prefix: Prefix
    offset: int
    commit_log_offset: int
    unique_id: str | None
    real_topic: str
    sent_back: bool = False


class RocketQueueConsumer(Role):
    """Made by `RocketClient.queue`."""

    def __init__(self, cluster: RocketCluster, topic: str, group: str, options: RocketOptions) -> None:
        super().__init__("queue consumer", cluster.loop)
        self.topic, self.group, self.options = topic, group, options
        self._cluster = cluster
        self._ready: deque[tuple[Delivery, Held]] = deque()
        self._prefixes: dict[TopicPartition, Prefix] = {}
        self._held: dict[int, tuple[Delivery, Held]] = {}
        self._sharing = Sharing(cluster, (topic,), group, EARLIEST, options, facts=True)

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """The next message, or None when none came within `timeout`, or `max_unacked` are in hand."""
        with self._only:
            deadline = due(timeout)
            self._sharing.try_settle(deadline)  # the brokers' turn; what is at hand needs none
            self._forget()
            while len(self._held) < self.options.max_unacked:
                if self._ready:
                    self._sharing.member.polled()
                    delivery, held = self._ready.popleft()
                    self._held[id(delivery)] = delivery, held
                    return delivery
                found = self._sharing.fetch(deadline)
                self._forget()
                if found is None:
                    return None
                self._unpack(found)
            while (left := deadline - time.monotonic()) > 0.0:
                self._sharing.member.polled()  # who has all that it may have is alive
                self._cluster.pause(min(left, self.options.max_poll_interval / 2))
            return None

    def _unpack(self, found: Fetched) -> None:
        batch, facts = found.batch, found.columns.facts
        key, end = (batch.topic, batch.partition), found.end
        prefix = self._prefixes.get(key)
        if prefix is None or prefix.fetched > found.start:  # ours anew, or the group was set back
            self._ready = deque(item for item in self._ready if item[1].key != key)
            prefix = self._prefixes[key] = Prefix(found.start, found.start, found.start)
        records = list(batch)
        offsets = [record.position.offset for record in records]  # type: ignore[attr-defined]
        prefix.fetch(offsets, end)
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
            self._ready.append((Delivery(record, facts["reconsume_times"][at], self._end), held))

    def _forget(self) -> None:
        """Drop what belongs to queues that are no longer ours, were not for a while, or were set to another offset."""
        over = self._sharing.take_set_back() | self._sharing.take_gone()
        for key in [key for key in self._prefixes if key not in self._sharing.queues or key in over]:
            del self._prefixes[key]
            self._ready = deque(item for item in self._ready if item[1].key != key)

    def _end(self, delivery: Delivery, acked: bool, timeout: float) -> None:
        """Ack or release; `Delivery` calls it."""
        with self._only:
            deadline = due(timeout)
            self._sharing.member.polled()
            self._sharing.settle(deadline)
            self._forget()
            _, held = self._held.get(id(delivery), (None, None))
            if held is None:
                raise UsageError("this message was acked or released before", topic=delivery.record.topic)
            if self._prefixes.get(held.key) is not held.prefix:
                del self._held[id(delivery)]
                raise Revoked("another member owns this message's queue now", partitions=(held.key,))
            if not acked and not held.sent_back:
                self._send_back(held, deadline)
                held.sent_back = True
            held.prefix.finish(held.offset)
            if held.prefix.done_to > held.prefix.saved:
                self._sharing.member.offsets.commit(held.key[0], held.queue, held.prefix.done_to, deadline)
                held.prefix.saved = held.prefix.done_to
            del self._held[id(delivery)]

    def _send_back(self, held: Held, deadline: float) -> None:
        message = ConsumerSendMsgBackRequest(
            offset=held.commit_log_offset,
            group=self.group,
            delay_level=self.options.retry_level,
            origin_msg_id=held.unique_id,
            origin_topic=held.real_topic,
            unit_mode=False,
            max_reconsume_times=self.options.max_attempts,
        )

        def attempt() -> Any:
            address = self._sharing.member.offsets.address(held.key[0], held.queue, deadline)
            return self._cluster.invoke(address, message, deadline=deadline)

        self._cluster.retry(attempt, deadline, refresh=lambda _: self._cluster.routes.stale(held.key[0]))

    def _let_go(self, deadline: float) -> None:
        """Leave the group. Messages in hand and not ended come again, to whoever reads their queues next."""
        self._ready.clear()
        self._held.clear()
        self._sharing.close(deadline)
