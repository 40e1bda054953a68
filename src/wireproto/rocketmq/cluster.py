"""Sends commands to the name servers and brokers of one cluster, and keeps its connections and routes, for all roles of a client.

It has one loop, one pool of connections and one route cache. `invoking` sends a command to an address and returns its reply as a typed
message; `asking_names` asks the name servers in turn until one answers. Methods that wait are steps. Thread-safe; it knows no role.
Purposes of connections: ``main`` for short commands and sends; ``pull`` for readers (long polling, big replies); one of its own for each
consumer, since a broker distinguishes the members of a group by connection.
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
KNOWN_ROUTE_TIMEOUT = 1.0
"""Seconds that name servers have to answer where an older route is known."""
SOON, LATER = 1.0, 5.0
"""Seconds after which name servers are asked again: when they did not know the topic, and when they did not answer."""
SECOND_LOOKUP_TIMEOUT = 3.0
"""Seconds for the other name servers when one does not know a topic."""
MAKE_IT = "; admin().create_topic() makes it, sending to it does not"
"""Added to the error of a topic that does not exist: Java's producers have brokers create it."""


@functools.lru_cache(1024)
def _parsed(address: str) -> Address:
    """Parse an address, once for each of the few that a program uses."""
    return parse_address(address, 0)


@dataclass(frozen=True, slots=True)
class Reply:
    """Holds a command's answer.

    Attributes:
        message: its fields, typed; None where the command has no reply of its own.
        body: bytes after the header (JSON, stored messages, …).
        code, remark: as the server gave them; code is 0 except for the warnings of sends and the answers of pulls and pops.
        peer: address of the server.
    """

    message: Any
    body: bytes
    code: int
    remark: str | None
    peer: str

    def json(self) -> Any:
        """Return the body as `fastjson.loads` reads it; None if empty. Bare numbers as keys are text, objects as keys `fastjson.ObjectKey`.

        Raises:
            Malformed, Truncated: it is no JSON.
        """
        return fastjson.loads(self.body) if self.body else None


class Watcher(Protocol):
    """Is a role that has to know when a connection is lost."""

    def lost(self, conn: Connection) -> None:
        """Handle the loss of a connection. Called in the I/O thread; must not block."""
        ...


