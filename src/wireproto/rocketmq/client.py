"""The RocketMQ client: name servers, brokers, routes, any command; roles are made here.

What it is: one loop, one pool of connections, one route cache. `invoke` sends a command to an address and hands back its reply as a typed
message; `ask_names` does so with whichever name server answers; `request` is the public way to both.
Purposes of connections: ``main`` for short commands and sends; ``pull`` for readers (long polls, big replies); one of its own for each
consumer, since a broker tells the members of a group apart by connection.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..errors import BrokerError, OptionError, RoleUnsupported, TimedOut, TransportError, UsageError, WireprotoError
from ..net import retry
from ..net.pool import pause
from ..net.runtime import ClientBase
from ..position import EARLIEST, Where
from ..url import Address, parse_address
from . import acl, remoting
from .bodies import ClusterInfo, TopicRouteData
from .codes import TopicNotExist
from .messages import GetBrokerClusterInfoRequest, GetRouteInfoByTopicRequest
from .remoting import Command
from .route import NameServers, Route, RouteCache

if TYPE_CHECKING:
    from .._codec import ExtMessage
    from .._net import Call, Connection, Mailbox
    from ..url import Url
    from .admin import RocketAdmin
    from .consumer import RocketConsumer
    from .options import RocketOptions
    from .producer import RocketProducer
    from .queue import RocketQueueConsumer
    from .reader import RocketReader

NAME_SERVER_CODES = frozenset({100, 101, 102, 105, 106, 205, 206, 216, 219, 224, 304, 318, 319, 322, 327})
"""Commands that name servers answer; all others are for brokers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A command's answer.

    Attributes:
        message: its fields, typed.
        body: bytes after the header (JSON, stored messages, …).
        code, remark: as the server gave them; 0 but for the warnings of sends and the answers of pulls.
        peer: who answered.
    """

    message: Any
    body: bytes
    code: int
    remark: str | None
    peer: str


class RocketClient(ClientBase):
    """A program's connection to one cluster. Thread-safe."""

    protocol = "rocketmq"
    options: RocketOptions

    def __init__(self, options: RocketOptions, url: Url) -> None:
        super().__init__(options, url, framing="rocketmq", cap=options.max_frame)
        self.names = NameServers(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in url.addresses)
        self.routes = RouteCache(options.route_age)
        self.serializer = remoting.ROCKETMQ if options.header == "binary" else remoting.JSON
        self._route_lock = threading.Lock()
        self._numbers = 0
        try:
            self.ask_names(GetBrokerClusterInfoRequest(), deadline=time.monotonic() + options.connect_timeout)
        except BaseException:
            self.close(0.0)
            raise

    # commands ------------------------------------------------------------------------------------------------------------------

    def connection(self, address: str, deadline: float, purpose: str = "main") -> Connection:
        """The open connection to ``host:port``, dialled when there is none."""
        return self.pool.get(parse_address(address, 0), purpose, deadline)

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
        return conn.submit(token, buffers, mailbox, timeout_at, context)

    def send_one_way(self, conn: Connection, message: ExtMessage, body: bytes = b"") -> None:
        """Send a command that gets no reply."""
        ext = self._signed(conn, message.CODE, message.to_ext(), body)
        conn.send(
            remoting.encode(message.CODE, conn.next_token(), ext, body, serializer=self.serializer, flag=remoting.ONE_WAY)
        )

    def _signed(self, conn: Connection, code: int, ext: dict[str, str], body: bytes) -> dict[str, str]:
        options = self.options
        if options.access_key is None or options.secret_key is None:
            return ext
        if self.serializer == remoting.ROCKETMQ and code <= 0x7FFF:
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

    def invoke(
        self,
        address: str,
        message: ExtMessage,
        body: bytes = b"",
        *,
        deadline: float,
        purpose: str = "main",
        accept: Collection[int] = (),
    ) -> Reply:
        """Send a command to ``host:port`` and wait for the reply, once.

        Raises:
            TransportError: not there, lost or too late. BrokerError: its code, unless in `accept`.
        """
        conn = self.connection(address, deadline, purpose)
        call = self.submit(conn, message, body, timeout_at=deadline)
        name = type(message).NAME
        try:
            command = self.read(conn, call.result(deadline), accept, message=name)
        except TransportError as error:
            raise error.with_context(peer=address, message=name) from None
        kind = getattr(type(message), "RESPONSE", None)
        fields = kind.from_ext(command.ext) if kind is not None and _complete(command.code, accept) else None
        return Reply(fields, bytes(command.body), command.code, command.remark, conn.peer)

    def ask_names(self, message: ExtMessage, body: bytes = b"", *, deadline: float, accept: Collection[int] = ()) -> Reply:
        """Ask the name servers in turn, until one answers or the deadline comes."""

        def attempt() -> Reply:
            problem: WireprotoError | None = None
            order = self.names.order()
            for left, address in zip(range(len(order), 0, -1), order, strict=True):
                now = time.monotonic()
                try:
                    reply = self.invoke(address, message, body, deadline=now + (deadline - now) / left, accept=accept)
                except TransportError as error:
                    problem = error
                    continue
                self.names.worked(address)
                return reply
            assert problem is not None
            raise problem

        return self.with_retry(attempt, deadline)

    def with_retry(self, attempt: Any, deadline: float, refresh: Any = None) -> Any:
        """The package's retry policy, with this client's sockets read while it waits."""
        return retry.run(
            attempt, deadline, self.options.retry, refresh=refresh, pause=lambda seconds: pause(self.loop, time.monotonic() + seconds)
        )

    # routes --------------------------------------------------------------------------------------------------------------------

    def route(self, topic: str, deadline: float, *, fresh: bool = False) -> Route:
        """Where a topic lives: cached for half a minute, or until something refused.

        Raises:
            TopicNotExist: no name server knows it.
        """
        found = None if fresh else self.routes.fresh(topic, time.monotonic())
        if found is not None:
            return found
        try:
            reply = self.ask_names(GetRouteInfoByTopicRequest(topic=topic, accept_standard_json_only=True), deadline=deadline)
        except TopicNotExist as error:
            raise error.with_context(topic=topic) from None
        data = TopicRouteData.decode(reply.body)
        with self._route_lock:
            return self.routes.learn(topic, data, time.monotonic())

    def cluster(self, deadline: float) -> ClusterInfo:
        """Every broker that the name server knows."""
        return ClusterInfo.decode(self.ask_names(GetBrokerClusterInfoRequest(), deadline=deadline).body)

    def masters(self, deadline: float) -> list[str]:
        """Addresses of all masters, in order of their brokers' names."""
        brokers = self.cluster(deadline).brokers
        return [address for name in sorted(brokers) if (address := brokers[name].master)]

    # the public way to any command -----------------------------------------------------------------------------------------------

    def request(self, message: Any, *, timeout: float = 30.0, body: bytes = b"", to: str | None = None, **route: Any) -> Reply:
        """Send any command and return its typed reply.

        Args:
            message: a request of `wireproto.rocketmq.messages`.
            body: the frame's body, where the command has one.
            to: ``host:port``, ``names``, or a broker's name. Without it: a name server for its commands, otherwise the broker that leads
                the message's topic (and queue, when it names one), or the first broker.
        Returns:
            Reply: fields, body, code (0, or one of the warnings 10, 11, 12 of sends and the answers 19, 20, 21 of pulls).
        Raises:
            BrokerError: any other code.
        """
        if route:
            raise OptionError(f"unknown: {', '.join(route)}; a RocketMQ request takes timeout, body and to")
        if not hasattr(type(message), "CODE"):
            raise UsageError(f"{type(message).__name__} is not a request of RocketMQ")
        deadline = time.monotonic() + timeout
        accept = (10, 11, 12, 19, 20, 21)
        if to == "names" or (to is None and message.CODE in NAME_SERVER_CODES):
            return self.ask_names(message, body, deadline=deadline, accept=accept)
        return self.invoke(self._target(message, to, deadline), message, body, deadline=deadline, accept=accept)

    def _target(self, message: Any, to: str | None, deadline: float) -> str:
        if to is not None and ":" in to:
            return to
        brokers = None
        if to is None and isinstance(topic := getattr(message, "topic", None), str):
            with contextlib.suppress(TopicNotExist):
                brokers = self.route(topic, deadline).masters
        if brokers:
            return brokers[0]
        cluster = self.cluster(deadline).brokers
        for name in [to] if to is not None else sorted(cluster):
            if name in cluster and (address := cluster[name].master):
                return address
        raise OptionError(f"no broker {to!r} has a master; there are {', '.join(sorted(cluster)) or 'none'}")

    # roles ---------------------------------------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """A client id that no other member of any group has: ``host@process#number#random``."""
        self._numbers += 1
        return f"{self.options.client_id or 'wireproto'}@{os.getpid()}#{self._numbers}#{random.getrandbits(48):012x}"

    def producer(self, topic: str, **options: Any) -> RocketProducer:
        """See `options.ProducerOptions`."""
        from .options import ProducerOptions
        from .producer import RocketProducer

        return RocketProducer(self, topic, ProducerOptions.of(self.options, options))

    def reader(self, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, **options: Any) -> RocketReader:
        """See `options.ReaderOptions`."""
        from .options import ReaderOptions
        from .reader import RocketReader

        return RocketReader(self, topic, start, stop, ReaderOptions.of(self.options, options))

    def consumer(self, topics: str | Sequence[str], group: str, *, start: Where = EARLIEST, **options: Any) -> RocketConsumer:
        """See `options.ConsumerOptions`."""
        from .consumer import RocketConsumer
        from .options import ConsumerOptions

        names = (topics,) if isinstance(topics, str) else tuple(topics)
        return RocketConsumer(self, names, group, start, ConsumerOptions.of(self.options, options))

    def queue(self, topic: str, group: str, **options: Any) -> RocketQueueConsumer:
        """See `options.QueueOptions`."""
        from .options import QueueOptions
        from .queue import RocketQueueConsumer

        return RocketQueueConsumer(self, topic, group, QueueOptions.of(self.options, options))

    def admin(self) -> RocketAdmin:
        from .admin import RocketAdmin

        return RocketAdmin(self)

    def tree(self) -> Any:
        raise RoleUnsupported("RocketMQ has no tree", nearest="admin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _complete(code: int, accept: Collection[int]) -> bool:
    """Whether a reply of this code has the fields of a success."""
    return code == 0 or code in accept
