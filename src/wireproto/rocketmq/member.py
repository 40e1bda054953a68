"""A member of a group: heartbeats, the list of members, and the share of queues that follows from it.

What it is: brokers know who is in a group, by heartbeats (34) on a connection that is the member's own; they call (40) when somebody
comes or goes. Who reads which queue each member computes for itself from the same lists, so between two members' looks at them a queue may
be read twice or not at all for a moment; nothing is lost by that, since only committed offsets count.

    join      heartbeat to every master of the topics, list of members (38), share
    due       a broker has called, `rebalance_interval` is over, a connection was lost: the owner computes its share anew at its next step
    leave     unregister (35): the others are called at once. So too when the owner has not polled for `max_poll_interval`

Heartbeats are tasks of the client; pushes are read in the keeper, which only notes them. All else is the owner's thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wireproto._net import REQUESTS, Mailbox, Push
from wireproto.errors import BrokerError, TransportError, WireprotoError
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import Steps, after, reply

from . import asked, remoting
from .allocate import average, java_order
from .bodies import HeartbeatData, SubscriptionData
from .codes import TopicNotExist
from .groups import GroupOffsets
from .messages import HeartBeatRequest, UnregisterClientRequest

if TYPE_CHECKING:
    from wireproto._net import Connection

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Queue

Key = tuple[str, int]
ABSENT = Policy(first=1.0, factor=2.0, ceiling=1e9, jitter=0.2)
"""Waits until the next look when a topic of the group is not there yet; at most the time of any other look."""
ASK, GLANCE = 3.0, 0.2
"""Seconds that one broker has to answer; one that did not a moment ago."""
AILING = 5.0
"""Seconds for which a broker that did not answer is asked after the others, and not waited for."""
AGAIN = 1.0
"""Seconds until what could not be asked is asked again."""


class Member:
    """Args:
    topics: subscribed to; those in `optional` may not exist yet (the group's retry topic).
    wake: called in the keeper when the share may have changed, or offsets were reset.
    standing: where the owner stands; called in the keeper.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        options: RocketOptions,
        group: str,
        topics: Sequence[str],
        wake: Callable[[], object],
        standing: Callable[[], asked.Standing],
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster, self._options, self.group, self._topics = cluster, options, group, tuple(topics)
        self._optional, self._wake, self.standing = optional, wake, standing
        self.id = cluster.next_id()
        self.offsets = GroupOffsets(cluster, group)
        self.started = time.time()
        self._version = int(self.started * 1000)
        self._resets: asked.Resets = {}
        self._absent = Waits(ABSENT)
        self._box = Mailbox(cluster.loop, handler=self._pushed)
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._ailing: dict[str, float] = {}
        self._due = True
        self._next_look = 0.0
        self._polled = time.monotonic()
        self._forgotten = False
        self._back = -AGAIN
        self.left = False
        self.closed = False
        self.crowd = 1  # members of the group, ourselves among them, as last heard
        cluster.watch(self)

    # liveness ----------------------------------------------------------------------------------------------------------------------

    def join(self, deadline: float) -> None:
        """Be known to every broker of the topics; raises when none of them answers in time."""
        self.left = False
        self._polled = time.monotonic()
        self._cluster.drive(self._cluster.retrying(lambda: self.beating(deadline), deadline), deadline)
        self._cluster.loop.call_at(time.monotonic() + self._options.heartbeat_interval, self._beat_later)
        self._cluster.loop.call_at(self._polled + self._options.max_poll_interval, self._watch_owner)

    def polled(self) -> None:
        """The owner is alive."""
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

    def _until(self, topic: str, deadline: float) -> float:
        """Until when a topic may be looked up that nobody has asked for."""
        return min(deadline, time.monotonic() + AGAIN) if topic in self._optional else deadline

    def beat(self, deadline: float) -> None:
        """`beating`, in the owner's thread."""
        self._cluster.drive(self.beating(deadline), deadline)

    def beating(self, until: float) -> Steps[None]:
        """A heartbeat to each broker, beside each other; raises when all of them failed."""
        cluster = self._cluster
        body = HeartbeatData(self.id, (), {self.group: self.subscriptions()}).encode()
        problem: WireprotoError | None = None
        known = False

        def beat(address: str) -> Steps[None]:
            nonlocal problem, known
            late = self.patience(address, until)
            try:
                conn = yield from cluster.connecting(address, late, self.id)
                conn.route(REQUESTS, self._box)
                self._connections[address] = conn
                call = cluster.submit(conn, HeartBeatRequest(), body, timeout_at=late)
                cluster.read(conn, (yield from reply(call, late)), message=HeartBeatRequest.NAME)
                known = True
            except TransportError as error:
                problem = error
                self.ail(address)
                if address in self._connections:
                    cluster.give_up(self._connections[address], error)

        try:
            masters = yield from self._masters(until)
            yield from cluster.tasks.every([(f"heartbeat to {address}", beat(address)) for address in masters], until)
        finally:
            if self.closed:  # meanwhile, by the owner: what was dialled since must not keep us in the group
                self._hang_up()
        if problem is not None and not known:
            raise problem

    def patience(self, address: str | None, deadline: float) -> float:
        """Until when to wait for a broker, so that one which is silent does not take the time of all: less for one that was just now."""
        now = time.monotonic()
        return min(deadline, now + (GLANCE if self.ails(address) else ASK))

    def ail(self, address: str | None) -> None:
        """A broker did not answer."""
        if address is not None:
            self._ailing[address] = time.monotonic() + AILING

    def ails(self, address: str | None) -> bool:
        """Whether it was so a moment ago, or it has no address."""
        return address is None or time.monotonic() < self._ailing.get(address, 0.0)

    def _beat_later(self) -> None:
        if not self.closed and not self.left:
            self._cluster.tasks.shared(("beat", self.id), self._beat_quietly, f"heartbeats of group {self.group}")
            self._cluster.loop.call_at(time.monotonic() + self._options.heartbeat_interval, self._beat_later)

    def _beat_quietly(self) -> Steps[None]:
        if not self.closed and not self.left:
            with contextlib.suppress(BrokerError, TransportError):  # the next one comes; a broker that stays away is out of the route soon
                yield from self.beating(self._cluster.deadline(self._options.connect_timeout))

    def lost(self, conn: Connection) -> None:
        """In the keeper: a connection of the client was lost; if it was ours the broker has forgotten us."""
        if not self.closed and any(conn is mine for mine in list(self._connections.values())):
            self._note()
            self._forgotten = True
            after(self._cluster.tasks.shared(("back", self.id), self._coming_back, f"heartbeats of group {self.group}"), self._note)

    def _coming_back(self) -> Steps[None]:
        """Be known to the brokers again: at once, but each `AGAIN` seconds where connections are cut as they are made."""
        while self._forgotten:
            if time.monotonic() < self._back + AGAIN:
                yield self._back + AGAIN
            self._back, self._forgotten = time.monotonic(), False
            yield from self._beat_quietly()

    def _watch_owner(self) -> None:
        """In the keeper: an owner that does not poll holds queues that others could read."""
        if self.closed or self.left:
            return
        until = self._polled + self._options.max_poll_interval
        if time.monotonic() < until:
            self._cluster.loop.call_at(until, self._watch_owner)
            return
        self.left = True
        self._note()
        until = self._cluster.deadline(self._options.connect_timeout)
        self._cluster.tasks.spawn(self._unregistering(until), f"leaving group {self.group}")

    def _unregistering(self, until: float) -> Steps[None]:
        """Tell the brokers that we go."""
        message = UnregisterClientRequest(client_id=self.id, consumer_group=self.group)
        for address, conn in list(self._connections.items()):
            if not conn.closed:
                with contextlib.suppress(WireprotoError):
                    yield from self._cluster.invoking(address, message, until=until, purpose=self.id)

    def close(self, deadline: float) -> None:
        """Leave, and close our connections."""
        self.closed = True
        self._cluster.unwatch(self)
        if not self.left:
            self._cluster.drive(self._unregistering(deadline), deadline)
        self._hang_up()
        self._box.close()

    def _hang_up(self) -> None:
        """Close our connections; brokers forget a member with its connection."""
        for address, known in list(self._connections.items()):
            for conn in (known, self._cluster.peek(address, self.id)):
                if conn is not None:
                    self._cluster.pool.drop(conn, "the consumer was closed")

    # pushes ------------------------------------------------------------------------------------------------------------------------

    def _pushed(self, item: object) -> None:
        """In the keeper: a request of a broker."""
        if not isinstance(item, Push):
            return
        try:
            command = remoting.decode(item.frame)
        except WireprotoError as error:
            item.conn.close(str(error))
            return
        with contextlib.suppress(WireprotoError):  # a request that does not read, or a connection that is gone
            if (reply := asked.answer(command, self)) is not None:
                item.conn.send(reply.encode())

    def _note(self) -> None:
        self._due = True
        self._wake()

    def subscriptions(self) -> list[SubscriptionData]:
        """What we tell brokers that we want."""
        return [SubscriptionData(topic, version=self._version) for topic in self._topics]

    def name_servers(self) -> Sequence[str]:
        """Whom the client asks for routes."""
        return self._cluster.names.all()

    def members_changed(self) -> None:
        """In the keeper: somebody came or went."""
        self._note()

    def reset(self, offsets: asked.Resets) -> None:
        """In the keeper: an administrator set the group back or forth."""
        with self._lock:
            self._resets.update(offsets)
        self._wake()

    def take_resets(self) -> asked.Resets:
        """What `reset` has been told since the last call."""
        if not self._resets:
            return {}
        with self._lock:
            found, self._resets = self._resets, {}
        return found

    # shares ------------------------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """Whether the share must be computed anew."""
        return self._due or self.left or bool(self._resets) or time.monotonic() >= self._next_look

    @property
    def next_look(self) -> float:
        """When the share is due at the latest."""
        return self._next_look

    def look_again(self, seconds: float = AGAIN) -> None:
        """Not all of the share could be taken: it is due again soon."""
        self._next_look = min(self._next_look, time.monotonic() + seconds)

    def share(self, deadline: float) -> tuple[dict[Key, Queue], frozenset[str]]:
        """The queues that are ours now, and the topics whose share could not be computed: there we go on as we were.

        Raises:
            TransportError, BrokerError: nothing could be had.
        """
        if self.left:
            self.join(deadline)
        self._due = False
        self._next_look = time.monotonic() + self._options.rebalance_interval
        found: dict[Key, Queue] = {}
        unknown: dict[str, WireprotoError] = {}
        for topic in self._topics:
            try:
                route = self._cluster.route(topic, self._until(topic, deadline))
                if not set(route.masters) <= self._connections.keys():
                    self.beat(deadline)
                members = self._members(route.masters, deadline)
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
        if unknown:
            self.look_again()
            if len(unknown) == len(self._topics):
                raise next(iter(unknown.values()))
        return found, frozenset(unknown)

    def others(self, deadline: float) -> set[str]:
        """The group's other members, as the first broker that answers knows them."""
        masters = self._cluster.drive(self._masters(deadline), deadline)
        return {*self._members(masters, deadline)} - {self.id}

    def _members(self, masters: Sequence[str], deadline: float) -> tuple[str, ...]:
        """The group's members as the first broker that answers knows them; ourselves among them."""
        problem: WireprotoError | None = None
        for address in sorted(masters, key=self.ails):
            try:
                members = self.offsets.members(address, self.patience(address, deadline), self.id)
                if self.id not in members:
                    self.beat(deadline)
                    members = self.offsets.members(address, self.patience(address, deadline), self.id)
                if self.id in members:
                    self.crowd = len(members)
                    return members
            except TransportError as error:
                problem = error
                self.ail(address)
        if problem is not None:
            raise problem
        return ()
