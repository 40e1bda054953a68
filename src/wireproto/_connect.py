"""From a scheme to an adapter.

What it is: what `wireproto.connect` does: the URL is read, its protocol found (`protocols`), its adapter called. Must not: know an adapter.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import protocols
from .errors import UsageError
from .url import parse

if TYPE_CHECKING:
    from .roles import Client


def open_client(text: str, options: dict[str, Any]) -> Client:
    """Parse the URL and hand it to its adapter."""
    _refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).connect(url, options)
    return client


def make_client(text: str, options: dict[str, Any]) -> Client:
    """A client that is not connected yet, for another event loop."""
    _refuse_patched_threads()
    url = parse(text)
    client: Client = protocols.find(url.protocol).make(url, options)
    return client


def _refuse_patched_threads() -> None:
    """Threads that gevent or eventlet has put its own in place of cannot wait in the engine: they would all stand still, without an end."""
    for module, asked, of in (("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread")):
        if module in sys.modules and getattr(sys.modules[module], asked)(of):
            name = module.partition(".")[0]
            raise UsageError(f"{name} has patched this process's threads; patch without them, or use wireproto in a process without {name}")
