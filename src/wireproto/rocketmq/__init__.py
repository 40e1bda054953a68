"""Opens clients of RocketMQ over its remoting protocol, 4.9 and 5.x: `connect(url, options)` is the adapter's entry point.

Imports neither the engine nor the core before a client is opened, so that `import wireproto` stays light.
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
    """Make a client that has not connected yet.

    Raises:
        OptionError: an option is unknown or does not fit.
    """
    from .client import RocketClient

    return RocketClient.made(url, options)
