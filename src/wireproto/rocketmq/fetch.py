"""Reading queues: pulls sent ahead over several brokers, replies put in order, batches made of them.

What it is: what Reader, Consumer and QueueConsumer have in common. A `Fetcher` holds some queues, each with its `QueuePulls`; `poll` sends
what may be sent, waits for replies, and hands out the records of one queue that follow where the last batch of it ended.
A broker that does not answer delays its own queues only. After `recovery_timeout` of failures without any success `poll` raises.
May assume: one thread at a time. Must not: keep a thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from wireproto._codec import RemotingCommand, RepeatedCommand, Slice, decode_rocketmq, rocket_pull_reply
from wireproto._net import Call, Mailbox
from wireproto.errors import TimedOut, TransportError, WireprotoError
from wireproto.net.errand import Errand
from wireproto.net.retry import Policy, Verdict, verdict
from wireproto.records import Batch

from .codes import PullOffsetMoved, PullRetryImmediately, TopicNotExist
from .messages import PullMessageRequest, PullMessageResponse
from .pulls import QueuePulls
from .remoting import PULL_ANSWERS
from .times import Offsets

if TYPE_CHECKING:
    from wireproto._codec import Columns
    from wireproto._net import Connection
    from wireproto.position import QueueOffset

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue

EVERYTHING = "*"
SUSPEND, SUBSCRIPTION = 2, 4
"""sysFlag of a pull: hold it at the end of the queue; the subscription is in the request."""
GRACE = 15.0
"""Seconds beyond the suspend time: brokers look at held pulls each 5 s only."""
AGAIN = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.2)

Key = tuple[str, int]
Found: TypeAlias = "tuple[int, int, int, int, Slice]"
"""A pull's reply: code, next offset, the queue's first offset and its end, stored messages."""
WAKE = object()
RESET, REMOVING = "OFFSET_RESET", "MESSAGE_WAS_REMOVING"
"""Remarks: an administrator has set the group back or forth (told to one pull, whichever comes next); records were just deleted."""


@dataclass(slots=True, eq=False)
class Fetching:
    """One queue being read.

    Attributes:
        unseen: its broker says that it ends before the place asked for; that counts once the queue holds all of the broker's log.
        caught_up: it does.
        heads: what a pull is written by, without and with "suspend"; None: not made for this queue yet, or commands are signed.
    """

    topic: str
    queue: Queue
    pulls: QueuePulls
    paused: bool = False
    failures: int = 0
    retry_at: float = 0.0
    lenient: bool = False
    unseen: bool = False
    caught_up: bool = False
    heads: tuple[RepeatedCommand, RepeatedCommand] | None = None
    key: Key = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.topic, self.queue.partition


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
    on_reset: called in `poll` with a queue and the place where its broker was told to set the group; reading goes on from there, and `poll`
        returns. None: what is told to the group does not matter here.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        options: RocketOptions,
        *,
        group: str,
        purpose: str,
        facts: bool = False,
        on_reset: Callable[[Key, int], object] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._group, self._purpose, self._facts, self._on_reset = group, purpose, facts, on_reset
        self._box = Mailbox(cluster.loop, limit=options.fetch_memory // 2)
        self._errand = Errand(cluster.loop, options.request_timeout)
        self._held: dict[Key, Fetching] = {}
        self._turns: deque[Key] = deque()
        self._health = Health()
        self._told = False  # of a reset: `poll` is to return

    # which queues ------------------------------------------------------------------------------------------------------------------

    def add(self, topic: str, queue: Queue, start: int, stop: int | None = None, *, earliest: bool = False) -> None:
        """Read this queue from `start` up to, not including, `stop`. earliest: if that is gone by now, from what is left."""
        options = self._options
        pulls = QueuePulls(start, stop, options.pull_ahead, min(options.min_bytes, options.batch_bytes))
        item = Fetching(topic, queue, pulls, lenient=earliest)
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

    def places(self) -> dict[Key, QueueOffset]:
        """The same as positions."""
        return {key: item.queue.at(key[0], item.pulls.next) for key, item in list(self._held.items())}

    def seek(self, key: Key, offset: int) -> None:
        item = self._held[key]
        item.caught_up = False
        item.pulls.seek(offset)

    def follow(self, key: Key, queue: Queue) -> None:
        """Another server may be the master of its broker now: what is asked from now on is asked there."""
        item = self._held[key]
        if queue.address is not None and queue.address != item.queue.address:
            item.queue, item.heads = queue, None
            item.pulls.seek(item.pulls.next)

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
            if self._told:
                self._told = False
                return None
            if (found := self._take()) is not None:
                return found
            if self.done and self._held:
                return None
            self._send(deadline)
            item = self._box.get(self._until(deadline))
            if item is WAKE:
                return None
            if item is None and time.monotonic() >= deadline:
                return self._take(late=True)
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
                if item.unseen:
                    continue
                conn = self._cluster.peek(item.queue.address, self._purpose) if item.queue.address else None
                if conn is None:
                    continue
            for offset, count, suspend in item.pulls.wanted():
                try:
                    conn = conn or self._connection(item, deadline or now)
                    if item.unseen:
                        self._catch_up(item, deadline or now)
                    self._pull(conn, item, offset, count, suspend)
                except WireprotoError as error:
                    item.pulls.failed(offset)
                    if not isinstance(error, TimedOut) or time.monotonic() < (deadline or now):
                        self._failed(item, error)
                    break  # else the caller's time is over: what was begun goes on, and a later poll finds it done

    def _connection(self, item: Fetching, deadline: float) -> Connection:
        if item.failures or item.queue.address is None:
            route = self._errand.ask(item.topic, lambda until: self._cluster.route(item.topic, until), deadline)
            if (current := route.find(*item.queue.home)) is not None:
                item.queue, item.heads = current, None
        if item.queue.address is None:
            self._cluster.routes.stale(item.topic)
            raise TransportError(f"broker {item.queue.broker} has no master now")
        return self._cluster.connection(item.queue.address, min(deadline, time.monotonic() + self._options.connect_timeout), self._purpose)

    def _catch_up(self, item: Fetching, deadline: float) -> None:
        """Wait until the queue holds everything that is acknowledged."""
        address = item.queue.address
        assert address is not None
        places = Offsets(self._cluster, item.topic, self._group)
        self._errand.ask(("all of the log", address), lambda until: places.catch_up(address, until), deadline)
        item.unseen, item.caught_up = False, True

    def _pull(self, conn: Connection, item: Fetching, offset: int, count: int, suspend: bool) -> None:
        options = self._options
        timeout_at = time.monotonic() + (options.pull_suspend + GRACE if suspend else options.request_timeout)
        context = (item, item.pulls.generation, offset)
        if not self._cluster.writes_bare:
            message = self._message(item, offset, count, suspend)
            self._cluster.submit(conn, message, timeout_at=timeout_at, mailbox=self._box, context=context)
            return
        if item.heads is None:
            item.heads = self._head(item, False), self._head(item, True)
        token = conn.next_token()
        conn.submit(token, item.heads[suspend].encode(token, offset, count), self._box, timeout_at, context)

    def _message(self, item: Fetching, offset: int, count: int, suspend: bool) -> PullMessageRequest:
        return PullMessageRequest(
            consumer_group=self._group,
            topic=item.topic,
            queue_id=item.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION | (SUSPEND if suspend else 0),
            commit_offset=0,
            suspend_timeout_millis=int(self._options.pull_suspend * 1000) if suspend else 0,
            subscription=EVERYTHING,
            sub_version=0,
            expression_type="TAG",
        )

    def _head(self, item: Fetching, suspend: bool) -> RepeatedCommand:
        """What writes this queue's pulls: they differ in offset and number alone."""
        ext = self._message(item, 0, 0, suspend).to_ext()
        return RepeatedCommand(PullMessageRequest.CODE, ext, "queueOffset", "maxMsgNums", self._cluster.serializer)

    def _answer(self, call: Any) -> None:
        """Take in one finished pull."""
        if not isinstance(call, Call):
            return
        context: tuple[Fetching, int, int] = call.context
        item, generation, offset = context
        pulls = item.pulls
        if self._held.get(item.key) is not item:
            return
        frame = call.frame
        found = rocket_pull_reply(frame) if frame is not None else None
        if found is not None and frame is not None and found[0] == PullOffsetMoved.code and RemotingCommand.decode(frame).remark == RESET:
            self._reset(item, offset, found[1], pulls.generation == generation)
            return
        if pulls.generation != generation:
            return
        if found is None:
            try:
                found = self._look(call, item)
            except WireprotoError as error:
                pulls.failed(offset)
                self._failed(item, error)
                return
        code, following, low, high, body = found
        item.failures = 0
        self._health.since = None
        if code == 0:
            item.lenient = item.caught_up = False
            pulls.answered(offset, following, high, body)
        elif code == PullOffsetMoved.code:
            self._moved(item, offset, following, low, high)
        elif code == PullRetryImmediately.code and frame is not None and RemotingCommand.decode(frame).remark == REMOVING:
            self._removed(item, offset, following, high)
        else:
            item.lenient = item.caught_up = False
            pulls.empty(offset, following, high)

    def _look(self, call: Call, item: Fetching) -> Found:
        """A reply that is not as most are, or none; raises what is the matter with it."""
        if call.error is not None:
            raise call.error
        assert call.frame is not None
        reply = self._cluster.read(call.conn, call.frame, PULL_ANSWERS, topic=item.topic, partition=item.queue.partition)
        fields = PullMessageResponse.from_ext(reply.ext)
        return reply.code, fields.next_begin_offset, fields.min_offset, fields.max_offset, Slice(reply.body)

    def _reset(self, item: Fetching, offset: int, following: int, current: bool) -> None:
        """An administrator has set the group: also if the pull is an old one by now, or stood at the queue's end. It is not told again."""
        if self._on_reset is None:
            if current:
                item.pulls.failed(offset)
            return
        item.lenient = item.caught_up = item.unseen = False
        item.failures = 0
        item.pulls.seek(following)
        self._on_reset(item.key, following)
        self._told = True

    def _moved(self, item: Fetching, offset: int, following: int, low: int, high: int) -> None:
        """No such offset. At the very end (5.x says it there too) that is no news; else records are gone, or the group was reset.

        Trap: it is said of acknowledged records, too, while the queue does not show them yet (see `times.Offsets`).
        """
        pulls = item.pulls
        if offset == high:
            pulls.empty(offset, offset, high)
            return
        if offset != pulls.next:
            pulls.failed(offset)  # sent ahead, past an end that the pull before it will tell
            pulls.end = min(pulls.end, high)
            return
        if offset > high and not item.caught_up:
            pulls.failed(offset)
            item.unseen = True
            return
        item.caught_up = False
        inside = low <= offset < high
        if inside:  # by a broker that does not tell a reset by its remark
            pulls.seek(following)
        else:
            self._gone(item, offset, low, high)

    def _removed(self, item: Fetching, offset: int, following: int, high: int) -> None:
        """What was asked for was deleted while the broker read it. It says so as of what a filter leaves out, and we have none."""
        if offset != item.pulls.next:
            item.pulls.failed(offset)  # sent ahead; what comes before it may be there
        else:
            self._gone(item, offset, following, high)

    def _gone(self, item: Fetching, offset: int, low: int, high: int) -> None:
        """The next record is not there any more: the queue holds what begins at `low`."""
        choice = "earliest" if item.lenient else self._options.on_moved
        if choice == "error":
            item.pulls.failed(offset)
            raise PullOffsetMoved(
                f"the next record is gone: the queue holds {low} up to {high}", topic=item.topic, partition=item.queue.partition,
                position=item.queue.at(item.topic, offset), first=low, end=high,
            )  # fmt: skip
        following = low if choice == "earliest" else high
        if not item.lenient:
            lost = ": what lay between is gone, unread" if following > offset else ""
            text = "%s[%d]: offset %d is not there, it goes on at %d%s"
            self._cluster.told.warning(("gone", item.key), text, *item.key, offset, following, lost)
        item.pulls.seek(following)

    def _failed(self, item: Fetching, error: WireprotoError) -> None:
        """Wait a little; raise what will not pass, or what has lasted too long."""
        passing = verdict(error, passing=(TimedOut, TopicNotExist)) is not Verdict.NEVER
        now = time.monotonic()
        if self._health.since is None:
            self._health.since = now
        if not passing or now - self._health.since > self._options.recovery_timeout:
            self._health.since = None
            raise error.with_context(topic=item.topic, partition=item.queue.partition)
        item.failures += 1
        item.retry_at = now + AGAIN.delay(item.failures)
        self._cluster.routes.stale(item.topic)

    # handing out -------------------------------------------------------------------------------------------------------------------

    def _take(self, *, late: bool = False) -> Fetched | None:
        """A batch of the queue whose turn it is; late: also one that more was to be waited for."""
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            item = self._held[key]
            while (item.pulls.ripe or (late and item.pulls.has_ready)) and not item.paused:
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
                end = item.pulls.next
                batch = Batch(item.topic, item.queue.partition, columns, item.queue.at(item.topic, end))
                return Fetched(batch, item.queue, columns, start, end)
        return None

    def _decode(self, item: Fetching, bodies: list[bytes | Slice], start: int) -> Columns:
        stop, options = item.pulls.stop, self._options
        columns, end = self._columns(item, bodies, start, options.columns)
        if stop is None or end <= stop:
            return columns
        offsets = self._columns(item, bodies, start, ("offset",))[0].positions()
        return columns[: bisect_left(offsets, stop)]

    def _columns(self, item: Fetching, bodies: list[bytes | Slice], start: int, names: tuple[str, ...] | None) -> tuple[Columns, int]:
        columns, following = decode_rocketmq(
            bodies,
            topic=item.topic,
            partition=item.queue.partition,
            start=start,
            limit=self._options.decompress_limit,
            check_crc=self._options.check_crc,
            facts=self._facts,
            on_corrupt=self._options.on_corrupt,
            columns=names,
            home=item.queue.home,
        )
        for problem in columns.skipped:
            self._cluster.told.skipped(*item.key, problem.position, problem)
        return columns, following
