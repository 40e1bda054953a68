"""Speaks ZooKeeper: sessions, the tree, watches, and a queue with the layout of kazoo's LockingQueue recipe.

`connect` opens a client; the other modules are imported when a client is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from wireproto.url import Url

    from .client import ZooKeeperClient
    from .option_types import ClientOptions

__all__ = ["connect"]


def connect(url: str, **options: Unpack[ClientOptions]) -> ZooKeeperClient:
    """Open a session with a ZooKeeper ensemble; as `wireproto.connect`, with the types of ZooKeeper's own client and options.

    Args:
        url: ``zookeeper://host:2181[,host:port][/root][?option=value]``; the path is the chroot, the userinfo digest credentials.
        options: those of ZooKeeper's client and its roles by name, docs/zookeeper.md; they win over the URL's.

    Raises:
        OptionError: the URL is not ZooKeeper's, or an option is wrong.
        ConnectError, TlsError, TimedOut: no server took the session. AuthError: the credentials were refused.
    """
    from wireproto.net.patched_threads import refuse_patched_threads
    from wireproto.url import parse_for

    refuse_patched_threads()
    return open_client(parse_for("zookeeper", url), {**options})


def open_client(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """Open the client of a parsed URL, for `wireproto.connect`. Raises as `connect`."""
    from .client import ZooKeeperClient

    return ZooKeeperClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> ZooKeeperClient:
    """Make a client that has not connected yet.

    Raises:
        OptionError: an option is unknown, or its value does not fit.
    """
    from .client import ZooKeeperClient

    return ZooKeeperClient.made(url, options)
