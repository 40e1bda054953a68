"""What a program pays before its first record: import time in fresh processes, byte code cached."""

from __future__ import annotations

import os
import subprocess
import sys

from .harness import Bench, Stretch

TIMER = "import time as t; w, c = t.perf_counter(), t.process_time(); import {0}; print(t.perf_counter() - w, t.process_time() - c)"
PEERS = {
    "wireproto": ("confluent_kafka", "aiokafka", "kafka", "pulsar", "kazoo.client"),
    "wireproto.kafka.client": ("confluent_kafka", "aiokafka", "kafka"),
    "wireproto.pulsar.client": ("pulsar",),
    "wireproto.rocketmq.client": ("rocketmq.client",),
    "wireproto.zookeeper.client": ("kazoo.client",),
}
THIN = frozenset(("confluent_kafka", "rocketmq.client"))  # a few Python modules over a C library: shown, no bar


def imported(name: str) -> Stretch:
    """Seconds that `import name` takes in a new process."""
    environment = {variable: value for variable, value in os.environ.items() if variable != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", TIMER.format(name)], env=environment, capture_output=True, text=True, check=True)
    stretch = Stretch()
    stretch.wall, stretch.cpu = map(float, done.stdout.split())
    return stretch


def tasks(bench: Bench) -> None:
    """`import wireproto`, and each adapter beside its peers."""
    for ours, peers in PEERS.items():
        jobs = {name: (lambda name=name: imported(name)) for name in (ours, *peers)}
        shown = tuple(THIN.intersection(peers))
        bench.compare(f"import {ours}", 1, jobs, unit="process", rounds=10, ours=ours, shown=shown, measures=("cpu",))
