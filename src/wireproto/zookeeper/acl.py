"""Holds the usual access lists, and makes the identities and entries of others (the protocol's `ACL` and `Id` records)."""

from __future__ import annotations

import base64
import hashlib

from ..errors import ValueUnsupported
from .codes import Perms
from .messages import ACL, Id

ANYONE = Id(scheme="world", id="anyone")
CREATOR = Id(scheme="auth", id="")
"""Stands for every identity that the creating connection has."""

OPEN = (ACL(perms=int(Perms.ALL), id=ANYONE),)
"""Anyone may do anything: the default."""
READ_ONLY = (ACL(perms=int(Perms.READ), id=ANYONE),)
CREATOR_ALL = (ACL(perms=int(Perms.ALL), id=CREATOR),)
NAMED = {"open": OPEN, "creator": CREATOR_ALL}
"""Access lists by the words of the option `acl`."""


def digest_id(user: str, password: str) -> Id:
    """Return the identity of a user with a password: ``user:base64(sha1(user:password))``, as servers compute it."""
    if ":" in user:
        raise ValueUnsupported("a digest user name holds no colon")
    digest = base64.b64encode(hashlib.sha1(f"{user}:{password}".encode()).digest()).decode()
    return Id(scheme="digest", id=f"{user}:{digest}")


def digest_acl(user: str, password: str, perms: int = int(Perms.ALL)) -> ACL:
    """Return an entry that grants `perms` (a sum of `Perms`) to a user."""
    return ACL(perms=perms, id=digest_id(user, password))
