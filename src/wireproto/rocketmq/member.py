"""Keeps a member of a consumer group: heartbeats, the list of members, and the share of queues that follows from it.

Brokers learn the members of a group by heartbeats (34) on a connection that each member has for itself; they notify members (40) when one
comes or goes. Each member computes for itself from the same lists which queues it reads, so between two members' looks at them a queue may
be read twice or not at all for a moment; nothing is lost by that, since only committed offsets count.

    join      heartbeat to every master of the topics, list of members (38), share
    due       a broker has notified us, `rebalance_interval` is over, or a connection was lost: the share is to be computed again
    leave     unregister (35): brokers notify the others at once. So too when the owner has not polled for `max_poll_interval`

Trap: brokers handle a heartbeat and an unregister in two threads, and check the connection of neither: a heartbeat that an unregister
overtakes registers a member which is gone, with a share of the queues that no member reads for two minutes (4.9.7 and 5.5.0; at each 80th
close that followed its opening at once). So a member that leaves sends no more heartbeats, and unregisters after its last heartbeat is
answered. The end of a connection overtakes a heartbeat in the same way, where a broker was stopped or busy (5.5.0 that checks signatures: 2
of 10 times): so a connection with a heartbeat under way is closed when that is answered, by the client, which outlives the member
(`RocketCluster.let_go`).

Methods that wait are steps, run by tasks except where a member joins and leaves; pushes are read in the I/O thread, which only notes them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from wireproto._net import REQUESTS, Mailbox, Push
from wireproto.errors import BrokerError, Closed, TimedOut, TransportError, Unanswered, WireprotoError
from wireproto.flow.alarm import Alarm
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import Steps

from . import broker_requests, remoting
from .allocate import average, java_order
from .bodies import HeartbeatData, SubscriptionData
from .codes import TopicNotExist
from .groups import GroupOffsets
from .messages import HeartBeatRequest, UnregisterClientRequest
from .subscriptions import Subscriptions
from .transient_errors import away, passes

if TYPE_CHECKING:
    from wireproto._net import Call, Connection

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue

T = TypeVar("T")
Key = tuple[str, int]
MemberState = tuple[dict[Key, T], dict[Key, WireprotoError]]
ABSENT = Policy(first=1.0, factor=2.0, ceiling=1e9, jitter=0.2)
"""Waits until the next look for an optional topic that is missing, or the next heartbeat to a broker that is away."""
ANSWER_TIMEOUT, UNRESPONSIVE_TIMEOUT = 3.0, 0.2
"""Seconds that one broker has to answer; and one that did not answer a moment ago."""
UNRESPONSIVE_FOR = 5.0
"""Seconds for which a broker that did not answer is asked after the others, and has only `UNRESPONSIVE_TIMEOUT` to answer."""
AGAIN = 1.0
"""Seconds until a request that failed is repeated."""
LISTED = 130.0
"""Seconds after which a broker forgets a member whose connection is gone (its channelExpiredTimeout of 120 s, looked at each 10)."""


Lists = dict[tuple[str, ...], tuple[str, ...] | TransportError]
"""By addresses of brokers: the members of the group that they know, or the error why that is not known."""


class Share(NamedTuple):
    """Holds the queues assigned to this member, by the lists when they were computed.

    Attributes:
        queues: the assigned ones. unknown: topics whose share could not be computed.
        forgotten: topics and brokers that the name server did not know at that time, whose queues no member can have got.
    """

    queues: dict[Key, Queue]
    unknown: frozenset[str]
    forgotten: frozenset[tuple[str, str]]


class Member:
    """Sends a member's heartbeats, answers its brokers, and computes its share.

    Args:
        group: name of the consumer group.
        topics: those subscribed to; those in `optional` may not exist yet (the group's retry topic).
        wake: called in the I/O thread when the share may have changed, or offsets were reset.
        read_positions: returns the queues that are read and their next offsets; called in the I/O thread.

    Attributes:
        id: client id, as brokers list it. started: seconds since 1970. left: whether it has left since its owner did not poll.
        closed: whether it was closed. member_count: number of members of the group, this one included, as known last.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        options: RocketOptions,
        group: str,
        topics: Sequence[str],
        wake: Callable[[], object],
        read_positions: Callable[[], broker_requests.ReadPositions],
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster, self._options, self.group, self._topics = cluster, options, group, tuple(topics)
        self._optional, self._wake, self.read_positions = optional, wake, read_positions
        self.id = cluster.next_id()
        self.offsets = GroupOffsets(cluster, group)
        self._reads = Subscriptions(cluster, group, self.id, topics)
        self.started = time.time()
        self._version = int(self.started * 1000)
        self.resets: broker_requests.Resets = {}
        self._absent = Waits(ABSENT)
        self._box = Mailbox(cluster.loop, handler=self._pushed)
        self._lock = threading.Lock()
        self._beat_at, self._owner_at = Alarm(cluster.loop, self._beat_later), Alarm(cluster.loop, self._watch_owner)
        self._connections: dict[str, Connection] = {}
        self._beats: dict[Call, Connection] = {}  # heartbeats that are not answered
        self._unresponsive_until: dict[str, float] = {}
        self._due = True
        self._next_look = 0.0
        self._polled = time.monotonic()
        self._forgotten = False
        self._back = -AGAIN
        self.left = False
        self.closed = False
        self._ended = False
        self.member_count = 1
        cluster.watch(self)

    # liveness ----------------------------------------------------------------------------------------------------------------------

    def check_topics(self) -> None:
        """Raise UsageError where this client has a member of the group that reads other topics."""
        for other in self._cluster.watchers():
            if isinstance(other, Member) and other is not self and not other.closed and not other.left:
                self._reads.refuse(other._reads)

    def joining(self, until: float) -> Steps[None]:
        """Send the first heartbeats, to every master of the topics; raises when none of them answers in time."""
        self.left = False
        self._polled = time.monotonic()
        with contextlib.suppress(TopicNotExist, TransportError):
            yield from self._reads.look((yield from self._masters(until)), until)
        yield from self._cluster.retrying(lambda: self.beating(until), until)
        self._beat_at.set(time.monotonic() + self._options.heartbeat_interval)
        self._owner_at.set(self._polled + self._options.max_poll_interval)

    def polled(self) -> None:
        """Note that the owner is alive: it polls."""
        self._polled = time.monotonic()

    def _masters(self, until: float) -> Steps[list[str]]:
        found: dict[str, None] = {}
        problem: WireprotoError | None = None
        for topic in self._topics:
            try:
                route = yield from self._cluster.routing(topic, self._until(topic, until))
                found.update(dict.fromkeys(route.masters))
            except (TopicNotExist, TransportError) as error:
                if topic not in self._optional:
                    problem = error
        if problem is not None and not found:
            raise problem
        return list(found)

    def _until(self, topic: str, until: float) -> float:
        """Return the deadline for looking up a topic: an optional one has `AGAIN` seconds."""
        return min(until, time.monotonic() + AGAIN) if topic in self._optional else until

    def beating(self, until: float) -> Steps[bool]:
        """Send a heartbeat to each master, concurrently; returns whether all of them took it. Raises when all of them failed."""
        cluster = self._cluster
        body = HeartbeatData(self.id, (), {self.group: self.subscriptions()}).encode()
        problem: WireprotoError | None = None
        known = False

        def beat(address: str) -> Steps[None]:
            nonlocal problem, known
            late = self.answer_by(address, until)
            try:
                conn = yield from cluster.connecting(address, late, self.id)
                conn.route(REQUESTS, self._box)
                self._connections[address] = conn
                known |= yield from self._heartbeat(conn, body, late)
            except WireprotoError as error:
                if not passes(error):
                    raise
                problem = error
                cluster.log.info(("beat", self.group, address), "group %s: no heartbeat to %s: %s", self.group, address, error)
                if away(error):
                    self.mark_unresponsive(address)
                if address in self._connections:
                    cluster.give_up(self._connections[address], error)

        try:
            masters = yield from self._masters(until)
            yield from cluster.tasks.every([(f"heartbeat to {address}", beat(address)) for address in masters], until)
        finally:
            if self._ended:  # closed by the owner meanwhile: a connection dialled since must not keep us in the group
                self._hang_up()
        if problem is not None and not known:
            raise problem
        return problem is None

    def _heartbeat(self, conn: Connection, body: bytes, until: float) -> Steps[bool]:
        """Send one heartbeat, unless we have left meanwhile; returns whether it was sent and acknowledged."""
        with self._lock:
            if self.closed or self.left:
                return False
            call = self._cluster.submit(conn, HeartBeatRequest(), body, timeout_at=time.monotonic() + LISTED)
            self._beats[call] = conn
            self._cluster.beating_on(conn, call)
        try:
            if not (yield call, until):
                raise TimedOut("no reply in time", peer=conn.peer)
            self._cluster.read(conn, call.result(0.0), message=HeartBeatRequest.NAME)
        finally:
            with self._lock:
                del self._beats[call]
        return True

    def answer_by(self, address: str | None, until: float) -> float:
        """Return the deadline for one broker's answer, so that one which does not answer does not use up the time of all.

        It is `ANSWER_TIMEOUT` seconds from now, or `UNRESPONSIVE_TIMEOUT` for a broker that did not answer a moment ago, but at
        most `until`.
        """
        now = time.monotonic()
        return min(until, now + (UNRESPONSIVE_TIMEOUT if self.is_unresponsive(address) else ANSWER_TIMEOUT))

    def mark_unresponsive(self, address: str | None) -> None:
        """Note that a broker did not answer."""
        if address is not None:
            self._unresponsive_until[address] = time.monotonic() + UNRESPONSIVE_FOR

    def is_unresponsive(self, address: str | None) -> bool:
        """Return whether this broker did not answer a moment ago, or has no address."""
        return address is None or time.monotonic() < self._unresponsive_until.get(address, 0.0)

    def asking(self, asked: Mapping[Key, tuple[Queue, Steps[T]]], what: str) -> Steps[MemberState[T]]:
        """Run steps concurrently, each a request to the broker of a queue; returns results and errors by queue."""
        found: dict[Key, T] = {}
        problems: dict[Key, WireprotoError] = {}

        def ask(key: Key, queue: Queue, steps: Steps[T]) -> Steps[None]:
            try:
                found[key] = yield from steps
            except WireprotoError as why:
                problems[key] = why
                if away(why):
                    self.mark_unresponsive(queue.address)

        yield from self._cluster.gathering({key: ask(key, *of) for key, of in asked.items()}, what)
        return found, problems

    def _beat_later(self) -> None:
        if not self.closed and not self.left:
            self._cluster.tasks.shared(("beat", self.id), self._beat_quietly, f"heartbeats of group {self.group}")
            self._beat_at.set(time.monotonic() + self._options.heartbeat_interval)

    def _beat_quietly(self) -> Steps[bool]:
        """Send heartbeats without raising; returns whether every master took one."""
        if self.closed or self.left:
            return True
        try:
            return (yield from self.beating(self._cluster.deadline(self._options.connect_timeout)))
        except (BrokerError, TransportError):  # the next one follows; a broker that stays away leaves the route soon
            return False
        except Closed:  # closed by the owner meanwhile
            return True

    def lost(self, conn: Connection) -> None:
        """Handle the loss of a connection of the client, in the I/O thread: if it is one of ours, the broker has forgotten us."""
        if not self.closed and any(conn is mine for mine in list(self._connections.values())):
            self._forgotten = True
            self._cluster.tasks.shared(("back", self.id), self._coming_back, f"heartbeats of group {self.group}")

    def _coming_back(self) -> Steps[None]:
        """Make lost connections again, and send heartbeats.

        At once, but `AGAIN` seconds later where connections are cut as they are made; with growing waits where none can be made, up to
        `heartbeat_interval`.
        """
        waits, wait = Waits(ABSENT), AGAIN
        while self._forgotten:
            if time.monotonic() < self._back + wait:
                yield self._back + wait
            self._back, self._forgotten, wait = time.monotonic(), False, AGAIN
            if (yield from self._beat_quietly()):
                waits.over()
            else:
                wait = max(AGAIN, waits.next())
                self._forgotten = wait < self._options.heartbeat_interval
            self._note()

    def _watch_owner(self) -> None:
        """Leave the group where the owner does not poll, since it holds queues that others could read. Runs in the I/O thread."""
        if self.closed or self.left:
            return
        until = self._polled + self._options.max_poll_interval
        if time.monotonic() < until:
            self._owner_at.set(until)
            return
        with self._lock:
            self.left = True
        self._note()
        until = self._cluster.deadline(self._options.connect_timeout)
        self._cluster.tasks.spawn(self._unregistering(until), f"leaving group {self.group}")

    def _unregistering(self, until: float) -> Steps[None]:
        """Unregister at the brokers, concurrently: at each after it has answered our last heartbeat, and with the time of `answer_by`."""
        message = UnregisterClientRequest(client_id=self.id, consumer_group=self.group)

        def leave(address: str, conn: Connection) -> Steps[None]:
            late = self.answer_by(address, until)
            with contextlib.suppress(WireprotoError):
                with self._lock:
                    beats = [call for call, where in self._beats.items() if where is conn]
                for beat in beats:
                    yield beat, late
                if not conn.closed:
                    yield from self._cluster.invoking(address, message, until=late, purpose=self.id)

        connections = [*self._connections.items()]
        leaving = [(f"leaving group {self.group} at {address}", leave(address, conn)) for address, conn in connections if not conn.closed]
        with contextlib.suppress(WireprotoError):
            yield from self._cluster.tasks.every(leaving, until)

    def closing(self, until: float) -> Steps[None]:
        """Leave the group, and close our connections."""
        with self._lock:
            self.closed = True
        try:
            if not self.left:
                yield from self._unregistering(until)
        finally:
            self.end()

    def end(self) -> None:
        """Close our connections without leaving the group."""
        self.closed = self._ended = True
        self._beat_at.stop()  # a timer that is set keeps this object alive
        self._owner_at.stop()
        self._cluster.unwatch(self)
        self._hang_up()
        self._box.close()

    def _hang_up(self) -> None:
        """Close our connections; brokers forget a member with its connection."""
        for conn in list(self._connections.values()):
            self._cluster.let_go(conn, "the consumer was closed")
        self._cluster.pool.forget(self.id, "the consumer was closed")

    # pushes ------------------------------------------------------------------------------------------------------------------------

    def _pushed(self, item: object) -> None:
        """Handle a broker's request, in the I/O thread."""
        if not isinstance(item, Push):
            return
        try:
            command = remoting.decode(item.frame)
        except WireprotoError as error:
            item.conn.close(str(error))
            return
        with contextlib.suppress(WireprotoError):  # a request that cannot be decoded, or a connection that was lost
            if (reply := broker_requests.answer(command, self)) is not None:
                item.conn.send(reply.encode())

    def _note(self) -> None:
        self._due = True
        self._wake()

    def subscriptions(self) -> list[SubscriptionData]:
        """Return what our heartbeats say that we read."""
        return [SubscriptionData(topic, version=self._version) for topic in self._topics]

    def name_servers(self) -> Sequence[str]:
        """Return the addresses of the client's name servers."""
        return self._cluster.names.all()

    def members_changed(self) -> None:
        """Note that a member came or went, in the I/O thread."""
        self._note()

    def reset(self, offsets: broker_requests.Resets) -> None:
        """Note offsets to which an administrator has set the group, in the I/O thread."""
        with self._lock:
            self.resets.update(offsets)
        self._wake()

    def take_resets(self) -> broker_requests.Resets:
        """Return the offsets that `reset` was called with since the last call."""
        if not self.resets:
            return {}
        with self._lock:
            found, self.resets = self.resets, {}
        return found

    # shares ------------------------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Return whether the share has to be computed again."""
        return self._due or self.left or time.monotonic() >= self._next_look

    @property
    def called(self) -> bool:
        """Return whether a broker has notified us since the computation of the share began."""
        return self._due

    @property
    def next_look(self) -> float:
        """Return when the share is due at the latest, as a `time.monotonic()` value."""
        return self._next_look

    def look_again(self, seconds: float = AGAIN) -> None:
        """Make the share due again in this number of seconds, since not all of it could be computed or taken."""
        self._next_look = min(self._next_look, time.monotonic() + seconds)

    def computing_share(self, until: float) -> Steps[Share]:
        """Compute our share; for topics in its `unknown` the queues stay as they were.

        Raises:
            TransportError: no topic's share could be computed. BrokerError: a broker refuses. TopicNotExist: a topic asked for is missing.
        """
        if self.left:
            yield from self.joining(until)
        self._due = False
        self._next_look = time.monotonic() + self._options.rebalance_interval
        found: dict[Key, Queue] = {}
        unknown: dict[str, WireprotoError] = {}
        forgotten: set[tuple[str, str]] = set()
        lists: Lists = {}
        beaten = False
        for topic in self._topics:
            try:
                route = yield from self._cluster.routing(topic, self._until(topic, until))
                forgotten |= {(topic, queue.broker) for queue in route.queues if queue.address is None}
                if not beaten and not set(route.masters) <= self._connections.keys():
                    beaten = True  # so that a broker which does not answer delays a round only once
                    yield from self.beating(until)
                members = yield from self._listed_once(route.masters, lists, until)
            except TopicNotExist:
                if topic not in self._optional:
                    self.look_again()
                    raise
                self._next_look = min(self._next_look, time.monotonic() + self._absent.next())
                continue
            except TransportError as error:
                unknown[topic] = error
                continue
            queues = sorted(route.readable(), key=lambda queue: (java_order(queue.broker), queue.queue_id))
            found.update(((topic, queue.partition), queue) for queue in average(members, self.id, queues))
        for masters, listed in lists.items():
            if not isinstance(listed, TransportError):
                yield from self._reads.look_at_newcomers(masters, listed, until)
                break
        if unknown:
            self.look_again()
            if len(unknown) == len(self._topics):
                raise next(iter(unknown.values()))
        return Share(found, frozenset(unknown), frozenset(forgotten))

    def others(self, until: float) -> Steps[set[str]]:
        """Return the group's other members, as the first broker that answers knows them."""
        masters = yield from self._masters(until)
        return {*(yield from self._members(masters, until))} - {self.id}

    def _listed_once(self, masters: tuple[str, ...], lists: Lists, until: float) -> Steps[tuple[str, ...]]:
        """Return `_members`, asked for once or twice in a round: the group is the same for all topics of the same brokers."""
        for _ in range(0 if masters in lists else 2):
            try:
                lists[masters] = yield from self._members(masters, until)
                break
            except TransportError as error:
                lists[masters] = error
        members = lists[masters]
        if isinstance(members, TransportError):
            raise members
        return members

    def _members(self, masters: Sequence[str], until: float) -> Steps[tuple[str, ...]]:
        """Return the group's members, ourselves among them, as the first broker that answers knows them.

        While one does not answer, the next one is asked beside it.
        """
        if not masters:
            return ()
        order = sorted(masters, key=self.is_unresponsive)
        entries = ((f"members of group {self.group} at {address}", self._listed(address, until)) for address in order)
        members = yield from self._cluster.tasks.race(entries, until, UNRESPONSIVE_TIMEOUT)
        self.member_count = len(members)
        return members

    def _listed(self, address: str, until: float) -> Steps[tuple[str, ...]]:
        """Return the members as one broker knows them; raises TransportError where we are not among them."""
        late = self.answer_by(address, until)
        try:
            members = yield from self.offsets.members(address, late, self.id)
            if self.id not in members:
                yield from self.beating(until)
                members = yield from self.offsets.members(address, self.answer_by(address, until), self.id)
        except TransportError:
            if not self.left:
                self.mark_unresponsive(address)
            raise
        if self.id not in members:
            raise Unanswered("the broker does not list this client among the group's members", peer=address)
        return members
