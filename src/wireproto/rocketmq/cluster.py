"""One RocketMQ cluster, as roles use it: name servers, brokers, routes, any command.

What it is: one loop, one pool of connections, one route cache. `invoking` sends a command to an address and hands back its reply as a typed
message; `asking_names` does so with whichever name server answers: steps, as all that waits. Thread-safe. Must not: know a role.
Purposes of connections: ``main`` for short commands and sends; ``pull`` for readers (long polls, big replies); one of its own for each
consumer, since a broker tells the members of a group apart by connection.
"""

from __future__ import annotations

import functools
import os
import random
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wireproto._codec import BriefLock, ReadBudget
from wireproto.errors import AuthError, ConnectError, Malformed, TimedOut, TransportError, Unanswered, Unreachable, WireprotoError
from wireproto.flow.budget import Budget
from wireproto.net.dial import peer_name
from wireproto.net.retry import DEFAULT, Policy
from wireproto.net.runtime import Runtime
from wireproto.net.task import NEVER, Steps, Task, after, reply
from wireproto.url import Address, parse_address

from . import acl, fastjson, remoting
from .bodies import ClusterInfo, HeartbeatData, TopicRouteData
from .codes import RequestCodeNotSupported, TopicNotExist
from .dispatch import Dispatch
from .messages import GetBrokerClusterInfoRequest, GetRouteInfoByTopicRequest, HeartBeatRequest
from .options import RocketOptions
from .remoting import Command
from .route import NameServers, Route, RouteCache
from .transient_errors import passes

if TYPE_CHECKING:
    from wireproto._codec import ExtMessage
    from wireproto._net import Call, Connection, Mailbox

K = TypeVar("K")
T = TypeVar("T")
ONCE = Policy(attempts=1)
GLANCE = 1.0
"""Seconds that name servers have to answer where an older route will do."""
SOON, LATER = 1.0, 5.0
"""Seconds after which they are asked again, when they did not know the topic, or did not answer."""
SECOND_OPINION = 3.0
"""Seconds for the other name servers when one does not know a topic."""
MAKE_IT = "; admin().create_topic() makes it, sending to it does not"
"""Said where a role asks for a topic that is not there: Java's producers have brokers make one."""


@functools.lru_cache(1024)
def _parsed(address: str) -> Address:
    """Which of a program's few addresses it is, found once."""
    return parse_address(address, 0)


@dataclass(frozen=True, slots=True)
class Reply:
    """A command's answer.

    Attributes:
        message: its fields, typed; None where the command has no reply of its own.
        body: bytes after the header (JSON, stored messages, …).
        code, remark: as the server gave them; 0 but for the warnings of sends and the answers of pulls and pops.
        peer: who answered.
    """

    message: Any
    body: bytes
    code: int
    remark: str | None
    peer: str

    def json(self) -> Any:
        """The body as `fastjson.loads` reads it: bare numbers as keys are text, objects as keys are `fastjson.ObjectKey`; None if empty.

        Raises:
            Malformed, Truncated: it is no JSON.
        """
        return fastjson.loads(self.body) if self.body else None


class Watcher(Protocol):
    """A role that must know when a connection is lost."""

    def lost(self, conn: Connection) -> None:
        """Called in the I/O thread; it must not block."""
        ...


