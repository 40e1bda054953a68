"""Sends pulls and returns batches, for Reader, Consumer and QueueConsumer: the I/O part of `pulls`.

A `Fetcher` has connections of its own to each broker; `poll` sends the pulls that may be sent, waits for replies, and returns the records
of one queue that follow its last batch. Tasks of the client dial connections, look up routes, and wait for brokers whose queues have not
caught up with their log; their ends are put into the same mailbox (the box), so that a poll waits for nothing else, and a broker that does
not answer delays its own queues only.
Belongs to one thread at a time. It knows no groups, and not at which offsets to start and stop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wireproto._codec import RemotingCommand, RepeatedCommand, Slice, decode_rocketmq, rocket_pull_reply
from wireproto._net import Mailbox
from wireproto.errors import WireprotoError
from wireproto.net.task import NEVER, Steps, Task, after
from wireproto.records import Batch

from .messages import PullMessageRequest, PullMessageResponse
from .pulls import RETRY, Cursor, Found, Pulls
from .remoting import PULL_ANSWERS

if TYPE_CHECKING:
    from wireproto._codec import Chunk, Columns
    from wireproto._net import Call, Connection
    from wireproto.flow.ahead import PlannedFetch, Ticket
    from wireproto.position import QueueOffset, TopicPartition

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue, Route

T = TypeVar("T")
EVERYTHING = "*"
SUSPEND, SUBSCRIPTION = 2, 4
"""sysFlag of a pull: hold it at the end of the queue; the subscription is in the request."""
GRACE = 15.0
"""Seconds that a pull may take beyond its suspend time: brokers look at held pulls each 5 s only."""
WAKE, TASK_ENDED = "wake", "news"
"""Put into the box. WAKE: `poll` is to return. TASK_ENDED: a task has ended."""


@dataclass(slots=True)
class Fetched:
    """Holds a batch, with what only queue consumers need of its records.

    Attributes:
        batch: what a user gets. queue: where it is from. columns: the batch's.
        start, end: the offset where it begins, and the one behind it.
    """

    batch: Batch
    queue: Queue
    columns: Columns
    start: int
    end: int


class Fetcher:
    """Reads queues by pulls.

    Args:
        group: the consumer group that pulls name. purpose: which connections they use (see `cluster`).
        facts: whether to decode `columns.facts`, too: fields of stored messages that only brokers and queue consumers need.
        on_reset: called in `poll` with a queue and the offset to which an administrator has set the group there; reading continues from
            that offset, and `poll` returns. None: such resets are ignored.

    Attributes:
        delivering: the cursor of the batch that is being returned to the caller, and the batch's first offset; None: no batch is.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        options: RocketOptions,
        *,
        group: str,
        purpose: str,
        facts: bool = False,
        on_reset: Callable[[TopicPartition, int], object] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._group, self._purpose, self._facts, self._on_reset = group, purpose, facts, on_reset
        self._bare = cluster.writes_bare
        self._reply_timeouts = options.request_timeout, options.pull_suspend + GRACE  # for a pull, and one that is to be held
        self._box = Mailbox(cluster.loop)
        self.pulls = Pulls(options, cluster.fetch_budget, cluster.log, None if on_reset is None else self._was_reset)
        self.plan = self.pulls.plan
        self._dialling: dict[str, Task[Connection]] = {}
        self._looking: dict[str, Task[Route]] = {}
        self._showing: dict[str, Task[None]] = {}
        self._back = False  # `poll` is to return
        self.delivering: tuple[Cursor, int] | None = None

    # which queues ------------------------------------------------------------------------------------------------------------------

    def add(self, topic: str, queue: Queue, start: int, stop: int | None = None, *, earliest: bool) -> None:
        """Read this queue from `start` up to, not including, `stop`. earliest: if `start` is gone, begin at the first offset left."""
        self.pulls.add(topic, queue, start, stop, lenient=earliest)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each queue."""
        return {key: cursor.position for key, cursor in list(self.plan.cursors.items())}  # the I/O thread asks too

    def lost(self) -> set[TopicPartition]:
        """Return the queues whose log is another one than the one that was read, and that wait for a seek (`Cursor.lost`)."""
        return {key for key, cursor in list(self.plan.cursors.items()) if cursor.lost is not None}

    def places(self) -> dict[TopicPartition, QueueOffset]:
        """Return the position of the next record of each queue."""
        return {key: cursor.queue.at(key[0], cursor.position) for key, cursor in list(self.plan.cursors.items())}

    def seek(self, key: TopicPartition, offset: int, *, earliest: bool = False) -> None:
        """Continue at this offset; `earliest` as of `add`."""
        self.pulls.seek(self.plan.cursors[key], offset, lenient=earliest)

    def set_to(self, key: TopicPartition, offset: int) -> None:
        """Continue at the offset to which an administrator has set the group."""
        self.pulls.set_to(self.plan.cursors[key], offset)

    def follow(self, key: TopicPartition, queue: Queue) -> None:
        """Take a queue's new address: another server may be the master of its broker now."""
        self.pulls.follow(self.plan.cursors[key], queue)

    def pause(self, key: TopicPartition, paused: bool = True) -> None:
        """Return no records of a queue, or (paused=False) return them again."""
        self.plan.cursors[key].paused = paused

    @property
    def done(self) -> bool:
        """Return whether every queue has reached its stop."""
        return self.plan.done

    def close(self) -> None:
        """Drop what was fetched, and end a wait in `poll` by Closed."""
        self.plan.close()
        self._box.close()

    def wake(self) -> None:
        """End a wait in `poll` soon, since there is something else to do than to wait for replies."""
        self._box.put(WAKE)

    # reading -----------------------------------------------------------------------------------------------------------------------

    def poll(self, deadline: float, polling: Callable[[float], Steps[Fetched | None]] | None = None) -> Fetched | None:
        """Return the next batch, or None: nothing came by `deadline`, every stop is reached, or `wake` was called.

        Args:
            deadline: a `time.monotonic()` value. polling: what to run where it has to wait; None: the method `polling`.
        """
        self.delivering = None
        found = self._now()  # most often it is here already, and no steps are needed
        return found if found is not None else self._cluster.drive((polling or self.polling)(deadline), NEVER)

    def drive(self, steps: Steps[T]) -> T:
        """Run steps with `polling` among them, in the caller's thread."""
        self.delivering = None
        return self._cluster.drive(steps, NEVER)

    def take_back(self, before: tuple[Cursor, int] | None) -> bool:
        """Go back to before a role's call that a signal handler's exception ended: its caller got no batch.

        It is not known how much that call took in, so all pulls are forgotten, and sent again.

        Args:
            before: `delivering` when the call began.
        Returns:
            whether a poll had begun since.
        """
        if self.delivering is before and before is not None:
            return False
        if self.delivering is not None:
            cursor, start = self.delivering
            cursor.position = start
        self.pulls.restart()
        return True

    def polling(self, deadline: float) -> Steps[Fetched | None]:
        """Run `poll` as steps."""
        while True:
            found = self._now()
            if found is not None:
                return found
            if self._back or (self.plan.done and self.plan.cursors):
                self._back = False
                return None
            now = self._send()
            found = self._take()  # `_send` may have noted an error for which nothing else would end the wait
            if found is not None:
                return found
            if (yield self._box, min(deadline, self.pulls.wakeup(now))) and not len(self._box):
                self._box.get()  # ready and empty: it was closed by another thread; raises Closed
            if not len(self._box) and time.monotonic() >= deadline:
                return self._take(late=True)

    def _now(self) -> Fetched | None:
        """Return the next batch of what has come."""
        while len(self._box):
            self._answer(self._box.get())
        return None if self._back else self._take()

    def _was_reset(self, key: TopicPartition, offset: int) -> None:
        assert self._on_reset is not None
        self._on_reset(key, offset)
        self._back = True

    def _send(self) -> float:
        """Send every pull that may be sent, begin the tasks that others need first, and return the time now."""
        now = time.monotonic()
        if self._dialling or self._looking or self._showing:
            self._collect(now)
        for ask in self.plan.due(self.pulls, now, self._dialling.__contains__):
            conn = self._cluster.peek(ask.link, self._purpose)
            if conn is None:
                self._dial(ask)
                continue
            for ticket in ask.tickets:
                try:
                    self._pull(conn, ticket, now)
                except WireprotoError as why:
                    self.pulls.failed(ticket, why, now)
        if self.pulls.stale or self.pulls.unseen:
            self._look(now)
        return now

    def _dial(self, ask: PlannedFetch[Cursor]) -> None:
        for ticket in ask.tickets:
            self.pulls.dropped(ticket)
        self._dialling[ask.link] = task = self._cluster.dial(ask.link, self._purpose)
        after(task, self._box.put, TASK_ENDED)

    def _look(self, now: float) -> None:
        """Begin to look up routes, and to wait for brokers until their queues hold everything that is acknowledged."""
        cluster, until = self._cluster, now + self._options.request_timeout
        for topic in self.pulls.stale - self._looking.keys():
            cluster.routes.stale(topic)
            steps = partial(cluster.routing, topic, until)
            self._looking[topic] = look = cluster.tasks.shared(("route", topic), steps, f"looking for {topic}")
            after(look, self._box.put, TASK_ENDED)
        for address in self.pulls.unseen - self._showing.keys():
            shown = cluster.dispatch.catching_up(address, until)
            self._showing[address] = wait = cluster.tasks.spawn(shown, f"waiting for the queues of {address}")
            after(wait, self._box.put, TASK_ENDED)

    def _collect(self, now: float) -> None:
        """Take in the results of tasks that have ended.

        TASK_ENDED in the mailbox only says that there is one, so a signal handler's exception loses none.
        """
        for address, dial in [*self._dialling.items()]:
            if dial.done:
                del self._dialling[address]
                if (why := _failure(dial)) is not None:
                    self.pulls.unreached(address, why, now)
        for topic, look in [*self._looking.items()]:
            if look.done:
                del self._looking[topic]
                self.pulls.looked(topic, _failure(look) or look.result(), now)
        for address, wait in [*self._showing.items()]:
            if wait.done:
                del self._showing[address]
                self.pulls.shown(address, _failure(wait), now)

    def _pull(self, conn: Connection, ticket: Ticket[Cursor], now: float) -> None:
        cursor, offset, count = ticket.cursor, ticket.offset, ticket.count
        suspend = not ticket.size
        timeout_at = now + self._reply_timeouts[suspend]
        if not self._bare:
            message = self._message(cursor, offset, count, suspend)
            self._cluster.submit(conn, message, timeout_at=timeout_at, mailbox=self._box, context=ticket)
            return
        if cursor.heads is None:
            cursor.heads = self._head(cursor, False), self._head(cursor, True)
        token = conn.next_token()
        conn.submit(token, cursor.heads[suspend].encode(token, offset, count), self._box, timeout_at, ticket)

    def _message(self, cursor: Cursor, offset: int, count: int, suspend: bool) -> PullMessageRequest:
        return PullMessageRequest(
            consumer_group=self._group,
            topic=cursor.topic,
            queue_id=cursor.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION | (SUSPEND if suspend else 0),
            commit_offset=0,
            suspend_timeout_millis=int(self._options.pull_suspend * 1000) if suspend else 0,
            subscription=EVERYTHING,
            sub_version=0,
            expression_type="TAG",
        )

    def _head(self, cursor: Cursor, suspend: bool) -> RepeatedCommand:
        """Make the template of this queue's pulls, which differ in offset and number of messages only."""
        ext = self._message(cursor, 0, 0, suspend).to_ext()
        return RepeatedCommand(PullMessageRequest.CODE, ext, "queueOffset", "maxMsgNums", self._cluster.serializer)

    def _answer(self, item: Any) -> None:
        """Take in one item of the box: a finished pull, WAKE or TASK_ENDED."""
        if item is TASK_ENDED or item is None:
            return
        if item is WAKE:
            self._back = True
            return
        ticket: Ticket[Cursor] = item.context
        frame = item.frame
        found = rocket_pull_reply(frame) if frame is not None else None
        if found is None:
            try:
                found = self._read(item, ticket.cursor)
            except WireprotoError as why:
                self._cluster.give_up(item.conn, why)
                self.pulls.failed(ticket, why, time.monotonic())
                return
        self.pulls.answer(ticket, found, RemotingCommand.decode(frame).remark if found[0] >= RETRY else None)

    def _read(self, call: Call, cursor: Cursor) -> Found:
        """Read a reply that the core's quick reader does not know; raises the error of a pull that failed."""
        if call.error is not None:
            raise call.error
        assert call.frame is not None
        reply = self._cluster.read(call.conn, call.frame, PULL_ANSWERS, topic=cursor.topic, partition=cursor.queue.partition)
        fields = PullMessageResponse.from_ext(reply.ext)
        return reply.code, fields.next_begin_offset, fields.min_offset, fields.max_offset, Slice(reply.body)

    # batches -----------------------------------------------------------------------------------------------------------------------

    def _take(self, *, late: bool = False) -> Fetched | None:
        """Return a batch of the queue whose turn it is. late: also one that is smaller than `min_bytes`, though more is stored."""
        while chunks := self.plan.take(self._options.batch_bytes, late=late):
            cursor: Cursor = chunks[0].cursor
            why = chunks[0].error
            if why is not None:
                raise why
            found = self._made(cursor, chunks)
            if found is not None:
                return found
        return None

    def _made(self, cursor: Cursor, chunks: Sequence[Chunk]) -> Fetched | None:
        """Make the batch of these replies; None when they hold no record. The next pulls are sent before it is decoded."""
        start, stop, last = cursor.position, cursor.stop, chunks[-1]
        end = last.next if stop is None else min(last.next, stop)  # what is stored as one inner batch (5.x) comes whole
        self.delivering = cursor, start
        self.plan.moved(last, end)
        try:
            self._send()
            bodies = [chunk.records for chunk in chunks if chunk.size]
            if not bodies:
                self.delivering = None
                return None
            columns = self._decode(cursor, bodies, start)
        except WireprotoError:
            self.plan.seek(cursor.key, start)  # what cannot be decoded is not skipped: the next poll reads it again
            raise
        batch = Batch(cursor.topic, cursor.queue.partition, columns, cursor.queue.at(cursor.topic, end))
        return Fetched(batch, cursor.queue, columns, start, end)

    def _decode(self, cursor: Cursor, bodies: list[Slice], start: int) -> Columns:
        columns, end = self._columns(cursor, bodies, start, self._options.columns)
        if cursor.stop is None or end <= cursor.stop:
            return columns
        offsets = self._columns(cursor, bodies, start, ("offset",))[0].positions()
        return columns[: bisect_left(offsets, cursor.stop)]

    def _columns(self, cursor: Cursor, bodies: list[Slice], start: int, names: tuple[str, ...] | None) -> tuple[Columns, int]:
        columns, following = decode_rocketmq(
            bodies,
            topic=cursor.topic,
            partition=cursor.queue.partition,
            start=start,
            limit=self._options.decompress_limit,
            check_crc=self._options.check_crc,
            facts=self._facts,
            on_corrupt=self._options.on_corrupt,
            columns=names,
            home=cursor.queue.home,
        )
        for problem in columns.skipped:
            self._cluster.log.skipped(*cursor.key, problem.position, problem)
        return columns, following


def _failure(task: Task[Any]) -> WireprotoError | None:
    """Return the error of a task, or None."""
    try:
        task.result()
    except WireprotoError as why:
        return why
    return None
