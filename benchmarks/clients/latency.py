"""One record at a time on real brokers: what a caller waits for it. Records of 100 B value and 16 B key.

Wall time here is the median of the single calls (p50), CPU time all of theirs together, divided. Equal terms: all replicas, idempotent,
one partition, no linger; librdkafka's consumer gets `fetch.queue.backoff.ms=1`. Pulsar's official client sends without batches, which is
its best for one record at a time: a publish delay is a delay there.

    acknowledged send          send, and wait for its place
    through to a poll          the same, and a reader that waits for it in the same thread
    through to a poll, no wait the reader alone waits
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import wireproto
from wireproto import LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .kafka import BOTH, KEY, Place, one_node, values
from .pulsar import official, standalone
from .stored import expect

AHEAD = 50  # calls before the clock runs
CALLS = Sizes(3000, 500, 20)


class Calls(Stretch):
    """A stretch of calls, one a record, whose wall time is that of the median, for each of them."""

    def run(self, call: Callable[[bytes], object], rows: list[bytes]) -> Calls:
        took = []
        for value in rows[:AHEAD]:
            call(value)
        with self:
            for value in rows:
                began = time.perf_counter()
                call(value)
                took.append(time.perf_counter() - began)
        self.wall = statistics.median(took) * len(rows)
        return self


def suite(bench: Bench) -> None:
    with one_node(bench) as kafka, standalone(bench) as pulsar:
        bench.brokers["latency"] = f"Kafka {kafka.version}, one node; Pulsar {pulsar.version} standalone"
        bench.count(kafka.url, pulsar.url)
        tasks(bench, kafka.url, pulsar.url)


def tasks(bench: Bench, kafka: str, pulsar: str) -> None:
    """All of them on the brokers at those URLs, on topics of this process."""
    rows = values(bench.units(CALLS))
    topic = f"bench-latency-{os.getpid()}"
    with wireproto.connect(kafka) as client:
        client.admin().create_topic(topic, partitions=1)
        of_kafka(bench, Place(client, kafka.partition("://")[2], topic), rows)
    with wireproto.connect(pulsar) as client:
        client.admin().create_topic(topic, partitions=0)
        of_pulsar(bench, client, pulsar, topic, rows)


def of_kafka(bench: Bench, place: Place, rows: list[bytes]) -> None:
    rates = ("confluent-kafka",)
    single: dict[str, Job] = {"wireproto": lambda: ours_send(place, rows), "confluent-kafka": lambda: confluent_send(place, rows)}
    bench.compare("Kafka: acknowledged send", len(rows), single, rates=rates, measures=BOTH)
    for task, wait in (("Kafka: through to a poll", True), ("Kafka: through to a poll, no wait", False)):
        jobs: dict[str, Job] = {
            "wireproto": lambda wait=wait: ours_through(place, rows, wait=wait),
            "confluent-kafka": lambda wait=wait: confluent_through(place, rows, wait=wait),
        }
        bench.compare(task, len(rows), jobs, rates=rates, measures=BOTH)


def of_pulsar(bench: Bench, client: Any, url: str, topic: str, rows: list[bytes]) -> None:
    with official(url) as peer:
        jobs: dict[str, Job] = {
            "wireproto": lambda: ours_send(Place(client, "", topic), rows),
            "pulsar-client send()": lambda: pulsar_send(peer, topic, rows),
        }
        bench.compare("Pulsar: acknowledged send", len(rows), jobs, rates=("pulsar-client send()",), measures=BOTH)


def ours_send(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic, linger=0.0) as out:
        return Calls().run(lambda value: out.send(value, key=KEY).position(30.0), rows)


def ours_through(place: Place, rows: list[bytes], *, wait: bool) -> Stretch:
    with place.client.producer(place.topic, linger=0.0) as out, place.client.reader(place.topic, start=LATEST) as reader:
        reader.poll(0.1)

        def call(value: bytes) -> None:
            receipt = out.send(value, key=KEY)
            if wait:
                receipt.position(30.0)
            batch = reader.poll(30.0)
            expect(batch.values() if batch is not None else None, [value])

        return Calls().run(call, rows)


def confluent_sender(place: Place) -> Any:
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": place.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0})


def confluent_send(place: Place, rows: list[bytes]) -> Stretch:
    producer = confluent_sender(place)

    def call(value: bytes) -> None:
        producer.produce(place.topic, value, KEY)
        expect(producer.flush(30), 0)

    return Calls().run(call, rows)


def confluent_through(place: Place, rows: list[bytes], *, wait: bool) -> Stretch:
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    producer = confluent_sender(place)
    settings = {
        "bootstrap.servers": place.bootstrap,
        "group.id": "bench-latency",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer(settings)
    partition = TopicPartition(place.topic, 0, OFFSET_END)
    consumer.assign([partition])
    consumer.poll(1.0)
    last = None
    for number in itertools.count():  # until it has found the end, what is sent is not for it; then until the last of these has come
        mark = b"where %d" % number
        producer.produce(place.topic, mark, KEY)
        producer.flush(30)
        while (message := consumer.poll(0.2)) is not None:
            last = message.value()
        if last == mark:
            break

    def call(value: bytes) -> None:
        producer.produce(place.topic, value, KEY)
        if wait:
            expect(producer.flush(30), 0)
        message = consumer.poll(30.0)
        expect(message.value() if message is not None else None, value)

    try:
        return Calls().run(call, rows)
    finally:
        producer.flush(30)
        consumer.close()


def pulsar_send(peer: Any, topic: str, rows: list[bytes]) -> Stretch:
    producer = peer.create_producer(topic, batching_enabled=False)
    try:
        return Calls().run(lambda value: producer.send(value, partition_key=KEY.decode()), rows)
    finally:
        producer.close()
