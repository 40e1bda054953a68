"""Keeps partitions subscribed, whatever happens: one task a partition, run by the keeper.

    look the broker up ── connect ── SUBSCRIBE ── (where does the mark stand?) ── open until it is gone ── again, for ever
              └──────────────┴───────────┴── refused, lost, late: a pause that grows, and again

What it is: the way from a partition's name to a consumer that is open, and back to its beginning when the connection is lost or the broker
closes the consumer. What it finds goes to the role through the role's mailbox, between the frames and in order with them; the role's thread
alone changes the partition's state. All partitions of a role open beside each other: look-ups and SUBSCRIBEs share connections.
Nothing that a broker answers ends a task: what is refused now may be taken later. Whether to tell the user is the role's matter.
Must not: grant permits, or touch what the role's thread owns but to read where to begin.
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


class Life:
    """One partition's subscription, from `Tending.begin` until it is ended.

    Attributes:
        known: whether a broker has, or may have, taken a SUBSCRIBE: one that stands in the way of the next may be our own.
        conn, consumer, gone: of the last SUBSCRIBE; `gone` is set when it is over.
        doubt: the broker closed the consumer, as it does when the mark is moved.
        fruitful: something came of it, so that the next attempt need not wait.
        failure: why the last attempt failed, until the role has taken notice. failures: in a row. stage: what is being waited for.
    """

    def __init__(self, part: SubscriptionState, never: Event) -> None:
        self.part = part
        self.known = False
        self.conn: Connection | None = None
        self.consumer = 0
        self.gone = self.answered = never
        self.doubt = False
        self.fruitful = False
        self.failure: Exception | None = None
        self.failures = 0
        self.stage = "not begun"
        self.task: Task[None] | None = None

    def lost(self) -> None:
        """The consumer is gone at its broker, or will not come. Any thread."""
        self.gone.set()
        self.answered.set()


@dataclass(frozen=True, slots=True)
class Begun:
    """SUBSCRIBE is about to be sent: what comes for the consumers before it does not count any more."""

    life: Life
    consumer: int
    conn: Connection


@dataclass(frozen=True, slots=True)
class Opened:
    """SUBSCRIBE was answered; `mark`: the place up to which all is acknowledged, where it was asked for. `doubt`: as of the `Life`."""

    life: Life
    consumer: int
    gone: Event
    mark: Place | None
    doubt: bool


@dataclass(frozen=True, slots=True)
class Marked:
    """Where the mark of a consumer stands that is open: `mark_of` was answered."""

    life: Life
    consumer: int
    mark: Place


@dataclass(frozen=True, slots=True)
class Gone:
    """The consumer's connection is lost."""

    life: Life
    consumer: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt has failed: see `life.failure`."""

    life: Life


@dataclass(frozen=True, slots=True)
class Grown:
    """A topic has these partitions, too."""

    topic: str
    names: Sequence[tuple[int, str]]


class Tending:
    """The subscriptions of one role.

    Args:
        box: where news goes, and what brokers send to the consumers.
        marks: ask for the mark of each subscription when it is open again.
    """

    def __init__(self, cluster: PulsarCluster, box: Mailbox, *, marks: bool) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._box = box
        self._marks = marks
        self._purpose = f"consume-{cluster.next_role()}"
        self._lives: set[Life] = set()
        self._watched: set[Connection] = set()

    def begin(self, part: SubscriptionState) -> Life:
        """Have a partition subscribed from now on."""
        life = Life(part, Event(self._loop))
        self._lives.add(life)
        life.task = self._cluster.tasks.spawn(self._tend(life), f"subscribing to {part.name}")
        return life

    def end(self, life: Life, *, told: bool) -> None:
        """No more of it: its consumer is closed at the broker without waiting for the answer, unless the broker was `told`."""
        self._lives.discard(life)
        if told:
            life.conn = None
        assert life.task is not None
        life.task.cancel(Closed("the partition is not read any more", topic=life.part.topic, partition=life.part.partition))

    def mark_of(self, life: Life) -> None:
        """Ask where the mark of an open subscription stands; `Marked` tells. An answer that does not come is not missed."""
        conn, consumer = life.conn, life.consumer
        if not (self._marks and life.part.kept) or conn is None:
            return

        def answered() -> None:
            with suppress(WireprotoError):
                self._box.put(Marked(life, consumer, _place(reply_body(call.result(0.0), conn.peer))))

        command = api.CommandGetLastMessageId(consumer_id=consumer, request_id=conn.next_token())
        with suppress(WireprotoError):  # the connection is lost, and the consumer with it
            call = conn.submit(command.request_id, encode(command))
            after(call, answered)

    def hang_up(self) -> None:
        """Close the role's own connections; whoever lives opens them again."""
        for conn in self._watched:
            self._cluster.drop(conn)
        self._watched = set()

    def watch(self, topics: dict[str, int], interval: float) -> Task[None]:
        """Tell of the partitions that topics get; from the number of those that each has."""
        return self._cluster.tasks.spawn(self._watch(topics, interval), "looking for new partitions")

    # -- in the keeper ------------------------------------------------------------------------------------------

    def _tend(self, life: Life) -> Steps[None]:
        waits = Waits(RETRY)
        while True:
            try:
                yield from self._open(life)
            except (Closed, Forked):
                raise
            except Exception as why:  # credentials are the user's code
                news, life.failure = life.failure is None, why
                life.failures += 1
                if news:
                    self._box.put(Failed(life))
                yield time.monotonic() + waits.next()
                continue
            since, life.failures = time.monotonic(), 0
            try:
                yield life.gone
            except Closed:
                self._close(life)
                raise
            if life.fruitful or time.monotonic() - since > RETRY.ceiling:
                waits.over()
            else:
                yield time.monotonic() + waits.next()

    def _open(self, life: Life) -> Steps[None]:
        cluster, part = self._cluster, life.part
        patience = cluster.options.operation_timeout
        until = time.monotonic() + patience
        life.stage = "its broker is looked up"
        broker = yield from cluster.lookup.finding(part.name, until, CONSUMER)
        life.stage = f"its broker {broker.address[0]}:{broker.address[1]} is dialled"
        conn = yield from cluster.connecting(broker, self._purpose, until)
        life.stage = "SUBSCRIBE is not answered"
        self._hear_of(conn)
        consumer = cluster.next_consumer_id()  # of its own for each SUBSCRIBE, so that nothing old is taken for new
        life.conn, life.consumer = conn, consumer
        gone = life.gone = Event(self._loop)
        life.fruitful = False
        self._box.put(Begun(life, consumer, conn))
        conn.route(consumer_channel(consumer), self._box)
        mark, taken = None, False
        try:
            yield from self._ask(life, conn, part.given.command(part.name, consumer, part.cursor.begin, time.time() + patience), until)
            taken = True
            if self._marks and part.kept and life.known:
                mark = yield from self._mark(life, conn, until)
        except BaseException as why:
            conn.route(consumer_channel(consumer), None)
            if taken or not isinstance(why, PulsarError):
                life.known = True  # it may have been done all the same, and stand in the next attempt's way for a while
                self._close(life)
            raise
        self._box.put(Opened(life, consumer, gone, mark, life.doubt))
        life.known, life.doubt = True, False

    def _mark(self, life: Life, conn: Connection, until: float) -> Steps[Place | None]:
        """Where the mark stands, before anything is taken for what was handed out already. Only where it may have been moved must it be
        known."""
        try:
            return _place((yield from self._ask(life, conn, api.CommandGetLastMessageId(consumer_id=life.consumer), until)))
        except PulsarError:
            if life.doubt:
                raise
            return None

    def _ask(self, life: Life, conn: Connection, command: Any, until: float) -> Steps[Any]:
        """A request about the consumer, given up when that is closed meanwhile: then it may never be answered."""
        command.request_id = conn.next_token()
        call = conn.submit(command.request_id, encode(command))
        answered = life.answered = Event(self._loop)
        after(call, answered.set)
        if not life.gone.done:
            yield answered, until
        if call.done and not life.gone.done:
            return reply_body(call.result(0.0), conn.peer, topic=life.part.topic, partition=life.part.partition)
        call.cancel()
        if life.gone.done:
            raise Disconnected("the consumer was closed while it was opened", peer=conn.peer)
        raise TimedOut(f"no answer to {type(command).__name__} in time", peer=conn.peer)

    def _close(self, life: Life) -> None:
        """CLOSE_CONSUMER without waiting for the answer."""
        conn = life.conn
        if conn is not None:
            conn.route(consumer_channel(life.consumer), None)
            if not conn.closed:
                with suppress(WireprotoError):
                    conn.send(encode(api.CommandCloseConsumer(consumer_id=life.consumer, request_id=conn.next_token())))

    def _hear_of(self, conn: Connection) -> None:
        if conn not in self._watched:
            self._watched = {known for known in self._watched if not known.closed} | {conn}
            conn.on_lost(lambda why: self._lost(conn))

    def _lost(self, conn: Connection) -> None:
        for life in list(self._lives):
            if life.conn is conn and not life.gone.done:
                self._box.put(Gone(life, life.consumer))
                life.lost()

    def _watch(self, topics: dict[str, int], interval: float) -> Steps[None]:
        waits, pause = Waits(RETRY), interval
        while True:
            yield time.monotonic() + pause
            found, whole = yield from self._cluster.lookup.growing(topics, time.monotonic() + interval)
            pause = looked(waits, interval, whole)
            for topic, names in found:
                topics[topic] += len(names)
                self._box.put(Grown(topic, names))


def looked(waits: Waits, interval: float, well: bool) -> float:
    """Seconds to the next look for new partitions: the usual ones; soon where one failed, which an outage in that moment makes it."""
    if not well:
        return min(interval, waits.next())
    waits.over()
    return interval


def places(reply: api.CommandGetLastMessageIdResponse) -> tuple[Place, Place]:
    """(place of the last message, place before which all is acknowledged), each (ledger, entry), entry -1 for none."""
    last, done = reply.last_message_id, _place(reply)
    end = (signed(last.ledgerId), signed(last.entryId))
    return (end if end[1] >= 0 else done), done


def _place(reply: api.CommandGetLastMessageIdResponse) -> Place:
    mark = reply.consumer_mark_delete_position
    return signed(mark.ledgerId), signed(mark.entryId)
