"""Our ZooKeeper client beside kazoo on a real server: calls that wait, and a thousand on their way; and the rate of a C program that
does nothing but send and receive (`raw_zookeeper.c`, compiled for the run: a single call is one send and one recv), for single calls of
a Python program that does no more than that either (`raw_zookeeper.py`): of a call that waits, most is the kernel's, and a `set` waits
for the server's disk.

Netty connections: the server's other kind writes once per reply and caps a pipelining client.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

import wireproto
from brokers import ZooKeeper

from ..compiled import build
from ..harness import Bench, Job, Sizes, Stretch
from .kafka import BOTH
from .raw_zookeeper import RawSocket
from .stored import expect

RAW, FLOOR = "raw C client", "floor: send, poll, recv"
Raw = Callable[[str, str, int, int], Stretch]
AHEAD, VALUE, CHILDREN = 1000, b"x" * 100, 10_000
CALLS = Sizes(5000, 2000, AHEAD // 5)  # one at a time; five times as many in flight


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
    with ZooKeeper(netty=True, fast=bench.quick, heap="2g") as server:
        bench.brokers["zookeeper"] = f"ZooKeeper {server.version} (Netty)"
        bench.count(server.url)
        tasks(bench, server.url)


def tasks(bench: Bench, url: str) -> None:
    """All of them on the server at that URL, below a node of this process."""
    calls, top = bench.units(CALLS), f"/bench-{os.getpid()}"
    address = url.partition("://")[2].partition("/")[0]
    with wireproto.connect(url) as client:
        kazoo = KazooClient(address)
        kazoo.start()
        try:
            client.tree().create(top, VALUE)
            with raw_client(url) as raw:
                with RawSocket(address, top, VALUE) as floor:
                    sync(bench, client.tree(), kazoo, top, floor, raw, calls)
                pipelined(bench, client.tree(), kazoo, top, raw, 5 * calls)
            children(bench, client.tree(), kazoo, top)
        finally:
            kazoo.stop()
            kazoo.close()


@contextmanager
def raw_client(url: str) -> Iterator[Raw]:
    """A function that runs the C program: operation, path, calls and how many of them are on their way at once, to what they cost."""
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    with tempfile.TemporaryDirectory() as folder:

        @cache
        def program() -> str:
            return str(build(Path(__file__).with_name("raw_zookeeper.c"), Path(folder) / "raw"))

        def run(verb: str, path: str, calls: int, ahead: int) -> Stretch:
            command = [program(), host, port, verb, path, str(calls), str(ahead)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
            stretch = Stretch()
            stretch.cpu, stretch.wall = found["cpu_us"] * calls / 1e6, found["wall_us"] * calls / 1e6
            return stretch

        yield run


def sync(bench: Bench, tree: Any, kazoo: Any, top: str, floor: RawSocket, raw: Raw, calls: int) -> None:
    """One call at a time."""
    verbs: dict[str, tuple[Any, ...]] = {"get": (top,), "exists": (top,), "set": (top, VALUE)}
    for verb, arguments in verbs.items():
        ours, theirs = getattr(tree, verb), getattr(kazoo, verb)
        jobs: dict[str, Job] = {
            "wireproto": lambda f=ours, a=arguments: repeat(lambda: f(*a), calls),
            "kazoo": lambda f=theirs, a=arguments: repeat(lambda: f(*a), calls),
            FLOOR: lambda verb=verb: floor.repeat(verb, calls),
            RAW: lambda verb=verb: raw(verb, top, calls, 1),
        }
        row(bench, f"{verb}, one at a time", calls, jobs, rates=("kazoo",))


def pipelined(bench: Bench, tree: Any, kazoo: Any, top: str, raw: Raw, calls: int) -> None:
    """A thousand on their way; beside the C program rates count, too."""
    made = {name: f"{top}/{name}" for name in ("ours", "kazoo", "raw")}
    for parent in made.values():
        tree.create(parent)
    verbs: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {
        "get": (top, lambda: tree.get_async(top), lambda: kazoo.get_async(top)),
        "set": (top, lambda: tree.set_async(top, VALUE), lambda: kazoo.set_async(top, VALUE)),
        "create": (
            made["raw"],
            lambda: tree.create_async(f"{made['ours']}/n-", VALUE, sequence=True),
            lambda: kazoo.create_async(f"{made['kazoo']}/n-", VALUE, sequence=True),
        ),
    }
    for verb, (path, ours, theirs) in verbs.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda ours=ours: ours_async(ours, calls),
            "kazoo": lambda theirs=theirs: kazoo_async(theirs, calls),
            RAW: lambda verb=verb, path=path: raw(verb, path, calls, AHEAD),
        }
        if verb == "create":
            parents = ("ours", "kazoo", "raw")
            jobs = {name: made_there(tree, made[parent], calls, job) for (name, job), parent in zip(jobs.items(), parents, strict=True)}
        row(bench, f"{verb}, 1,000 in flight", calls, jobs, rates=(RAW,))


def made_there(tree: Any, parent: str, count: int, job: Job) -> Job:
    """The job, measured, after which the parent must have so many children more."""

    def checked() -> Stretch:
        before = tree.get(parent)[1].num_children
        with Stretch() as stretch:
            inner = job()
        expect(tree.get(parent)[1].num_children - before, count)
        return inner if isinstance(inner, Stretch) else stretch

    return checked


def children(bench: Bench, tree: Any, kazoo: Any, top: str) -> None:
    many = f"{top}/many"
    tree.create(many)
    for begin in range(0, CHILDREN, AHEAD):
        for call in [tree.create_async(f"{many}/node-{n:06}", b"") for n in range(begin, begin + AHEAD)]:
            call.result()
    jobs: dict[str, Job] = {
        "wireproto": lambda: repeat(lambda: tree.children(many), 20),
        "kazoo": lambda: repeat(lambda: kazoo.get_children(many), 20),
    }
    row(bench, f"children of a node with {CHILDREN:,}", 20, jobs)


def row(bench: Bench, task: str, calls: int, jobs: dict[str, Job], rates: Sequence[str] = ()) -> None:
    bench.compare(task, calls, jobs, unit="call", few={"kazoo": 3}, rates=rates, ahead=(FLOOR, RAW), measures=BOTH)
