"""wireproto: Kafka, Pulsar, RocketMQ and ZooKeeper through one sync interface.

`connect(url)` gives a client; roles are made from it. Public names only; nothing heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import WireprotoError
from .position import EARLIEST, LATEST, AtTime, LogOffset, MessageId, Position

if TYPE_CHECKING:
    from .roles import Client

__all__ = ["EARLIEST", "LATEST", "AtTime", "LogOffset", "MessageId", "Position", "WireprotoError", "__version__", "connect"]


def connect(url: str, **options: Any) -> Client:
    """Open a client for the cluster that `url` names.

    Args:
        url: ``kafka://host:port[,host:port]``, ``pulsar://…``, ``rocketmq://…`` (name servers), ``zookeeper://host/path``, or the TLS
            form (``kafka+tls://``); query parameters are options too.
        options: the adapter's own options by name; they win over the URL's. `timeout` is in seconds.
    Raises:
        OptionError: the URL or an option is wrong.
        ConnectError, TlsError, AuthError, TimedOut: nobody there that we can talk to.
    """
    from ._connect import open_client

    return open_client(url, options)
