"""Keeps partitions subscribed, whatever happens: one task a partition, run by the I/O thread.

    look the broker up ── connect ── SUBSCRIBE ── (ask for the mark-delete position) ── open until it is gone ── again, for ever
              └──────────────┴───────────┴── refused, lost, late: a pause that grows, and again

Goes from a partition's name to a consumer that is open, and back to the beginning when the connection is lost or the broker closes the
consumer. Events go to the role through the role's mailbox, between the frames and in order with them; the role's thread alone changes the
partition's state. All partitions of a role are opened at the same time: look-ups and SUBSCRIBEs share connections.

No answer of a broker ends a task: what is refused now may be accepted later. The role decides whether to raise it. The tasks grant no
permits, and of what the role's thread owns they only read where to begin.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wireproto._net import Connection, Event, Mailbox, consumer_channel
from wireproto.errors import Closed, Disconnected, Forked, TimedOut, WireprotoError
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import Steps, Task, after

from . import PulsarApi_pb2 as api
from .codes import PulsarError
from .frames import encode, reply_body, signed
from .lookup import CONSUMER

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .subscription import SubscriptionState

RETRY = Policy(first=0.1, factor=2.0, ceiling=5.0, jitter=0.2)
Place = tuple[int, int]


class SubscriptionTask:
    """Keeps one partition subscribed, from `Subscriber.begin` to `Subscriber.end`.

    Attributes:
        part: the partition.
        known: whether a broker has, or may have, accepted a SUBSCRIBE: a consumer that is in the way of the next may be our own.
        conn, consumer: connection and consumer id of the last SUBSCRIBE.
        gone: event that is set when that consumer is over.
        answered: event that is set when a request about it is answered, or the consumer is over.
        doubt: whether the broker closed the consumer, as it does when the mark-delete position is moved.
        made_progress: whether messages came, so that the next attempt need not wait.
        failure: why the last attempt failed, until the role has taken notice.
        failures: number of failed attempts in a row.
        stage: what is being waited for, for error texts.
        task: runs the steps.
    """

    def __init__(self, part: SubscriptionState, never: Event) -> None:
        self.part = part
        self.known = False
        self.conn: Connection | None = None
        self.consumer = 0
        self.gone = self.answered = never
        self.doubt = False
        self.made_progress = False
        self.failure: Exception | None = None
        self.failures = 0
        self.stage = "not begun"
        self.task: Task[None] | None = None

    def lost(self) -> None:
        """Note that the consumer is gone at its broker, or will not come. Any thread."""
        self.gone.set()
        self.answered.set()


@dataclass(frozen=True, slots=True)
class BegunEvent:
    """SUBSCRIBE is about to be sent: what comes for earlier consumers does not count any more."""

    subscription_task: SubscriptionTask
    consumer: int
    conn: Connection


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    """SUBSCRIBE was answered.

    Attributes:
        gone: event of this consumer's end. mark: the mark-delete position, where it was asked for. doubt: as of the `SubscriptionTask`.
    """

    subscription_task: SubscriptionTask
    consumer: int
    gone: Event
    mark: Place | None
    doubt: bool


@dataclass(frozen=True, slots=True)
class MarkedEvent:
    """The mark-delete position of a consumer that is open: the answer to `mark_of`."""

    subscription_task: SubscriptionTask
    consumer: int
    mark: Place


@dataclass(frozen=True, slots=True)
class GoneEvent:
    """The consumer's connection is lost."""

    subscription_task: SubscriptionTask
    consumer: int


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An attempt has failed: see `subscription_task.failure`."""

    subscription_task: SubscriptionTask


@dataclass(frozen=True, slots=True)
class GrownEvent:
    """A topic has new partitions: (number, full name) of each."""

    topic: str
    names: Sequence[tuple[int, str]]


class Subscriber:
    """The subscriptions of one role.

    Args:
        cluster: of the client.
        box: gets the events, and what brokers send to the consumers.
        marks: whether to ask for the mark-delete position of each subscription when it is open again.
    """

    def __init__(self, cluster: PulsarCluster, box: Mailbox, *, marks: bool) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._box = box
        self._marks = marks
        self._purpose = f"consume-{cluster.next_role()}"
        self._subscription_tasks: set[SubscriptionTask] = set()
        self._watched: set[Connection] = set()

    def begin(self, part: SubscriptionState) -> SubscriptionTask:
        """Keep a partition subscribed from now on."""
        subscription_task = SubscriptionTask(part, Event(self._loop))
        self._subscription_tasks.add(subscription_task)
        subscription_task.task = self._cluster.tasks.spawn(self._tend(subscription_task), f"subscribing to {part.name}")
        return subscription_task

    def end(self, subscription_task: SubscriptionTask, *, closed: bool) -> None:
        """Stop that; close the consumer at the broker without waiting for the answer, unless it is `closed` there already."""
        self._subscription_tasks.discard(subscription_task)
        if closed:
            subscription_task.conn = None
        assert subscription_task.task is not None
        subscription_task.task.cancel(
            Closed("the partition is not read any more", topic=subscription_task.part.topic, partition=subscription_task.part.partition)
        )

    def mark_of(self, subscription_task: SubscriptionTask) -> None:
        """Ask for the mark-delete position of an open subscription; the answer is a `MarkedEvent`. It does not matter if none comes."""
        conn, consumer = subscription_task.conn, subscription_task.consumer
        if not (self._marks and subscription_task.part.kept) or conn is None:
            return

        def answered() -> None:
            with suppress(WireprotoError):
                self._box.put(MarkedEvent(subscription_task, consumer, _place(reply_body(call.result(0.0), conn.peer))))

        command = api.CommandGetLastMessageId(consumer_id=consumer, request_id=conn.next_token())
        with suppress(WireprotoError):  # the connection is lost, and the consumer with it
            call = conn.submit(command.request_id, encode(command))
            after(call, answered)

    def hang_up(self) -> None:
        """Close the role's own connections; tasks that still run open them again."""
        for conn in self._watched:
            self._cluster.drop(conn)
        self._watched = set()

    def watch(self, topics: dict[str, int], interval: float) -> Task[None]:
        """Put a `GrownEvent` into the mailbox for each topic that gets partitions.

        Args:
            topics: the number of partitions known, by topic. interval: seconds between two look-ups.
        """
        return self._cluster.tasks.spawn(self._watch(topics, interval), "looking for new partitions")

    # -- in the I/O thread ------------------------------------------------------------------------------------------

    def _tend(self, subscription_task: SubscriptionTask) -> Steps[None]:
        waits = Waits(RETRY)
        while True:
            try:
                yield from self._open(subscription_task)
            except (Closed, Forked):
                raise
            except Exception as why:  # credentials are the user's code
                news, subscription_task.failure = subscription_task.failure is None, why
                subscription_task.failures += 1
                if news:
                    self._box.put(FailedEvent(subscription_task))
                yield time.monotonic() + waits.next()
                continue
            since, subscription_task.failures = time.monotonic(), 0
            try:
                yield subscription_task.gone
            except Closed:
                self._close(subscription_task)
                raise
            if subscription_task.made_progress or time.monotonic() - since > RETRY.ceiling:
                waits.over()
            else:
                yield time.monotonic() + waits.next()

    def _open(self, subscription_task: SubscriptionTask) -> Steps[None]:
        cluster, part = self._cluster, subscription_task.part
        timeout = cluster.options.operation_timeout
        until = time.monotonic() + timeout
        subscription_task.stage = "its broker is looked up"
        broker = yield from cluster.lookup.finding(part.name, until, CONSUMER)
        subscription_task.stage = f"its broker {broker.address[0]}:{broker.address[1]} is dialled"
        conn = yield from cluster.connecting(broker, self._purpose, until)
        subscription_task.stage = f"SUBSCRIBE is not answered by {conn.peer}"
        self._watch_loss(conn)
        consumer = cluster.next_consumer_id()  # of its own for each SUBSCRIBE, so that nothing old is taken for new
        subscription_task.conn, subscription_task.consumer = conn, consumer
        gone = subscription_task.gone = Event(self._loop)
        subscription_task.made_progress = False
        self._box.put(BegunEvent(subscription_task, consumer, conn))
        conn.route(consumer_channel(consumer), self._box)
        mark, taken = None, False
        try:
            yield from self._ask(
                subscription_task, conn, part.given.command(part.name, consumer, part.cursor.begin, time.time() + timeout), until
            )
            taken = True
            if self._marks and part.kept and subscription_task.known:
                mark = yield from self._mark(subscription_task, conn, until)
        except BaseException as why:
            conn.route(consumer_channel(consumer), None)
            if taken or not isinstance(why, PulsarError):
                subscription_task.known = True  # the broker may have done it all the same, which is in the next attempt's way for a while
                self._close(subscription_task)
            raise
        self._box.put(OpenedEvent(subscription_task, consumer, gone, mark, subscription_task.doubt))
        subscription_task.known, subscription_task.doubt = True, False

    def _mark(self, subscription_task: SubscriptionTask, conn: Connection, until: float) -> Steps[Place | None]:
        """Return the mark-delete position, which has to be known only where it may have been moved."""
        subscription_task.stage = f"CommandGetLastMessageId is not answered by {conn.peer}"
        try:
            return _place(
                (yield from self._ask(subscription_task, conn, api.CommandGetLastMessageId(consumer_id=subscription_task.consumer), until))
            )
        except PulsarError:
            if subscription_task.doubt:
                raise
            return None

    def _ask(self, subscription_task: SubscriptionTask, conn: Connection, command: Any, until: float) -> Steps[Any]:
        """Send a request about the consumer; give it up when the consumer is closed, since it may never be answered then."""
        command.request_id = conn.next_token()
        call = conn.submit(command.request_id, encode(command))
        answered = subscription_task.answered = Event(self._loop)
        after(call, answered.set)
        if not subscription_task.gone.done:
            yield answered, until
        if call.done and not subscription_task.gone.done:
            return reply_body(call.result(0.0), conn.peer, topic=subscription_task.part.topic, partition=subscription_task.part.partition)
        call.cancel()
        if subscription_task.gone.done:
            raise Disconnected("the consumer was closed while it was opened", peer=conn.peer)
        raise TimedOut(f"no answer to {type(command).__name__} in time", peer=conn.peer)

    def _close(self, subscription_task: SubscriptionTask) -> None:
        """Send CLOSE_CONSUMER without waiting for the answer."""
        conn = subscription_task.conn
        if conn is not None:
            conn.route(consumer_channel(subscription_task.consumer), None)
            if not conn.closed:
                with suppress(WireprotoError):
                    conn.send(encode(api.CommandCloseConsumer(consumer_id=subscription_task.consumer, request_id=conn.next_token())))

    def _watch_loss(self, conn: Connection) -> None:
        if conn not in self._watched:
            self._watched = {known for known in self._watched if not known.closed} | {conn}
            conn.on_lost(lambda why: self._lost(conn))

    def _lost(self, conn: Connection) -> None:
        for subscription_task in list(self._subscription_tasks):
            if subscription_task.conn is conn and not subscription_task.gone.done:
                self._box.put(GoneEvent(subscription_task, subscription_task.consumer))
                subscription_task.lost()

    def _watch(self, topics: dict[str, int], interval: float) -> Steps[None]:
        waits, pause = Waits(RETRY), interval
        while True:
            yield time.monotonic() + pause
            found, whole = yield from self._cluster.lookup.growing(topics, time.monotonic() + interval)
            pause = looked(waits, interval, whole)
            for topic, names in found:
                topics[topic] += len(names)
                self._box.put(GrownEvent(topic, names))


def looked(waits: Waits, interval: float, well: bool) -> float:
    """Return the seconds to the next look-up of new partitions: `interval`, or fewer after a failure, which a brief outage may have caused.

    Args:
        waits: the pauses after failures. interval: seconds after a success. well: whether the look-up succeeded.
    """
    if not well:
        return min(interval, waits.next())
    waits.over()
    return interval


def places(reply: api.CommandGetLastMessageIdResponse) -> tuple[Place, Place]:
    """Return the place of the last message and the mark-delete position of a reply: (ledger, entry) each, entry -1 for none."""
    last, done = reply.last_message_id, _place(reply)
    end = (signed(last.ledgerId), signed(last.entryId))
    return (end if end[1] >= 0 else done), done


def _place(reply: api.CommandGetLastMessageIdResponse) -> Place:
    mark = reply.consumer_mark_delete_position
    return signed(mark.ledgerId), signed(mark.entryId)
