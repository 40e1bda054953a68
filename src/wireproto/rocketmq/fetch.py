"""Reading queues: pulls sent ahead over several brokers, replies put in order, batches made of them.

What it is: what Reader, Consumer and QueueConsumer have in common. A `Fetcher` holds some queues, each with its `QueuePulls`; `poll` sends
what may be sent, waits for replies, and hands out the records of one queue that follow where the last batch of it ended.
A broker that does not answer delays its own queues only. After `recovery_timeout` of failures without any success `poll` raises.
May assume: one thread at a time. Must not: keep a thread.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wireproto._codec import decode_rocketmq
from wireproto._net import Call, Mailbox
from wireproto.errors import TimedOut, TransportError, WireprotoError
from wireproto.net.retry import Policy
from wireproto.position import LogOffset
from wireproto.records import Batch

from .codes import PullOffsetMoved, TopicNotExist
from .messages import PullMessageRequest, PullMessageResponse
from .pulls import QueuePulls
from .remoting import PULL_ANSWERS

if TYPE_CHECKING:
    from wireproto._codec import Columns
    from wireproto._net import Connection

    from .client import RocketClient
    from .options import RocketOptions
    from .route import Queue

EVERYTHING = "*"
SUSPEND, SUBSCRIPTION = 2, 4
"""sysFlag of a pull: hold it at the end of the queue; the subscription is in the request."""
GRACE = 15.0
"""Seconds beyond the suspend time: brokers look at held pulls each 5 s only."""
AGAIN = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.2)

Key = tuple[str, int]
WAKE = object()


@dataclass(slots=True, eq=False)
class Fetching:
    """One queue being read."""

    topic: str
    queue: Queue
    pulls: QueuePulls
    paused: bool = False
    failures: int = 0
    retry_at: float = 0.0
    lenient: bool = False

    @property
    def key(self) -> Key:
        return self.topic, self.queue.partition


@dataclass(slots=True)
class Fetched:
    """A batch with what only queue consumers need to know of its records."""

    batch: Batch
    queue: Queue
    columns: Columns
    start: int
    end: int


@dataclass(slots=True)
class Health:
    """Since when nothing has worked."""

    since: float | None = None
    problem: WireprotoError | None = field(default=None)


class Fetcher:
    """Args:
    group: whom the pulls are counted for.
    purpose: which connections they use.
    facts: whether the batches' columns tell what only brokers and queue consumers care about.
    """

    def __init__(
        self, client: RocketClient, options: RocketOptions, *, group: str, purpose: str, facts: bool = False
    ) -> None:
        self._client = client
        self._options = options
        self._group, self._purpose, self._facts = group, purpose, facts
        self._box = Mailbox(client.loop, limit=options.fetch_memory // 2)
        self._held: dict[Key, Fetching] = {}
        self._turns: deque[Key] = deque()
        self._health = Health()

    # which queues ------------------------------------------------------------------------------------------------------------------

    def add(self, topic: str, queue: Queue, start: int, stop: int | None = None, *, earliest: bool = False) -> None:
        """Read this queue from `start` up to, not including, `stop`. earliest: if that is gone by now, from what is left."""
        item = Fetching(topic, queue, QueuePulls(start, stop, self._options.pull_ahead), lenient=earliest)
        self._held[item.key] = item
        self._turns.append(item.key)

    def remove(self, key: Key) -> None:
        """Stop reading it; what was fetched ahead is dropped."""
        self._held.pop(key, None)
        if key in self._turns:
            self._turns.remove(key)

    def keys(self) -> frozenset[Key]:
        return frozenset(self._held)

    def positions(self) -> dict[Key, int]:
        """The offset of the next record of each queue."""
        return {key: item.pulls.next for key, item in list(self._held.items())}  # the keeper asks too

    def seek(self, key: Key, offset: int) -> None:
        self._held[key].pulls.seek(offset)

    def pause(self, key: Key, paused: bool = True) -> None:
        self._held[key].paused = paused

    @property
    def done(self) -> bool:
        """Whether every queue has reached its stop."""
        return all(item.pulls.done for item in self._held.values())

    def close(self) -> None:
        self._held.clear()
        self._box.close()

    def wake(self) -> None:
        """End a wait in `poll` soon: something else than a reply has come."""
        self._box.put(WAKE)

    # reading -----------------------------------------------------------------------------------------------------------------------

    def poll(self, deadline: float) -> Fetched | None:
        """The next batch, or None: nothing by `deadline`, every stop reached, or woken."""
        while True:
            self._collect()
            if (found := self._take()) is not None:
                return found
            if self.done and self._held:
                return None
            self._send(deadline)
            item = self._box.get(self._until(deadline))
            if item is WAKE or (item is None and time.monotonic() >= deadline):
                return None
            self._answer(item)

    def _until(self, deadline: float) -> float:
        """When to look again though no reply came: a retry is due."""
        now = time.monotonic()
        due = [item.retry_at for item in self._held.values() if item.retry_at > now and not item.pulls.done]
        return min([deadline, *due])

    def _collect(self) -> None:
        """Take in all replies that are there already."""
        while len(self._box):
            self._answer(self._box.get(0.0))

    def _send(self, deadline: float | None) -> None:
        """Send every pull that may be sent; without a deadline, only on connections that are open."""
        now = time.monotonic()
        for item in self._held.values():
            if item.paused or item.pulls.done or item.retry_at > now:
                continue
            conn: Connection | None = None
            if deadline is None:
                conn = self._client.peek(item.queue.address, self._purpose) if item.queue.address else None
                if conn is None:
                    continue
            for offset, count, suspend in item.pulls.wanted():
                try:
                    conn = conn or self._connection(item, deadline or now)
                    self._pull(conn, item, offset, count, suspend)
                except WireprotoError as error:
                    item.pulls.failed(offset)
                    self._failed(item, error)
                    break

    def _connection(self, item: Fetching, deadline: float) -> Connection:
        if item.failures or item.queue.address is None:
            route = self._client.route(item.topic, deadline)
            if item.queue.partition < len(route.queues):
                item.queue = route.queues[item.queue.partition]
        if item.queue.address is None:
            self._client.routes.stale(item.topic)
            raise TransportError(f"broker {item.queue.broker} has no master now")
        limit = min(deadline, time.monotonic() + self._options.connect_timeout)
        return self._client.connection(item.queue.address, limit, self._purpose)

    def _pull(self, conn: Connection, item: Fetching, offset: int, count: int, suspend: bool) -> None:
        options = self._options
        hold = options.pull_suspend if suspend else 0.0
        message = PullMessageRequest(
            consumer_group=self._group,
            topic=item.topic,
            queue_id=item.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION | (SUSPEND if suspend else 0),
            commit_offset=0,
            suspend_timeout_millis=int(hold * 1000),
            subscription=EVERYTHING,
            sub_version=0,
            expression_type="TAG",
        )
        timeout_at = time.monotonic() + (hold + GRACE if suspend else options.request_timeout)
        context = (item, item.pulls.generation, offset)
        self._client.submit(conn, message, timeout_at=timeout_at, mailbox=self._box, context=context)

    def _answer(self, call: Any) -> None:
        """Take in one finished pull."""
        if not isinstance(call, Call):
            return
        context: tuple[Fetching, int, int] = call.context
        item, generation, offset = context
        if self._held.get(item.key) is not item or item.pulls.generation != generation:
            return
        try:
            if call.error is not None:
                raise call.error
            assert call.frame is not None
            reply = self._client.read(call.conn, call.frame, PULL_ANSWERS, topic=item.topic, partition=item.queue.partition)
            fields = PullMessageResponse.from_ext(reply.ext)
        except WireprotoError as error:
            item.pulls.failed(offset)
            self._failed(item, error)
            return
        item.failures = 0
        self._health.since = None
        if reply.code != 21:
            item.lenient = False
        if reply.code == 0:
            item.pulls.answered(offset, fields.next_begin_offset, fields.max_offset, memoryview(reply.body))
        elif reply.code == 21:
            self._moved(item, offset, fields)
        else:
            item.pulls.empty(offset, fields.next_begin_offset, fields.max_offset)

    def _moved(self, item: Fetching, offset: int, fields: PullMessageResponse) -> None:
        """No such offset. At the very end (5.x says it there too) that is no news; else records are gone, or the group was reset."""
        low, high, pulls = fields.min_offset, fields.max_offset, item.pulls
        if offset == high:
            pulls.empty(offset, offset, high)
            return
        if offset != pulls.next:
            pulls.failed(offset)  # sent ahead, past an end that the pull before it will tell
            pulls.end = min(pulls.end, high)
            return
        inside = low <= offset < high
        choice = "earliest" if item.lenient else self._options.on_moved
        if inside:  # the broker was told to set this group back or forth
            pulls.seek(fields.next_begin_offset)
        elif choice == "error":
            pulls.failed(offset)
            raise PullOffsetMoved(
                f"the next record is gone: the queue holds {low} up to {high}", topic=item.topic, partition=item.queue.partition,
                position=LogOffset(item.topic, item.queue.partition, offset), first=low, end=high,
            )  # fmt: skip
        else:
            pulls.seek(low if choice == "earliest" else high)

    def _failed(self, item: Fetching, error: WireprotoError) -> None:
        """Wait a little; raise what will not pass, or what has lasted too long."""
        passing = error.retriable or isinstance(error, TimedOut | TopicNotExist)
        now = time.monotonic()
        if self._health.since is None:
            self._health.since = now
        if not passing or now - self._health.since > self._options.recovery_timeout:
            self._health.since = None
            raise error.with_context(topic=item.topic, partition=item.queue.partition)
        item.failures += 1
        item.retry_at = now + AGAIN.delay(item.failures)
        self._client.routes.stale(item.topic)

    # handing out -------------------------------------------------------------------------------------------------------------------

    def _take(self) -> Fetched | None:
        """A batch of the queue whose turn it is."""
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            item = self._held[key]
            while item.pulls.has_ready and not item.paused:
                start = item.pulls.next
                answers = item.pulls.take(self._options.batch_bytes)
                self._send(None)
                bodies = [answer.body for answer in answers if len(answer.body)]
                if not bodies:
                    continue
                try:
                    columns = self._decode(item, bodies, start)
                except WireprotoError:
                    item.pulls.seek(start)  # what cannot be read is not passed over in silence: it is the next to be read again
                    raise
                end = answers[-1].next_offset
                batch = Batch(item.topic, item.queue.partition, columns, LogOffset(item.topic, item.queue.partition, end))
                return Fetched(batch, item.queue, columns, start, end)
        return None

    def _decode(self, item: Fetching, bodies: list[bytes | memoryview], start: int) -> Columns:
        columns, _ = decode_rocketmq(
            bodies,
            topic=item.topic,
            partition=item.queue.partition,
            start=start,
            limit=self._options.decompress_limit,
            check_crc=self._options.check_crc,
            facts=self._facts,
            on_corrupt=self._options.on_corrupt,
            columns=self._options.columns,
        )
        return columns
