"""Checks users: the names and tokens that a test let in, and what a connection has proved."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

OPEN = frozenset(("SaslHandshake", "SaslAuthenticate"))


@dataclass(slots=True)
class Credentials:
    """The users and tokens that are let in; without any, everyone is.

    Attributes:
        users: passwords by name. tokens: for OAUTHBEARER. lifetime: seconds that a session lasts, 0.0: for ever.
    """

    users: dict[str, str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()
    lifetime: float = 0.0

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the SASL mechanisms that are offered."""
        return ("PLAIN",) * bool(self.users) + ("OAUTHBEARER",) * bool(self.tokens)

    def knows(self, mechanism: str, data: bytes) -> bool:
        """Return whether a mechanism's first message has valid credentials."""
        if mechanism == "PLAIN":
            _, user, password = data.decode().split("\0")
            return self.users.get(user) == password
        pairs = dict(part.split("=", 1) for part in data.decode().split("\1")[1:] if "=" in part)
        return pairs.get("auth", "").removeprefix("Bearer ") in self.tokens


@dataclass(slots=True)
class Session:
    """The authentication of one connection.

    Attributes:
        mechanism: the one agreed on. known: whether the client is authenticated. until: end of the session, of `time.monotonic`.
    """

    mechanism: str | None = None
    known: bool = False
    until: float = float("inf")

    def refuses(self, credentials: Credentials, name: str) -> bool:
        """Return whether this request needs authentication and the connection has none, or its session is over."""
        return bool(credentials.mechanisms) and name not in OPEN and (not self.known or time.monotonic() > self.until)
