"""Speaks RocketMQ's remoting protocol, 4.9 and 5.x: producers, readers, consumers, queues and admin. `connect` opens a client.

Imports neither the engine nor the core before a client is opened, so that `import wireproto` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from wireproto.url import Url

    from .client import RocketClient
    from .option_types import ClientOptions

__all__ = ["connect"]


def connect(url: str, **options: Unpack[ClientOptions]) -> RocketClient:
    """Open a client of a RocketMQ cluster; as `wireproto.connect`, with the types of RocketMQ's own client and options.

    Args:
        url: ``rocketmq://host:9876[,host:port][/topic][?option=value]``, the name servers; ``rocketmq+tls://`` for TLS.
        options: those of RocketMQ's client and its roles by name, docs/rocketmq.md; they win over the URL's.

    Raises:
        OptionError: the URL is not RocketMQ's, or an option is wrong.
        ConnectError, TlsError, TimedOut: no name server answers.
    """
    from wireproto.net.patched_threads import refuse_patched_threads
    from wireproto.url import parse_for

    refuse_patched_threads()
    return open_client(parse_for("rocketmq", url), {**options})


def open_client(url: Url, options: dict[str, Any]) -> RocketClient:
    """Open the client of a parsed URL, for `wireproto.connect`. Raises as `connect`."""
    from .client import RocketClient

    return RocketClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> RocketClient:
    """Make a client that has not connected yet.

    Raises:
        OptionError: an option is unknown, or its value does not fit.
    """
    from .client import RocketClient

    return RocketClient.made(url, options)
