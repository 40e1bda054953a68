"""Speaks Pulsar's binary protocol: producers, readers, consumers, queues and admin. `connect` is the adapter's entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wireproto.url import Url

    from .client import PulsarClient


def connect(url: Url, options: dict[str, Any]) -> PulsarClient:
    """Open a client: read the options and connect to one service address.

    Args:
        url: ``pulsar://host:6650[,host:port][/topic]``, or ``pulsar+ssl://`` for TLS.
        options: `PulsarOptions` by name.

    Raises:
        OptionError: the URL or an option is wrong.
        AuthError: the broker refused the credentials.
        TransportError: no service address answered within the option `timeout`.
    """
    from .client import PulsarClient

    return PulsarClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> PulsarClient:
    """Return a client that has not connected yet; arguments as for `connect`."""
    from .client import PulsarClient

    return PulsarClient.made(url, options)
