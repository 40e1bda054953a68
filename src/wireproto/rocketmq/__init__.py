"""RocketMQ over its remoting protocol, 4.9 and 5.x: `connect(url, options)` is the adapter's door.

May assume: nothing. Must not: import the engine or the core before a client is opened; `import wireproto` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wireproto.url import Url

    from .client import RocketClient


def connect(url: Url, options: dict[str, Any]) -> RocketClient:
    """Open a client on the cluster of these name servers.

    Raises:
        OptionError: an option is unknown or does not fit.
        ConnectError, TlsError, TimedOut: no name server answers.
    """
    from .client import RocketClient

    return RocketClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> RocketClient:
    """A client that has not connected yet."""
    from .client import RocketClient

    return RocketClient.made(url, options)