class RocketCluster(Runtime[RocketOptions]):
    """Name servers, routes and connections."""

    protocol = "rocketmq"

    def __init__(self, options: RocketOptions, name_servers: Sequence[Address]) -> None:
        super().__init__(options)
        self.frame_cap = options.max_frame
        self.budget = Budget(self.loop, options.buffer_memory)
        self.fetch_budget = ReadBudget()
        self.fetch_budget.bound(options.fetch_memory)
        self.names = NameServers(peer_name(address) for address in name_servers)
        self.routes = RouteCache(options.route_age)
        self.dispatch = Dispatch(self)
        self.serializer = remoting.BINARY if options.header == "binary" else remoting.JSON
        self._route_lock = BriefLock()
        self._numbers = 0
        self._watchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._beats: dict[Connection, Call] = {}  # heartbeats of members that are not answered

    def serving(self, until: float) -> Steps[None]:
        """See that a name server serves us. Raises ConnectError, TlsError, TimedOut, when none answers."""
        try:
            yield from self.info(until)
        except RequestCodeNotSupported as error:
            raise ConnectError("this is a broker's port: a RocketMQ URL names the name servers", peer=error.peer) from None

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """One command that every server of its kind answers: it shows that this is one, which version, and that it takes our signature."""
        if conn.peer in self.names.all():
            call = self.submit(conn, GetRouteInfoByTopicRequest(topic="TBW102"), timeout_at=until)
        else:
            call = self.submit(conn, HeartBeatRequest(), HeartbeatData(self.options.client_id).encode(), timeout_at=until)
        frame = yield from reply(call, until)
        try:
            answer = remoting.decode(frame)
        except WireprotoError as error:
            raise Unreachable(f"this is not a RocketMQ port: {error.text}", peer=conn.peer) from error
        conn.context = answer.version
        problem = remoting.error_of(answer, peer=conn.peer) if answer.code else None
        if isinstance(problem, AuthError):
            raise problem
        conn.on_lost(lambda _: self._lost(conn))

    def _lost(self, conn: Connection) -> None:
        if not self.loop.closed:
            for watcher in list(self._watchers):
                watcher.lost(conn)

    def watch(self, watcher: Watcher) -> None:
        """Tell this role of every connection that is lost, while it lives."""
        self._watchers.add(watcher)

    def watchers(self) -> list[Watcher]:
        """Those that `watch` was called with, and that live."""
        return list(self._watchers)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    # commands ------------------------------------------------------------------------------------------------------------------

    def connecting(self, address: str, until: float, purpose: str = "main") -> Steps[Connection]:
        """The open connection to ``host:port``, dialled when there is none (`Pool.getting`)."""
        return self.pool.getting(parse_address(address, 0), purpose, until)

    def connecting_all(self, addresses: Iterable[str], until: float) -> Steps[None]:
        """Open connections to those that answer, beside each other."""

        def connect(address: str) -> Steps[None]:
            with suppress(TransportError):
                yield from self.connecting(address, until)

        return self.tasks.every([(f"connecting to {address}", connect(address)) for address in addresses], NEVER)

    def dial(self, address: str, purpose: str = "main") -> Task[Connection]:
        """The task that dials it, for those who have no time to wait."""
        return self.pool.dial(_parsed(address), purpose)

    def peek(self, address: str, purpose: str = "main") -> Connection | None:
        """The open connection, or None; never dials."""
        return self.pool.peek(_parsed(address), purpose)

    def submit(
        self,
        conn: Connection,
        message: ExtMessage,
        body: bytes = b"",
        *,
        timeout_at: float,
        mailbox: Mailbox | None = None,
        context: Any = None,
    ) -> Call:
        """Send a command; its reply is the call's frame (see `read`)."""
        return self.submit_raw(conn, message.CODE, message.to_ext(), body, timeout_at=timeout_at, mailbox=mailbox, context=context)

    def submit_raw(
        self,
        conn: Connection,
        code: int,
        ext: dict[str, str],
        body: bytes,
        *,
        timeout_at: float,
        mailbox: Mailbox | None = None,
        context: Any = None,
    ) -> Call:
        """The same from bare fields, which are signed here when there are credentials."""
        token = conn.next_token()
        buffers = remoting.encode(code, token, self._signed(conn, code, ext, body), body, serializer=self.serializer)
        return conn.submit(token, buffers, mailbox, timeout_at, context, secret=self.options.security_token is not None)

    @property
    def writes_bare(self) -> bool:
        """Whether requests go out unsigned."""
        return self.options.access_key is None and self.options.security_token is None

    @property
    def writes_bare_json(self) -> bool:
        """Whether they do so under a JSON header."""
        return self.serializer == remoting.JSON and self.writes_bare

    def gathering(self, asked: Mapping[K, Steps[T]], what: str) -> Steps[dict[K, T]]:
        """What all of these steps give, which are taken beside each other, and keep their time; raises the first failure when all ended."""
        found: dict[K, T] = {}

        def take(key: K, steps: Steps[T]) -> Steps[None]:
            found[key] = yield from steps

        yield from self.tasks.every([(f"{what} of {key}", take(key, steps)) for key, steps in asked.items()], NEVER)
        return {key: found[key] for key in asked}

    def send_one_way(self, conn: Connection, message: ExtMessage, body: bytes = b"") -> None:
        """Send a command that gets no reply."""
        ext = self._signed(conn, message.CODE, message.to_ext(), body)
        conn.send(remoting.encode(message.CODE, conn.next_token(), ext, body, serializer=self.serializer, flag=remoting.ONE_WAY))

    def _signed(self, conn: Connection, code: int, ext: dict[str, str], body: bytes) -> dict[str, str]:
        options = self.options
        if options.access_key is None or options.secret_key is None:
            return ext
        if self.serializer == remoting.BINARY and code <= 0x7FFF:
            ext = {name: value for name, value in ext.items() if value}
        token = options.security_token.text() if options.security_token else None
        who = acl.Credentials(options.access_key, options.secret_key.text(), token)
        return acl.sign(ext, body, who, peer_version=conn.context)

    def read(self, conn: Connection, frame: bytes, accept: Collection[int] = (), **context: Any) -> Command:
        """Read a reply's frame; raises the typed error of its code unless that is 0 or in `accept`."""
        try:
            reply = remoting.decode(frame)
        except WireprotoError as error:
            self.pool.drop(conn, str(error))
            raise error.with_context(peer=conn.peer, **context) from None
        if conn.context is None:
            conn.context = reply.version
        if reply.code and reply.code not in accept:
            raise remoting.error_of(reply, peer=conn.peer, **context)
        return reply

    def give_up(self, conn: Connection, why: BaseException | None) -> None:
        """A command on it was not answered in its time: if nothing came for `request_timeout` the next one, as the Java client's, is to go
        by another connection."""
        if isinstance(why, TimedOut) and not conn.closed and time.monotonic() - conn.last_read >= self.options.request_timeout:
            self.let_go(conn, "a command was not answered within request_timeout")

    def beating_on(self, conn: Connection, beat: Call) -> None:
        """A member's heartbeat is on its way by this connection."""
        self._beats[conn] = beat
        after(beat, self._beaten, conn, beat)

    def _beaten(self, conn: Connection, beat: Call) -> None:
        if self._beats.get(conn) is beat:
            del self._beats[conn]

    def let_go(self, conn: Connection, reason: str) -> None:
        """Close a connection; where a member's heartbeat is on its way by it, when that is answered: see `member`."""
        beat = self._beats.get(conn)
        if beat is None or conn.closed:
            self.pool.drop(conn, reason)
        elif self.pool.release(conn):
            after(beat, conn.close, reason)
            self._lost(conn)

    def invoking(
        self,
        address: str,
        message: ExtMessage,
        body: bytes = b"",
        *,
        until: float,
        purpose: str = "main",
        accept: Collection[int] = (),
        again: bool = False,
    ) -> Steps[Reply]:
        """Send a command to ``host:port`` and wait for the reply, once.

        Args:
            again: who asks would try again: wait no longer than `request_timeout`, and tell a later end by Unanswered.
        Raises:
            TransportError: not there, lost or too late. BrokerError: its code, unless in `accept`.
        """
        conn = yield from self.connecting(address, until, purpose)
        return (yield from self.asking(conn, message, body, until=until, accept=accept, again=again))

    def asking(
        self,
        conn: Connection,
        message: ExtMessage,
        body: bytes = b"",
        *,
        until: float,
        accept: Collection[int] = (),
        again: bool = False,
    ) -> Steps[Reply]:
        """Send a command on this connection and wait for the reply, once. `again` and errors as of `invoking`; a TransportError says
        nothing of what the other side has done."""
        own = min(until, time.monotonic() + self.options.request_timeout) if again else until
        try:
            return (yield from self.hearing(conn, message, self.submit(conn, message, body, timeout_at=own), own, accept))
        except TransportError as error:
            late = Unanswered(error.text) if own < until and isinstance(error, TimedOut) else error
            raise late.with_context(peer=conn.peer, message=type(message).NAME) from None

    def hearing(self, conn: Connection, message: ExtMessage, call: Call, until: float, accept: Collection[int] = ()) -> Steps[Reply]:
        """Wait for the reply to a command that was submitted. Raises as `asking`."""
        try:
            command = self.read(conn, (yield from reply(call, until)), accept, message=type(message).NAME)
        except TransportError as error:
            self.give_up(conn, error)
            raise
        return Reply(_fields(message, command), bytes(command.body), command.code, command.remark, conn.peer)

    def asking_names(
        self,
        message: ExtMessage,
        body: bytes = b"",
        *,
        until: float,
        accept: Collection[int] = (),
        policy: Policy = DEFAULT,
    ) -> Steps[Reply]:
        """Ask the name servers in turn, until one answers or the deadline comes. One that knows no topic says nothing of the others."""

        def attempt() -> Steps[Reply]:
            problem: WireprotoError | None = None
            unknown: TopicNotExist | None = None
            order = self.names.order()
            for left, address in zip(range(len(order), 0, -1), order, strict=True):
                now = time.monotonic()
                share = (min(until - now, SECOND_OPINION) if unknown else until - now) / left
                try:
                    found = yield from self.invoking(address, message, body, until=now + share, accept=accept)
                except TopicNotExist as error:
                    unknown = error
                except WireprotoError as error:
                    if not passes(error):
                        raise
                    problem = error if problem is None or problem.lasting else problem
                else:
                    self.names.worked(address)
                    return found
            if unknown is not None:
                raise unknown
            assert problem is not None
            raise problem

        return self.retrying(attempt, until, policy=policy)

    # routes --------------------------------------------------------------------------------------------------------------------

    def route(self, topic: str, deadline: float, *, fresh: bool = False) -> Route:
        """`routing`, in the caller's thread."""
        return self.drive(self.routing(topic, deadline, fresh=fresh), deadline)

    def routing(self, topic: str, until: float, *, fresh: bool = False) -> Steps[Route]:
        """Where a topic lives: cached for half a minute, or until something refused.

        Name servers are asked, not depended on: where they are silent, or were just started and know nothing yet, the last route holds,
        and they are asked again a little later.

        Args:
            fresh: what they say now, or their error.
        Raises:
            TopicNotExist: no name server knows it, and none has.
        """
        now = time.monotonic()
        known = None if fresh else self.routes.known(topic)
        if known is None:
            return (yield from self._looking_up(topic, until, DEFAULT))
        if self.routes.fresh(topic, now) is None:
            try:
                return (yield from self._looking_up(topic, min(until, now + GLANCE), ONCE))
            except TopicNotExist:
                self.routes.missed(topic, now, now + SOON)
            except WireprotoError as why:
                if not passes(why):
                    raise
                self.routes.put_off(topic, time.monotonic() + LATER)
        return known

    def _looking_up(self, topic: str, until: float, policy: Policy) -> Steps[Route]:
        message = GetRouteInfoByTopicRequest(topic=topic, accept_standard_json_only=True)
        try:
            reply = yield from self.asking_names(message, until=until, policy=policy)
        except TopicNotExist as error:
            error.text += MAKE_IT
            raise error.with_context(topic=topic) from None
        data = TopicRouteData.decode(reply.body)
        with self._route_lock:
            return self.routes.learn(topic, data, time.monotonic())

    def number(self, topic: str, homes: Iterable[tuple[str, int]]) -> Route:
        """The last known route, with partitions for these queues (broker, queue id) too."""
        with self._route_lock:
            return self.routes.number(topic, homes)

    def info(self, until: float) -> Steps[ClusterInfo]:
        """Every broker that the name server knows."""
        return ClusterInfo.decode((yield from self.asking_names(GetBrokerClusterInfoRequest(), until=until)).body)

    def masters(self, until: float) -> Steps[list[str]]:
        """Addresses of all masters, in order of their brokers' names."""
        brokers = (yield from self.info(until)).brokers
        return [address for name in sorted(brokers) if (address := brokers[name].master)]

    def next_id(self) -> str:
        """A client id that no other member of any group has: ``name@process#number#random``."""
        self._numbers += 1
        return f"{self.options.client_id}@{os.getpid()}#{self._numbers}#{random.getrandbits(48):012x}"


def _fields(message: ExtMessage, command: Command) -> Any:
    """The reply's fields, typed; None where the command has none, or an answer that is no success left them out."""
    kind = getattr(type(message), "RESPONSE", None)
    if kind is None:
        return None
    try:
        return kind.from_ext(command.ext)
    except Malformed:
        if command.code:
            return None
        raise
