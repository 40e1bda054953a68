"""Money is moved between accounts by three programs that are killed, stopped and replaced, on three nodes that are killed, too: each
order is carried out once, as librdkafka's read_committed consumer sees it, and a program whose name another one has taken moves nothing.

A seed is a history: who is hurt, how, and after how many orders. Nodes are killed in each twentieth.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import wireproto
from brokers import Kafka
from brokers.process import spawn
from chance import seed as chance_seed
from kafka_committed import settled
from kafka_mover import PARTITIONS
from patience import LONG, soon, until

ROOT = Path(__file__).parents[2]
ORDERS, ACCOUNTS, PROGRAMS = 60, 6, 3
ASK_AGAIN = 0.25
"""Seconds after which the brokers are asked how many orders are carried out, though the programs have not told of so many."""
PHASE = 0.05
"""Up to so many seconds after the order that a mishap waits for, so that it meets a program anywhere in its transaction."""
_numbers = itertools.count()
OLDER = ["kafka-4.3.1-cluster-level-1", "kafka-3.9.2-cluster-transactions"]
pytestmark = pytest.mark.timeout(600)


class Mover:
    """One program, and what it has told."""

    def __init__(self, url: str, source: str, target: str, name: str, seed: int, errors: Path, heard: threading.Event) -> None:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        command = [sys.executable, "-W", "ignore", "-m", "kafka_mover", url, source, target, name, str(seed)]
        self.name = name
        self.errors = errors
        self._heard = heard
        with errors.open("wb") as out:
            environment = {**os.environ, "PYTHONPATH": paths}
            self.process = spawn(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out)
        self.told: Counter[str] = Counter()
        self._hears = threading.Thread(target=self._hear, daemon=True)
        self._hears.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, count = line.decode().strip().partition(" ")
            self.told[word] += int(count or 1)
            self._heard.set()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Ask for its end, and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(LONG)
        assert code == 0, f"{self.name} ended with {code}: {self.errors.read_text()}"

    def gone(self) -> None:
        """It is killed, if it is there still, and all that it told is known."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self._hears.join(LONG)
        self.process.stdin.close()
        self.process.stdout.close()


