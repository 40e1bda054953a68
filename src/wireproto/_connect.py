"""From a scheme to an adapter.

What it is: the one place that finds adapters: the built-in four by name, any other by the entry point group ``wireproto.protocols``.
An adapter is a function ``connect(url: Url, options: dict) -> Client``. Must not: know anything else of an adapter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from .errors import OptionError, UsageError
from .url import Url, parse

if TYPE_CHECKING:
    from .roles import Client

BUILT_IN = ("kafka", "pulsar", "rocketmq", "zookeeper")

Adapter = Callable[[Url, dict[str, Any]], "Client"]


def adapter(protocol: str) -> Adapter:
    """The connect function for a scheme; raises OptionError naming the schemes there are."""
    if protocol in BUILT_IN:
        return cast("Adapter", import_module(f"wireproto.{protocol}").connect)
    found = entry_points(group="wireproto.protocols")
    for point in found:
        if point.name == protocol:
            return cast("Adapter", point.load())
    names = sorted({*BUILT_IN, *(point.name for point in found)})
    raise OptionError(f"no protocol {protocol!r}: there are {', '.join(names)}")


def open_client(text: str, options: dict[str, Any]) -> Client:
    """Parse the URL and hand it to its adapter."""
    _refuse_patched_threads()
    url = parse(text)
    return adapter(url.protocol)(url, options)


def _refuse_patched_threads() -> None:
    """Threads that gevent or eventlet has put its own in place of cannot wait in the engine: they would all stand still, without an end."""
    for module, asked, of in (("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread")):
        if module in sys.modules and getattr(sys.modules[module], asked)(of):
            name = module.partition(".")[0]
            raise UsageError(f"{name} has patched this process's threads; patch without them, or use wireproto in a process without {name}")
