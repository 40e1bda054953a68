"""Our ZooKeeper client beside kazoo on a real server: calls that wait, and a thousand on their way; and the rate of a C program that
does nothing but send and receive (`raw_zookeeper.c`, compiled for the run: a single call is one send and one recv), for single calls of
a Python program that does no more than that either (`raw_zookeeper.py`): of a call that waits, most is the kernel's, and a `set` waits
for the server's disk.

Netty connections: the server's other kind writes once per reply and caps a pipelining client.
"""

from __future__ import annotations

import itertools
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
from kazoo.recipe.queue import LockingQueue

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
MESSAGES = Sizes(2000, 1000, 50)
DEPTH = 200
"""Messages that lie in a queue when its worker begins: kazoo lists them all for each that it takes, so that with a deeper one the row
would be about that; ours lists them once."""
_numbers = itertools.count()


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
            queue(bench, client, kazoo, top)
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


def queue(bench: Bench, client: Any, kazoo: Any, top: str) -> None:
    """Single messages, each acknowledged before the next one; both clients' queues have one layout."""
    count = bench.units(MESSAGES)
    jobs: dict[str, Job] = {"wireproto": lambda: ours_worked(client, top, count), "kazoo": lambda: kazoo_worked(client, kazoo, top, count)}
    bench.compare("queue: receive and ack each", count, jobs, few={"kazoo": 3}, rates=("kazoo",), measures=BOTH)


@contextmanager
def filled(client: Any, top: str, count: int) -> Iterator[list[tuple[str, int]]]:
    """New queues with so many messages of 100 bytes in all: their paths, and how many each has; in the end all are empty."""
    found = [(f"{top}/queue-{next(_numbers)}", min(DEPTH, count - begin)) for begin in range(0, count, DEPTH)]
    for path, depth in found:
        with client.producer(path) as producer:
            for _ in range(depth):
                producer.send(VALUE)
            producer.flush(60.0)
    yield found
    for path, _ in found:
        expect([client.tree().children(f"{path}/{part}")[0] for part in ("entries", "taken")], [[], []])


def ours_worked(client: Any, top: str, count: int) -> Stretch:
    with filled(client, top, count) as queues, Stretch() as stretch:
        for path, depth in queues:
            with client.queue(path, "bench") as worker:
                for _ in range(depth):
                    delivery = worker.receive(20.0)
                    assert delivery.value == VALUE
                    delivery.ack()
    return stretch


def kazoo_worked(client: Any, kazoo: Any, top: str, count: int) -> Stretch:
    with filled(client, top, count) as queues, Stretch() as stretch:
        for path, depth in queues:
            worker = LockingQueue(kazoo, path)
            for _ in range(depth):
                assert worker.get(20.0) == VALUE
                assert worker.consume()
    return stretch


def row(bench: Bench, task: str, calls: int, jobs: dict[str, Job], rates: Sequence[str] = ()) -> None:
    bench.compare(task, calls, jobs, unit="call", few={"kazoo": 3}, rates=rates, ahead=(FLOOR, RAW), measures=BOTH)
