"""Our ZooKeeper client beside kazoo on a real server: calls that wait, and a thousand on their way; and the rate of a C program that
does nothing but send and receive (`raw_zookeeper.c`, compiled for the run: a single call is one send and one recv), for single calls of
a Python program that does no more than that either (`raw_zookeeper.py`): of a call that waits, most is the kernel's, and a `set` waits
for the server's disk.

Netty connections: the server's other kind writes once per reply and caps a pipelining client.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

import wireproto
from brokers import ZooKeeper

from ..harness import Bench, Job, Stretch
from .raw_zookeeper import RawSocket

RAW, FLOOR = "raw C client", "floor: send, poll, recv"
Raw = Callable[[str, str, int, int], Stretch]
AHEAD, VALUE, CHILDREN = 1000, b"x" * 100, 10_000


def ours_async(send: Callable[[], Any], calls: int) -> None:
    for _ in range(calls // AHEAD):
        for call in [send() for _ in range(AHEAD)]:
            call.result()


def kazoo_async(send: Callable[[], Any], calls: int) -> None:
    for _ in range(calls // AHEAD):
        for result in [send() for _ in range(AHEAD)]:
            result.get()


def repeat(call: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        call()


def suite(bench: Bench) -> None:
    calls, rounds = (2000, 3) if bench.quick else (5000, 5)
    with ZooKeeper(netty=True, fast=False, heap="2g") as server, wireproto.connect(server.url) as client:
        bench.brokers["zookeeper"] = f"ZooKeeper {server.version} (Netty)"
        kazoo = KazooClient(server.url.partition("://")[2])
        kazoo.start()
        try:
            client.tree().create("/bench", VALUE)
            with raw_client(server.url) as raw:
                with RawSocket(server.url.partition("://")[2].partition("/")[0], "/bench", VALUE) as floor:
                    sync(bench, client.tree(), kazoo, floor, raw, calls, rounds)
                pipelined(bench, client.tree(), kazoo, raw, 5 * calls, rounds)
            children(bench, client.tree(), kazoo, rounds)
        finally:
            kazoo.stop()
            kazoo.close()


@contextmanager
def raw_client(url: str) -> Iterator[Raw]:
    """A function that runs the C program: operation, path, calls and how many of them are on their way at once, to what they cost."""
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "raw"
        source = Path(__file__).with_name("raw_zookeeper.c")
        subprocess.run([*shlex.split(os.environ.get("CC", "") or "cc"), "-O2", "-o", str(program), str(source)], check=True)

        def run(verb: str, path: str, calls: int, ahead: int) -> Stretch:
            command = [str(program), host, port, verb, path, str(calls), str(ahead)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
            stretch = Stretch()
            stretch.cpu, stretch.wall = found["cpu_us"] * calls / 1e6, found["wall_us"] * calls / 1e6
            return stretch

        yield run


def sync(bench: Bench, tree: Any, kazoo: Any, floor: RawSocket, raw: Raw, calls: int, rounds: int) -> None:
    """One call at a time."""
    verbs: dict[str, tuple[Any, ...]] = {"get": ("/bench",), "exists": ("/bench",), "set": ("/bench", VALUE)}
    for verb, arguments in verbs.items():
        ours, theirs = getattr(tree, verb), getattr(kazoo, verb)
        bench.compare(
            f"{verb}, one at a time",
            calls,
            {
                "wireproto": lambda f=ours, a=arguments: repeat(lambda: f(*a), calls),
                "kazoo": lambda f=theirs, a=arguments: repeat(lambda: f(*a), calls),
                FLOOR: lambda verb=verb: floor.repeat(verb, calls),
                RAW: lambda verb=verb: raw(verb, "/bench", calls, 1),
            },
            unit="call",
            rounds=rounds,
            bars={"kazoo": 10},
            rates={"kazoo": 2.5},
            floor=FLOOR,
        )


def pipelined(bench: Bench, tree: Any, kazoo: Any, raw: Raw, calls: int, rounds: int) -> None:
    """A thousand on their way: our rate is to be 60 % of the C program's at least."""
    for parent in ("/made", "/kazoo-made", "/raw-made"):
        tree.create(parent)
    get, put = ("/bench",), ("/bench", VALUE)
    verbs: dict[str, tuple[str, Callable[[], Any], Callable[[], Any], float]] = {
        "get": ("/bench", lambda: tree.get_async(*get), lambda: kazoo.get_async(*get), 20),
        "set": ("/bench", lambda: tree.set_async(*put), lambda: kazoo.set_async(*put), 15),
        "create": (
            "/raw-made",
            lambda: tree.create_async("/made/n-", VALUE, sequence=True),
            lambda: kazoo.create_async("/kazoo-made/n-", VALUE, sequence=True),
            15,
        ),
    }
    for verb, (path, ours, theirs, bar) in verbs.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda ours=ours: ours_async(ours, calls),
            "kazoo": lambda theirs=theirs: kazoo_async(theirs, calls),
            RAW: lambda verb=verb, path=path: raw(verb, path, calls, AHEAD),
        }
        bench.compare(
            f"{verb}, 1,000 in flight", calls, jobs, unit="call", rounds=rounds, few={"kazoo": 2}, bars={"kazoo": bar}, rates={RAW: 0.6}
        )


def children(bench: Bench, tree: Any, kazoo: Any, rounds: int) -> None:
    tree.create("/many")
    for begin in range(0, CHILDREN, AHEAD):
        for call in [tree.create_async(f"/many/node-{n:06}", b"") for n in range(begin, begin + AHEAD)]:
            call.result()
    bench.compare(
        f"children of a node with {CHILDREN:,}",
        20,
        {"wireproto": lambda: repeat(lambda: tree.children("/many"), 20), "kazoo": lambda: repeat(lambda: kazoo.get_children("/many"), 20)},
        unit="call",
        rounds=rounds,
        bars={"kazoo": 3},
    )
