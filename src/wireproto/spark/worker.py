"""Keeps what a Spark worker needs again between tasks: clients, and a garbage collector without old objects to walk.

Clients are cached by process, URL and options; the least recently used one is closed first. Workers are forked from Spark's daemon, so a
client is opened after the fork and never carried across one. Spark's daemon runs a full collection after every task; freezing what was
imported makes that cheap.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from .. import connect
from ..errors import WireprotoError

if TYPE_CHECKING:
    from ..roles import Client

KEPT_CLIENTS = 8
"""Largest number of clients that a worker keeps; it runs one task at a time, and a task uses one cluster or two."""

_clients: dict[tuple[int, str, tuple[tuple[str, Any], ...]], Client] = {}
"""By process id, URL and options; the most recently used one is the last."""
_beside: dict[Client, dict[str, Any]] = {}
_frozen: set[int] = set()


def client(url: str, options: Mapping[str, Any]) -> Client:
    """Return this process's client for a cluster, opened on first use."""
    settle()
    key = (os.getpid(), url, tuple(sorted(options.items())))
    found = _clients.pop(key, None)
    if found is None:
        own = [kept for kept in _clients if kept[0] == os.getpid()]
        for old in own[: max(0, len(own) + 1 - KEPT_CLIENTS)]:
            quietly(_clients.pop(old))
        found = connect(url, **options)
    _clients[key] = found
    return found


def beside(client: Client) -> dict[str, Any]:
    """Return the dict in which a format keeps things together with a client from task to task; it is dropped with the client."""
    return _beside.setdefault(client, {})


def settle() -> None:
    """Prepare the worker process, once: freeze what was imported, hide the trace of an ordinary end, close clients at exit."""
    pid = os.getpid()
    if pid not in _frozen:
        _frozen.add(pid)
        gc.collect()
        gc.freeze()
        sys.stderr = QuietEnd(sys.stderr)
        atexit.register(close_all)


def spark_input() -> Any:
    """Return the file that a task's rows come from; None outside of a worker.

    PySpark passes it to no user code; it is a local variable of `main` in PySpark's worker.py.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_code.co_filename.endswith("worker.py") and "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    return None


def input_was_cut() -> bool:
    """Return whether Spark's side of this worker's connection is gone.

    A driver or executor that dies closes the connection, and a stream of Arrow batches that ends so between two of them looks complete.
    Spark leaves its side open until it has the task's result, so a closed one means that rows may be missing.
    """
    source = spark_input()
    if source is None:
        return False
    poller = select.poll()
    poller.register(source.fileno(), getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(poller.poll(0))


class QuietEnd:
    """Standard error without the trace that Spark's daemon prints when a LIMIT has closed the worker's socket: that is an ordinary end."""

    def __init__(self, under: Any) -> None:
        self._under = under

    def write(self, text: str) -> int:
        """Write the text, unless the daemon is printing that trace; return the number of characters."""
        kind, _, trace = sys.exc_info()
        if kind is BrokenPipeError and trace is not None and trace.tb_frame.f_code.co_filename.endswith("pyspark/daemon.py"):
            return len(text)
        return int(self._under.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


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
    """Close a client whose failure is reported already."""
    _beside.pop(client, None)
    with suppress(WireprotoError):
        client.close(timeout=1.0)
