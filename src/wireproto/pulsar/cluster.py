"""Holds what all roles of one client share: credentials, connections, look-up, ids, and the bound of the send buffer.

May be shared by threads. It knows no role and none of its frames.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import ClassVar

from wireproto._net import Connection
from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError
from wireproto.flow.budget import Budget
from wireproto.net.pool import Pool
from wireproto.net.retry import briefly
from wireproto.net.runtime import Runtime
from wireproto.net.task import Steps
from wireproto.url import Address

from .connection import DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING, Broker, BrokerInfo, Credentials, handshake
from .keepalive import Keepalive
from .links import Links
from .lookup import Lookup
from .options import PulsarOptions


class TokenCredentials:
    """A token, read again for every connection and every AUTH_CHALLENGE."""

    method = "token"

    def __init__(self, token: Secret) -> None:
        self._token = token

    def data(self) -> bytes:
        """Return the token; may read a file or call the user's function."""
        return self._token.reveal()


class BasicCredentials:
    """User and password, in the form that the broker's AuthenticationProviderBasic reads."""

    method = "basic"

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def data(self) -> bytes:
        """Return ``user:password``."""
        return self._user.encode() + b":" + self._password.reveal()


class TlsCredentials:
    """The client's TLS certificate as its credentials."""

    method = "tls"

    def data(self) -> bytes:
        """Return nothing: the TLS handshake has shown the certificate."""
        return b""


def credentials_of(options: PulsarOptions) -> Credentials | None:
    """Choose the method that the options name: a token before a password, and that before a certificate.

    Returns:
        None where the options have no credentials.

    Raises:
        OptionError: a user without password.
    """
    if options.token is not None:
        return TokenCredentials(options.token)
    if options.user is not None and options.password is not None:
        return BasicCredentials(options.user, options.password)
    if options.user is not None:
        raise OptionError("user without password")
    if options.tls and options.tls_cert_file is not None:
        return TlsCredentials()
    return None


class PulsarCluster(Runtime[PulsarOptions]):
    """Brokers, connections, look-up and ids of one client.

    Attributes:
        credentials: of the client, or None.
        budget: bytes that all producers together may hold.
        lookup: which broker serves a topic.
        links: informs producers of the end of a connection that several of them use.
    """

    protocol: ClassVar[str] = "pulsar"
    frame_cap = DEFAULT_MAX_MESSAGE_SIZE + FRAME_PADDING

    def __init__(self, options: PulsarOptions, addresses: Sequence[Address]) -> None:
        super().__init__(options)
        self.credentials = credentials_of(options)
        self.budget = Budget(self.loop, options.buffer_memory)
        self.lookup = Lookup(
            self.tasks, self.connecting, addresses, tls=options.tls, listener=options.listener, connect_timeout=options.connect_timeout
        )
        self.links = Links()
        self._proxied: dict[str, Pool] = {}
        self._proxied_lock = Lock()
        self._producer_ids = itertools.count(1)
        self._consumer_ids = itertools.count(1)
        self._roles_made = itertools.count(1)

    # -- connections --------------------------------------------------------------------------------------------

    def handshake(self, conn: Connection, until: float, proxied: str | None = None) -> Steps[None]:
        """Set up a fresh connection: CONNECT, then the keepalive. Steps.

        Args:
            conn: the connection. until: deadline, as `time.monotonic()`. proxied: the broker behind a proxy, ``host:port``, or None.

        Raises:
            AuthError, ConnectError, Disconnected, TimedOut: see `connection.handshake`.
        """
        yield from handshake(conn, until, self.options.client_id, self.credentials, proxied)
        Keepalive(conn, self.options.keep_alive)

    def connection(self, broker: Broker, deadline: float, purpose: str = "main") -> Connection:
        """Return the connection to a broker (`Pool.get`), through its proxy if it has one.

        Args:
            broker: where to. deadline: as `time.monotonic()`. purpose: one connection each: requests, producing, one reading role.
        """
        return self.drive(self.connecting(broker, purpose, deadline), deadline)

    def connecting(self, broker: Broker, purpose: str, until: float) -> Steps[Connection]:
        """Run `connection` as steps."""
        if broker.proxied is None:
            return self.pool.getting(broker.address, purpose, until)
        with self._proxied_lock:
            pool = self._proxied.get(broker.proxied)
            if pool is None:
                pool = self._proxied[broker.proxied] = Pool(self.tasks, partial(self.opening, proxied=broker.proxied))
        return pool.getting(broker.address, purpose, until)

    def drop(self, conn: Connection) -> None:
        """Close a connection that served one role, which is over."""
        for pool in (self.pool, *self._proxied.values()):
            pool.drop(conn, "the role was closed")

    def next_producer_id(self) -> int:
        """Return a producer id that this client has not used yet."""
        return next(self._producer_ids)

    def next_consumer_id(self) -> int:
        """Return a consumer id that this client has not used yet."""
        return next(self._consumer_ids)

    def next_role(self) -> int:
        """Return a number for a reading role, by which its own connections are named."""
        return next(self._roles_made)

    def names(self, topic: str, deadline: float, *, create: bool = True) -> list[tuple[int, str]]:
        """Return the partitions of a topic as (number, full name); (-1, name) for a topic that is not partitioned.

        Args:
            topic: any form of its name. deadline: as `time.monotonic()`; retried until then.
            create: whether the broker may create the topic.

        Raises:
            TopicNotFound: not there, and `create` is False. TransportError, PulsarError: no answer in time, or a refusal.
        """
        return self.drive(self.naming(topic, deadline, create=create), float("inf"))

    def naming(self, topic: str, until: float, *, create: bool = True) -> Steps[list[tuple[int, str]]]:
        """Run `names` as steps."""
        return self.retrying(lambda: self.lookup.naming(topic, until, create=create), until, judge=briefly())

    def finding(self, name: str, until: float) -> Steps[Broker]:
        """Find the broker that serves a topic or partition, by its full name; retry until `until`. Steps."""
        return self.retrying(lambda: self.lookup.finding(name, until), until, judge=briefly())

    def broker_info(self, deadline: float) -> BrokerInfo:
        """Return what the service address sent in CONNECTED."""
        info: BrokerInfo = self.drive(self.serving(deadline), float("inf")).context
        return info

    def serving(self, until: float) -> Steps[Connection]:
        """Return a connection to a service address; retry until `until`. Steps."""
        _, conn = yield from self.retrying(lambda: self.lookup.serving(until), until, judge=briefly())
        return conn

    def close(self) -> None:
        """Close all connections, those through proxies first; roles are closed before."""
        for pool in self._proxied.values():
            pool.close()
        super().close()
