"""ZooKeeper: sessions, the tree, watches, and a queue with the layout of the well-known locking queue recipe.

`connect` is what `wireproto.connect("zookeeper://…")` calls; the rest is imported when a client is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..url import Url
    from .client import ZooKeeperClient

__all__ = ["connect"]


def connect(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """Open a session with the ensemble that `url` names; its path is the chroot, its userinfo digest credentials."""
    from .client import ZooKeeperClient

    return ZooKeeperClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """A client without a session yet."""
    from .client import ZooKeeperClient

    return ZooKeeperClient.made(url, options)
