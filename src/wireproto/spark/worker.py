"""What a Spark worker keeps between tasks: one client per cluster, and a collector that has nothing old to walk.

What it is: a cache of clients keyed by process, URL and options, the least lately used let go. Workers are forked from Spark's daemon,
so a client is opened after the fork and never carried across one. Spark's daemon runs a full collection after every task; freezing what was
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
"""Most clients that a worker keeps; it runs one task at a time, and a task uses one cluster or two."""

_clients: dict[tuple[int, str, tuple[tuple[str, Any], ...]], Client] = {}
"""The one that was used last stands last."""
_beside: dict[Client, dict[str, Any]] = {}
_frozen: set[int] = set()


def client(url: str, options: Mapping[str, Any]) -> Client:
    """This process's client for a cluster, opened on first use."""
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
    """What a format keeps from task to task together with a client, by name; let go with it."""
    return _beside.setdefault(client, {})


def settle() -> None:
    """Once a worker: nothing old for the collector to walk after every task, no trace of an ordinary end, nothing left open."""
    pid = os.getpid()
    if pid not in _frozen:
        _frozen.add(pid)
        gc.collect()
        gc.freeze()
        sys.stderr = QuietEnd(sys.stderr)
        atexit.register(close_all)


def spark_input() -> Any:
    """The file that a task's rows come from; None outside of a worker. PySpark hands it to nobody: it is a name in its worker's `main`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_code.co_filename.endswith("worker.py") and "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    return None


def input_was_cut() -> bool:
    """Whether Spark's side of this worker's connection is gone.

    A driver or executor that dies closes the connection, and a stream of Arrow batches that ends so between two of them looks like one that
    came to its end. Spark leaves its side open until it has the task's result, so a closed one means that rows may be missing.
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
    """Close a client that something else is already told about."""
    _beside.pop(client, None)
    with suppress(WireprotoError):
        client.close(timeout=1.0)
