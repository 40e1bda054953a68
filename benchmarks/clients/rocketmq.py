"""RocketMQ clients on a real broker: send and pull messages of 100 B value with a key, a topic of four queues.

Peers: PyPI's `rocketmq` (ctypes over the vendor's C++ client), where it runs, and the vendor's Java client (``tests/brokers/java/
RocketBench.java``), which measures its own process after a warm-up. Their consumers are pushed to; ours pulls. The clock runs from the
start of the consumer (or the first send) to the last message (or the last answer). A full run does it on both lines of brokers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import wireproto
from brokers import RocketMQ, java
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Stretch
from .kafka import expect, values

FULL, FILLED, QUEUES = "bench-read", "bench-write", 4
KEY, BATCH = b"k" * 16, 100
PEER, JAVA = "rocketmq 0.4", "Java client"
FULL_JIT = ("-XX:TieredStopAtLevel=4",)
WARM = {"sync": 10_000, "async": 60_000, "batch": 300_000, "push": 3}
"""Messages (push: passes over the topic) before the Java client's clock runs: its compiler has done its work by then."""
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    for version in ("5.5.0",) if bench.quick else ("5.5.0", "4.9.7"):
        on(bench, version)


def on(bench: Bench, version: str) -> None:
    """All tasks on a broker of that version; those of the older line say so."""
    count, rounds = (20_000, 3) if bench.quick else (100_000, 5)
    line = "" if version == "5.5.0" else f", {version}"
    with RocketMQ(version, fast=bench.quick) as broker, wireproto.connect(broker.url) as client:
        bench.brokers["rocketmq" + line] = f"RocketMQ {broker.version}"
        for topic in (FULL, FILLED):
            client.admin().create_topic(topic, partitions=QUEUES)
        names = broker.url.partition("://")[2]
        ours_send_batch(client, FULL, pa.record_batch({"key": [KEY] * 1000, "value": values(1000)}), count)
        send(bench, client, names, count, rounds, line)
        read(bench, client, names, count, rounds, line)


def send(bench: Bench, client: Any, names: str, count: int, rounds: int, line: str) -> None:
    few, some = count // 20, count // 4
    batch = pa.record_batch({"key": [KEY] * 1000, "value": values(1000)})
    tasks: list[tuple[str, str, int, Job, Job, float, float]] = [
        ("produce: sync send", "sync", few, lambda: ours_sync(client, values(few)), lambda: peer_sync(names, values(few)), 2, 1.5),
        (
            *("produce: pipelined send()", "async", some),
            lambda: ours_send(client, values(some)),
            lambda: peer_async(names, values(few), some / few),
            *(18, 3),
        ),
        (
            *("produce: batches from Arrow", "batch", count),
            lambda: ours_send_batch(client, FILLED, batch, count),
            lambda: peer_batch(names, values(count)),
            *(15, 4),
        ),
    ]
    for task, how, units, ours, theirs, bar, java_bar in tasks:
        jobs = {"wireproto": ours, PEER: theirs, JAVA: lambda how=how, units=units: vendors(how, names, FILLED, units)}
        bench.compare(task + line, units, jobs, rounds=rounds, few={PEER: 3, JAVA: 2}, bars={PEER: bar, JAVA: java_bar})


def read(bench: Bench, client: Any, names: str, count: int, rounds: int, line: str) -> None:
    uses: dict[str, tuple[Callable[[Any], Any], float, float]] = {
        "pull to Arrow": (lambda batch: pa.record_batch(batch), 10, 4),
        "pull, record objects": (lambda batch: [record.value for record in batch], 6, 2.5),
    }
    for task, (use, bar, java_bar) in uses.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda use=use: ours_read(client, count, use),
            PEER: lambda: peer_push(names, count),
            JAVA: lambda: vendors("push", names, FULL, count),
        }
        bench.compare(task + line, count, jobs, rounds=rounds, few={PEER: 2, JAVA: 2}, bars={PEER: bar, JAVA: java_bar})


def vendors(how: str, names: str, topic: str, units: int) -> Stretch:
    """One run of the vendor's Java client over the units of a row."""
    arguments = (how, names, topic, f"bench-java-{next(_numbers)}", str(WARM[how]), str(units))
    (found,) = java.run("rocketmq-5.5.0", "RocketBench", *arguments, timeout=180.0, flags=FULL_JIT)
    stretch = Stretch()
    stretch.cpu, stretch.wall = found["cpu_us"] * units / 1e6, found["wall_us"] * units / 1e6
    return stretch


def ours_read(client: Any, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, client.reader(FULL, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def ours_sync(client: Any, rows: list[bytes]) -> Stretch:
    with client.producer(FILLED) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY).position(30.0)
    return stretch


def ours_send(client: Any, rows: list[bytes]) -> Stretch:
    with client.producer(FILLED) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(client: Any, topic: str, batch: Any, count: int) -> Stretch:
    with client.producer(topic) as producer, Stretch() as stretch:
        for number in range(count // 1000):
            producer.send_batch(batch, partition=number % QUEUES)
        producer.flush(60.0)
    return stretch


def made(rows: list[bytes]) -> list[Any]:
    from rocketmq.client import Message

    found = []
    for value in rows:
        message = Message(FILLED)
        message.set_keys("k" * 16)
        message.set_body(value)
        found.append(message)
    return found


def peer(names: str) -> Any:
    from rocketmq.client import Producer

    producer = Producer(f"bench-{next(_numbers)}")
    producer.set_namesrv_addr(names)
    producer.start()
    return producer


def peer_sync(names: str, rows: list[bytes]) -> Stretch:
    producer = peer(names)
    producer.send_sync(made(rows[:1])[0])
    with Stretch() as stretch:
        for value in rows:
            producer.send_sync(made([value])[0])
    producer.shutdown()
    return stretch


def peer_async(names: str, rows: list[bytes], scale: float) -> Stretch:
    """Two hundred in flight: its own limit is where it breaks."""
    producer = peer(names)
    producer.send_sync(made(rows[:1])[0])
    room, failed = threading.Semaphore(200), []

    def done(*_: Any) -> None:
        room.release()

    def broke(why: Any) -> None:
        failed.append(why)
        room.release()

    with Stretch() as stretch:
        for value in rows:
            room.acquire()
            producer.send_async(made([value])[0], done, broke)
        for _ in range(200):
            room.acquire()
    producer.shutdown()
    expect(len(failed), 0)
    stretch.cpu, stretch.wall = stretch.cpu * scale, stretch.wall * scale
    return stretch


def peer_batch(names: str, rows: list[bytes]) -> Stretch:
    producer = peer(names)
    producer.send_sync(made(rows[:1])[0])
    with Stretch() as stretch:
        for begin in range(0, len(rows), BATCH):
            producer.send_batch(made(rows[begin : begin + BATCH]))
    producer.shutdown()
    return stretch


def peer_push(names: str, count: int) -> Stretch:
    from rocketmq.client import PushConsumer

    everything, found = threading.Event(), itertools.count(1)

    def arrived(message: Any) -> int:
        _ = message.body
        if next(found) >= count:
            everything.set()
        return 0

    consumer = PushConsumer(f"bench-{next(_numbers)}")
    consumer.set_namesrv_addr(names)
    consumer.subscribe(FULL, arrived)
    with Stretch() as stretch:
        consumer.start()
        complete = everything.wait(90)
    consumer.shutdown()
    expect(complete, True)
    return stretch
