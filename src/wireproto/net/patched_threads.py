"""Refuses to open clients where gevent or eventlet has replaced this process's threads."""

from __future__ import annotations

import sys

from wireproto.errors import UsageError


def refuse_patched_threads() -> None:
    """Raise UsageError if gevent or eventlet has replaced the threads of this process: waiting in the engine would block all of them."""
    for module, asked, of in (("gevent.monkey", "is_module_patched", "threading"), ("eventlet.patcher", "is_monkey_patched", "thread")):
        if module in sys.modules and getattr(sys.modules[module], asked)(of):
            name = module.partition(".")[0]
            raise UsageError(f"{name} has patched this process's threads; patch without them, or use wireproto in a process without {name}")
