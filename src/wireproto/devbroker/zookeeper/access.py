"""Who a connection is, and whether an access list lets it do something.

What it is: the schemes ``world``, ``ip``, ``digest`` and ``auth`` as real servers read them. Must not: know a connection or a node.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress

from ...zookeeper.codes import AuthFailed, InvalidAcl, NoAuth
from ...zookeeper.messages import ACL, Id

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16


def identity(scheme: str, credential: bytes) -> Id:
    """The identity that an AuthPacket gives; raises AuthFailed."""
    if scheme != "digest":
        raise AuthFailed(scheme)
    text = credential.decode("utf-8", "replace")
    digest = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    return Id(scheme="digest", id=f"{text.partition(':')[0]}:{digest}")


def fixed(acl: tuple[ACL, ...] | None, identities: list[Id]) -> tuple[ACL, ...]:
    """The list as it is kept: ``auth`` stands for every identity that the connection gave. Raises InvalidACL."""
    if not acl:
        raise InvalidAcl("empty")
    kept: list[ACL] = []
    for item in acl:
        scheme, name = item.id.scheme, item.id.id
        if scheme == "auth":
            mine = [ACL(perms=item.perms, id=who) for who in identities if who.scheme != "ip"]
            if not mine:
                raise InvalidAcl("auth without an identity")
            kept += mine
        elif (scheme == "world" and name == "anyone") or (scheme == "digest" and ":" in (name or "")) or scheme in ("ip", "x509", "sasl"):
            kept.append(item)
        else:
            raise InvalidAcl(f"{scheme}:{name}")
    return tuple(kept)


def demand(acl: tuple[ACL, ...], perm: int, identities: list[Id]) -> None:
    """Raise NoAuth unless one of the identities may."""
    for item in acl:
        if item.perms & perm and (item.id.scheme == "world" or any(_matches(item.id, who) for who in identities)):
            return
    raise NoAuth("")


def _matches(wanted: Id, who: Id) -> bool:
    if wanted.scheme != who.scheme:
        return False
    if wanted.scheme != "ip":
        return bool(wanted.id == who.id)
    try:
        return ipaddress.ip_address(who.id) in ipaddress.ip_network(wanted.id, strict=False)
    except ValueError:
        return False
