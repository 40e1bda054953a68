"""Resident memory of a program that reads for long: after its first gigabyte, and at most.

The reader has a process of its own; the broker is a real Kafka.
"""

from __future__ import annotations

import subprocess
import sys

import wireproto
from brokers import Kafka

from .clients.kafka import fill
from .harness import Bench

READER = """
import sys, wireproto
from wireproto import EARLIEST, LATEST
def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * 4096
url, topic, passes = sys.argv[1], sys.argv[2], int(sys.argv[3])
with wireproto.connect(url) as client:
    for number in range(passes):
        count = 0
        with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
            for batch in reader:
                count += len(batch.columns)
        print(count, resident(), flush=True)
"""
FULL = "bench-read"
RECORD = 125  # bytes of a record on the wire
SETTLED = 1e9  # bytes read before the memory is taken: until then buffers grow to what the fetches of this run need
GROWTH = 1.10


def suite(bench: Bench) -> None:
    """Resident MB; fails when memory grows by more than a tenth between the first gigabyte read and the end, or is above our figure."""
    records, passes = 1_000_000, 85
    with Kafka("4.3.1", fast=bench.quick) as broker, wireproto.connect(broker.url) as client:
        client.admin().create_topic(FULL, partitions=1)
        fill(broker.bootstrap, FULL, records)
        told = subprocess.run(
            [sys.executable, "-c", READER, broker.url, FULL, str(passes)], capture_output=True, text=True, check=True, timeout=900
        )
    rows = [tuple(map(int, line.split())) for line in told.stdout.splitlines()]
    if {count for count, _ in rows} != {records}:
        raise AssertionError(f"records read: {sorted({count for count, _ in rows})}, written: {records}")
    first = round(SETTLED / (records * RECORD))
    early, late = max(size for _, size in rows[:first]), max(size for _, size in rows)
    read = records * passes * RECORD / 1e9
    bench.brokers["memory"] = (
        f"memory: reader's resident size {early / 1e6:.0f} MB after {first * records * RECORD / 1e9:.1f} GB,"
        f" at most {late / 1e6:.0f} MB to {read:.1f} GB"
    )
    print(f"    {bench.brokers['memory']}", flush=True)
    bench.tell("resident memory of a reader", "MB", late / 1e6)
    if late > early * GROWTH:
        raise AssertionError(f"resident memory grew from {early:,} to {late:,} bytes")
