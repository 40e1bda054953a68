"""Authenticates by SASL PLAIN (RFC 4616): user and password as they are, so only over TLS or a trusted network.

    message   [authzid] NUL authcid NUL passwd          UTF-8, no NUL within

The password is read when it is sent, and neither kept nor shown.
"""

from __future__ import annotations

from wireproto.auth.secrets import Secret
from wireproto.errors import AuthError, OptionError


class Plain:
    """One PLAIN exchange.

    Args:
        user, password: the credentials. authorize_as: act as that user; empty: as `user`.
    """

    name = "PLAIN"

    def __init__(self, user: str, password: Secret, authorize_as: str = "") -> None:
        self._user = user
        self._password = password
        self._authorize_as = authorize_as
        self.done = False

    def start(self) -> bytes:
        """Return the only message. Raises OptionError when a part contains NUL."""
        password = self._password.text()
        if "\0" in self._user + password + self._authorize_as:
            raise OptionError("user and password may not hold a NUL character")
        self.done = True
        return "\0".join((self._authorize_as, self._user, password)).encode()

    def step(self, challenge: bytes) -> bytes:
        """Return nothing for an empty challenge. Raises AuthError for any other: PLAIN has one message only."""
        if challenge:
            raise AuthError("the server sent a further challenge, which PLAIN does not have")
        return b""
