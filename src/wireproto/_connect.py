"""Opens the client of a URL.

`wireproto.connect` ends here: the URL is parsed, its protocol found (`protocols`), and that adapter called. The module knows no adapter.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import protocols
from .errors import OptionError, UsageError
from .url import parse

if TYPE_CHECKING:
    from .roles import Client


def open_client(text: str, options: dict[str, Any]) -> Client:
    """Parse the URL, and open its adapter's client. Raises as `wireproto.connect`."""
    _refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).connect(url, options)
    return client


def open_client_of(protocol: str, text: str, options: dict[str, Any]) -> Any:
    """Open a client of one protocol, for its own `connect`.

    Args:
        protocol: the protocol that the URL must be of.
        text: the URL.
        options: by name.

    Raises:
        OptionError: the URL is of another protocol; else as `wireproto.connect`.
    """
    _refuse_patched_threads()
    url = parse(text)
    if url.protocol != protocol:
        raise OptionError(f"wireproto.{protocol}.connect opens {protocol}:// URLs; for a {url.protocol}:// URL use wireproto.connect")
    return protocols.find(protocol).connect(url, options)


def make_client(text: str, options: dict[str, Any]) -> Client:
    """Make a client that is not connected yet, for asyncio. Raises OptionError, UsageError."""
    _refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).make(url, options)
    return client


def _refuse_patched_threads() -> None:
    """Raise UsageError if gevent or eventlet has replaced the threads of this process: waiting in the engine would block all of them."""
    for module, asked, of in (("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread")):
        if module in sys.modules and getattr(sys.modules[module], asked)(of):
            name = module.partition(".")[0]
            raise UsageError(f"{name} has patched this process's threads; patch without them, or use wireproto in a process without {name}")
