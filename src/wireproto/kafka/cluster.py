"""One Kafka cluster, as roles use it.

What it is: nodes found and kept, requests sent to the node they belong to. Roles ask for a connection (`connecting`), for leaders
(`metadata`, `refreshing`), or have it do a whole request with retries (`asking`): steps all of them, for operations and tasks. Metadata and
coordinators are looked up by tasks that the client owns: what several want is asked once, and where a node does not answer at once,
another one is asked beside it. Thread-safe.
May assume: the engine's pool and retry policy. Must not: know a role, or keep records.

    route         node
    any           one that is connected and not silent, else the first of bootstrap addresses and known nodes, in random order
    controller    Metadata's controller; in KRaft clusters any broker, which passes it on
    leader        of a topic's partition
    coordinator   FindCoordinator's answer for a group or transaction, kept until it refuses, at the address that stands there
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
    from ..url import Address

T = TypeVar("T")

_REFRESH_TIME = 5.0
_BESIDE = 0.5
"""Seconds that a node has to answer before another one is asked beside it."""
_SPARE = 2
"""Readers that were closed whose connections are kept."""

Route = Callable[[float], "Steps[Connection]"]


class KafkaCluster(Runtime[KafkaOptions]):
    """Nodes, leaders, coordinators and connections.

    Attributes:
        options: as given. metadata: what is known of nodes, topics and leaders.
        budget, fetch_room: what all producers, all readers may hold together.
    """

    protocol = "kafka"
    served_by_handshake = False  # versions are told to everybody

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

        A broker that hangs up in the middle of that is a matter of credentials only until they have worked once.
        """
        try:
            yield from handshake(conn, until, self.options)
        except Disconnected as why:
            if self._known or not conn.frames_read or self.options.mechanism is None:
                raise
            raise AuthError(why.text, peer=why.peer) from why
        self._known = True

    @staticmethod
    def worn(conn: Connection) -> bool:
        """Whether its session is about to end."""
        agreed: wire.Agreed = conn.context
        return agreed.until <= time.monotonic()

    # --- any request ---

    def request(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Any:
        """Send any message once to the node of `route` and return its typed reply; see `KafkaClient.request`."""
        return self.drive(self.requesting(message, deadline, version=version, **route), deadline)

    def requesting(self, message: Any, deadline: float, *, version: int | None = None, **route: Any) -> Steps[Any]:
        """`request`, as steps."""
        to = self._route(message, route)
        conn = yield from self.retrying(lambda: to(deadline), deadline, judge=self.while_new())
        return (yield from wire.asking(conn, message, deadline, version=version))

    def while_new(self) -> Callable[[WireprotoError], Verdict]:
        """A judge of what is asked of a topic: that it is unknown passes for `unknown_topic_timeout`, in which nodes hear of a new one."""
        enough = time.monotonic() + self.options.unknown_topic_timeout
        return lambda why: verdict(why, final=(UnknownTopicOrPartition,) if time.monotonic() >= enough else ())

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

    # --- routes: steps to a connection ---

    def reach(self, route: Route, deadline: float) -> Connection:
        """The connection at the end of a route, with retries."""
        return self.drive(self.retrying(lambda: route(deadline), deadline), deadline)

    def to_any(self, until: float) -> Steps[Connection]:
        """A connection to any node: an open one that is not silent, if there is any. The next address is dialled beside the one before
        when that takes long. Raises the failure that may pass soonest when none can be reached."""
        for address in self._addresses():
            conn = self.pool.peek(address)
            if conn is not None and not wire.silent(conn):
                return conn
        return (yield from self.anywhere("reaching", _itself, until))

    def to_node(self, node: int, purpose: str = "main") -> Route:
        return lambda until: self.connecting(node, purpose, until)

    def to_controller(self, until: float) -> Steps[Connection]:
        if self.metadata.controller not in self.metadata.nodes:
            yield from self.refreshing((), until)
        if self.metadata.controller not in self.metadata.nodes:
            return (yield from self.to_any(until))
        return (yield from self.connecting(self.metadata.controller, "main", until))

    def to_leader(self, topic: str, partition: int, purpose: str = "main") -> Route:
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
        def connect(until: float) -> Steps[Connection]:
            found = yield from self.coordinating(name, kind, until)
            try:
                return (yield from self.connecting(found, purpose, until))
            except (ConnectError, Disconnected):  # whoever tries again asks who it is now: its node may be gone for good
                self.lost_coordinator(name, kind)
                raise

        return connect

    def connecting(self, number: int, purpose: str, until: float) -> Steps[Connection]:
        """The connection to a node for a purpose (`Pool.get`); looks its address up first when it is not known."""
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
        """Number of the node that coordinates a group or transaction; looked up by a task that is shared."""
        node = self._coordinators.get((kind, name))
        if node is not None and node in self.metadata.nodes:
            return node
        what = f"looking for the coordinator of {name!r}"
        task = self.tasks.shared(("coordinator", kind, name), lambda: self._looking(name, kind, what), what)
        return (yield from self._shared(task, until))

    def watching(self, name: str, kind: int = GROUP) -> Callable[[Connection], Steps[None]]:
        """For `asking` and `wire.asking`: leaves a coordinator that keeps silent when others say that it is another node now."""

        def look(conn: Connection) -> Steps[None]:
            what = f"looking for the coordinator of {name!r}"
            task = self.tasks.shared(("coordinator", kind, name), lambda: self._looking(name, kind, what), what)
            try:
                node = yield from self._shared(task, self._later())
            except (TransportError, BrokerError):
                return
            known = self.metadata.nodes.get(node)
            if known is not None and peer_name(known.address) != conn.peer:
                conn.close("it keeps silent, and another node is the coordinator")
                raise Disconnected(f"node {node} is the coordinator of {name!r} now", peer=conn.peer)

        return look

    def _looking(self, name: str, kind: int, what: str) -> Steps[int]:
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
        """Take in where a coordinator listens, as FindCoordinator tells: metadata may have an address that it had before. Its number."""
        with self._lock:
            self.metadata.locate(int(found.node_id), found.host, found.port)
        return int(found.node_id)

    def lost_coordinator(self, name: str, kind: int = GROUP) -> None:
        """It refused: look it up again next time."""
        with self._lock:
            self._coordinators.pop((kind, name), None)

    # --- metadata ---

    def look(self, topics: Iterable[str] | None, *, create: bool = False) -> Task[None]:
        """The task that asks for metadata, begun when there is none for the same topics.

        Args:
            topics: names; an empty list asks for nodes only, None for every topic.
            create: let the broker create unknown topics, if it is set so.
        """
        named = None if topics is None else tuple(sorted(topics))
        what = "asking for metadata" + (f" of {', '.join(named[:3])}{' …' if len(named) > 3 else ''}" if named else "")
        return self.tasks.shared(("metadata", create, named), lambda: self._telling(named, create, what), what)

    def refreshing(self, topics: Iterable[str] | None, until: float, *, create: bool = False) -> Steps[None]:
        """Ask for metadata now (`look`)."""
        yield from self._shared(self.look(topics, create=create), until)

    def refresh(self, topics: Iterable[str] | None, deadline: float, *, create: bool = False) -> None:
        """`refreshing`, with retries, waited for."""
        self.drive(self.retrying(lambda: self.refreshing(topics, deadline, create=create), deadline), deadline)

    def _telling(self, named: tuple[str, ...] | None, create: bool, what: str) -> Steps[None]:
        def ask(conn: Connection) -> Steps[None]:
            version = wire.version_for(conn, MetadataRequest)
            asked = None if named is None else tuple(MetadataRequestTopic(name=name) for name in named)
            if version == 0:  # cannot ask for nodes only: an empty list means all topics
                asked = (MetadataRequestTopic(name="?"),) if named == () else asked or ()
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=create or version < 4)
            heard = conn.frames_read
            try:
                reply = yield from self.hearing(conn, request, until, version=version)
            except Disconnected as why:
                if self.reached or conn.frames_read > heard or self.options.mechanism is not None:
                    raise
                text = "the node hung up at the first request after the handshake: does it want SASL (user=…, password=…, sasl=…)?"
                raise self.hung_up("first request", conn)(text, peer=why.peer) from why
            if reply.error_code:  # from version 13, and nothing else is told then
                refusal = error(reply.error_code, what, message=reply.NAME, peer=conn.peer)
                if isinstance(refusal, RebootstrapRequired):
                    self._forget(str(refusal))
                raise refusal
            self._know(reply.cluster_id, conn)
            with self._lock:
                before = self.metadata.topics
                self.metadata.apply(reply, all_topics=named is None)
            self._tell_moves(before)

        until = self._later()
        yield from self.anywhere(what, ask, until)

    def _know(self, claimed: str | None, conn: Connection) -> None:
        """Whether it is a node of this cluster that answers: its old address may be another one's by now, as those of pods may.

        Raises:
            Disconnected: it is another's, and not at an address that the user named, whose word counts; the connection is closed.
        """
        known = self.metadata.cluster_id
        if claimed is None or known in (None, claimed):
            return
        text = f"a node of another cluster answers there: {claimed}, not {known}"
        if conn.peer in map(peer_name, self.addresses):
            self.log.warning(
                ("cluster", claimed),
                "%s: a node of another cluster answers there: %s, not %s; it is taken for the one that was asked for",
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
            "%s: a node of another cluster answers there: %s, not %s; it is left alone",
            conn.peer,
            claimed,
            known,
        )
        self.pool.drop(conn, text)
        raise Disconnected(text, peer=conn.peer)

    def _forget(self, why: str) -> None:
        """Begin again at the bootstrap addresses: what nodes there are, and who coordinates, is not this cluster's any more. KIP-1102."""
        with self._lock:
            self.metadata.nodes = {}
            self._coordinators.clear()
        self.pool.drop_all(why)

    def looking_up(self, topic: str, until: float, *, create: bool = False) -> Steps[Topic]:
        """A topic with its partitions, all of them led; waits a little for a topic that has just been made.

        Raises:
            the broker's error for it: UnknownTopicOrPartition after `options.unknown_topic_timeout` seconds.
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
                # the time ran out while it was asked for once more: what was told last is the answer
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
            return verdict(why, passing=(UnknownServerError,), final=(UnknownTopicOrPartition,) if missing else ())

        return (yield from self.retrying(look, until, judge=judge))

    def knowing(self, topic: str, until: float, partitions: Iterable[int] = ()) -> Steps[Topic]:
        """What is known of a topic; `looking_up` where that is nothing, or lacks any of these partitions."""
        entry = self.metadata.topics.get(topic)
        known = entry is not None and entry.partitions and self.metadata.problem(topic) is None
        if entry is None or not known or not set(partitions) <= entry.partitions.keys():
            entry = yield from self.looking_up(topic, until)
        return entry

    def bulk(self) -> str:
        """A purpose for connections that one reader has to itself: a kept one, so that they are there, or a new one."""
        with self._lock:
            self._readers += 1
            return self._spare.pop() if self._spare else f"bulk {self._readers}"

    def give_back(self, purpose: str, *, keep: bool) -> None:
        """The reader was closed: its connections are kept for the next one, if they are few."""
        with self._lock:
            keep = keep and len(self._spare) < _SPARE
            if keep:
                self._spare.append(purpose)
        if not keep:
            self.drop_purpose(purpose)

    def drop_purpose(self, purpose: str) -> None:
        """Close the connections that a role had for itself."""
        self.pool.forget(purpose, "the role was closed")

    def hint(self, topic: str, partition: int, node: int, epoch: int, endpoints: Iterable[Node]) -> bool:
        """A refusal told who leads now; whether that was news."""
        with self._lock:
            before = self.metadata.topics
            news = self.metadata.hint(topic, partition, node, epoch, endpoints)
        self._tell_moves(before)
        return news

    def _tell_moves(self, before: Mapping[str, Topic]) -> None:
        for topic, partition, old, new in self.metadata.moves(before):
            self.log.info(("moved", topic, partition), "%s[%d]: the leader is node %d now, not %d", topic, partition, new, old)

    def throttled(self, reply: Any, conn: Connection) -> None:
        """Note, and tell of, a reply that says that a quota is used up: the node reads nothing more by this connection for a while."""
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
    ) -> Steps[Any]:
        """The reply to a request, with retries.

        Args:
            make: the message; or with `kind` its class, a function from the agreed version to it.
            to: the route; any node by default.
            check: the reply's error as an exception, None when all is well; what is retriable is retried.
            refresh: looks up anew before a retry; by default forgets nothing and asks for the nodes.
            cap: the newest version to use.
            final: errors that do not pass for this request, whatever they are for others.
            meanwhile: see `wire.asking`.
            slow: the node is told how long it may take, and has all of that.
        """
        route = to or self.to_any
        answered = self.hearing if slow else self.answered

        def attempt() -> Steps[Any]:
            conn = yield from route(until)
            version = wire.version_for(conn, kind or make, cap() if cap is not None else None)
            message = make(version) if kind is not None else make
            reply = yield from answered(conn, message, until, version=version, meanwhile=meanwhile)
            if hasattr(reply, "throttle_time_ms"):
                self.throttled(reply, conn)
            problem = check(reply) if check is not None else None
            if problem is not None:
                raise problem.with_context(peer=conn.peer, message=reply.NAME, version=version)
            return reply

        again = refresh or (lambda why: self._looking_again(until))
        return self.retrying(attempt, until, again, judge=lambda why: verdict(why, final=final))

    def hearing(self, conn: Connection, message: Any, until: float, **how: Any) -> Steps[Any]:
        """`wire.asking`, whose answer shows that a server serves this client (`reached`): what fails from then on may pass."""
        reply = yield from wire.asking(conn, message, until, **how)
        self.reached = True
        return reply

    def answered(self, conn: Connection, message: Any, until: float, **how: Any) -> Steps[Any]:
        """`hearing`, but a connection that brings no answer for `request_timeout` is given up, as the Java client does: the next one
        may be heard."""
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
        with suppress(TransportError):  # the next attempt finds out for itself
            yield from self.refreshing((), min(until, time.monotonic() + _REFRESH_TIME))

    # --- whom to ask ---

    def _later(self) -> float:
        """Until when a look-up goes on that belongs to no caller."""
        return time.monotonic() + self.options.request_timeout

    def _addresses(self) -> list[Address]:
        known = {node.address for node in self.metadata.nodes.values()}
        return [*known, *(address for address in self.addresses if address not in known)]

    def anywhere(self, what: str, ask: Callable[[Connection], Steps[T]], until: float) -> Steps[T]:
        """What the first node answers: those that are connected first, those that are silent last. The next one is asked beside one that
        takes long.

        Args:
            what: is done; names the tasks, one a node. ask: asks at a connection.
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
        """What a task of ours returns; who has no time for that is told how far it is. Its own time is shorter: who has more asks again."""
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
    yield from ()
    return conn
