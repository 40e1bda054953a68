"""Opens the client of a URL.

`wireproto.connect` ends here: the URL is parsed, its protocol found (`protocols`), and that adapter called. The module knows no adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import protocols
from .net.patched_threads import refuse_patched_threads
from .url import parse

if TYPE_CHECKING:
    from .roles import Client


def open_client(text: str, options: dict[str, Any]) -> Client:
    """Parse the URL, and open its adapter's client. Raises as `wireproto.connect`."""
    refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).connect(url, options)
    return client


def make_client(text: str, options: dict[str, Any]) -> Client:
    """Make a client that is not connected yet, for asyncio. Raises OptionError, UsageError."""
    refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).make(url, options)
    return client
