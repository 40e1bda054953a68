"""Pulsar: producers, readers, consumers, queues and admin over the binary protocol. `connect` is the adapter's entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wireproto.url import Url

    from .client import PulsarClient


def connect(url: Url, options: dict[str, Any]) -> PulsarClient:
    """Open a client: read the options, connect to one service address.

    Args:
        url: ``pulsar://host:6650[,host:port][/topic]``, or ``pulsar+ssl://`` for TLS.
        options: `PulsarOptions` by name.
    """
    from .client import PulsarClient

    return PulsarClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> PulsarClient:
    """A client that has not connected yet."""
    from .client import PulsarClient

    return PulsarClient.made(url, options)
