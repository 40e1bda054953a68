"""Signs commands for the ACLs of the remoting protocol: which fields are signed, in which order.

A signature is three text fields added to a command's extFields, by the rules that both broker lines check:

    AccessKey       user's name (5.x: the user name)
    SecurityToken   only for temporary credentials
    Signature       base64(HMAC-SHA1(secret, values of all other fields in order of their names ++ body))

Names are ordered as Java orders strings (UTF-16 units). Values are joined without separator, as UTF-8.
Two traps, both seen on real brokers:
- a 4.9 broker leaves ``_UNIQUE_KEY_QUERY`` out of the text that it checks; 5.x signs it;
- with the binary header a zero-length value reads as null at the broker, which then signs the text "null": such a field must not be sent.
Sans-IO. No secret is kept or printed outside `Credentials`, whose repr hides it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
FIRST_5X = 413
"""MQVersion ordinal of V5_0_0: a peer whose replies carry less is of the 4.x line."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Holds the account that commands are signed for.

    Attributes:
        access_key: name of the account (5.x: user name).
        secret_key: secret of the account; hidden in the repr.
        security_token: token of temporary credentials, or None; hidden in the repr.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def signed_text(ext: Mapping[str, str], body: bytes, *, peer_version: int | None = None) -> bytes:
    """Return the bytes that the signature is computed over.

    Args:
        ext: every field that is sent, credentials included; a signature among them is left out.
        body: the frame's body, which is signed too.
        peer_version: MQVersion ordinal that the broker puts in its replies; None while it is unknown (taken as 5.x).
    """
    omitted = {SIGNATURE}
    if peer_version is not None and peer_version < FIRST_5X:
        omitted.add(UNIQUE_KEY_QUERY)
    names = sorted((name for name in ext if name not in omitted), key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join(ext[name] for name in names).encode("utf-8") + body


def signature(secret_key: str, text: bytes) -> str:
    """Return base64 of HMAC-SHA1 over the text."""
    return base64.b64encode(hmac.new(secret_key.encode("utf-8"), text, hashlib.sha1).digest()).decode("ascii")


def sign(ext: Mapping[str, str], body: bytes, who: Credentials, *, peer_version: int | None = None) -> dict[str, str]:
    """Return the fields with AccessKey, SecurityToken (where there is one) and Signature added.

    Args:
        ext: the command's fields. body: the frame's body. who: the account.
        peer_version: as of `signed_text`.
    """
    signed = dict(ext)
    signed[ACCESS_KEY] = who.access_key
    if who.security_token is not None:
        signed[SECURITY_TOKEN] = who.security_token
    signed[SIGNATURE] = signature(who.secret_key, signed_text(signed, body, peer_version=peer_version))
    return signed
