"""Speaks Pulsar's binary protocol: producers, readers, consumers, queues and admin. `connect` opens a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Unpack

    from wireproto.url import Url

    from .client import PulsarClient
    from .option_types import ClientOptions

__all__ = ["connect"]


def connect(url: str, **options: Unpack[ClientOptions]) -> PulsarClient:
    """Open a client of a Pulsar cluster; as `wireproto.connect`, with the types of Pulsar's own client and options.

    Args:
        url: ``pulsar://host:6650[,host:port][/topic][?option=value]``, or ``pulsar+ssl://`` for TLS.
        options: those of Pulsar's client and its roles by name, docs/pulsar.md; they win over the URL's.

    Raises:
        OptionError: the URL is not Pulsar's, or an option is wrong.
        AuthError: the broker refused the credentials.
        TransportError: no service address answered within the option `timeout`.
    """
    from wireproto.net.patched_threads import refuse_patched_threads
    from wireproto.url import parse_for

    refuse_patched_threads()
    return open_client(parse_for("pulsar", url), {**options})


def open_client(url: Url, options: dict[str, Any]) -> PulsarClient:
    """Open the client of a parsed URL, for `wireproto.connect`. Raises as `connect`."""
    from .client import PulsarClient

    return PulsarClient.connect(url, options)


def make(url: Url, options: dict[str, Any]) -> PulsarClient:
    """Make a client that has not connected yet.

    Raises:
        OptionError: an option is unknown, or its value does not fit.
    """
    from .client import PulsarClient

    return PulsarClient.made(url, options)
