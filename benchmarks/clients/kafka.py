"""Kafka clients on a real broker: consume and produce records of 100 B value and 16 B key, one partition, uncompressed, CRC checked.

Equal terms: everybody checks CRCs, waits for all replicas and is idempotent; librdkafka's consumer gets `fetch.queue.backoff.ms=1`,
since its default of a second holds it back; every producer has a linger of 20 ms and batches of 256 kB (librdkafka: 1 MB, its own).
The clock runs from assigning (or the first send) to the last record (or the last acknowledgement).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import wireproto
from brokers import Kafka
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .stored import expect, scaled, stored

BOTH = ("instructions", "cpu")
KEY = b"k" * 16
POOL = [(f"record {n:05} " * 9)[:100].encode() for n in range(4096)]
CHUNK = 10_000
RECORDS = Sizes(300_000, 50_000, CHUNK)
LINGER, BATCH = 0.02, 256 << 10
BATCHES = "confluent-kafka produce_batch()"
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    with one_node(bench) as broker:
        bench.brokers["kafka"] = f"Kafka {broker.version}, one node"
        bench.count(broker.url, full_topic(broker.url, "read", RECORDS.counted))
        tasks(bench, broker.url, full_topic(broker.url, "read", bench.units(RECORDS)))


def one_node(bench: Bench) -> AbstractContextManager[Kafka]:
    """The broker of the suites that need one of Kafka."""
    return bench.servers.of("kafka", lambda: Kafka("4.3.1", fast=bench.quick))


def tasks(bench: Bench, url: str, full: str) -> None:
    """All of them on the broker at that URL: reading from a topic that is full, writing to one of this process."""
    count, bootstrap = bench.units(RECORDS), url.partition("://")[2]
    filled = f"bench-write-{os.getpid()}"
    with wireproto.connect(url) as client:
        client.admin().create_topic(filled, partitions=1)
        consume(bench, Place(client, bootstrap, full), count)
        produce(bench, Place(client, bootstrap, filled), count)


@dataclass
class Place:
    """A topic of one partition, as each contender gets there."""

    client: Any
    bootstrap: str
    topic: str


def values(count: int) -> list[bytes]:
    return [POOL[n & 4095] for n in range(count)]


def full_topic(url: str, use: str, count: int) -> str:
    """The name of a new topic with the records to be read, written by librdkafka: ahead of a count, since all takes longer in there."""
    topic = f"bench-{use}-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(url) as client:
        client.admin().create_topic(topic, partitions=1)
    confluent_produce(url.partition("://")[2], topic, values(count))
    return topic


def consume(bench: Bench, place: Place, count: int) -> None:
    uses: dict[str, Callable[[Any], Any]] = {
        "Reader to Arrow": lambda batch: pa.record_batch(batch),
        "Reader .values()": lambda batch: batch.values(),
        "record objects": lambda batch: [record.value for record in batch],
    }
    for task, use in uses.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda use=use: ours_read(place, count, use),
            "confluent-kafka": lambda: confluent_read(place, count),
            "aiokafka": lambda: asyncio.run(aio_read(place, count)),
            "kafka-python": lambda: kafka_python_read(place, count),
        }
        bench.compare(f"consume: {task}", count, jobs, few={"kafka-python": 3}, rates=("confluent-kafka",), measures=BOTH)


def produce(bench: Bench, place: Place, count: int) -> None:
    rows = values(count)
    batch = pa.record_batch({"key": [KEY] * CHUNK, "value": rows[:CHUNK]})
    slow = count // 5  # a fifth of the records, for those who take 10 us and more each; times are scaled

    def some(job: Callable[[], Stretch]) -> Job:
        return lambda: scaled(stored(place.client, place.topic, slow, job)(), count / slow)

    peers: dict[str, Job] = {
        "confluent-kafka": stored(place.client, place.topic, count, lambda: confluent_produce(place.bootstrap, place.topic, rows)),
        "aiokafka": some(lambda: asyncio.run(aio_produce(place, rows[:slow]))),
        "kafka-python": some(lambda: kafka_python_produce(place, rows[:slow])),
    }
    each: dict[str, Job] = {"wireproto": stored(place.client, place.topic, count, lambda: ours_send(place, rows))}
    whole: dict[str, Job] = {"wireproto": stored(place.client, place.topic, count, lambda: ours_send_batch(place, batch, count))}
    rates = ("confluent-kafka",)
    bench.compare("produce: send() per record", count, each | peers, few={"kafka-python": 3}, rates=rates, measures=BOTH)
    whole |= peers | {BATCHES: stored(place.client, place.topic, count, lambda: confluent_batches(place, batch, count))}
    bench.compare("produce: send_batch from Arrow", count, whole, few={"kafka-python": 3}, rates=(*rates, BATCHES), measures=BOTH)
    few = count // 100
    single: dict[str, Job] = {
        "wireproto": stored(place.client, place.topic, few, lambda: ours_acknowledged(place, rows[:few])),
        "confluent-kafka": stored(place.client, place.topic, few, lambda: confluent_acknowledged(place, rows[:few])),
    }
    bench.compare("produce: acknowledged one by one", few, single, ahead=("confluent-kafka",), measures=BOTH)


def ours_read(place: Place, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, place.client.reader(place.topic, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def confluent_read(place: Place, count: int) -> Stretch:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": place.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer(settings)
    left = count
    with Stretch() as stretch:
        consumer.assign([TopicPartition(place.topic, 0, 0)])
        while left > 0:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    message.value()
                    left -= 1
    consumer.close()
    expect(count - left, count)
    return stretch


async def aio_read(place: Place, count: int) -> Stretch:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=place.bootstrap, enable_auto_commit=False, check_crcs=True)
    await consumer.start()
    left, partition = count, TopicPartition(place.topic, 0)
    with Stretch() as stretch:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while left > 0:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                for message in messages:
                    _ = message.value
                left -= len(messages)
    await consumer.stop()
    expect(count - left, count)
    return stretch


def kafka_python_read(place: Place, count: int) -> Stretch:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=place.bootstrap, enable_auto_commit=False, check_crcs=True)
    left, partition = count, TopicPartition(place.topic, 0)
    with Stretch() as stretch:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while left > 0:
            for messages in consumer.poll(1000, 10_000).values():
                for message in messages:
                    _ = message.value
                left -= len(messages)
    consumer.close()
    expect(count - left, count)
    return stretch


def ours_send(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic, linger=LINGER, batch_size=BATCH) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(place: Place, batch: Any, count: int) -> Stretch:
    with place.client.producer(place.topic, linger=LINGER, batch_size=BATCH) as producer, Stretch() as stretch:
        for _ in range(count // CHUNK):
            producer.send_batch(batch)
        producer.flush(60.0)
    return stretch


def ours_acknowledged(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY).position(30.0)
    return stretch


def confluent_acknowledged(place: Place, rows: list[bytes]) -> Stretch:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": place.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    with Stretch() as stretch:
        for value in rows:
            producer.produce(place.topic, value, KEY)
            left = producer.flush(30)
    expect(left, 0)
    return stretch


def confluent_producer(bootstrap: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER * 1000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )


def confluent_batches(place: Place, batch: Any, count: int) -> Stretch:
    """Rows of the Arrow batch as the dictionaries that it takes: pyarrow makes them the quickest."""
    producer = confluent_producer(place.bootstrap)
    with Stretch() as stretch:
        for _ in range(count // CHUNK):
            queued = producer.produce_batch(place.topic, batch.to_pylist())
            if queued != CHUNK:
                raise AssertionError(f"{queued} of {CHUNK} records were taken")
        left = producer.flush(60)
    expect(left, 0)
    return stretch


def confluent_produce(bootstrap: str, topic: str, rows: list[bytes]) -> Stretch:
    producer = confluent_producer(bootstrap)
    with Stretch() as stretch:
        for value in rows:
            producer.produce(topic, value, KEY)
        left = producer.flush(60)
    expect(left, 0)
    return stretch


async def aio_produce(place: Place, rows: list[bytes]) -> Stretch:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=place.bootstrap, acks="all", enable_idempotence=True, linger_ms=int(LINGER * 1000), max_batch_size=BATCH
    )
    await producer.start()
    with Stretch() as stretch:
        for value in rows:
            await producer.send(place.topic, value, KEY)
        await producer.flush()
    await producer.stop()
    return stretch


def kafka_python_produce(place: Place, rows: list[bytes]) -> Stretch:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=place.bootstrap, acks="all", linger_ms=int(LINGER * 1000), batch_size=BATCH)
    with Stretch() as stretch:
        for value in rows:
            producer.send(place.topic, value, KEY)
        producer.flush(60)
    producer.close()
    return stretch
