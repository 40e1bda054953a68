"""Kafka with many partitions on a real broker, beside librdkafka: what it costs to open a role over all of them, and to hold it.

Equal terms: a client of its own for each, both idempotent and waiting for all replicas, both checking CRCs. Each partition holds one record
of 100 B. The clock runs from before the client until every partition has been heard of: its record read, or one of ours acknowledged.
An idle second is one of polls that bring nothing, behind a first one. That partitions of one leader are read alike is a test
(`tests/integration/test_kafka_reading.py`), and no row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import wireproto
from brokers import Kafka
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Stretch
from .kafka import KEY, values
from .stored import expect

PEER = "confluent-kafka"
IDLE = 5.0  # seconds that are measured as one


@dataclass
class Many:
    """A topic of so many partitions."""

    url: str
    topic: str
    partitions: int
    groups: count[int]

    @property
    def bootstrap(self) -> str:
        return self.url.partition("://")[2]

    def group(self) -> str:
        """One that nobody was in."""
        return f"{self.topic}-{next(self.groups)}"


def suite(bench: Bench) -> None:
    with Kafka("4.3.1", fast=bench.quick) as broker:
        bench.brokers["many"] = f"Kafka {broker.version}, one node"
        tasks(bench, broker.url)


def tasks(bench: Bench, url: str) -> None:
    """All of them on the broker at that URL, on a topic of this process."""
    place = Many(url, f"bench-many-{os.getpid()}", 100 if bench.quick else 1000, count())
    with wireproto.connect(url) as client:
        client.admin().create_topic(place.topic, partitions=place.partitions)
        expect(len(client.admin().positions(place.topic, LATEST)), place.partitions)
    theirs_write(place)

    def row(task: str, units: int, unit: str, ours: Job, theirs: Job) -> None:
        bench.compare(task, units, {"wireproto": ours, PEER: theirs}, unit=unit, rates=(PEER,), measures=())

    row("a reader is opened", place.partitions, "partition", lambda: ours_read(place), lambda: theirs_read(place))
    row("a group is opened", place.partitions, "partition", lambda: ours_share(place), lambda: theirs_share(place))
    row("a reader is idle", 1, "second", lambda: ours_idle(place), lambda: theirs_idle(place))
    row("a producer is opened", place.partitions, "partition", lambda: ours_write(place), lambda: theirs_write(place))


def idled(poll: Callable[[float], Any]) -> Stretch:
    """A second of polls that bring nothing."""
    expect(poll(0.5), None)
    stretch = Stretch()
    with stretch:
        over = time.monotonic() + IDLE
        while (left := over - time.monotonic()) > 0:
            expect(poll(left), None)
    stretch.cpu, stretch.wall = stretch.cpu / IDLE, stretch.wall / IDLE
    return stretch


def ours_read(place: Many) -> Stretch:
    with Stretch() as stretch:
        client = wireproto.connect(place.url)
        drained(client.reader(place.topic, start=EARLIEST), place.partitions)
    client.close()
    return stretch


def ours_idle(place: Many) -> Stretch:
    with wireproto.connect(place.url) as client, client.reader(place.topic, start=LATEST) as reader:
        return idled(reader.poll)


def ours_share(place: Many) -> Stretch:
    with Stretch() as stretch:
        client = wireproto.connect(place.url)
        drained(client.consumer(place.topic, place.group(), start=EARLIEST), place.partitions)
    client.close()
    return stretch


def drained(role: Any, expected: int) -> None:
    found: set[int] = set()
    while len(found) < expected:
        batch = role.poll(30.0)
        expect(batch is not None, True)
        found.add(batch.partition)


def ours_write(place: Many) -> Stretch:
    rows = values(place.partitions)
    with Stretch() as stretch:
        client = wireproto.connect(place.url)
        out = client.producer(place.topic)
        receipts = [out.send(value, key=KEY, partition=number) for number, value in enumerate(rows)]
        expect([receipt.position(30.0).partition for receipt in receipts], [*range(place.partitions)])
    client.close()
    return stretch


def theirs_read(place: Many) -> Stretch:
    from confluent_kafka import OFFSET_BEGINNING

    with Stretch() as stretch:
        consumer = theirs_from(place, OFFSET_BEGINNING)
        theirs_drained(consumer, place.partitions)
    consumer.close()
    return stretch


def theirs_idle(place: Many) -> Stretch:
    from confluent_kafka import OFFSET_END

    consumer = theirs_from(place, OFFSET_END)
    try:
        return idled(consumer.poll)
    finally:
        consumer.close()


def theirs_from(place: Many, start: int) -> Any:
    """One that reads every partition from there."""
    from confluent_kafka import TopicPartition

    consumer = theirs(place, f"{place.topic}-alone")
    consumer.assign([TopicPartition(place.topic, number, start) for number in range(place.partitions)])
    return consumer


def theirs_share(place: Many) -> Stretch:
    with Stretch() as stretch:
        consumer = theirs(place, place.group())
        consumer.subscribe([place.topic])
        theirs_drained(consumer, place.partitions)
    consumer.close()
    return stretch


def theirs(place: Many, group: str) -> Any:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": place.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 1,
    }
    return Consumer(settings)


def theirs_drained(consumer: Any, expected: int) -> None:
    found: set[int] = set()
    while len(found) < expected:
        messages = consumer.consume(10_000, 0.05)
        found.update(message.partition() for message in messages if message.error() is None)


def theirs_write(place: Many) -> Stretch:
    from confluent_kafka import Producer

    rows = values(place.partitions)
    with Stretch() as stretch:
        producer = Producer({"bootstrap.servers": place.bootstrap, "acks": "all", "enable.idempotence": True})
        for number, value in enumerate(rows):
            producer.produce(place.topic, value, KEY, number)
        expect(producer.flush(30), 0)
    return stretch
