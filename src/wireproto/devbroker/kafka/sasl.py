"""Who may ask: SASL PLAIN and OAUTHBEARER, once a test has named users or tokens.

    SaslHandshake       33 for a mechanism that is not offered; 34 once somebody is known
    SaslAuthenticate    58 for credentials that are wrong, and the connection is closed behind the answer

Until then a connection may ask for versions and authenticate; anything else ends it. Must not: compare secrets in constant time (it is
for tests).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...kafka import messages as m

if TYPE_CHECKING:
    from .context import Context

UNSUPPORTED_MECHANISM, ILLEGAL_STATE, AUTHENTICATION_FAILED = 33, 34, 58
OPEN = frozenset(("SaslHandshake", "SaslAuthenticate"))


@dataclass(slots=True)
class Credentials:
    """Who is let in; nobody named: everybody."""

    users: dict[str, str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return ("PLAIN",) * bool(self.users) + ("OAUTHBEARER",) * bool(self.tokens)

    def knows(self, mechanism: str, data: bytes) -> bool:
        """Whether a mechanism's first message proves somebody."""
        if mechanism == "PLAIN":
            _, user, password = data.decode().split("\0")
            return self.users.get(user) == password
        pairs = dict(part.split("=", 1) for part in data.decode().split("\1")[1:] if "=" in part)
        return pairs.get("auth", "").removeprefix("Bearer ") in self.tokens


@dataclass(slots=True)
class Session:
    """One connection: the mechanism agreed on, and whether somebody is known."""

    mechanism: str | None = None
    known: bool = False

    def refuses(self, credentials: Credentials, name: str) -> bool:
        """Whether this request is one too many for a stranger."""
        return bool(credentials.mechanisms) and not self.known and name not in OPEN


async def handshake(context: Context) -> Any:
    """Agree on a mechanism."""
    offered, session = context.side.credentials.mechanisms, context.session
    error = context.error or (ILLEGAL_STATE if session.known else 0 if context.request.mechanism in offered else UNSUPPORTED_MECHANISM)
    session.mechanism = None if error else context.request.mechanism
    return m.SaslHandshakeResponse(error_code=error, mechanisms=offered)


async def authenticate(context: Context) -> Any:
    """One message each way; the caller closes behind a refusal."""
    session = context.session
    if context.error or session.mechanism is None:
        return m.SaslAuthenticateResponse(error_code=context.error or ILLEGAL_STATE, error_message=None, auth_bytes=b"")
    session.known = context.side.credentials.knows(session.mechanism, bytes(context.request.auth_bytes))
    if session.known:
        return m.SaslAuthenticateResponse(error_message=None, auth_bytes=b"")
    return m.SaslAuthenticateResponse(error_code=AUTHENTICATION_FAILED, error_message="Authentication failed", auth_bytes=b"")
