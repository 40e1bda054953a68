"""Authenticates by Pulsar's ``token`` method (JSON web tokens, also from OAuth2) and by its ``basic`` method.

CONNECT.auth_method_name   token            basic
CONNECT.auth_data          the token        user:password
AUTH_CHALLENGE             asks for the same again, since the old token has expired at the broker
"""

from __future__ import annotations

from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError


class Token:
    """Sends a token as it is.

    Args:
        token: read again for each connection and each challenge, so that a callable or a file may rotate it.
    """

    name = "token"

    def __init__(self, token: Secret) -> None:
        self._token = token
        self.done = True

    def start(self) -> bytes:
        """Return the token. Raises OptionError when it is empty or cannot be read."""
        token = self._token.reveal().strip()
        if not token:
            raise OptionError("the token is empty")
        return token

    def step(self, challenge: bytes) -> bytes:
        """Read the credentials again and return them; see `start`."""
        return self.start()


class Basic:
    """Sends user and password as they are.

    Args:
        user, password: the credentials.

    Raises:
        OptionError: `user` contains a colon.
    """

    name = "basic"

    def __init__(self, user: str, password: Secret) -> None:
        if ":" in user:
            raise OptionError("a user name for basic authentication may not hold a colon")
        self._user = user
        self._password = password
        self.done = True

    def start(self) -> bytes:
        """Return ``user:password``. Raises OptionError when the password cannot be read."""
        return self._user.encode() + b":" + self._password.reveal()

    def step(self, challenge: bytes) -> bytes:
        """Read the credentials again and return them; see `start`."""
        return self.start()