class RocketCluster(Runtime[RocketOptions]):
    """Keeps name servers, routes and connections, and sends commands."""

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
        """Check that a name server answers us. Raises ConnectError, TlsError, TimedOut, when none answers."""
        try:
            yield from self.info(until)
        except RequestCodeNotSupported as error:
            raise ConnectError("this is a broker's port: a RocketMQ URL names the name servers", peer=error.peer) from None

    def handshake(self, conn: Connection, until: float) -> Steps[None]:
        """Send a command that every server of its kind answers: it shows that this is one, its version, and that it accepts our signature.

        Raises:
            AuthError: it refuses our account. Unreachable: this is not a RocketMQ port.
        """
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
        """Call `lost` of this role for every connection that is lost, while the role lives."""
        self._watchers.add(watcher)

    def watchers(self) -> list[Watcher]:
        """Return the roles that `watch` was called with, and that live."""
        return list(self._watchers)

    def unwatch(self, watcher: Watcher) -> None:
        """Call `lost` of this role no more."""
        self._watchers.discard(watcher)

    # commands ------------------------------------------------------------------------------------------------------------------

    def connecting(self, address: str, until: float, purpose: str = "main") -> Steps[Connection]:
        """Return the open connection to ``host:port``, dialled when there is none (`Pool.getting`)."""
        return self.pool.getting(parse_address(address, 0), purpose, until)

    def connecting_all(self, addresses: Iterable[str], until: float) -> Steps[None]:
        """Open connections to those that answer, concurrently."""

        def connect(address: str) -> Steps[None]:
            with suppress(TransportError):
                yield from self.connecting(address, until)

        return self.tasks.every([(f"connecting to {address}", connect(address)) for address in addresses], NEVER)

    def dial(self, address: str, purpose: str = "main") -> Task[Connection]:
        """Return the task that dials an address, for callers that must not wait."""
        return self.pool.dial(_parsed(address), purpose)

    def peek(self, address: str, purpose: str = "main") -> Connection | None:
        """Return the open connection, or None; never dials."""
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
        """Send a command of bare fields, which are signed here when there are credentials; else as `submit`."""
        token = conn.next_token()
        buffers = remoting.encode(code, token, self._signed(conn, code, ext, body), body, serializer=self.serializer)
        return conn.submit(token, buffers, mailbox, timeout_at, context, secret=self.options.security_token is not None)

    @property
    def writes_bare(self) -> bool:
        """Return whether requests are sent unsigned."""
        return self.options.access_key is None and self.options.security_token is None

    @property
    def writes_bare_json(self) -> bool:
        """Return whether requests are sent unsigned and with a JSON header."""
        return self.serializer == remoting.JSON and self.writes_bare

    def gathering(self, asked: Mapping[K, Steps[T]], what: str) -> Steps[dict[K, T]]:
        """Run steps concurrently and return what each gives; raises the first error when all have ended. The steps keep their time."""
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
        account = acl.Credentials(options.access_key, options.secret_key.text(), token)
        return acl.sign(ext, body, account, peer_version=conn.context)

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
        """Close a connection on which a command was not answered in time, if nothing at all came on it for `request_timeout`.

        The next command then uses another connection, as with the Java client.
        """
        if isinstance(why, TimedOut) and not conn.closed and time.monotonic() - conn.last_read >= self.options.request_timeout:
            self.let_go(conn, "a command was not answered within request_timeout")

    def beating_on(self, conn: Connection, beat: Call) -> None:
        """Note that a member's heartbeat is under way on this connection."""
        self._beats[conn] = beat
        after(beat, self._beaten, conn, beat)

    def _beaten(self, conn: Connection, beat: Call) -> None:
        if self._beats.get(conn) is beat:
            del self._beats[conn]

    def let_go(self, conn: Connection, reason: str) -> None:
        """Close a connection; where a member's heartbeat is under way on it, after that is answered: see `member`."""
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
            address: ``host:port``. message: the request. body: the frame's body. until: deadline, a `time.monotonic()` value.
            purpose: which connection, see the module. accept: codes beside 0 that are answers.
            again: the caller tries again: wait no longer than `request_timeout`, and raise Unanswered then, if that is before `until`.
        Raises:
            TransportError: no connection, connection lost, or no answer in time. BrokerError: any other code.
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
        """Send a command on this connection and wait for the reply, once. Arguments and errors are those of `invoking`.

        After a TransportError it is not known whether the command was carried out.
        """
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
        """Ask the name servers in turn, until one answers or the deadline comes. After TopicNotExist the others are asked, too."""

        def attempt() -> Steps[Reply]:
            problem: WireprotoError | None = None
            unknown: TopicNotExist | None = None
            order = self.names.order()
            for left, address in zip(range(len(order), 0, -1), order, strict=True):
                now = time.monotonic()
                share = (min(until - now, SECOND_LOOKUP_TIMEOUT) if unknown else until - now) / left
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
        """Run `routing` in the caller's thread."""
        return self.drive(self.routing(topic, deadline, fresh=fresh), deadline)

    def routing(self, topic: str, until: float, *, fresh: bool = False) -> Steps[Route]:
        """Return a topic's route: cached for `route_age`, or until a broker refused something.

        Where name servers do not answer, or were just started and know no topic yet, the last route is used, and they are asked again a
        little later.

        Args:
            topic: name of the topic. until: deadline, a `time.monotonic()` value.
            fresh: return what the name servers say now, or raise their error.
        Raises:
            TopicNotExist: no name server knows the topic, and no route is known.
            TransportError, BrokerError: no name server answers, and no route is known.
        """
        now = time.monotonic()
        known = None if fresh else self.routes.known(topic)
        if known is None:
            return (yield from self._looking_up(topic, until, DEFAULT))
        if self.routes.fresh(topic, now) is None:
            try:
                return (yield from self._looking_up(topic, min(until, now + KNOWN_ROUTE_TIMEOUT), ONCE))
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
        """Return the last known route, with partition numbers for these queues (broker, queue id), too."""
        with self._route_lock:
            return self.routes.number(topic, homes)

    def info(self, until: float) -> Steps[ClusterInfo]:
        """Return every broker that the name server knows."""
        return ClusterInfo.decode((yield from self.asking_names(GetBrokerClusterInfoRequest(), until=until)).body)

    def masters(self, until: float) -> Steps[list[str]]:
        """Return the addresses of all masters, in order of their brokers' names."""
        return (yield from self.info(until)).masters

    def next_id(self) -> str:
        """Return a client id that no other member of any group has: ``name@process#number#random``."""
        self._numbers += 1
        return f"{self.options.client_id}@{os.getpid()}#{self._numbers}#{random.getrandbits(48):012x}"


def _fields(message: ExtMessage, command: Command) -> Any:
    """Return the reply's fields, typed; None where the command has none, or an answer with another code than 0 left them out."""
    kind = getattr(type(message), "RESPONSE", None)
    if kind is None:
        return None
    try:
        return kind.from_ext(command.ext)
    except Malformed:
        if command.code:
            return None
        raise
