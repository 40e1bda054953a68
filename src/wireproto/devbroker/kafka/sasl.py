"""Authenticates clients: SASL PLAIN and OAUTHBEARER, once a test has named users or tokens.

    SaslHandshake       33 for a mechanism that is not offered; 34 on a connection that is authenticated
    SaslAuthenticate    58 for wrong credentials, and the connection is closed after the answer

Until then a connection may ask for versions and authenticate; anything else closes it. Secrets are not compared in constant time, since
this is for tests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...kafka import messages as m

if TYPE_CHECKING:
    from .context import Context

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, AUTHENTICATION_FAILED = 33, 34, 58


async def handshake(context: Context) -> Any:
    """Serve SaslHandshake: agree on a mechanism."""
    offered, session = context.side.credentials.mechanisms, context.session
    error = context.error or (ILLEGAL_STATE if session.known else 0 if context.request.mechanism in offered else UNSUPPORTED_MECHANISM)
    session.mechanism = None if error else context.request.mechanism
    return m.SaslHandshakeResponse(error_code=error, mechanisms=offered)


async def authenticate(context: Context) -> Any:
    """Serve SaslAuthenticate: one message each way; the caller closes the connection after a refusal."""
    session = context.session
    if context.error or session.mechanism is None:
        return m.SaslAuthenticateResponse(error_code=context.error or ILLEGAL_STATE, error_message=None, auth_bytes=b"")
    session.known = context.side.credentials.knows(session.mechanism, bytes(context.request.auth_bytes))
    if session.known:
        lifetime = context.side.credentials.lifetime
        session.until = time.monotonic() + lifetime if lifetime else session.until
        return m.SaslAuthenticateResponse(error_message=None, auth_bytes=b"", session_lifetime_ms=int(lifetime * 1000))
    return m.SaslAuthenticateResponse(error_code=AUTHENTICATION_FAILED, error_message="Authentication failed", auth_bytes=b"")
