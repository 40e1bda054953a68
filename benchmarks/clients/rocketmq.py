"""RocketMQ clients on a real broker: send and pull messages of 100 B value with a key, a topic of four queues.

Peers: PyPI's `rocketmq` (ctypes over the vendor's C++ client), where it runs, and the vendor's Java client (``tests/brokers/java/
RocketBench.java``), which measures its own process after a warm-up. All pull, without a group's upkeep: Java by its lite pull consumer.
Java's batches hold 100 messages and are waited for one by one, ours 256 KiB and several under way, as each does it. A "batch" of PyPI's
`rocketmq` is no contender: both lines of brokers store each as one message, whose body is the hundred. The clock runs from the start of the
consumer (or the first send) to the last message (or the last answer). A full run does it on both lines of brokers.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import wireproto
from brokers import RocketMQ, java
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .kafka import BOTH, values
from .stored import expect, scaled, stored

MESSAGES = Sizes(100_000, 20_000, 2_000)
QUEUES = 4
KEY = b"k" * 16
PEER, JAVA = "rocketmq 0.4", "Java client"
FULL_JIT = ("-XX:TieredStopAtLevel=4",)  # not in a quick run
WARM = {"sync": 10_000, "async": 60_000, "batch": 300_000, "pull": 3, "push": 2}
"""Messages (pull, push: passes over the topic) before the Java client's clock runs: its compiler has done its work by then."""
BRIEF = {"sync": 10, "async": 100, "batch": 100, "pull": 0, "push": 0}  # in a quick run, which does not look at the figure
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    for version in ("5.5.0",) if bench.quick else ("5.5.0", "4.9.7"):
        with RocketMQ(version, fast=bench.quick) as broker:
            bench.brokers["rocketmq" + line(version)] = f"RocketMQ {broker.version}"
            bench.count(broker.url, version)
            tasks(bench, broker.url, version)


def line(version: str) -> str:
    """What tasks on the older line of brokers are told by."""
    return "" if version == "5.5.0" else f", {version}"


@dataclass
class Place:
    """A topic, as each contender gets there."""

    client: Any
    names: str
    topic: str
    warm: dict[str, int]
    version: str


def tasks(bench: Bench, url: str, version: str) -> None:
    """All of them on the broker at that URL, on topics of this process."""
    count, names = bench.units(MESSAGES), url.partition("://")[2].partition("?")[0]
    with wireproto.connect(url) as client:
        warm = BRIEF if bench.quick else WARM
        full, filled = (Place(client, names, f"bench-{use}-{os.getpid()}", warm, version) for use in ("read", "write"))
        for place in (full, filled):
            client.admin().create_topic(place.topic, partitions=QUEUES)
        ours_send_batch(full, pa.record_batch({"key": [KEY] * 1000, "value": values(1000)}), count)
        send(bench, filled, count, line(version))
        read(bench, full, count, line(version))


def send(bench: Bench, place: Place, count: int, words: str) -> None:
    few, some = count // 20, count // 4
    batch = pa.record_batch({"key": [KEY] * 1000, "value": values(1000)})
    theirs: dict[str, Job] = {
        "sync": peer_stored(place, lambda: peer_sync(place, values(few)), few, few),
        "async": peer_stored(place, lambda: peer_async(place, values(few)), few, some),
    }
    rows: list[tuple[str, str, int, Callable[[], Stretch]]] = [
        ("produce: sync send", "sync", few, lambda: ours_sync(place, values(few))),
        ("produce: pipelined send()", "async", some, lambda: ours_send(place, values(some))),
        ("produce: batches from Arrow", "batch", count, lambda: ours_send_batch(place, batch, count)),
    ]
    for task, how, units, ours in rows:
        jobs: dict[str, Job] = {"wireproto": stored(place.client, place.topic, units, ours)}
        if how in theirs:
            jobs[PEER] = theirs[how]
        jobs[JAVA] = stored(place.client, place.topic, units + place.warm[how], lambda how=how, units=units: vendors(how, place, units))
        bench.compare(task + words, units, jobs, few={PEER: 3, JAVA: 2}, rates=(JAVA,), measures=BOTH)


def peer_stored(place: Place, job: Callable[[], Stretch], count: int, units: int) -> Job:
    """The peer's job, which sends one message more ahead of its clock; scaled to so many units."""
    return lambda: scaled(stored(place.client, place.topic, count + 1, job)(), units / count)


