"""What a Spark worker keeps between tasks: one client per cluster, and a collector that has nothing old to walk.

What it is: a cache of clients keyed by process, URL and options. Workers are forked from Spark's daemon, so a client is opened after the
fork and never carried across one. Spark's daemon runs a full collection after every task; freezing what was imported makes that cheap.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import connect
from ..errors import WireprotoError

if TYPE_CHECKING:
    from ..roles import Client

_clients: dict[tuple[int, str, tuple[tuple[str, Any], ...]], Client] = {}
_frozen: set[int] = set()


def client(url: str, options: Mapping[str, Any]) -> Client:
    """This process's client for a cluster, opened on first use."""
    pid = os.getpid()
    if pid not in _frozen:
        _frozen.add(pid)
        gc.collect()
        gc.freeze()
        atexit.register(close_all)
    key = (pid, url, tuple(sorted(options.items())))
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = connect(url, **options)
    return found


def forget(url: str, options: Mapping[str, Any]) -> None:
    """Close and drop a client that failed, so that the next task starts with a new one."""
    found = _clients.pop((os.getpid(), url, tuple(sorted(options.items()))), None)
    if found is not None:
        quietly(found)


def close_all() -> None:
    """Close this process's clients (at exit)."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        quietly(_clients.pop(key))


def quietly(client: Client) -> None:
    """Close a client that something else is already told about."""
    with suppress(WireprotoError):
        client.close(timeout=1.0)
