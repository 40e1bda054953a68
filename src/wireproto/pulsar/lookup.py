"""Looks up which broker serves a topic, how many partitions it has, and which topics there are.

Sends PARTITIONED_METADATA, LOOKUP with its redirects, and GET_TOPICS_OF_NAMESPACE over a connection to any service address; each as steps,
and some as a call of the thread that asks.

    LOOKUP_RESPONSE   Redirect: ask again at the given broker, with the given `authoritative`; at most 20 times
                      Connect:  that broker serves the topic
                      proxy_through_service_url: open the connection to the service address, and name the broker in CONNECT
    no answer         the next service address is asked the next time; each has a share of the time
    TOPIC_MIGRATED    the topic has moved to another cluster: it is looked up there from now on

`connecting(broker, purpose, until)` gives a connection after its handshake. The module does not retry, and keeps no result but migrations:
a topic may move at any time.
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

    def __call__(self, broker: Broker, purpose: str, until: float) -> Steps[Connection]:
        """Return a connection to the broker for this purpose, after its handshake. Steps."""
        ...


class Lookup:
    """Requests about topics, to whichever service address answers.

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
        self._silent: set[Address] = set()  # service addresses that did not answer their last request
        self._migrated: dict[tuple[str, int], Address] = {}  # by full name, of producers or consumers

    # -- operations of the caller's thread ----------------------------------------------------------------------

    def service(self, deadline: float) -> tuple[Address, Connection]:
        """Return a service address and a connection to it (`Pool.get`): the address that worked last, else the next; by `deadline`."""
        return self._tasks.drive(self.serving(deadline), deadline)

    def broker(self, topic: str, deadline: float) -> Broker:
        """Return the broker that serves a topic or partition, by its full name, by `deadline`; connections as by `Pool.get`."""
        return self._tasks.drive(self.finding(topic, deadline), deadline)

    def topics(self, namespace: str, deadline: float) -> list[str]:
        """Return the full names of the topics of a namespace, by `deadline`; the partitions of one topic give its name once."""
        return self._tasks.drive(self.listing(namespace, deadline), deadline)

    # -- steps --------------------------------------------------------------------------------------------------

    def serving(self, until: float) -> Steps[tuple[Address, Connection]]:
        """Run `service` as steps."""
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
        """Return until when to wait for one of this number of addresses."""
        now = time.monotonic()
        return min(until, now + min(self._connect_timeout, (until - now) / addresses))

    def _limit(self, until: float) -> float:
        """Return until when to wait for the service address that is asked now: the others are to have some of the time, too."""
        untried = sum(address not in self._silent for address in self._service)
        return until if len(self._service) == 1 else self._share(until, max(untried, 1))

    def _pass_over(self, address: Address) -> None:
        """Ask the next address the next time."""
        if self._service[0] == address:
            self._service = [*self._service[1:], address]

    def _asking(self, service: Address, conn: Connection, command: Message, until: float, limit: float, **context: Any) -> Steps[Any]:
        """Run `asking` on a connection to the service address or a broker that it named, no longer than `limit`.

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
        """Return the partitions of a topic: (number, full name), or (-1, name) for a topic that is not partitioned. Steps.

        A name that names a partition itself counts as a topic that is not partitioned.

        Args:
            topic: any form of its name. until: deadline, as `time.monotonic()`. create: whether the broker may create the topic.

        Raises:
            TopicNotFound: not there, and `create` is False. TransportError, PulsarError: no answer in time, or a refusal.
        """
        name = parse_topic(topic)
        if name.partition >= 0:
            return [(-1, str(name))]
        count = yield from self.counting(name, until, create=create)
        return partitions(name, count) if count else [(-1, str(name))]

    def counting(self, topic: TopicName, until: float, *, create: bool = True) -> Steps[int]:
        """Return the number of partitions of a topic; 0 when it is not partitioned. Steps.

        A topic that does not exist counts as not partitioned: it is created on use, where the broker allows that.

        Args:
            topic: its name. until: deadline, as `time.monotonic()`. create: whether the broker may create the topic.

        Raises:
            TopicNotFound: not there, and `create` is False. ServiceNotReady: the broker has no answer now.
            TransportError, PulsarError: no answer in time, or a refusal.
        """
        address, conn, limit = yield from self._there(self._grown_at(str(topic)), until)
        command = api.CommandPartitionedTopicMetadata(topic=str(topic))
        if not create:
            command.metadata_auto_creation_enabled = False
        reply = yield from self._asking(address, conn, command, until, limit, topic=str(topic))
        if reply.response == api.CommandPartitionedTopicMetadataResponse.Failed:
            raise ServiceNotReady(reply.message or "no partition metadata", peer=conn.peer, topic=str(topic))
        return int(reply.partitions)

    def growing(self, topics: Mapping[str, int], until: float) -> Steps[tuple[list[tuple[str, list[tuple[int, str]]]], bool]]:
        """Look for new partitions of these topics. Steps. What cannot be looked up now is left out.

        Args:
            topics: the number of partitions known, by topic. until: deadline, as `time.monotonic()`.

        Returns:
            (topic, its new partitions as (number, full name)) for each topic that has some; and whether every topic was answered for, which
                one
            that is gone counts as.
        """
        found, whole = [], True
        for topic, known in list(topics.items()):
            name = parse_topic(topic)
            try:
                count = yield from self.counting(name, until, create=False)
            except (Closed, Forked):
                raise
            except Exception as why:  # credentials are the user's code; it is asked again, and a role's own requests show what is wrong
                whole = whole and not isinstance(why, TransportError | ServiceNotReady)
                continue
            if count > known:
                fresh = partitions(name, count)[known:]
                self._made_at(self._grown_at(str(name)), fresh)
                found.append((topic, fresh))
        return found, whole

    def _there(self, moved: Address | None, until: float) -> Steps[tuple[Address, Connection, float]]:
        """Return the address to ask about a topic, a connection there, and until when to wait for an answer.

        The address is of the cluster that the topic has moved to, or a service address.
        """
        if moved is not None:
            return moved, (yield from self._connecting(Broker(moved), "main", until)), until
        address, conn = yield from self.serving(until)
        return address, conn, self._limit(until)

    def _grown_at(self, topic: str) -> Address | None:
        """Return the cluster in which a topic gets new partitions, once any of it has migrated."""
        return next((address for (name, _), address in self._migrated.items() if without_partition(name) == topic), None)

    def _made_at(self, address: Address | None, fresh: Sequence[tuple[int, str]]) -> None:
        """Note that the new partitions of a topic are in the cluster that it has moved to, and nowhere else."""
        if address is not None:
            for _, name in fresh:
                self._migrated |= {(name, PRODUCER): address, (name, CONSUMER): address}

    def finding(self, topic: str, until: float, kind: int = PRODUCER) -> Steps[Broker]:
        """Find the broker that serves a topic or partition, by its full name. Steps.

        Args:
            topic: full name. until: deadline, as `time.monotonic()`. kind: PRODUCER or CONSUMER, which migrate at different times.

        Raises:
            ServiceNotReady: the broker has no answer now, or redirects too often. TransportError, PulsarError: no answer in time, or a
                refusal.
        """
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
        """Run `topics` as steps."""
        address, conn = yield from self.serving(until)
        command = api.CommandGetTopicsOfNamespace(namespace=namespace, mode=api.CommandGetTopicsOfNamespace.ALL)
        reply = yield from self._asking(address, conn, command, until, self._limit(until))
        return sorted({without_partition(name) for name in reply.topics})

    # -- migration ----------------------------------------------------------------------------------------------

    def migrated(self, topic: str, command: api.CommandTopicMigrated, peer: str) -> None:
        """Note that a topic or partition has moved to another cluster (TOPIC_MIGRATED), for producers or for consumers.

        A broker announces it to producers at once, to consumers when they have read what is left. A command without an address moves
        nothing.

        Args:
            topic: full name. command: as it came. peer: named in errors.

        Raises:
            Malformed: the broker's URL does not parse.
        """
        text = command.brokerServiceUrlTls if self._tls else command.brokerServiceUrl
        if text:
            self._migrated[topic, command.resource_type] = _address(text, peer, "CommandTopicMigrated")


def partitions(topic: TopicName, count: int) -> list[tuple[int, str]]:
    """List (number, full name) of each partition."""
    return [(number, topic.of_partition(number)) for number in range(count)]


def _address(text: str, peer: str, message: str) -> Address:
    """Return the first address of a URL in a broker's command."""
    try:
        return parse(text).addresses[0]
    except Exception as why:
        raise Malformed(f"broker URL {text!r}: {why}", peer=peer, message=message) from why
