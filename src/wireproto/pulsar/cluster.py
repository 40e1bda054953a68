"""One Pulsar cluster, as roles use it: credentials, connections, look-up, ids, the send buffer's bound.

What it is: what all roles of one program share. Thread-safe. Must not: know a role, or its frames.
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
    """A token, read anew for every connection and every AUTH_CHALLENGE."""

    method = "token"

    def __init__(self, token: Secret) -> None:
        self._token = token

    def data(self) -> bytes:
        return self._token.reveal()


class BasicCredentials:
    """User and password, as the broker's AuthenticationProviderBasic reads them."""

    method = "basic"

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def data(self) -> bytes:
        return self._user.encode() + b":" + self._password.reveal()


class TlsCredentials:
    """The client certificate is the credential."""

    method = "tls"

    def data(self) -> bytes:
        return b""


def credentials_of(options: PulsarOptions) -> Credentials | None:
    """The method that the options speak of; a token goes before a password, that before a certificate."""
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
    """Brokers, connections, look-up and ids.

    Attributes:
        budget: bytes that all producers may hold. lookup: which broker serves a topic.
        links: who hears of the end of a connection that several producers use.
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
        yield from handshake(conn, until, self.options.client_id, self.credentials, proxied)
        Keepalive(conn, self.options.keep_alive)

    def connection(self, broker: Broker, deadline: float, purpose: str = "main") -> Connection:
        """The connection to a broker (`Pool.get`), through its proxy if it has one; one a purpose: requests, producing, a reading role."""
        return self.drive(self.connecting(broker, purpose, deadline), deadline)

    def connecting(self, broker: Broker, purpose: str, until: float) -> Steps[Connection]:
        """`connection`, as steps."""
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
        return next(self._producer_ids)

    def next_consumer_id(self) -> int:
        return next(self._consumer_ids)

    def next_role(self) -> int:
        return next(self._roles_made)

    def names(self, topic: str, deadline: float, *, create: bool = True) -> list[tuple[int, str]]:
        """Partitions of a topic as (number, full name); retries until `deadline`."""
        return self.drive(self.naming(topic, deadline, create=create), float("inf"))

    def naming(self, topic: str, until: float, *, create: bool = True) -> Steps[list[tuple[int, str]]]:
        """`names`, as steps."""
        return self.retrying(lambda: self.lookup.naming(topic, until, create=create), until, judge=briefly())

    def finding(self, name: str, until: float) -> Steps[Broker]:
        """The broker that serves a topic or partition, by its full name; retries until then."""
        return self.retrying(lambda: self.lookup.finding(name, until), until, judge=briefly())

    def broker_info(self, deadline: float) -> BrokerInfo:
        """What the service address told at CONNECTED."""
        info: BrokerInfo = self.drive(self.serving(deadline), float("inf")).context
        return info

    def serving(self, until: float) -> Steps[Connection]:
        """A connection to a service address; retries until then."""
        _, conn = yield from self.retrying(lambda: self.lookup.serving(until), until, judge=briefly())
        return conn

    def close(self) -> None:
        for pool in self._proxied.values():
            pool.close()
        super().close()
