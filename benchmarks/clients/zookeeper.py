"""Our ZooKeeper client beside kazoo, in one run on a real server: calls that wait, and a thousand on their way.

    PYTHONPATH=src:tests python benchmarks/clients/zookeeper.py [--nio] [--calls 5000] [--rounds 3] [--value 100]

Prints calls per second (best and median round) and the client's CPU microseconds per call. The rounds of both clients alternate, so
that a neighbour's noise falls on both. Netty connections by default: the other kind writes once per reply and caps a pipelining client.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

import wireproto
from brokers import ZooKeeper

AHEAD = 1000


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


def measure(work: Callable[[], None], calls: int) -> tuple[float, float]:
    """Calls per second, CPU microseconds per call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return calls / (time.perf_counter() - wall), (time.process_time() - cpu) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Our ZooKeeper client beside kazoo.")
    parser.add_argument("--nio", action="store_true", help="the server's default connection factory")
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--value", type=int, default=100, help="bytes")
    options = parser.parse_args()
    calls, value = max(options.calls // AHEAD, 1) * AHEAD, b"x" * options.value
    with ZooKeeper(netty=not options.nio, fast=False) as server, wireproto.connect(server.url) as client:
        tree = client.tree()
        kazoo = KazooClient(server.url.partition("://")[2])
        kazoo.start()
        tree.create("/bench", value)
        pairs: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "get": (lambda: repeat(lambda: tree.get("/bench"), calls), lambda: repeat(lambda: kazoo.get("/bench"), calls)),
            "exists": (lambda: repeat(lambda: tree.exists("/bench"), calls), lambda: repeat(lambda: kazoo.exists("/bench"), calls)),
            "set": (lambda: repeat(lambda: tree.set("/bench", value), calls), lambda: repeat(lambda: kazoo.set("/bench", value), calls)),
            "get, 1000 ahead": (
                lambda: ours_async(lambda: tree.get_async("/bench"), calls),
                lambda: kazoo_async(lambda: kazoo.get_async("/bench"), calls),
            ),
            "set, 1000 ahead": (
                lambda: ours_async(lambda: tree.set_async("/bench", value), calls),
                lambda: kazoo_async(lambda: kazoo.set_async("/bench", value), calls),
            ),
        }
        print(f"{'':16} {'ours/s':>9} {'median':>9} {'CPU us':>7}   {'kazoo/s':>9} {'median':>9} {'CPU us':>7}   {'times':>6}")
        for name, works in pairs.items():
            for work in works:
                work()  # warm the server up
            found: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
            for _ in range(options.rounds):
                for work, rounds in zip(works, found, strict=True):
                    rounds.append(measure(work, calls))
            cells = [(max(r for r, _ in rounds), statistics.median(r for r, _ in rounds), min(c for _, c in rounds)) for rounds in found]
            texts = "   ".join("{:9.0f} {:9.0f} {:7.1f}".format(*cell) for cell in cells)
            print(f"{name:16} {texts}   {cells[0][1] / cells[1][1]:6.1f}")
        kazoo.stop()
        kazoo.close()


if __name__ == "__main__":
    main()
