"""Who is known: names and tokens that a test let in, and what a connection has proved."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

OPEN = frozenset(("SaslHandshake", "SaslAuthenticate"))


@dataclass(slots=True)
class Credentials:
    """Who is let in; nobody named: everybody. `lifetime`: seconds that a session lasts, 0.0 for ever."""

    users: dict[str, str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()
    lifetime: float = 0.0

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
    """One connection: the mechanism agreed on, whether somebody is known, and until when."""

    mechanism: str | None = None
    known: bool = False
    until: float = float("inf")

    def refuses(self, credentials: Credentials, name: str) -> bool:
        """Whether this request is one too many for a stranger, or for a session that is over."""
        return bool(credentials.mechanisms) and name not in OPEN and (not self.known or time.monotonic() > self.until)