class History:
    """Orders, and three programs that carry them out."""

    def __init__(self, broker: Kafka, seed: int, folder: Path, *, mishaps: tuple[int, int], nodes: bool) -> None:
        self.broker, self.seed, self.folder, self.mishaps, self.nodes = broker, seed, folder, mishaps, nodes
        self.chance = random.Random(seed)
        name = f"{os.getpid()}-{next(_numbers)}"
        self.source, self.target = f"orders-{name}", f"accounts-{name}"
        self.expected: list[bytes] = []
        self.counts: Counter[str] = Counter()
        self.movers: list[Mover] = []
        self.zombies: list[Mover] = []
        self.killed: list[Mover] = []
        self.heard = threading.Event()

    def run(self) -> Counter[str]:
        with wireproto.connect(self.broker.url, timeout=LONG) as client:
            self.order(client)
            self.movers = [self.mover(f"{self.source}-{number}") for number in range(PROGRAMS)]
            try:
                mishaps = sorted(self.chance.randrange(ORDERS * 3 // 4) for _ in range(self.chance.randint(*self.mishaps)))
                for done in mishaps:
                    self.reach(client, done)
                    self.hurt()
                if self.nodes:
                    self.kill_a_node(client)
                self.reach(client, ORDERS)
                for mover in (*self.movers, *self.zombies):
                    mover.end()
            finally:
                for mover in (*self.movers, *self.zombies, *self.killed):
                    mover.gone()
        for mover in (*self.movers, *self.zombies, *self.killed):
            self.counts += mover.told
        settled(self.broker, self.target, sorted(self.expected), ordered=False, partitions=PARTITIONS)
        return self.counts

    def order(self, client: wireproto.Client) -> None:
        for topic in (self.source, self.target):
            client.admin().create_topic(topic, partitions=PARTITIONS)
        with client.producer(self.source) as out:
            for number in range(ORDERS):
                loser, winner = self.chance.sample(range(ACCOUNTS), 2)
                amount = self.chance.randrange(1, 100)
                out.send(b"%d:%d:%d:%d" % (loser, winner, amount, number), partition=number % PARTITIONS)
                if number % 6 == 5:
                    out.flush(LONG)  # a batch is what a poll hands out
                self.expected += [b"%d:-%d" % (number, amount), b"%d:+%d" % (number, amount)]

    def mover(self, name: str) -> Mover:
        errors = self.folder / f"{name}-{next(_numbers)}.err"
        return Mover(self.broker.url, self.source, self.target, name, self.chance.randrange(1 << 30), errors, self.heard)

    def reach(self, client: wireproto.Client, done: int) -> None:
        """So many orders are carried out. The brokers are asked when the programs have told of so many, and now and then before: one that
        was killed, or whose name was taken, may have committed what it never told."""
        deadline = soon(3 * LONG)
        asked = time.monotonic()
        while True:
            self.heard.clear()
            if self.committed() >= done or time.monotonic() >= asked + ASK_AGAIN:
                if self.carried_out(client) >= done:
                    return
                asked = time.monotonic()
            assert deadline > soon(0.0), f"{self.carried_out(client)} of {ORDERS} orders; {[dict(mover.told) for mover in self.movers]}"
            for mover in self.movers:
                assert mover.process.poll() is None, f"{mover.name} ended by itself: {mover.errors.read_text()}"
            self.heard.wait(ASK_AGAIN)

    def committed(self) -> int:
        """Orders that the programs have told of."""
        return sum(mover.told["committed"] for mover in (*self.movers, *self.zombies, *self.killed))

    def carried_out(self, client: wireproto.Client) -> int:
        places = client.admin().group_positions(self.source, self.source, timeout=LONG)
        return sum(place.offset for place in places.values() if isinstance(place, wireproto.LogOffset))

    def hurt(self) -> None:
        """Kill a program and start it again, or stop it, give its name to another one, and have it go on."""
        time.sleep(self.chance.random() * PHASE)
        place = self.chance.randrange(PROGRAMS)
        old = self.movers[place]
        if self.chance.random() < 0.5:
            old.signal(signal.SIGKILL)
            old.process.wait()
            self.killed.append(old)
            self.movers[place] = self.mover(old.name)
            self.counts["killed"] += 1
            return
        until(lambda: old.told["ready"])  # one that has yet to take its name takes it from the next one when it goes on, rightly
        old.signal(signal.SIGSTOP)
        self.movers[place] = new = self.mover(old.name)
        until(lambda: new.told["ready"])
        old.signal(signal.SIGCONT)
        self.zombies.append(old)
        self.counts["replaced"] += 1

    def kill_a_node(self, client: wireproto.Client) -> None:
        """Any of them: leaders, coordinators of the group and the names, the controller."""
        node = self.chance.randrange(self.broker.nodes)
        self.broker.kill(node)
        self.counts["nodes killed"] += 1
        try:
            self.reach(client, min(ORDERS, self.carried_out(client) + 6))
        finally:
            self.broker.start(node)


def histories(broker: Kafka, folder: Path, seeds: range, *, mishaps: tuple[int, int], nodes: int) -> Counter[str]:
    """What became of the programs. Of each history `mishaps` is the least and the largest number; nodes are killed in each so many."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found += History(broker, seed, folder, mishaps=mishaps, nodes=seed % nodes == 0).run()
        except Exception as why:
            raise AssertionError(f"seed {seed}: {type(why).__name__}: {why}") from why
    return found


@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster", *OLDER], indirect=True)
def test_each_order_is_carried_out_once(broker: Kafka, oracle: Any, tmp_path: Path) -> None:
    """On the cluster that other tests use, too; one history, in which much happens."""
    first = chance_seed() * 10_000
    found = histories(broker, tmp_path, range(first, first + 1), mishaps=(12, 15), nodes=1)
    assert found["nodes killed"] == 1
    assert found["killed"] + found["replaced"] >= 12
    oracle(f"{broker.name} programs that move money", **found)


@pytest.mark.soak
@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster-transactions", *OLDER], indirect=True)
def test_each_order_is_carried_out_once_a_thousand_times(broker: Kafka, oracle: Any, tmp_path: Path) -> None:
    first = chance_seed() * 10_000 + 1000
    found = histories(broker, tmp_path, range(first, first + 1000), mishaps=(1, 3), nodes=20)
    oracle(f"{broker.name} programs that move money", **found)
