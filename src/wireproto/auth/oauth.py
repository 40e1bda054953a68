"""Authenticates by SASL OAUTHBEARER (RFC 7628, with Kafka's extensions of KIP-342): a bearer token, often from a callback.

client first   n,[a=USER],\\x01 auth=Bearer TOKEN \\x01 (KEY=VALUE \\x01)* \\x01        (without the spaces)
failure        the server sends JSON {"status":…}; the client answers \\x01 and the server then refuses
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from wireproto.auth.secrets import Secret
from wireproto.errors import AuthError, OptionError

_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthBearer:
    """One OAUTHBEARER exchange.

    Args:
        token: read at `start`, so a callable gives a fresh one for each connection.
        extensions: names (letters, not ``auth``) and printable values sent beside the token.
        authorize_as: act as that user; empty: the user that the token names.

    Raises:
        OptionError: an extension cannot be sent.
    """

    name = "OAUTHBEARER"

    def __init__(self, token: Secret, extensions: Mapping[str, str] | None = None, authorize_as: str = "") -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self._authorize_as = authorize_as
        self._failure = ""
        self.done = False
        for key, value in self._extensions.items():
            if not _KEY.fullmatch(key) or key == "auth" or not _VALUE.fullmatch(value):
                raise OptionError(f"the OAUTHBEARER extension {key!r} cannot be sent: names are letters, values printable")

    def start(self) -> bytes:
        """Return the message with the token. Raises OptionError, without showing the token, when it has characters of no token."""
        token = self._token.text()
        if not _TOKEN.fullmatch(token):
            raise OptionError("the OAUTHBEARER token is empty or holds characters that no token has")
        user = self._authorize_as.replace("=", "=3D").replace(",", "=2C")
        pairs = [f"auth=Bearer {token}", *(f"{key}={value}" for key, value in self._extensions.items())]
        self.done = True
        return f"n,{'a=' + user if user else ''},\x01{''.join(pair + chr(1) for pair in pairs)}\x01".encode()

    def step(self, challenge: bytes) -> bytes:
        """Return nothing for an empty challenge. Raises AuthError, with the server's reason, for any other: the server has refused."""
        if not challenge:
            return b""
        raise AuthError(f"the server refused the token: {self.explain(challenge)}")

    KICK = b"\x01"
    """The message that RFC 7628 has the client send after a failure, before the server closes."""

    @staticmethod
    def explain(challenge: bytes) -> str:
        """Format the server's failure message as one line."""
        try:
            facts = json.loads(challenge)
            return ", ".join(f"{key} {facts[key]}" for key in ("status", "scope", "openid-configuration") if facts.get(key))
        except (ValueError, AttributeError):
            return challenge.decode("utf-8", "replace")[:200]
