"""Sets up a connection to a broker or proxy (CONNECT, credentials), and sends requests by id.

Holds what is exchanged on a fresh connection before any topic is named, the answer to AUTH_CHALLENGE later on, and `ask`, which sends a
command under a request id and returns the typed reply.

    > CONNECT     client_version, auth method and data, protocol version, feature flags, proxy_to_broker_url behind a proxy
    < CONNECTED   server_version, protocol version, max_message_size, feature flags       (or AUTH_CHALLENGE first, or ERROR with id -1)
    < AUTH_CHALLENGE  > AUTH_RESPONSE       whenever a token expires; flag 1 tells the broker that we answer it

The engine routes by request, producer and consumer id and answers PING. This module neither retries nor knows topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from wireproto._net import SERVICE, Call, Connection, Event, Mailbox, Push
from wireproto.errors import ConnectError, TimedOut, WireprotoError
from wireproto.net.offload import offload
from wireproto.net.task import Steps, first, offloaded, reply
from wireproto.url import Address

from . import PulsarApi_pb2 as api
from .codes import ServiceNotReady
from .frames import body, command_name, decode, encode, raise_error, reply_body

PROTOCOL_VERSION: Final = 21
DEFAULT_MAX_MESSAGE_SIZE: Final = 5 << 20
FRAME_PADDING: Final = 10 << 10
"""What a broker adds to its message limit for the command round it."""
NO_REQUEST: Final = -1
"""The id under which a broker answers what has none: ERROR to CONNECT."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where to open a connection: an address, and behind a proxy the broker that it forwards to.

    Attributes:
        address: host and port to dial. proxied: ``host:port`` of the broker behind it, or None.
    """

    address: Address
    proxied: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """The content of CONNECTED; kept as the connection's context.

    Attributes:
        server_version: of the broker, as text. protocol_version: a number.
        max_message_size: bytes of the largest entry. flags: names of the feature flags that are set.
    """

    server_version: str
    protocol_version: int
    max_message_size: int
    flags: frozenset[str]


class Credentials(Protocol):
    """An authentication method: its name on the wire and its data."""

    @property
    def method(self) -> str:
        """Name of the method, as CONNECT carries it."""
        ...

    def data(self) -> bytes:
        """Return the data of the method, read again at each call; may run the user's code."""
        ...


def connect_command(name: str, credentials: Credentials | None, proxied: str | None = None) -> api.CommandConnect:
    """Make CONNECT with our feature flags; never show it: it holds the credentials.

    Args:
        name: what the broker shows as the client's version. credentials: of the client, or None. proxied: the broker behind a proxy, or
            None.
    """
    flags = api.FeatureFlags(
        supports_auth_refresh=True,
        supports_broker_entry_metadata=True,
        supports_partial_producer=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )
    command = api.CommandConnect(client_version=name, protocol_version=PROTOCOL_VERSION, feature_flags=flags)
    command.auth_method_name = credentials.method if credentials else "none"
    if credentials is not None:
        command.auth_data = credentials.data()
    if proxied:
        command.proxy_to_broker_url = proxied
    return command


def auth_response(name: str, credentials: Credentials | None) -> api.CommandAuthResponse:
    """Make the answer to AUTH_CHALLENGE: the same method's data, read again."""
    data = api.AuthData(auth_method_name=credentials.method if credentials else "none")
    data.auth_data = credentials.data() if credentials else b""
    return api.CommandAuthResponse(client_version=name, protocol_version=PROTOCOL_VERSION, response=data)


def broker_info(connected: api.CommandConnected) -> BrokerInfo:
    """Return what the adapter keeps of CONNECTED."""
    flags = frozenset(field.name for field, value in connected.feature_flags.ListFields() if value is True)
    size = connected.max_message_size if connected.max_message_size > 0 else DEFAULT_MAX_MESSAGE_SIZE
    return BrokerInfo(connected.server_version, connected.protocol_version, size, flags)


