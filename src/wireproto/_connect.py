"""Opens the client of a URL.

`wireproto.connect` ends here: the URL is parsed, its protocol found (`protocols`), and that adapter called. The module knows no adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import protocols
from .net.patched_threads import refuse_patched_threads
from .url import parse, parse_for

if TYPE_CHECKING:
    from .roles import Client


def open_client(text: str, options: dict[str, Any]) -> Client:
    """Parse the URL, and open its adapter's client. Raises as `wireproto.connect`."""
    refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).connect(url, options)
    return client


def make_client(text: str, options: dict[str, Any], protocol: str | None = None) -> Client:
    """Make a client that is not connected yet, for asyncio.

    Args:
        text: the URL. options: by name. protocol: the one that the URL must be of; None: any.

    Raises:
        OptionError: the URL or an option is wrong, or the URL is of another protocol. UsageError: the process's threads are patched.
    """
    refuse_patched_threads()
    url = parse(text) if protocol is None else parse_for(protocol, text, "wireproto.aio")
    client: Client = protocols.find(url.protocol).make(url, options)
    return client
