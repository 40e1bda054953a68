"""The client: connections, look-up, the send buffer's bound, and the roles made from it.

What it is: what all roles of one program share. Thread-safe. Must not: know frames of a role.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import WeakSet

from google.protobuf.message import Message

from wireproto._net import Connection
from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError, RoleUnsupported, WireprotoError
from wireproto.net.pool import Pool
from wireproto.net.runtime import Runtime
from wireproto.position import EARLIEST, Where
from wireproto.url import Address, Url

from .budget import Budget
from .connection import DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING, Broker, BrokerInfo, Credentials, handshake
from .lookup import Lookup
from .options import PulsarOptions

if TYPE_CHECKING:
    from wireproto._net import Framing

    from .admin import PulsarAdmin
    from .consumer import PulsarConsumer
    from .producer import PulsarProducer
    from .queue import PulsarQueue
    from .reader import PulsarReader


Role = TypeVar("Role")


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


class PulsarClient(Runtime[PulsarOptions]):
    """A client of one Pulsar cluster; see `wireproto.roles.Client`."""

    protocol: ClassVar[str] = "pulsar"
    framing: ClassVar[Framing] = "pulsar"
    frame_cap = DEFAULT_MAX_MESSAGE_SIZE + FRAME_PADDING

    def __init__(self, options: PulsarOptions, addresses: Sequence[Address]) -> None:
        super().__init__(options)
        self.credentials = credentials_of(options)
        self.budget = Budget(self.loop, options.buffer_memory)
        self.send_credit = min(1 << 16, options.buffer_memory // 64 & ~0xFFF)  # bytes of it that an open batch takes ahead
        self.lookup = Lookup(
            self.connection, addresses, tls=options.tls, listener=options.listener, connect_timeout=options.connect_timeout
        )
        self._proxied: dict[str, Pool] = {}
        self._proxied_lock = Lock()
        self._producer_ids = itertools.count(1)
        self._consumer_ids = itertools.count(1)
        self._roles_made = itertools.count(1)
        self._producers: set[PulsarProducer] = set()  # kept, so that a close sends what they still hold
        self._readers: WeakSet[Any] = WeakSet()

    @classmethod
    def connect(cls, url: Url, keywords: dict[str, Any]) -> PulsarClient:
        """Read the options and connect to one service address, so that a wrong one is told now."""
        client = cls(PulsarOptions.from_url(url, **keywords), url.addresses)
        try:
            client.lookup.service(client.deadline())
        except BaseException:
            client.close()
            raise
        return client

    # -- connections --------------------------------------------------------------------------------------------

    def handshake(self, conn: Connection, deadline: float) -> None:
        handshake(conn, deadline, self.options.client_id, self.credentials)

    def connection(self, broker: Broker, deadline: float, purpose: str = "main", patience: float = 0.0) -> Connection:
        """The connection to a broker (`Pool.get`), through its proxy if it has one; one a purpose: requests, producing, a reading role."""
        if broker.proxied is None:
            return self.pool.get(broker.address, purpose, deadline, patience=patience)
        with self._proxied_lock:
            pool = self._proxied.get(broker.proxied)
            if pool is None:
                pool = self._proxied[broker.proxied] = Pool(self.loop, self.dial, self._shake_for(broker.proxied))
        return pool.get(broker.address, purpose, deadline, patience=patience)

    def _shake_for(self, proxied: str) -> Any:
        def shake(conn: Connection, deadline: float) -> None:
            until = min(deadline, time.monotonic() + self.options.connect_timeout)
            handshake(conn, until, self.options.client_id, self.credentials, proxied)

        return shake

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
        return self.retry(lambda: self.lookup.names(topic, deadline, create=create), deadline)

    # -- roles --------------------------------------------------------------------------------------------------

    def producer(self, topic: str, *, timeout: float | None = None, **options: Any) -> PulsarProducer:
        """A producer on all partitions of `topic`; options as in `PulsarOptions`."""
        from .producer import PulsarProducer

        producer = PulsarProducer(self, topic, self.options.with_overrides(options), self.deadline(timeout))
        self._producers.add(producer)
        return producer

    def reader(
        self, topic: str, *, start: Where = EARLIEST, stop: Where | None = None, timeout: float | None = None, **options: Any
    ) -> PulsarReader:
        """Read `topic` without a subscription that stays; see `wireproto.roles.Client.reader`."""
        from .reader import PulsarReader

        return self._keep(PulsarReader(self, topic, start, stop, self.options.with_overrides(options), self.deadline(timeout)))

    def consumer(
        self, topics: str | Sequence[str], group: str, *, start: Where = EARLIEST, timeout: float | None = None, **options: Any
    ) -> PulsarConsumer:
        """Join the subscription `group` as a member that reads a log (failover, or ``mode="exclusive"``)."""
        from .consumer import PulsarConsumer

        names = [topics] if isinstance(topics, str) else list(topics)
        return self._keep(PulsarConsumer(self, names, group, start, self.options.with_overrides(options), self.deadline(timeout)))

    def queue(self, topic: str, group: str, *, timeout: float | None = None, **options: Any) -> PulsarQueue:
        """Join the subscription `group` as a worker (shared, or ``mode="key-shared"``)."""
        from .queue import PulsarQueue

        return self._keep(PulsarQueue(self, topic, group, self.options.with_overrides(options), self.deadline(timeout)))

    def admin(self) -> PulsarAdmin:
        """Topics, subscriptions and positions."""
        from .admin import PulsarAdmin

        return PulsarAdmin(self)

    def tree(self) -> Any:
        """Not a thing that Pulsar has."""
        raise RoleUnsupported("Pulsar has no tree of nodes; topics and their properties are Admin's", nearest="admin")

    def request(
        self, message: Message, *, timeout: float = 30.0, topic: str | None = None, entry: bytes | None = None, **route: Any
    ) -> Any:
        """Send any command of a client (CommandX of `PulsarApi_pb2`) and return the CommandX that answers it, None where nothing does.

        Args:
            topic: send it to the broker that serves this topic or partition, by any form of its name; None: where the command itself
                says (see ``pulsar/request.py``), else to a service address.
            entry: what follows CommandSend: checksum, metadata and payload.
        Raises:
            PulsarError: the broker's answer is an error.
            OptionError: not a command that may be sent so, or a required field is missing.
        """
        if route:
            raise OptionError(f"request takes topic= and entry=, not {', '.join(route)}")
        from .request import request

        return request(self, message, topic, entry, self.deadline(timeout))

    def broker_info(self, timeout: float | None = None) -> BrokerInfo:
        """What the service address told at CONNECTED: version, largest message, feature flags."""
        _, conn = self.lookup.service(self.deadline(timeout))
        info: BrokerInfo = conn.context
        return info

    # -- ends ---------------------------------------------------------------------------------------------------

    def _keep(self, role: Role) -> Role:
        self._readers.add(role)
        return role

    def forget(self, role: Any) -> None:
        """A role was closed by itself."""
        self._producers.discard(role)
        self._readers.discard(role)

    def close(self, timeout: float = 30.0) -> None:
        """Close every role (producers flush), then every connection; the first error is raised after all is closed."""
        if self.closed:
            return
        deadline = time.monotonic() + timeout
        first: BaseException | None = None
        for role in [*self._producers, *self._readers]:
            try:
                role.close(max(0.0, deadline - time.monotonic()))
            except WireprotoError as why:
                first = first or why
        for pool in self._proxied.values():
            pool.close()
        super().close()
        if first is not None:
            raise first
