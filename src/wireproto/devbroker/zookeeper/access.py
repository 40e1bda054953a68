"""Identifies clients, and checks access lists.

It has the schemes ``world``, ``ip``, ``digest`` and ``auth`` as real servers read them. This module knows no connection or node.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Callable

from ...zookeeper.codes import AuthFailed, InvalidAcl, NoAuth
from ...zookeeper.messages import ACL, Id

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16


def identity(scheme: str, credential: bytes) -> Id:
    """Return the identity that an AuthPacket gives; raises AuthFailed."""
    if scheme != "digest":
        raise AuthFailed(scheme)
    text = credential.decode("utf-8", "replace")
    digest = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()
    return Id(scheme="digest", id=f"{text.partition(':')[0]}:{digest}")


def fixed(acl: tuple[ACL, ...] | None, identities: list[Id]) -> tuple[ACL, ...]:
    """Return the list as it is stored: ``auth`` is replaced by every identity that the connection gave.

    Raises:
        InvalidAcl: the list is empty, has a scheme that is not known, or ``auth`` without an identity.
    """
    if not acl:
        raise InvalidAcl("empty")
    kept: list[ACL] = []
    for item in dict.fromkeys((item.perms, item.id.scheme, item.id.id) for item in acl):
        perms, scheme, name = item
        if scheme == "auth":
            mine = [ACL(perms=perms, id=who) for who in identities if who.scheme != "ip"]
            if not mine:
                raise InvalidAcl("auth without an identity")
            kept += mine
        elif _VALID.get(scheme or "", _never)(name or ""):
            kept.append(ACL(perms=perms, id=Id(scheme=scheme, id=name)))
        else:  # "sasl", "x509" and "super", too: a server knows them only where they are configured
            raise InvalidAcl(f"{scheme}:{name}")
    return tuple(kept)


def shown(acl: tuple[ACL, ...], identities: list[Id]) -> tuple[ACL, ...]:
    """Return the list as a client gets it: without the right to change it, it has no digests."""
    if allows(acl, ADMIN, identities):
        return acl
    return tuple(
        item.replace(id=Id(scheme="digest", id=f"{item.id.id.partition(':')[0]}:x")) if item.id.scheme == "digest" else item for item in acl
    )


def demand(acl: tuple[ACL, ...], perm: int, identities: list[Id]) -> None:
    """Raise NoAuth unless one of the identities has the permission."""
    if not allows(acl, perm, identities):
        raise NoAuth("")


def allows(acl: tuple[ACL, ...], perm: int, identities: list[Id]) -> bool:
    """Return whether one of the identities has the permission."""
    return any(item.perms & perm and (item.id.scheme == "world" or any(_matches(item.id, who) for who in identities)) for item in acl)


def _address(name: str) -> bool:
    address, slash, bits = name.partition("/")
    try:
        ipaddress.ip_address(address)
        return not slash or 0 <= int(bits) <= 32
    except ValueError:
        return False


def _digest(name: str) -> bool:
    _, _, digest = name.partition(":")
    return bool(digest) and ":" not in digest


def _never(name: str) -> bool:
    return False


_VALID: dict[str, Callable[[str], bool]] = {"world": lambda name: name == "anyone", "digest": _digest, "ip": _address}


def _matches(wanted: Id, who: Id) -> bool:
    if wanted.scheme != who.scheme:
        return False
    if wanted.scheme != "ip":
        return bool(wanted.id == who.id)
    try:
        return ipaddress.ip_address(who.id) in ipaddress.ip_network(wanted.id, strict=False)
    except ValueError:
        return False
