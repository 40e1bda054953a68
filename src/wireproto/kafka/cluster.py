"""One Kafka cluster, as roles use it.

What it is: nodes found and kept, requests sent to the node they belong to. Roles ask for a connection (`connecting`), for leaders
(`metadata`, `refreshing`), or have it do a whole request with retries (`asking`): steps all of them, for operations and tasks; `ask` and
the like run them in the caller's thread. Thread-safe.
May assume: the engine's pool and retry policy. Must not: know a role, or keep records.

    route         node
    any           one that is connected, else bootstrap addresses and known nodes in random order
    controller    Metadata's controller; in KRaft clusters any broker, which passes it on
    leader        of a topic's partition
    coordinator   FindCoordinator's answer for a group or transaction, kept until it refuses
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .._codec import KafkaRoom
from ..errors import (
    AuthError,
    BrokerError,
    ConnectError,
    Disconnected,
    OptionError,
    TimedOut,
    TransportError,
    WireprotoError,
)
from ..flow.budget import Budget
from ..net.retry import Verdict, verdict
from ..net.runtime import Runtime
from ..net.task import Steps, retrying
from . import wire
from .codes import LeaderNotAvailable, UnknownTopicOrPartition, error
from .handshake import handshake
from .messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataRequestTopic
from .metadata import Metadata, Node, Topic
from .options import KafkaOptions
from .routing import GROUP, TRANSACTION, destination

if TYPE_CHECKING:
    from .._net import Connection
    from ..url import Address

T = TypeVar("T")

_REFRESH_TIME = 5.0

Route = Callable[[float], Steps["Connection"]]


class KafkaCluster(Runtime[KafkaOptions]):
    """Nodes, leaders, coordinators and connections.

    Attributes:
        options: as given. metadata: what is known of nodes, topics and leaders.
        budget, fetch_room: what all producers, all readers may hold together.
    """

    protocol = "kafka"
    framing = "kafka"

    def __init__(self, options: KafkaOptions, addresses: Sequence[Address]) -> None:
        super().__init__(options)
        self.addresses = tuple(addresses)
        self.metadata = Metadata()
        self._lock = threading.Lock()
        self._known = False
        self.budget = Budget(self.loop, options.buffer_memory)
        self.fetch_room = KafkaRoom()
        self.fetch_room.bound(options.fetch_memory)
        self._coordinators: dict[tuple[int, str], int] = {}

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """Agree on versions and authenticate.

        A broker that hangs up in the middle of that is a matter of credentials only until they have worked once.
        """
        try:
            yield from handshake(conn, until, self.options)
        except Disconnected as why:
            if self._known or not conn.frames_read or self.options.mechanism is None:
                raise
            raise AuthError(why.text, peer=why.peer) from why
        self._known = True

    # --- any request ---

    def request(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Any:
        """Send any message once to the node of `route` and return its typed reply; see `KafkaClient.request`."""
        return self.drive(self.requesting(message, deadline, version=version, **route), deadline)

    def requesting(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Steps[Any]:
        """`request`, as steps."""
        to = self._route(message, route)
        conn = yield from self.retrying(lambda: to(deadline), deadline)
        return (yield from wire.asking(conn, message, deadline, version=version))

    def _route(self, message: Any, route: Mapping[str, Any]) -> Route:
        if len(route) > 1 or not set(route) <= {"node", "controller", "leader", "group", "transaction", "any"}:
            raise OptionError(f"a route is one of node, controller, leader, group, transaction, any; not {', '.join(route) or 'nothing'}")
        for kind, value in route.items():
            if kind == "node":
                return self.to_node(int(value))
            if kind == "leader":
                return self.to_leader(*value)
            if kind in ("group", "transaction"):
                return self.to_coordinator(value, GROUP if kind == "group" else TRANSACTION)
            return self.to_controller if kind == "controller" else self.to_any
        to = destination(message, self.metadata)
        if to.kind == "coordinator":
            self.lost_coordinator(to.name, to.number)
            return self.to_coordinator(to.name, to.number)
        if to.kind == "leader":
            return self.to_leader(to.name, to.number)
        if to.kind == "node":
            return self.to_node(to.number)
        return self.to_controller if to.kind == "controller" else self.to_any

    # --- nodes ---

    def to_any(self, deadline: float) -> Steps[Connection]:
        """A connection to any node: an open one if there is any that is not silent; raises the last failure when none can be reached."""
        known = {node.address for node in self.metadata.nodes.values()}
        every = [*known, *(address for address in self.addresses if address not in known)]
        silent: Connection | None = None
        for address in every[:]:
            conn = self.pool.peek(address)
            if conn is not None:
                if not wire.silent(conn):
                    return conn
                silent = conn
                every.remove(address)
        random.shuffle(every)
        problem: WireprotoError | None = None
        for left, address in enumerate(every):
            share = (deadline - time.monotonic()) / (len(every) - left)
            try:
                return (yield from self.pool.getting(address, "main", time.monotonic() + max(share, 0.0)))
            except TransportError as why:
                problem = why
        if silent is not None and not silent.closed:
            return silent
        raise problem if problem is not None else ConnectError("no address to connect to")

    def to_node(self, node: int, purpose: str = "main") -> Route:
        return lambda deadline: self.connecting(node, purpose, deadline)

    def to_controller(self, deadline: float) -> Steps[Connection]:
        if self.metadata.controller not in self.metadata.nodes:
            yield from self.refreshing((), deadline)
        if self.metadata.controller not in self.metadata.nodes:
            return (yield from self.to_any(deadline))
        return (yield from self.connecting(self.metadata.controller, "main", deadline))

    def to_leader(self, topic: str, partition: int, purpose: str = "main") -> Route:
        def connect(deadline: float) -> Steps[Connection]:
            if self.metadata.leader(topic, partition) is None:
                yield from self.looking_up(topic, deadline)
            node = self.metadata.leader(topic, partition)
            if node is None:
                entry = self.metadata.topics.get(topic)
                exists = entry is not None and partition in entry.partitions
                raise (LeaderNotAvailable if exists else UnknownTopicOrPartition)(topic=topic, partition=partition)
            return (yield from self.connecting(node.id, purpose, deadline))

        return connect

    def to_coordinator(self, name: str, kind: int = GROUP, purpose: str = "main") -> Route:
        def connect(deadline: float) -> Steps[Connection]:
            node = yield from self.coordinating(name, kind, deadline)
            return (yield from self.connecting(node, purpose, deadline))

        return connect

    def reach(self, route: Route, deadline: float) -> Connection:
        """The connection that a route leads to, with retries, in the caller's thread."""
        return self.drive(self.retrying(lambda: route(deadline), deadline), deadline)

    def connecting(self, node: int, purpose: str, deadline: float) -> Steps[Connection]:
        """The connection to a node for a purpose (`Pool.get`); looks its address up first when it is not known."""
        known = self.metadata.nodes.get(node)
        if known is None:
            yield from self.refreshing((), deadline)
            known = self.metadata.nodes.get(node)
        if known is None:
            raise Disconnected(f"node {node} is not in the cluster now")
        return (yield from self.pool.getting(known.address, purpose, deadline))

    def node_connection(self, node: int, purpose: str, deadline: float) -> Connection:
        """`connecting`, in the caller's thread."""
        return self.drive(self.connecting(node, purpose, deadline), deadline)

    def coordinating(self, name: str, kind: int, deadline: float) -> Steps[int]:
        """Number of the node that coordinates a group or transaction."""
        node = self._coordinators.get((kind, name))
        if node is not None and node in self.metadata.nodes:
            return node
        conn = yield from self.to_any(deadline)
        version = wire.version_for(conn, FindCoordinatorRequest)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))
        else:
            request = FindCoordinatorRequest(key_type=kind, key=name)
        reply: FindCoordinatorResponse = yield from wire.asking(conn, request, deadline, version=version)
        found = reply.coordinators[0] if version >= 4 else reply
        if found.error_code:
            raise error(found.error_code, f"looking for the coordinator of {name!r}", message=reply.NAME, peer=conn.peer)
        with self._lock:
            self._coordinators[kind, name] = found.node_id
        if found.node_id not in self.metadata.nodes:
            yield from self.refreshing((), deadline)
        return found.node_id

    def known_coordinator(self, name: str, kind: int = GROUP) -> Node | None:
        """The coordinator as last told; asks nobody."""
        node = self._coordinators.get((kind, name))
        return self.metadata.nodes.get(node) if node is not None else None

    def lost_coordinator(self, name: str, kind: int = GROUP) -> None:
        """It refused: look it up again next time."""
        with self._lock:
            self._coordinators.pop((kind, name), None)

    # --- metadata ---

    def refreshing(self, topics: Iterable[str] | None, deadline: float, *, create: bool = False) -> Steps[None]:
        """Ask for metadata now.

        Args:
            topics: names; an empty list asks for nodes only, None for every topic.
            create: let the broker create unknown topics, if it is set so.
        """
        named = None if topics is None else tuple(topics)
        conn = yield from self.to_any(deadline)
        version = wire.version_for(conn, MetadataRequest)
        asked = None if named is None else tuple(MetadataRequestTopic(name=name) for name in named)
        if version == 0 and named == ():
            asked = (MetadataRequestTopic(name="?"),)  # v0 cannot ask for nodes only: an empty list means all topics
        request = MetadataRequest(topics=asked if version > 0 or asked is not None else (), allow_auto_topic_creation=create or version < 4)
        reply = yield from wire.asking(conn, request, deadline, version=version)
        with self._lock:
            before = self.metadata.topics
            self.metadata.apply(reply, all_topics=named is None)
        self._tell_moves(before)

    def refresh(self, topics: Iterable[str] | None, deadline: float, *, create: bool = False) -> None:
        """`refreshing`, in the caller's thread."""
        self.drive(self.refreshing(topics, deadline, create=create), deadline)

    def looking_up(self, topic: str, deadline: float, *, create: bool = False) -> Steps[Topic]:
        """A topic with its partitions, all of them led; waits a little for a topic that has just been made.

        Raises:
            the broker's error for it: UnknownTopicOrPartition after `options.topic_patience` seconds.
        """
        patience = min(deadline, time.monotonic() + self.options.topic_patience)

        def look() -> Steps[Topic]:
            yield from self.refreshing((topic,), deadline, create=create)
            problem = self.metadata.problem(topic)
            entry = self.metadata.topics.get(topic)
            if problem is None and (entry is None or not entry.partitions):
                problem = UnknownTopicOrPartition(topic=topic)
            if isinstance(problem, UnknownTopicOrPartition):
                problem.text = problem.text or f"there is no topic {topic!r}: create it, or connect with auto_create=true"
            if problem is not None:
                raise problem
            assert entry is not None
            return entry

        def judge(why: WireprotoError) -> Verdict:
            missing = time.monotonic() >= patience and not create
            return verdict(why, final=(UnknownTopicOrPartition,) if missing else ())

        return (yield from self.retrying(look, deadline, judge=judge))

    def topic_entry(self, topic: str, deadline: float, *, create: bool = False) -> Topic:
        """`looking_up`, in the caller's thread."""
        return self.drive(self.looking_up(topic, deadline, create=create), deadline)

    def drop_purpose(self, purpose: str) -> None:
        """Close the connections that a role had for itself."""
        for node in list(self.metadata.nodes.values()):
            conn = self.pool.peek(node.address, purpose)
            if conn is not None:
                self.pool.drop(conn, "the role was closed")

    def hint(self, topic: str, partition: int, node: int, epoch: int, endpoints: Iterable[Node]) -> bool:
        """A refusal told who leads now; whether that was news."""
        with self._lock:
            before = self.metadata.topics
            news = self.metadata.hint(topic, partition, node, epoch, endpoints)
        self._tell_moves(before)
        return news

    def _tell_moves(self, before: Mapping[str, Topic]) -> None:
        for topic, partition, old, new in self.metadata.moves(before):
            self.told.info(("moved", topic, partition), "%s[%d]: the leader is node %d now, not %d", topic, partition, new, old)

    def throttled(self, reply: Any, conn: Connection) -> None:
        """Tell of a reply that a quota held back."""
        if reply.throttle_time_ms:
            self.told.info(("throttled", conn.peer), "%s: throttled by a quota for %d ms", conn.peer, reply.throttle_time_ms)

    # --- doing ---

    def retrying(
        self,
        attempt: Callable[[], Steps[T]],
        deadline: float,
        refresh: Callable[[WireprotoError], Steps[object] | None] | None = None,
        *,
        judge: Callable[[WireprotoError], Verdict] = verdict,
    ) -> Steps[T]:
        """`attempt` under the one retry policy."""
        self.loop.check()
        return retrying(attempt, deadline, refresh=refresh, judge=self.told.judging(judge))

    def asking(
        self,
        make: Any,
        deadline: float,
        to: Route | None = None,
        *,
        kind: type[Any] | None = None,
        check: Callable[[Any], BrokerError | None] | None = None,
        refresh: Callable[[WireprotoError], Steps[object] | None] | None = None,
        cap: int | None = None,
        final: tuple[type[BrokerError], ...] = (),
    ) -> Steps[Any]:
        """A request with retries.

        Args:
            make: the message; or with `kind` its class, a function from the agreed version to it.
            to: the route; any node by default.
            check: the reply's error as an exception, None when all is well; what is retriable is retried.
            refresh: looks up anew before a retry; by default forgets nothing and asks for the nodes.
            cap: the newest version to use.
            final: errors that do not pass for this request, whatever they are for others.
        """
        route = to or self.to_any

        def attempt() -> Steps[Any]:
            conn = yield from route(deadline)
            version = wire.version_for(conn, kind or make, cap)
            message = make(version) if kind is not None else make
            reply = yield from wire.asking(conn, message, deadline, version=version)
            if hasattr(reply, "throttle_time_ms"):
                self.throttled(reply, conn)
            problem = check(reply) if check is not None else None
            if problem is not None:
                raise problem.with_context(peer=conn.peer, message=reply.NAME, version=version)
            return reply

        again = refresh or (lambda why: self._looking_again(deadline))
        return self.retrying(attempt, deadline, again, judge=lambda why: verdict(why, final=final))

    def ask(self, make: Any, deadline: float, to: Route | None = None, **how: Any) -> Any:
        """`asking`, in the caller's thread."""
        return self.drive(self.asking(make, deadline, to, **how), deadline)

    def _looking_again(self, deadline: float) -> Steps[None]:
        with suppress(TransportError, TimedOut):  # the next attempt finds out for itself
            yield from self.refreshing((), min(deadline, time.monotonic() + _REFRESH_TIME))
