"""Which broker serves a topic, how many partitions it has, which topics there are.

What it is: PARTITIONED_METADATA, LOOKUP with its redirects, GET_TOPICS_OF_NAMESPACE, over a connection to any service address; each as
steps, and as an operation of the thread that asks.

    LOOKUP_RESPONSE   Redirect: ask again at the given broker, with the given `authoritative`; at most 20 times
                      Connect:  that broker serves the topic
                      proxy_through_service_url: open the connection to the service address, and name the broker in CONNECT
    no answer         the next service address is asked the next time; each has a share of the time
    TOPIC_MIGRATED    the topic has moved to another cluster: it is looked up there from now on

May assume: `connecting(broker, purpose, until)` gives a connection after its handshake. Must not: retry, or keep what it found: a topic
may move at any time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from wireproto._net import Connection
from wireproto.errors import Closed, Forked, Malformed, TimedOut, TransportError, Unanswered
from wireproto.net.task import Steps, Tasks
from wireproto.url import Address, parse

from . import PulsarApi_pb2 as api
from .codes import ServiceNotReady
from .connection import Broker, asking
from .topics import TopicName, parse_topic, without_partition

MAX_REDIRECTS: Final = 20
PRODUCER: Final = api.CommandTopicMigrated.Producer
CONSUMER: Final = api.CommandTopicMigrated.Consumer


class Connecting(Protocol):
    """Opens or reuses a connection: `PulsarCluster.connecting`."""

    def __call__(self, broker: Broker, purpose: str, until: float) -> Steps[Connection]: ...


class Lookup:
    """Questions about topics, put to whichever service address answers.

    Args:
        tasks: of the client.
        connecting: opens or reuses a connection.
        service: the addresses of the URL.
        tls: whether the TLS form of a broker's URL is wanted.
        listener: name of the advertised listener to ask for, or None.
        connect_timeout: seconds for one address, when there are several; less where that leaves the others none.
    """

    def __init__(
        self,
        tasks: Tasks,
        connecting: Connecting,
        service: Sequence[Address],
        *,
        tls: bool,
        listener: str | None = None,
        connect_timeout: float = 10.0,
    ) -> None:
        self._tasks = tasks
        self._connecting = connecting
        self._service = list(service)
        self._tls = tls
        self._listener = listener
        self._connect_timeout = connect_timeout
        self._silent: set[Address] = set()  # service addresses that did not answer of late
        self._migrated: dict[tuple[str, int], Address] = {}  # by full name, of producers or consumers

    # -- operations of the caller's thread ----------------------------------------------------------------------

    def service(self, deadline: float) -> tuple[Address, Connection]:
        """A connection to a service address (`Pool.get`): the last that worked, else the next."""
        return self._tasks.drive(self.serving(deadline), deadline)

    def broker(self, topic: str, deadline: float) -> Broker:
        """The broker that serves this topic or partition, by its full name; connections as by `Pool.get`."""
        return self._tasks.drive(self.finding(topic, deadline), deadline)

    def topics(self, namespace: str, deadline: float) -> list[str]:
        """Full names of the topics of a namespace; the partitions of one topic give its name once."""
        return self._tasks.drive(self.listing(namespace, deadline), deadline)

    # -- steps --------------------------------------------------------------------------------------------------

    def serving(self, until: float) -> Steps[tuple[Address, Connection]]:
        """`service`."""
        tries = len(self._service)
        while True:
            address = self._service[0]
            tries -= 1
            limit = until if tries == 0 else self._share(until, tries + 1)
            try:
                conn = yield from self._connecting(Broker(address), "main", limit)
            except TransportError:
                self._pass_over(address)
                if tries == 0 or time.monotonic() >= until:
                    raise
            else:
                return address, conn

    def _share(self, until: float, addresses: int) -> float:
        """Until when one of so many addresses is waited for."""
        now = time.monotonic()
        return min(until, now + min(self._connect_timeout, (until - now) / addresses))

    def _limit(self, until: float) -> float:
        """Until when the service address is waited for that is asked now: the others are to have some of the time, too."""
        untried = sum(address not in self._silent for address in self._service)
        return until if len(self._service) == 1 else self._share(until, max(untried, 1))

    def _pass_over(self, address: Address) -> None:
        """The next one is asked the next time."""
        if self._service[0] == address:
            self._service = [*self._service[1:], address]

    def _asking(self, service: Address, conn: Connection, command: Message, until: float, limit: float, **context: Any) -> Steps[Any]:
        """`asking`, of the service address or who it names, no longer than `limit`.

        Raises:
            Unanswered: another one may be asked, until `until`. TimedOut: that is over.
        """
        try:
            reply = yield from asking(conn, command, limit, **context)
        except TimedOut:
            self._silent = {*self._silent, service} if len(self._silent) + 1 < len(self._service) else set()
            self._pass_over(service)
            late = Unanswered if limit < until else TimedOut
            raise late(f"{command.DESCRIPTOR.name} was not answered in time", peer=conn.peer, **context) from None
        self._silent = self._silent - {service}
        return reply

    def naming(self, topic: str, until: float, *, create: bool = True) -> Steps[list[tuple[int, str]]]:
        """The partitions of a topic: (number, full name), (-1, name) for a topic that is not partitioned.

        A name that names a partition itself is such a topic of its own.
        Raises:
            TopicNotFound: not there, and `create` is False.
        """
        name = parse_topic(topic)
        if name.partition >= 0:
            return [(-1, str(name))]
        count = yield from self.counting(name, until, create=create)
        return partitions(name, count) if count else [(-1, str(name))]

    def counting(self, topic: TopicName, until: float, *, create: bool = True) -> Steps[int]:
        """Number of partitions; 0 when the topic is not partitioned (it is then created on use, where the broker allows that)."""
        address, conn, limit = yield from self._there(self._grown_at(str(topic)), until)
        command = api.CommandPartitionedTopicMetadata(topic=str(topic))
        if not create:
            command.metadata_auto_creation_enabled = False
        reply = yield from self._asking(address, conn, command, until, limit, topic=str(topic))
        if reply.response == api.CommandPartitionedTopicMetadataResponse.Failed:
            raise ServiceNotReady(reply.message or "no partition metadata", peer=conn.peer, topic=str(topic))
        return int(reply.partitions)

    def growing(self, topics: Mapping[str, int], until: float) -> Steps[tuple[list[tuple[str, list[tuple[int, str]]]], bool]]:
        """(topic, its partitions) of the topics that have more than so many: those beyond. What cannot be looked up now is left out.

        Returns:
            those, and whether every topic was answered for; a topic that is gone is.
        """
        found, whole = [], True
        for topic, known in list(topics.items()):
            name = parse_topic(topic)
            try:
                count = yield from self.counting(name, until, create=False)
            except (Closed, Forked):
                raise
            except Exception as why:  # credentials are the user's code; it is asked again, and who uses the topic is told by what it gets
                whole = whole and not isinstance(why, TransportError | ServiceNotReady)
                continue
            if count > known:
                fresh = partitions(name, count)[known:]
                self._made_at(self._grown_at(str(name)), fresh)
                found.append((topic, fresh))
        return found, whole

    def _there(self, moved: Address | None, until: float) -> Steps[tuple[Address, Connection, float]]:
        """Who is asked about a topic, the cluster that it has moved to or a service address; a connection there, and until when an answer
        is waited for."""
        if moved is not None:
            return moved, (yield from self._connecting(Broker(moved), "main", until)), until
        address, conn = yield from self.serving(until)
        return address, conn, self._limit(until)

    def _grown_at(self, topic: str) -> Address | None:
        """Where a topic gets new partitions, once any of it has migrated."""
        return next((address for (name, _), address in self._migrated.items() if without_partition(name) == topic), None)

    def _made_at(self, address: Address | None, fresh: Sequence[tuple[int, str]]) -> None:
        """Partitions that a topic got in the cluster that it has moved to are nowhere else."""
        if address is not None:
            for _, name in fresh:
                self._migrated |= {(name, PRODUCER): address, (name, CONSUMER): address}

    def finding(self, topic: str, until: float, kind: int = PRODUCER) -> Steps[Broker]:
        """`broker`, for a producer or a consumer."""
        address, conn, limit = yield from self._there(self._migrated.get((topic, kind)), until)
        authoritative = False
        for _ in range(MAX_REDIRECTS):
            command = api.CommandLookupTopic(topic=topic, authoritative=authoritative)
            if self._listener:
                command.advertised_listener_name = self._listener
            reply = yield from self._asking(address, conn, command, until, limit, topic=topic)
            if reply.response == api.CommandLookupTopicResponse.Failed:
                raise ServiceNotReady(reply.message or "the look-up failed", peer=conn.peer, topic=topic)
            target = self._target(reply, conn.peer, address)
            if reply.response == api.CommandLookupTopicResponse.Connect:
                return target
            authoritative = reply.authoritative
            conn = yield from self._connecting(target, "main", until)
        raise ServiceNotReady(f"more than {MAX_REDIRECTS} redirects", peer=conn.peer, topic=topic)

    def _target(self, reply: api.CommandLookupTopicResponse, peer: str, service: Address) -> Broker:
        text = reply.brokerServiceUrlTls if self._tls else reply.brokerServiceUrl
        if not text:
            kind = "TLS" if self._tls else "plain"
            raise ServiceNotReady(f"the topic's broker has no {kind} address", peer=peer)
        address = _address(text, peer, "CommandLookupTopicResponse")
        if reply.proxy_through_service_url:
            host, port = address
            return Broker(service, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return Broker(address)

    def listing(self, namespace: str, until: float) -> Steps[list[str]]:
        address, conn = yield from self.serving(until)
        command = api.CommandGetTopicsOfNamespace(namespace=namespace, mode=api.CommandGetTopicsOfNamespace.ALL)
        reply = yield from self._asking(address, conn, command, until, self._limit(until))
        return sorted({without_partition(name) for name in reply.topics})

    # -- news ---------------------------------------------------------------------------------------------------

    def migrated(self, topic: str, command: api.CommandTopicMigrated, peer: str) -> None:
        """A topic or partition, by its full name, lives in another cluster from now on: for producers at once, for consumers when they have
        read what is left. One that names no address moves nothing."""
        text = command.brokerServiceUrlTls if self._tls else command.brokerServiceUrl
        if text:
            self._migrated[topic, command.resource_type] = _address(text, peer, "CommandTopicMigrated")


def partitions(topic: TopicName, count: int) -> list[tuple[int, str]]:
    """(number, full name) of each partition."""
    return [(number, topic.of_partition(number)) for number in range(count)]


def _address(text: str, peer: str, message: str) -> Address:
    """The first address of a URL that a broker command."""
    try:
        return parse(text).addresses[0]
    except Exception as why:
        raise Malformed(f"broker URL {text!r}: {why}", peer=peer, message=message) from why
