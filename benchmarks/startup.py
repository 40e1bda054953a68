"""What a program pays before its first record: import time in fresh processes, byte code cached."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

from .harness import Bench, Stretch

TIMER = "import time as t; w, c = t.perf_counter(), t.process_time(); import {0}; print(t.perf_counter() - w, t.process_time() - c)"
PEERS = ("confluent_kafka", "aiokafka", "kafka", "pulsar", "kazoo.client")


def imported(name: str) -> Stretch:
    """Seconds that `import name` takes in a new process."""
    environment = {variable: value for variable, value in os.environ.items() if variable != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", TIMER.format(name)], env=environment, capture_output=True, text=True, check=True)
    stretch = Stretch()
    stretch.wall, stretch.cpu = map(float, done.stdout.split())
    return stretch


def suite(bench: Bench) -> None:
    """`import wireproto` (60 ms is its bound), our adapters, and the peers."""
    ours = ("wireproto", *(f"wireproto.{protocol}.client" for protocol in ("kafka", "pulsar", "rocketmq", "zookeeper")))
    names = (*ours, *(name for name in PEERS if find_spec(name.partition(".")[0]) is not None))
    jobs = {name: (lambda name=name: imported(name)) for name in names}
    bench.compare("import", 1, jobs, unit="process", rounds=5 if bench.quick else 15)
