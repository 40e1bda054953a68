"""SASL PLAIN (RFC 4616): user and password in the clear, so only over TLS or a trusted net.

    message   [authzid] NUL authcid NUL passwd          UTF-8, no NUL within

Must not: keep the password, or show it.
"""

from __future__ import annotations

from wireproto.auth.secrets import Secret
from wireproto.errors import AuthError, OptionError


class Plain:
    """One exchange.

    Args:
        user, password: who, and how it is proved. authorize_as: act as that user; empty: as oneself.
    """

    name = "PLAIN"

    def __init__(self, user: str, password: Secret, authorize_as: str = "") -> None:
        self._user = user
        self._password = password
        self._authorize_as = authorize_as
        self.done = False

    def start(self) -> bytes:
        """The only message. Raises OptionError when a part holds NUL."""
        password = self._password.text()
        if "\0" in self._user + password + self._authorize_as:
            raise OptionError("user and password may not hold a NUL character")
        self.done = True
        return "\0".join((self._authorize_as, self._user, password)).encode()

    def step(self, challenge: bytes) -> bytes:
        """The server has nothing to ask; an empty challenge is answered by nothing."""
        if challenge:
            raise AuthError("the server asks for more than PLAIN has to say")
        return b""
