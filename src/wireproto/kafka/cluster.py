"""Keeps one Kafka cluster for the roles: its nodes, connections, metadata and coordinators.

Finds nodes, and sends requests to the node they belong to. Roles ask for a connection (`connecting`), for leaders (`metadata`,
`refreshing`), or have it do a whole request with retries (`asking`): steps all of them, for operations and tasks. Metadata and
coordinators are looked up by tasks that the client owns: what several roles want is asked once, and where a node does not answer at once,
another one is asked beside it. Thread-safe. Knows no role, and keeps no records.

    route         node
    any           one that is connected and not silent, else the first of bootstrap addresses and known nodes, in random order
    controller    Metadata's controller; in KRaft clusters any broker, which passes it on
    leader        of a topic's partition
    coordinator   FindCoordinator's answer for a group or transaction, kept until it refuses, at the address in that answer
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .._codec import BriefLock, ReadBudget
from ..errors import (
    AuthError,
    BrokerError,
    ConnectError,
    Disconnected,
    OptionError,
    TimedOut,
    TransportError,
    Unanswered,
    WireprotoError,
)
from ..flow.budget import Budget
from ..net.dial import peer_name
from ..net.retry import Verdict, verdict
from ..net.runtime import Runtime
from ..net.task import Steps, Task
from . import wire
from .codes import LeaderNotAvailable, RebootstrapRequired, UnknownServerError, UnknownTopicOrPartition, error
from .handshake import handshake
from .messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataRequestTopic
from .metadata import Metadata, Node, Topic
from .options import KafkaOptions
from .routing import GROUP, TRANSACTION, destination

if TYPE_CHECKING:
    from .._net import Connection
    from ..flow.lost_answer import LostAnswer
    from ..url import Address

T = TypeVar("T")

_REFRESH_TIME = 5.0
_BESIDE = 0.5
"""Seconds that a node has to answer before another one is asked beside it."""
_SPARE_CONNECTIONS = 2
"""Closed readers whose connections are kept."""

Route = Callable[[float], "Steps[Connection]"]


class KafkaCluster(Runtime[KafkaOptions]):
    """Nodes, leaders, coordinators and connections.

    Attributes:
        options: as given.
        addresses: the bootstrap addresses.
        metadata: what is known of nodes, topics and leaders.
        budget: bytes that all producers may hold together.
        fetch_budget: bytes that all readers may hold together.
    """

    protocol = "kafka"
    served_by_handshake = False  # brokers answer ApiVersions without authentication

    def __init__(self, options: KafkaOptions, addresses: Sequence[Address]) -> None:
        super().__init__(options)
        self.addresses = tuple(addresses)
        self.metadata = Metadata()
        self._lock = BriefLock()
        self._known = False
        self.budget = Budget(self.loop, options.buffer_memory)
        self.fetch_budget = ReadBudget()
        self.fetch_budget.bound(options.fetch_memory)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._readers = 0
        self._spare: list[str] = []

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """Agree on versions and authenticate.

        A broker that closes the connection in the middle of that counts as refusing the credentials only until they have worked once.

        Raises:
            AuthError: credentials refused. Others: see `kafka.handshake`.
        """
        try:
            yield from handshake(conn, until, self.options)
        except Disconnected as why:
            if self._known or not conn.frames_read or self.options.mechanism is None:
                raise
            raise AuthError(why.text, peer=why.peer) from why
        self._known = True

    @staticmethod
    def expiring(conn: Connection) -> bool:
        """Return whether the connection's session is about to end."""
        agreed: wire.Agreed = conn.context
        return agreed.until <= time.monotonic()

    # --- any request ---

    def request(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Any:
        """Send any message once to the node of `route` and return its typed reply; see `KafkaClient.request`."""
        return self.drive(self.requesting(message, deadline, version=version, **route), deadline)

    def requesting(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Steps[Any]:
        """Run `request` as steps."""
        to = self._route(message, route)
        conn = yield from self.retrying(lambda: to(deadline), deadline, judge=self.while_new())
        return (yield from wire.asking(conn, message, deadline, version=version))

    def while_new(self) -> Callable[[WireprotoError], Verdict]:
        """Return a judge of errors for requests about a topic.

        That the topic is unknown is retried for `unknown_topic_timeout`, as nodes learn of a new one with a delay.
        """
        enough = time.monotonic() + self.options.unknown_topic_timeout
        return lambda why: verdict(why, final=(UnknownTopicOrPartition,) if time.monotonic() >= enough else ())

    def _route(self, message: Any, route: Mapping[str, Any]) -> Route:
        """Return the route that the arguments of `request` name, or that the message itself says."""
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

    # --- routes: steps to a connection ---

    def reach(self, route: Route, deadline: float) -> Connection:
        """Connect to the node of a route, with retries."""
        return self.drive(self.retrying(lambda: route(deadline), deadline), deadline)

    def to_any(self, until: float) -> Steps[Connection]:
        """Connect to any node: by an open connection that is not silent, if there is one.

        Else the addresses are dialled, each beside the one before where that takes long.

        Raises:
            the error that may pass soonest, when no node can be reached.
        """
        for address in self._addresses():
            conn = self.pool.peek(address)
            if conn is not None and not wire.silent(conn):
                return conn
        return (yield from self.anywhere("reaching", _itself, until))

    def to_node(self, node: int, purpose: str = "main") -> Route:
        """Return the route to a node."""
        return lambda until: self.connecting(node, purpose, until)

    def to_controller(self, until: float) -> Steps[Connection]:
        """Connect to the controller, or to any node where it is not known."""
        if self.metadata.controller not in self.metadata.nodes:
            yield from self.refreshing((), until)
        if self.metadata.controller not in self.metadata.nodes:
            return (yield from self.to_any(until))
        return (yield from self.connecting(self.metadata.controller, "main", until))

    def to_leader(self, topic: str, partition: int, purpose: str = "main") -> Route:
        """Return the route to the leader of a partition; it raises UnknownTopicOrPartition or LeaderNotAvailable where there is none."""

        def connect(until: float) -> Steps[Connection]:
            if self.metadata.leader(topic, partition) is None:
                yield from self.looking_up(topic, until)
            node = self.metadata.leader(topic, partition)
            if node is None:
                entry = self.metadata.topics.get(topic)
                exists = entry is not None and partition in entry.partitions
                raise (LeaderNotAvailable if exists else UnknownTopicOrPartition)(topic=topic, partition=partition)
            return (yield from self.connecting(node.id, purpose, until))

        return connect

    def to_coordinator(self, name: str, kind: int = GROUP, purpose: str = "main") -> Route:
        """Return the route to the coordinator of a group or transaction."""

        def connect(until: float) -> Steps[Connection]:
            found = yield from self.coordinating(name, kind, until)
            try:
                return (yield from self.connecting(found, purpose, until))
            except (ConnectError, Disconnected):  # look it up again before a retry: its node may be gone for good
                self.lost_coordinator(name, kind)
                raise

        return connect

    def connecting(self, number: int, purpose: str, until: float) -> Steps[Connection]:
        """Connect to a node for a purpose (`Pool.get`); looks its address up first when it is not known.

        Raises:
            Disconnected: there is no such node now. ConnectError: it cannot be reached; its address is looked up again. TimedOut.
        """
        if number not in self.metadata.nodes:
            yield from self.refreshing((), until)
        known = self.metadata.nodes.get(number)
        if known is None:
            raise Disconnected(f"node {number} is not in the cluster now")
        try:
            return (yield from self.pool.getting(known.address, purpose, until))
        except ConnectError:
            self.look(())  # it may have another address by now
            raise

    def coordinating(self, name: str, kind: int, until: float) -> Steps[int]:
        """Return the number of the node that coordinates a group or transaction; looked up by a shared task."""
        node = self._coordinators.get((kind, name))
        if node is not None and node in self.metadata.nodes:
            return node
        what = f"looking for the coordinator of {name!r}"
        task = self.tasks.shared(("coordinator", kind, name), lambda: self._looking(name, kind, what), what)
        return (yield from self._shared(task, until))

    def watching(self, name: str, kind: int = GROUP) -> Callable[[Connection], Steps[None]]:
        """Return the `meanwhile` of a request to a coordinator: ends it when the node does not answer and another is the coordinator."""

        def look(conn: Connection) -> Steps[None]:
            what = f"looking for the coordinator of {name!r}"
            task = self.tasks.shared(("coordinator", kind, name), lambda: self._looking(name, kind, what), what)
            try:
                node = yield from self._shared(task, self._later())
            except (TransportError, BrokerError):
                return
            known = self.metadata.nodes.get(node)
            if known is not None and peer_name(known.address) != conn.peer:
                conn.close("it does not answer, and another node is the coordinator")
                raise Disconnected(f"node {node} is the coordinator of {name!r} now", peer=conn.peer)

        return look

    def _looking(self, name: str, kind: int, what: str) -> Steps[int]:
        """Look a coordinator up (FindCoordinator), and keep it."""

        def ask(conn: Connection) -> Steps[int]:
            version = wire.version_for(conn, FindCoordinatorRequest)
            if version >= 4:
                request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(name,))
            else:
                request = FindCoordinatorRequest(key_type=kind, key=name)
            reply: FindCoordinatorResponse = yield from self.hearing(conn, request, until, version=version)
            found = reply.coordinators[0] if version >= 4 else reply
            if found.error_code:
                raise error(found.error_code, what, message=reply.NAME, peer=conn.peer)
            return self.locate(found)

        until = self._later()
        node: int = yield from self.anywhere(what, ask, until)
        if node not in self.metadata.nodes:
            yield from self.refreshing((), until)
        with self._lock:
            self._coordinators[kind, name] = node
        return node

    def locate(self, found: Any) -> int:
        """Take in a coordinator's address from FindCoordinator, where metadata may have a former one; return its number."""
        with self._lock:
            self.metadata.locate(int(found.node_id), found.host, found.port)
        return int(found.node_id)

    def lost_coordinator(self, name: str, kind: int = GROUP) -> None:
        """Forget a coordinator: it refused, or was not reached, and is looked up the next time."""
        with self._lock:
            self._coordinators.pop((kind, name), None)

    # --- metadata ---

    def look(self, topics: Iterable[str] | None, *, create: bool = False) -> Task[None]:
        """Return the task that asks for metadata; it is begun unless there is one for the same topics.

        Args:
            topics: names; an empty list asks for nodes only, None for every topic.
            create: let the broker create unknown topics, if it is set so.
        """
        named = None if topics is None else tuple(sorted(topics))
        what = "asking for metadata" + (f" of {', '.join(named[:3])}{' …' if len(named) > 3 else ''}" if named else "")
        return self.tasks.shared(("metadata", create, named), lambda: self._fetching_metadata(named, create, what), what)

    def refreshing(self, topics: Iterable[str] | None, until: float, *, create: bool = False) -> Steps[None]:
        """Ask for metadata now (`look`)."""
        yield from self._shared(self.look(topics, create=create), until)

    def refresh(self, topics: Iterable[str] | None, deadline: float, *, create: bool = False) -> None:
        """Run `refreshing` with retries, and wait for it."""
        self.drive(self.retrying(lambda: self.refreshing(topics, deadline, create=create), deadline), deadline)

    def _fetching_metadata(self, named: tuple[str, ...] | None, create: bool, what: str) -> Steps[None]:
        """Ask any node for metadata, and take it in."""

        def ask(conn: Connection) -> Steps[None]:
            version = wire.version_for(conn, MetadataRequest)
            asked = None if named is None else tuple(MetadataRequestTopic(name=name) for name in named)
            if version == 0:  # cannot ask for nodes only: an empty list means all topics
                asked = (MetadataRequestTopic(name="?"),) if named == () else asked or ()
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=create or version < 4)
            frames_before = conn.frames_read
            try:
                reply = yield from self.hearing(conn, request, until, version=version)
            except Disconnected as why:
                if self.reached or conn.frames_read > frames_before or self.options.mechanism is not None:
                    raise
                text = "the node hung up at the first request after the handshake: does it want SASL (user=…, password=…, sasl=…)?"
                raise self.hung_up("first request", conn)(text, peer=why.peer) from why
            if reply.error_code:  # from version 13 on; the response has nothing else then
                refusal = error(reply.error_code, what, message=reply.NAME, peer=conn.peer)
                if isinstance(refusal, RebootstrapRequired):
                    self._forget(str(refusal))
                raise refusal
            self._check_cluster(reply.cluster_id, conn)
            with self._lock:
                before = self.metadata.topics
                self.metadata.apply(reply, all_topics=named is None)
            self._log_moves(before)

        until = self._later()
        yield from self.anywhere(what, ask, until)

    def _check_cluster(self, claimed: str | None, conn: Connection) -> None:
        """Check that a node of this cluster answers: its old address may belong to another cluster by now, as pods' addresses may.

        Raises:
            Disconnected: it is another cluster's, and not at a bootstrap address, which the user named; the connection is closed.
        """
        known = self.metadata.cluster_id
        if claimed is None or known in (None, claimed):
            return
        text = f"a node of another cluster answers there: {claimed}, not {known}"
        if conn.peer in map(peer_name, self.addresses):
            self.log.warning(
                ("cluster", claimed),
                "%s: a node of another cluster answers there: %s, not %s; it is used, since the URL names this address",
                conn.peer,
                claimed,
                known,
            )
            self._forget(text)
            return
        with self._lock:
            self.metadata.nodes = {number: node for number, node in self.metadata.nodes.items() if peer_name(node.address) != conn.peer}
        self.log.warning(
            ("stranger", conn.peer),
            "%s: a node of another cluster answers there: %s, not %s; it is not used",
            conn.peer,
            claimed,
            known,
        )
        self.pool.drop(conn, text)
        raise Disconnected(text, peer=conn.peer)

    def _forget(self, why: str) -> None:
        """Begin again at the bootstrap addresses: the known nodes and coordinators are not this cluster's any more (KIP-1102)."""
        with self._lock:
            self.metadata.nodes = {}
            self._coordinators.clear()
        self.pool.drop_all(why)

    def looking_up(self, topic: str, until: float, *, create: bool = False) -> Steps[Topic]:
        """Look a topic up with its partitions, some of which may have no leader; waits a little for a topic that has just been created.

        Raises:
            the broker's error for it: UnknownTopicOrPartition after `options.unknown_topic_timeout` seconds. TimedOut.
        """
        enough = min(until, time.monotonic() + self.options.unknown_topic_timeout)

        answered = False

        def look() -> Steps[Topic]:
            nonlocal answered
            try:
                yield from self.refreshing((topic,), until, create=create)
                answered = True
            except TimedOut:
                if not answered or self.metadata.problem(topic) is None:
                    raise
                # the time ran out while it was asked for once more: the last response counts
            problem = self.metadata.problem(topic)
            entry = self.metadata.topics.get(topic)
            if problem is None and (entry is None or not entry.partitions):
                problem = UnknownTopicOrPartition(topic=topic)
            if isinstance(problem, UnknownTopicOrPartition):
                problem.text = f"there is no topic {topic!r}: create it, or connect with auto_create=true"
            if problem is not None:
                raise problem
            assert entry is not None
            return entry

        def judge(why: WireprotoError) -> Verdict:
            missing = time.monotonic() >= enough and not create
            return verdict(why, transient=(UnknownServerError,), final=(UnknownTopicOrPartition,) if missing else ())

        return (yield from self.retrying(look, until, judge=judge))

    def knowing(self, topic: str, until: float, partitions: Iterable[int] = ()) -> Steps[Topic]:
        """Return what is known of a topic; `looking_up` where that is nothing, or lacks any of these partitions."""
        entry = self.metadata.topics.get(topic)
        known = entry is not None and entry.partitions and self.metadata.problem(topic) is None
        if entry is None or not known or not set(partitions) <= entry.partitions.keys():
            entry = yield from self.looking_up(topic, until)
        return entry

    def bulk(self) -> str:
        """Return a purpose for connections that one reader has to itself: a kept one, whose connections are open, or a new one."""
        with self._lock:
            self._readers += 1
            return self._spare.pop() if self._spare else f"bulk {self._readers}"

    def give_back(self, purpose: str, *, keep: bool) -> None:
        """Take back the purpose of a closed reader: its connections are kept for the next one, if they are few."""
        with self._lock:
            keep = keep and len(self._spare) < _SPARE_CONNECTIONS
            if keep:
                self._spare.append(purpose)
        if not keep:
            self.drop_purpose(purpose)

    def drop_purpose(self, purpose: str) -> None:
        """Close the connections that a role had for itself."""
        self.pool.forget(purpose, "the role was closed")

    def hint(self, topic: str, partition: int, node: int, epoch: int, endpoints: Iterable[Node]) -> bool:
        """Take in the leader that a refusal names; return whether that was new. See `Metadata.hint`."""
        with self._lock:
            before = self.metadata.topics
            news = self.metadata.hint(topic, partition, node, epoch, endpoints)
        self._log_moves(before)
        return news

    def _log_moves(self, before: Mapping[str, Topic]) -> None:
        """Log the partitions whose leader is another node now."""
        for topic, partition, old, new in self.metadata.moves(before):
            self.log.info(("moved", topic, partition), "%s[%d]: the leader is node %d now, not %d", topic, partition, new, old)

    def throttled(self, reply: Any, conn: Connection) -> None:
        """Note and log that a reply says that a quota is used up: the node reads nothing more by this connection for a while."""
        if reply.throttle_time_ms:
            agreed: wire.Agreed = conn.context
            agreed.muted_until = time.monotonic() + reply.throttle_time_ms / 1000
            self.log.info(("throttled", conn.peer), "%s: throttled by a quota for %d ms", conn.peer, reply.throttle_time_ms)

    # --- asking ---

    def asking(
        self,
        make: Any,
        until: float,
        to: Route | None = None,
        *,
        kind: type[Any] | None = None,
        check: Callable[[Any], BrokerError | None] | None = None,
        refresh: Callable[[WireprotoError], Steps[object] | None] | None = None,
        cap: Callable[[], int | None] | None = None,
        final: tuple[type[BrokerError], ...] = (),
        meanwhile: Callable[[Connection], Steps[None]] | None = None,
        slow: bool = False,
        lost: LostAnswer | None = None,
    ) -> Steps[Any]:
        """Send a request and return the reply, with retries.

        Args:
            make: the message; or with `kind` its class, a function from the agreed version to it.
            until: the deadline, a time.monotonic() value.
            to: the route; any node by default.
            check: returns the reply's error as an exception, None when all is well; a retriable one is retried.
            refresh: looks up what may have changed before a retry; by default asks for the nodes.
            cap: returns the newest version to use.
            final: errors that are not retried for this request, whatever they are for others.
            meanwhile: see `wire.asking`.
            slow: whether the request says how long the node may take, and so has until the deadline, not `request_timeout`.
            lost: gets the attempts that were sent, and not answered or answered with an error that is retried.
        Raises:
            what `check` returned, when it is not retriable. UnsupportedVersion. TimedOut, or the last error, when time is over.
        """
        route = to or self.to_any
        answered = self.hearing if slow else self.answered

        def attempt() -> Steps[Any]:
            conn = yield from route(until)
            version = wire.version_for(conn, kind or make, cap() if cap is not None else None)
            message, sent = make(version) if kind is not None else make, time.monotonic()
            try:
                reply = yield from answered(conn, message, until, version=version, meanwhile=meanwhile)
                if hasattr(reply, "throttle_time_ms"):
                    self.throttled(reply, conn)
                problem = check(reply) if check is not None else None
                if problem is not None:
                    raise problem.with_context(peer=conn.peer, message=reply.NAME, version=version)
            except WireprotoError as why:
                if lost is not None and verdict(why, final=final) is not Verdict.NEVER:
                    lost.failed(why, sent)
                raise
            return reply

        again = refresh or (lambda why: self._looking_again(until))
        return self.retrying(attempt, until, again, judge=lambda why: verdict(why, final=final))

    def hearing(self, conn: Connection, message: Any, until: float, **how: Any) -> Steps[Any]:
        """Run `wire.asking`; its reply shows that a server serves this client (`reached`), so that later failures may pass."""
        reply = yield from wire.asking(conn, message, until, **how)
        self.reached = True
        return reply

    def answered(self, conn: Connection, message: Any, until: float, **how: Any) -> Steps[Any]:
        """Run `hearing`; a connection without a reply for `request_timeout` is closed, as Java's client does: the next may bring one."""
        own = min(until, self._later())
        try:
            return (yield from self.hearing(conn, message, own, **how))
        except TimedOut as why:
            if own >= until:
                raise
            text = f"{message.NAME} was not answered within request_timeout"
            conn.close(text)
            raise Disconnected(text, peer=conn.peer) from why

    def _looking_again(self, until: float) -> Steps[None]:
        """Ask for the nodes again; errors are left to the next attempt."""
        with suppress(TransportError):  # the next attempt finds out for itself
            yield from self.refreshing((), min(until, time.monotonic() + _REFRESH_TIME))

    # --- which node to ask ---

    def _later(self) -> float:
        """Return the deadline of a look-up that belongs to no caller."""
        return time.monotonic() + self.options.request_timeout

    def _addresses(self) -> list[Address]:
        """Return the addresses of all known nodes and the bootstrap addresses."""
        known = {node.address for node in self.metadata.nodes.values()}
        return [*known, *(address for address in self.addresses if address not in known)]

    def anywhere(self, what: str, ask: Callable[[Connection], Steps[T]], until: float) -> Steps[T]:
        """Return the first node's answer: connected nodes are asked first, silent ones last.

        The next node is asked beside one that takes long.

        Args:
            what: describes the request; names the tasks, one a node.
            ask: asks at a connection.
            until: the deadline, a time.monotonic() value.
        """

        def rank(address: Address) -> int:
            conn = self.pool.peek(address)
            return 1 if conn is None else 2 if wire.silent(conn) else 0

        def at(address: Address) -> Steps[T]:
            conn = yield from self.pool.getting(address, "main", until)
            return (yield from ask(conn))

        def entries() -> Iterator[tuple[str, Steps[T]]]:
            every = self._addresses()
            random.shuffle(every)
            for address in sorted(every, key=rank):
                yield f"{what} at {peer_name(address)}", at(address)

        return (yield from self.tasks.race(entries(), until, _BESIDE))

    def _shared(self, task: Task[T], until: float) -> Steps[T]:
        """Return the result of a shared task; a caller whose time is over before gets a TimedOut that says how far the task is.

        The task's own time may be shorter than the caller's, who then asks again (Unanswered).
        """
        if not (yield task, until):
            for address in self._addresses():
                if self.pool.dialling(address):
                    raise self.pool.late(address)
            raise TimedOut(f"{task.name}: no answer in time")
        try:
            return task.result()
        except TimedOut as why:
            raise Unanswered(why.text, peer=why.peer) from why


def _itself(conn: Connection) -> Steps[Connection]:
    """Return the connection, as steps."""
    yield from ()
    return conn