def read(bench: Bench, place: Place, count: int, words: str) -> None:
    uses: dict[str, Callable[[Any], Any]] = {
        "pull to Arrow": lambda batch: pa.record_batch(batch),
        "pull, record objects": lambda batch: [record.value for record in batch],
    }
    for task, use in uses.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda use=use: ours_read(place, count, use),
            PEER: lambda: peer_pull(place, count),
            JAVA: lambda: vendors("pull", place, count),
        }
        bench.compare(task + words, count, jobs, few={PEER: 3, JAVA: 2}, rates=(JAVA,), measures=BOTH)
    jobs = {
        "wireproto": lambda: ours_worked(place, count),
        PEER: lambda: peer_worked(place, count),
        JAVA: lambda: vendors("push", place, count),
    }
    bench.compare("queue: receive and ack each" + words, count, jobs, few={PEER: 3, JAVA: 2}, measures=BOTH)


def vendors(how: str, place: Place, units: int) -> Stretch:
    """One run of the vendor's Java client, of the brokers' line (5.5.0's pulls nothing from 4.9.7), over the units of a row."""
    arguments = (how, place.names, place.topic, f"bench-java-{os.getpid()}-{next(_numbers)}", str(place.warm[how]), str(units))
    (found,) = java.run(f"rocketmq-{place.version}", "RocketBench", *arguments, timeout=180.0, flags=FULL_JIT if place.warm is WARM else ())
    stretch = Stretch()
    stretch.cpu, stretch.wall = found["cpu_us"] * units / 1e6, found["wall_us"] * units / 1e6
    return stretch


def ours_read(place: Place, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, place.client.reader(place.topic, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def ours_sync(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY).position(30.0)
    return stretch


def ours_send(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(place: Place, batch: Any, count: int) -> Stretch:
    with place.client.producer(place.topic) as producer, Stretch() as stretch:
        for number in range(count // 1000):
            producer.send_batch(batch, partition=number % QUEUES)
        producer.flush(60.0)
    return stretch


def ours_worked(place: Place, count: int) -> Stretch:
    """A new group's only worker, up to its end: by then the offsets of all that was acknowledged are stored."""
    with Stretch() as stretch, place.client.queue(place.topic, f"bench-{os.getpid()}-{next(_numbers)}") as queue:
        for _ in range(count):
            delivery = queue.receive(20.0)
            assert delivery is not None
            _ = delivery.value
            delivery.ack()
    return stretch


def made(place: Place, rows: list[bytes]) -> list[Any]:
    from rocketmq.client import Message

    found = []
    for value in rows:
        message = Message(place.topic)
        message.set_keys("k" * 16)
        message.set_body(value)
        found.append(message)
    return found


def peer(place: Place) -> Any:
    from rocketmq.client import Producer

    producer = Producer(f"bench-{os.getpid()}-{next(_numbers)}")
    producer.set_namesrv_addr(place.names)
    producer.start()
    return producer


def peer_sync(place: Place, rows: list[bytes]) -> Stretch:
    producer = peer(place)
    producer.send_sync(made(place, rows[:1])[0])
    with Stretch() as stretch:
        for value in rows:
            producer.send_sync(made(place, [value])[0])
    producer.shutdown()
    return stretch


def peer_async(place: Place, rows: list[bytes]) -> Stretch:
    """Two hundred in flight: its own limit is where it breaks."""
    producer = peer(place)
    producer.send_sync(made(place, rows[:1])[0])
    room, failed = threading.Semaphore(200), []

    def done(*_: Any) -> None:
        room.release()

    def broke(why: Any) -> None:
        failed.append(why)
        room.release()

    with Stretch() as stretch:
        for value in rows:
            room.acquire()
            producer.send_async(made(place, [value])[0], done, broke)
        for _ in range(200):
            room.acquire()
    producer.shutdown()
    expect(len(failed), 0)
    return stretch


def peer_pull(place: Place, count: int) -> Stretch:
    from rocketmq.client import PullConsumer

    consumer = PullConsumer(f"bench-{os.getpid()}-{next(_numbers)}")
    consumer.set_namesrv_addr(place.names)
    consumer.offset_table = {}  # its class shares one among all
    found = 0
    consumer.start()
    with Stretch() as stretch:
        for message in consumer.pull(place.topic):
            _ = message.body
            found += 1
    consumer.shutdown()
    expect(found, count)
    return stretch


def peer_worked(place: Place, count: int) -> Stretch:
    """A push consumer, whose callback acknowledges by its end, message by message; one thread, as ours is."""
    from rocketmq.client import PushConsumer

    consumer = PushConsumer(f"bench-{os.getpid()}-{next(_numbers)}")
    consumer.set_namesrv_addr(place.names)
    consumer.set_thread_count(1)
    consumer.set_message_batch_max_size(1)
    left, done = itertools.count(1 - count), threading.Event()

    def take(message: Any) -> None:
        _ = message.body
        if next(left) == 0:
            done.set()

    consumer.subscribe(place.topic, take)
    with Stretch() as stretch:
        consumer.start()
        assert done.wait(60.0)
        consumer.shutdown()
    return stretch
