"""Authenticates by SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

The client proves that it knows the password without sending it, and the server proves that it knows the password, too.

    client first   n,,n=USER,r=NONCE[,EXTENSION=VALUE]
    server first   r=NONCE+MORE,s=SALT(base64),i=ITERATIONS
    client final   c=biws,r=NONCE+MORE,p=PROOF(base64)
    server final   v=SIGNATURE(base64)   or   e=ERROR

    SaltedPassword = PBKDF2(password, salt, i)              ClientKey = HMAC(SaltedPassword, "Client Key")
    StoredKey = H(ClientKey)                                Proof = ClientKey XOR HMAC(StoredKey, AuthMessage)
    AuthMessage = client-first-bare , server-first , client-final-without-proof

The nonce that is passed in must be random and new. The exchange ends when nonce, iterations or signature are wrong. The password is not
prepared (SASLprep), since Kafka's brokers hash its UTF-8 as it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from wireproto.auth.secrets import Secret
from wireproto.errors import AuthError, OptionError

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""Bounds of the iterations that a server may ask for: fewer make the password easy to guess, more would block the client for long."""


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


class Scram:
    """One SCRAM exchange.

    Args:
        algorithm: ``sha256`` or ``sha512``.
        user, password: the credentials.
        nonce: printable characters without a comma, random for each exchange (18 random bytes in base64 will do).
        extensions: further attributes of the first message, like Kafka's ``tokenauth=true`` for delegation tokens.

    Raises:
        OptionError: another algorithm, or a nonce with other characters.
    """

    def __init__(self, algorithm: str, user: str, password: Secret, nonce: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        if algorithm not in ("sha256", "sha512"):
            raise OptionError(f"SCRAM is defined for sha256 and sha512, not {algorithm!r}")
        if not nonce or "," in nonce or not nonce.isascii() or not nonce.isprintable():
            raise OptionError("a SCRAM nonce is printable ASCII without a comma")
        self.name = "SCRAM-SHA-256" if algorithm == "sha256" else "SCRAM-SHA-512"
        self.done = False
        self._algorithm = algorithm
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first = ",".join((f"n={name}", f"r={nonce}", *(f"{key}={value}" for key, value in extensions)))
        self._signature: bytes | None = None

    def start(self) -> bytes:
        """Return the client-first message."""
        return f"n,,{self._first}".encode()

    def step(self, challenge: bytes) -> bytes:
        """Return client-final for server-first; return nothing for server-final, and be `done`. Raises AuthError."""
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise AuthError("the server's SCRAM message is not UTF-8") from None
        if self.done:
            raise AuthError("the SCRAM exchange is over")
        return self._prove(text) if self._signature is None else self._verify(text)

    def _prove(self, text: str) -> bytes:
        parts = _attributes(text)
        if "e" in parts:
            raise AuthError(f"the server refused: {parts['e']}")
        nonce, salt, rounds = parts.get("r", ""), _decode(parts.get("s", "")), parts.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthError("the server's SCRAM nonce does not begin with the client's")
        if not salt or not rounds.isdecimal() or not rounds.isascii() or len(rounds) > 9:
            raise AuthError("the server's SCRAM message has no salt or no number of iterations")
        if not LEAST_ITERATIONS <= int(rounds) <= MOST_ITERATIONS:
            raise AuthError(f"the server asks for {rounds} SCRAM iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} are accepted")
        salted = hashlib.pbkdf2_hmac(self._algorithm, self._password.reveal(), salt, int(rounds))
        final = f"c=biws,r={nonce}"
        message = f"{self._first},{text},{final}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._algorithm)
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, message, self._algorithm))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._algorithm), message, self._algorithm)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, text: str) -> bytes:
        parts = _attributes(text)
        if "e" in parts:
            raise AuthError(f"the server refused: {parts['e']}")
        if self._signature is None or not hmac.compare_digest(_decode(parts.get("v", "")), self._signature):
            raise AuthError("the server's SCRAM signature is wrong: it does not know the password")
        self.done = True
        return b""


def _attributes(text: str) -> dict[str, str]:
    parts = [item.partition("=") for item in text.split(",")]
    if any(sep == "" or len(key) != 1 for key, sep, _ in parts):
        raise AuthError("the server's SCRAM message is malformed")
    if parts[0][0] == "m":
        raise AuthError("the server wants a SCRAM extension that is not known")
    found: dict[str, str] = {}
    for key, _, value in parts:
        found.setdefault(key, value)
    return found


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthError("the server's SCRAM message holds bad base64") from None
