"""Implements ZooKeeper's client: sessions, the tree, watches, and a queue with the layout of kazoo's LockingQueue recipe.

`connect` is what `wireproto.connect("zookeeper://…")` calls; the other modules are imported when a client is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..url import Url
    from .client import ZooKeeperClient

__all__ = ["connect"]


def connect(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """Open a session with the ensemble that `url` names; its path is the chroot, its userinfo digest credentials.

    Args:
        url: as it was parsed. options: those of `ZooKeeperOptions`.

    Raises:
        ConnectError, TlsError, TimedOut: no server took the session. AuthError: the credentials were refused. OptionError: a wrong option.
    """
    from .client import ZooKeeperClient

    return ZooKeeperClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """Make a client that has no session yet.

    Args:
        url, options: as for `connect`.
    """
    from .client import ZooKeeperClient

    return ZooKeeperClient.made(url, options)
