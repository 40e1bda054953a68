"""Who is known: names and tokens that a test let in, and what a connection has proved."""

from __future__ import annotations

from dataclasses import dataclass, field

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
