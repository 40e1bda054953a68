"""Our ZooKeeper client beside kazoo on a real server: calls that wait, and a thousand on their way.

Netty connections: the server's other kind writes once per reply and caps a pipelining client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

import wireproto
from brokers import ZooKeeper

from ..harness import Bench

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
    with ZooKeeper(netty=True, fast=False) as server, wireproto.connect(server.url) as client:
        bench.brokers["zookeeper"] = f"ZooKeeper {server.version} (Netty)"
        kazoo = KazooClient(server.url.partition("://")[2])
        kazoo.start()
        try:
            sync(bench, client.tree(), kazoo, calls, rounds)
            pipelined(bench, client.tree(), kazoo, calls, rounds)
            children(bench, client.tree(), kazoo, rounds)
        finally:
            kazoo.stop()
            kazoo.close()


def sync(bench: Bench, tree: Any, kazoo: Any, calls: int, rounds: int) -> None:
    """One call at a time. The rate's bar is 2.5 times kazoo's."""
    tree.create("/bench", VALUE)
    verbs: dict[str, tuple[tuple[Any, ...], float]] = {
        "get": (("/bench",), 2.5),
        "exists": (("/bench",), 2.5),
        "set": (("/bench", VALUE), 2.5),
    }
    for verb, (arguments, bar) in verbs.items():
        ours, theirs = getattr(tree, verb), getattr(kazoo, verb)
        bench.compare(
            f"{verb}, one at a time",
            calls,
            {
                "wireproto": lambda f=ours, a=arguments: repeat(lambda: f(*a), calls),
                "kazoo": lambda f=theirs, a=arguments: repeat(lambda: f(*a), calls),
            },
            unit="call",
            rounds=rounds,
            bars={"kazoo": bar},
            by="wall",
        )


def pipelined(bench: Bench, tree: Any, kazoo: Any, calls: int, rounds: int) -> None:
    verbs: dict[str, tuple[tuple[Any, ...], float]] = {"get": (("/bench",), 20), "set": (("/bench", VALUE), 15)}
    for verb, (arguments, bar) in verbs.items():
        ours, theirs = getattr(tree, f"{verb}_async"), getattr(kazoo, f"{verb}_async")
        bench.compare(
            f"{verb}, 1,000 in flight",
            calls,
            {
                "wireproto": lambda f=ours, a=arguments: ours_async(lambda: f(*a), calls),
                "kazoo": lambda f=theirs, a=arguments: kazoo_async(lambda: f(*a), calls),
            },
            unit="call",
            rounds=rounds,
            bars={"kazoo": bar},
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
