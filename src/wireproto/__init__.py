"""Connects to Kafka, Pulsar, RocketMQ and ZooKeeper through one synchronous interface.

`connect(url)` returns a client, which makes the roles. The module has public names only, and imports nothing that is slow to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import WireprotoError
from .position import EARLIEST, LATEST, AtTime, LogOffset, MessageId, Position, QueueOffset, UnknownPosition

if TYPE_CHECKING:
    from typing import Unpack

    from .option_types import ClientOptions
    from .records import Batch, Delivery, Receipt, Record
    from .roles import Admin, Client, Consumer, Producer, QueueConsumer, Reader, Transaction, Transactions, Tree

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "AtTime",
    "Batch",
    "Client",
    "Consumer",
    "Delivery",
    "LogOffset",
    "MessageId",
    "Position",
    "Producer",
    "QueueConsumer",
    "QueueOffset",
    "Reader",
    "Receipt",
    "Record",
    "Transaction",
    "Transactions",
    "Tree",
    "UnknownPosition",
    "WireprotoError",
    "__version__",
    "connect",
]

_LAZY_NAMES = {
    **dict.fromkeys(("Batch", "Delivery", "Receipt", "Record"), "records"),
    **dict.fromkeys(("Admin", "Client", "Consumer", "Producer", "QueueConsumer", "Reader", "Transaction", "Transactions", "Tree"), "roles"),
}


def __getattr__(name: str) -> Any:
    """Import the types for annotations at their first use, so that importing the package stays quick."""
    if name in _LAZY_NAMES:
        return getattr(import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


def connect(url: str, **options: Unpack[ClientOptions]) -> Client:
    """Open a client for the cluster that `url` names.

    Args:
        url: ``kafka://host:port[,host:port]``, ``pulsar://…``, ``rocketmq://…`` (name servers), ``zookeeper://host/path``, or the TLS
            form (``kafka+tls://``); query parameters are options too.
            The path is the topic of roles that are made without one; ZooKeeper's path is the chroot.
        options: the adapter's own options by name; they win over the URL's. `timeout` is in seconds.

    When a connection is made: Kafka's client connects at its first use, and errors of the cluster are raised there. The others connect
    here: Pulsar to one service address, ZooKeeper to one server, RocketMQ to a name server. An address that does not answer within
    `connect_timeout` is tried again until `timeout` is over.

    Raises:
        OptionError: the URL or an option is wrong.
        ConnectError, TlsError, AuthError, TimedOut: no server could be connected to (not with Kafka, see above).
    """
    from ._connect import open_client

    return open_client(url, {**options})
