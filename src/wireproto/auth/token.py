"""A token sent as it is: Pulsar's ``token`` method (JSON web tokens, also from OAuth2), and its ``basic`` method.

CONNECT.auth_method_name   token            basic
CONNECT.auth_data          the token        user:password
AUTH_CHALLENGE             wants the same again, fresh: the broker saw the old one expire
"""

from __future__ import annotations

from wireproto.auth.secrets import Secret
from wireproto.errors import OptionError


class Token:
    """Args: token: read anew for each connection and each challenge, so that a callable or a file may rotate it."""

    name = "token"

    def __init__(self, token: Secret) -> None:
        self._token = token
        self.done = True

    def start(self) -> bytes:
        token = self._token.reveal().strip()
        if not token:
            raise OptionError("the token is empty")
        return token

    def step(self, challenge: bytes) -> bytes:
        return self.start()


class Basic:
    """Args: user, password."""

    name = "basic"

    def __init__(self, user: str, password: Secret) -> None:
        if ":" in user:
            raise OptionError("a user name for basic authentication may not hold a colon")
        self._user = user
        self._password = password
        self.done = True

    def start(self) -> bytes:
        return self._user.encode() + b":" + self._password.reveal()

    def step(self, challenge: bytes) -> bytes:
        return self.start()