def handshake(conn: Connection, until: float, name: str, credentials: Credentials | None, proxied: str | None = None) -> Steps[BrokerInfo]:
    """Send CONNECT on a fresh connection, and wait for CONNECTED. Steps. Credentials may run user code, so that happens in a worker thread.

    Args:
        conn: the connection. until: deadline, as `time.monotonic()`. name: what the broker shows as the client's version.
        credentials: of the client, or None. proxied: the broker behind a proxy, ``host:port``, or None.

    Raises:
        AuthError: the broker refused the credentials, or wants some.
        ConnectError: what answers is no Pulsar broker. Disconnected: it closed the connection.
        TimedOut: it does not answer.
    """
    box = Mailbox(conn.loop)
    conn.route(SERVICE, box)
    command = yield from offloaded(conn.loop, until, connect_command, name, credentials, proxied)
    call = conn.submit(NO_REQUEST, encode(command), mailbox=box, secret=True)
    while True:
        yield box, until
        item = box.get()
        if item is None:
            raise TimedOut("the broker did not answer CONNECT", peer=conn.peer)
        if isinstance(item, Call):
            raise _refusal(conn, item)
        base = decode(item.frame, conn.peer)
        kind = command_name(base)
        if kind == "authChallenge":
            response = yield from offloaded(conn.loop, until, auth_response, name, credentials)
            conn.send(encode(response), secret=True)
        elif kind == "connected":
            break
        elif kind is not None:
            raise ConnectError(f"the broker answered CONNECT with {kind}", peer=conn.peer)
    call.cancel()
    info = broker_info(base.connected)
    conn.context = info
    conn.cap = info.max_message_size + FRAME_PADDING
    conn.route(SERVICE, Mailbox(conn.loop, handler=_service(conn, name, credentials)))
    return info


def _refusal(conn: Connection, call: Call) -> WireprotoError:
    """Return why CONNECT failed: the broker's ERROR, or how the connection ended."""
    if call.frame is not None:
        reply = body(decode(call.frame, conn.peer))
        try:
            raise_error(reply, conn.peer)
        except WireprotoError as refused:
            return refused
        return ConnectError(f"the broker answered CONNECT with {reply.DESCRIPTOR.name}", peer=conn.peer)
    error = call.error
    return error if isinstance(error, WireprotoError) else ConnectError(str(error), peer=conn.peer)


def _service(conn: Connection, name: str, credentials: Credentials | None) -> Callable[[Any], None]:
    """Make the handler of commands that belong to no request: it answers AUTH_CHALLENGE.

    The credentials may run user code, so that a worker thread answers.
    """

    def respond() -> None:
        try:
            conn.send(encode(auth_response(name, credentials)), timeout_at=time.monotonic() + 30.0, secret=True)
        except Exception as why:  # the credentials are the user's code
            conn.close(f"no fresh credentials for the broker's AUTH_CHALLENGE: {type(why).__name__}")

    def handle(item: Any) -> None:
        if isinstance(item, Push):
            try:
                kind = command_name(decode(item.frame, conn.peer))
            except WireprotoError as why:
                conn.close(str(why))
                return
            if kind == "authChallenge":
                offload(conn.loop, respond)

    return handle


def ask(conn: Connection, command: Message, deadline: float, **context: Any) -> Any:
    """Send a command under a fresh request id and return the CommandX that answers it.

    Args:
        conn: the connection. command: its request id is set here. deadline: as `time.monotonic()`.
        context: topic, partition …: what an error should name.

    Raises:
        PulsarError: the broker's answer is an error.
        TimedOut, Disconnected: no answer.
    """
    token = conn.next_token()
    command.request_id = token  # type: ignore[attr-defined]
    try:
        frame = conn.call(token, encode(command), deadline)
    except TimedOut as why:
        raise why.with_context(message=command.DESCRIPTOR.name, **context) from None
    return reply_body(frame, conn.peer, **context)


def asking(conn: Connection, command: Message, until: float, elsewhere: Event | None = None, **context: Any) -> Steps[Any]:
    """Run `ask` as steps.

    Args:
        conn, command, context: as for `ask`. until: deadline, as `time.monotonic()`.
        elsewhere: event that is set when the broker announces that the topic is in another cluster: then it does not answer, and
            ServiceNotReady is raised at once.
    """
    token = conn.next_token()
    command.request_id = token  # type: ignore[attr-defined]
    call = conn.submit(token, encode(command))
    if elsewhere is not None:
        try:
            yield from first(conn.loop, (call, elsewhere), until)
        except BaseException:
            call.cancel()
            raise
        if elsewhere.done and not call.done:
            call.cancel()
            raise ServiceNotReady("the topic is in another cluster now", peer=conn.peer, **context)
    try:
        frame = yield from reply(call, until)
    except TimedOut as why:
        raise why.with_context(message=command.DESCRIPTOR.name, **context) from None
    return reply_body(frame, conn.peer, **context)
