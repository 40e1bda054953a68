"""Which broker serves a topic, how many partitions it has, which topics there are.

What it is: PARTITIONED_METADATA, LOOKUP with its redirects, GET_TOPICS_OF_NAMESPACE, over a connection to any service address.

    LOOKUP_RESPONSE   Redirect: ask again at the given broker, with the given `authoritative`; at most 20 times
                      Connect:  that broker serves the topic
                      proxy_through_service_url: open the connection to the service address, and name the broker in CONNECT

May assume: `connect(broker, deadline)` gives a connection after its handshake. Must not: retry, or keep what it found: a topic may
move at any time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol

from wireproto._net import Connection
from wireproto.errors import Malformed, TransportError
from wireproto.url import Address, parse

from . import PulsarApi_pb2 as api
from .codes import ServiceNotReady
from .connection import Broker, ask
from .topics import TopicName, parse_topic, without_partition

MAX_REDIRECTS: Final = 20


class Connect(Protocol):
    """Opens or reuses a connection: `PulsarCluster.connection`."""

    def __call__(self, broker: Broker, deadline: float) -> Connection: ...


class Lookup:
    """Questions about topics, put to whichever service address answers.

    Args:
        connect: opens or reuses a connection.
        service: the addresses of the URL.
        tls: whether the TLS form of a broker's URL is wanted.
        listener: name of the advertised listener to ask for, or None.
        connect_timeout: seconds for one address, when there are several.
    """

    def __init__(
        self, connect: Connect, service: Sequence[Address], *, tls: bool, listener: str | None = None, connect_timeout: float = 10.0
    ) -> None:
        self._connect = connect
        self._service = list(service)
        self._tls = tls
        self._listener = listener
        self._connect_timeout = connect_timeout

    def service(self, deadline: float) -> tuple[Address, Connection]:
        """A connection to a service address (`Pool.get`): the last that worked, else the next."""
        tries = len(self._service)
        while True:
            address = self._service[0]
            tries -= 1
            until = deadline if tries == 0 else min(deadline, time.monotonic() + self._connect_timeout)
            try:
                return address, self._connect(Broker(address), until)
            except TransportError:
                self._service = [*self._service[1:], address] if self._service[0] == address else self._service
                if tries == 0 or time.monotonic() >= deadline:
                    raise

    def partitions(self, topic: TopicName, deadline: float, *, create: bool = True) -> int:
        """Number of partitions; 0 when the topic is not partitioned (it is then created on use, where the broker allows that).

        Raises:
            TopicNotFound: not there, and `create` is False.
        """
        _, conn = self.service(deadline)
        command = api.CommandPartitionedTopicMetadata(topic=str(topic))
        if not create:
            command.metadata_auto_creation_enabled = False
        reply = ask(conn, command, deadline, topic=str(topic))
        if reply.response == api.CommandPartitionedTopicMetadataResponse.Failed:
            raise ServiceNotReady(reply.message or "no partition metadata", peer=conn.peer, topic=str(topic))
        return int(reply.partitions)

    def broker(self, topic: str, deadline: float) -> Broker:
        """The broker that serves this topic or partition, by its full name; connections as by `Pool.get`."""
        address, conn = self.service(deadline)
        authoritative = False
        for _ in range(MAX_REDIRECTS):
            command = api.CommandLookupTopic(topic=topic, authoritative=authoritative)
            if self._listener:
                command.advertised_listener_name = self._listener
            reply = ask(conn, command, deadline, topic=topic)
            if reply.response == api.CommandLookupTopicResponse.Failed:
                raise ServiceNotReady(reply.message or "the look-up failed", peer=conn.peer, topic=topic)
            target = self._target(reply, conn.peer, address)
            if reply.response == api.CommandLookupTopicResponse.Connect:
                return target
            authoritative = reply.authoritative
            conn = self._connect(target, deadline)
        raise ServiceNotReady(f"more than {MAX_REDIRECTS} redirects", peer=conn.peer, topic=topic)

    def _target(self, reply: api.CommandLookupTopicResponse, peer: str, service: Address) -> Broker:
        text = reply.brokerServiceUrlTls if self._tls else reply.brokerServiceUrl
        if not text:
            kind = "TLS" if self._tls else "plain"
            raise ServiceNotReady(f"the topic's broker has no {kind} address", peer=peer)
        try:
            address = parse(text).addresses[0]
        except Exception as why:
            raise Malformed(f"broker URL {text!r}: {why}", peer=peer, message="CommandLookupTopicResponse") from why
        if reply.proxy_through_service_url:
            host, port = address
            return Broker(service, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return Broker(address)

    def topics(self, namespace: str, deadline: float) -> list[str]:
        """Full names of the topics of a namespace; the partitions of one topic give its name once."""
        _, conn = self.service(deadline)
        command = api.CommandGetTopicsOfNamespace(namespace=namespace, mode=api.CommandGetTopicsOfNamespace.ALL)
        reply = ask(conn, command, deadline)
        return sorted({without_partition(name) for name in reply.topics})

    def names(self, topic: str, deadline: float, *, create: bool = True) -> list[tuple[int, str]]:
        """The partitions of a topic: (number, full name), (-1, name) for a topic that is not partitioned.

        A name that names a partition itself is such a topic of its own.
        """
        name = parse_topic(topic)
        if name.partition >= 0:
            return [(-1, str(name))]
        count = self.partitions(name, deadline, create=create)
        return [(number, name.of_partition(number)) for number in range(count)] if count else [(-1, str(name))]
