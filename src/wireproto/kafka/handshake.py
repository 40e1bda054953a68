"""Prepares a connection for its first request: versions, then authentication.

    ApiVersions (newest; v0 when that is refused or not understood)
    SaslHandshake v1, SaslAuthenticate …            only when credentials are given

Steps of a task over a fresh connection, with a deadline; they do not reconnect, block, or show credentials.
"""

from __future__ import annotations

import base64
import random
import secrets
import time
from typing import TYPE_CHECKING

from .._version import __version__
from ..errors import ConnectError, Disconnected, OptionError, ProtocolError, Unreachable
from ..net.task import Steps, offloaded, reply
from . import wire
from .codes import error
from .messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse
from .versions import Versions, read_versions

if TYPE_CHECKING:
    from .._net import Connection
    from ..auth import Mechanism
    from .options import KafkaOptions

_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ASKED_IN = 4  # brokers since 3.9 know it; version 5 only adds a check of the node's identity, and older brokers would be asked twice
_USED = 0.85, 0.95
"""The part of a session that is used, random between these as in Java's client, so that connections are not all renewed at once."""
_NOTHING_KNOWN = Versions({ApiVersionsRequest.API_KEY: (0, _ASKED_IN)})


def handshake(conn: Connection, until: float, options: KafkaOptions) -> Steps[None]:
    """Make a fresh connection ready for requests; `conn.context` is then an `Agreed`.

    Raises:
        Unreachable: what answers does not speak Kafka. AuthError: credentials refused, or missing. TimedOut.
        Disconnected: also where the broker closes the connection instead of answering to credentials, which old brokers do to refuse them,
            and all do when they shut down.
    """
    agreed = wire.Agreed(_NOTHING_KNOWN, options.client_id.encode())
    conn.context = agreed
    agreed.versions = yield from ask_versions(conn, until)
    mechanism = options.mechanism
    if mechanism is not None:
        yield from authenticate(conn, mechanism, make_mechanism(mechanism, options), until)


def ask_versions(conn: Connection, until: float) -> Steps[Versions]:
    """Ask the node for the versions that it speaks, by a version of ApiVersions that most know and then by version 0.

    Raises:
        Unreachable: what answers does not speak Kafka. ConnectError: the node refuses both. TimedOut, Disconnected.
    """
    agreed: wire.Agreed = conn.context
    for version in (_ASKED_IN, 0):
        request = (
            ApiVersionsRequest(client_software_name="wireproto", client_software_version=__version__) if version else ApiVersionsRequest()
        )
        token = conn.next_token()
        call = conn.submit(token, wire.frame(request, version, token, agreed.client_id), timeout_at=until)
        data = yield from reply(call, until)
        try:
            found = read_versions(data, version)
        except ProtocolError as why:
            raise Unreachable(f"what answers there does not speak Kafka: {why.text}", peer=conn.peer) from why
        if found is not None:
            return found
    raise ConnectError("the node refused ApiVersions", peer=conn.peer)


def authenticate(conn: Connection, name: str, mechanism: Mechanism, until: float) -> Steps[None]:
    """Run the SASL exchange, once a connection.

    Where the broker limits a session (KIP-368), the connection is not authenticated again: some time before the session's end
    (`Agreed.until`) the client makes a new one, with a new token where `token` is a callable. After the end the broker closes the
    connection at the next request, unserved. The mechanism runs in a worker thread: it may derive keys, ask for a token by HTTP, or call
    the user's code.

    Raises:
        AuthError: credentials refused, or the mechanism not offered. Disconnected: the broker closed the connection. TimedOut.
    """
    try:
        offer: SaslHandshakeResponse = yield from wire.asking(conn, SaslHandshakeRequest(mechanism=name), until, version=1)
        if offer.error_code:
            offered = ", ".join(offer.mechanisms) or "none"
            raise error(offer.error_code, f"{name}; the broker offers {offered}", message=offer.NAME, peer=conn.peer)
        token = yield from offloaded(conn.loop, until, mechanism.start)
        while True:
            asked = time.monotonic()
            answer: SaslAuthenticateResponse = yield from wire.asking(conn, SaslAuthenticateRequest(auth_bytes=token), until)
            if answer.error_code:
                text = answer.error_message or "the broker refused the credentials"
                raise error(answer.error_code, text, message=answer.NAME, peer=conn.peer)
            challenge = bytes(answer.auth_bytes)
            if answer.session_lifetime_ms:
                agreed: wire.Agreed = conn.context
                agreed.until = asked + answer.session_lifetime_ms / 1000 * random.uniform(*_USED)
            if mechanism.done and not challenge:
                break
            token = yield from offloaded(conn.loop, until, mechanism.step, challenge)
            if mechanism.done:
                break
    except Disconnected as why:
        raise Disconnected(
            f"the broker closed the connection during {name}: wrong credentials, or no SASL on this listener", peer=conn.peer
        ) from why


def make_mechanism(name: str, options: KafkaOptions) -> Mechanism:
    """Make the client side of a SASL mechanism. Raises OptionError when credentials are missing."""
    if name == "OAUTHBEARER":
        if options.token is None:
            raise OptionError("OAUTHBEARER needs a token: a value, env:NAME, file:PATH or a callable")
        from ..auth.oauth import OAuthBearer

        return OAuthBearer(options.token, options.sasl_extensions)
    if options.user is None or options.password is None:
        raise OptionError(f"{name} needs user and password")
    if name == "PLAIN":
        from ..auth.plain import Plain

        return Plain(options.user, options.password)
    from ..auth.scram import Scram

    nonce = base64.b64encode(secrets.token_bytes(18)).decode()
    return Scram(_SCRAM[name], options.user, options.password, nonce)
