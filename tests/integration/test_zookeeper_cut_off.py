"""A follower that is cut off from its leader, on real servers: what the client that is connected to it may believe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import wireproto
from brokers import ZooKeeper
from brokers.proxy import FaultProxy
from patience import until

SECONDS = 60.0
STOCK = {"tickTime": "2000", "syncLimit": "5", "initLimit": "10", "minSessionTimeout": "4000", "maxSessionTimeout": "40000"}


class Apart(ZooKeeper):
    """Three members, each of which reaches the others through its own proxy."""

    def __init__(self, proxies: list[FaultProxy]) -> None:
        self.proxies = proxies
        super().__init__(nodes=3, settings={**STOCK, "reconfigEnabled": "false"})

    def _configuration(self, node: int, data: Path) -> dict[str, str]:
        lines = super()._configuration(node, data)
        for other, ports in enumerate(self._peer_ports):
            if other != node:
                through = [self.proxies[node].through(f"127.0.0.1:{port}") for port in ports]
                lines[f"server.{other + 1}"] = ":".join(["127.0.0.1", *(address.rpartition(":")[2] for address in through)])
        return lines


@pytest.fixture(scope="module")
def running() -> Iterator[Apart]:
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy()) for _ in range(3)]
        yield stack.enter_context(Apart(proxies))


@pytest.fixture
def ensemble(running: Apart) -> Iterator[Apart]:
    """All of its members reach one another, and serve."""
    yield running
    for proxy in running.proxies:
        proxy.heal()
    until(lambda: all(running.mode(node) for node in range(running.nodes)))


@pytest.mark.parametrize("session", [8.0, 12.0])  # half of it is longer than a loaded server stands still
def test_nobody_else_gets_a_lock_that_is_safe(ensemble: Apart, session: float) -> None:
    leader = ensemble.leader()
    follower = next(node for node in range(3) if node != leader)
    others = ",".join(address for node, address in enumerate(ensemble.addresses) if node != follower)
    with (
        wireproto.connect(f"zookeeper://{ensemble.addresses[follower]}", session_timeout=session) as one,
        wireproto.connect(f"zookeeper://{others}", session_timeout=30.0) as two,
    ):
        holder, rival = one.tree(), two.tree()
        lock = f"/lock-{session}"
        holder.create(lock, b"one", ephemeral=True)
        idle = time.monotonic() + session
        until(lambda: holder.safe_for() == 0.0 or time.monotonic() > idle)
        assert holder.safe_for() > 0.0, "it is asked, and stays above 0"
        ensemble.proxies[follower].stall()
        begin, safe = time.monotonic(), time.monotonic()
        while rival.exists(lock) is not None:
            if holder.safe_for() > 0.0:
                safe = time.monotonic()
            time.sleep(0.01)
            assert time.monotonic() < begin + SECONDS
        assert holder.safe_for() == 0.0
        assert safe - begin > session / 4, "and not at once"
