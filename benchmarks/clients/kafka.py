"""Kafka clients on a real broker: consume and produce records of 100 B value and 16 B key, one partition, uncompressed, CRC checked.

Equal terms: everybody checks CRCs, waits for all replicas and is idempotent; librdkafka's consumer gets `fetch.queue.backoff.ms=1`,
since its default of a second holds it back; every producer has a linger of 20 ms and batches of 256 kB (librdkafka: 1 MB, its own).
The clock runs from assigning (or the first send) to the last record (or the last acknowledgement).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import wireproto
from brokers import Kafka
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Stretch

KEY = b"k" * 16
POOL = [(f"record {n:05} " * 9)[:100].encode() for n in range(4096)]
FULL, FILLED, CHUNK = "bench-read", "bench-write", 10_000
LINGER, BATCH = 0.02, 256 << 10


def suite(bench: Bench) -> None:
    count, rounds = (100_000, 3) if bench.quick else (300_000, 5)
    with Kafka("4.3.1", fast=bench.quick) as broker, wireproto.connect(broker.url) as client:
        bench.brokers["kafka"] = f"Kafka {broker.version}, one node"
        for topic in (FULL, FILLED):
            client.admin().create_topic(topic, partitions=1)
        fill(broker.bootstrap, FULL, count)
        consume(bench, client, broker.bootstrap, count, rounds)
        produce(bench, client, broker.bootstrap, count, rounds)


def values(count: int) -> list[bytes]:
    return [POOL[n & 4095] for n in range(count)]


def fill(bootstrap: str, topic: str, count: int) -> None:
    """The records to be read, written by librdkafka."""
    confluent_produce(bootstrap, topic, values(count))


def consume(bench: Bench, client: Any, bootstrap: str, count: int, rounds: int) -> None:
    arrow: dict[str, Job] = {"wireproto": lambda: ours_read(client, count, lambda batch: pa.record_batch(batch))}
    lists: dict[str, Job] = {"wireproto": lambda: ours_read(client, count, lambda batch: batch.values())}
    objects: dict[str, Job] = {"wireproto": lambda: ours_read(client, count, lambda batch: [record.value for record in batch])}
    peers: dict[str, Job] = {
        "confluent-kafka": lambda: confluent_read(bootstrap, count),
        "aiokafka": lambda: asyncio.run(aio_read(bootstrap, count)),
        "kafka-python": lambda: kafka_python_read(bootstrap, count),
    }
    tasks: dict[str, tuple[dict[str, Job], dict[str, float]]] = {
        "consume: Reader to Arrow": (arrow, {"confluent-kafka": 8, "aiokafka": 12, "kafka-python": 45}),
        "consume: Reader .values()": (lists, {"confluent-kafka": 4}),
        "consume: record objects": (objects, {"confluent-kafka": 1.5, "aiokafka": 3, "kafka-python": 10}),
    }
    for task, (ours, bars) in tasks.items():
        bench.compare(task, count, ours | peers, rounds=rounds, few={"kafka-python": 2}, bars=bars)


def produce(bench: Bench, client: Any, bootstrap: str, count: int, rounds: int) -> None:
    rows = values(count)
    batch = pa.record_batch({"key": [KEY] * CHUNK, "value": rows[:CHUNK]})
    slow = count // 5  # a fifth of the records, for those who take 10 us and more each; times are scaled
    peers: dict[str, Job] = {
        "confluent-kafka": lambda: confluent_produce(bootstrap, FILLED, rows),
        "aiokafka": lambda: scaled(asyncio.run(aio_produce(bootstrap, rows[:slow])), count / slow),
        "kafka-python": lambda: scaled(kafka_python_produce(bootstrap, rows[:slow]), count / slow),
    }
    each: dict[str, Job] = {"wireproto": lambda: ours_send(client, rows)}
    whole: dict[str, Job] = {"wireproto": lambda: ours_send_batch(client, batch, count)}
    few = {"aiokafka": 3, "kafka-python": 2}
    bars = {"confluent-kafka": 1.5, "aiokafka": 10, "kafka-python": 25}
    bench.compare("produce: send() per record", count, each | peers, rounds=rounds, few=few, bars=bars)
    bars, rates = {"confluent-kafka": 4.0}, {"confluent-kafka": 3.0}
    bench.compare("produce: send_batch from Arrow", count, whole | peers, rounds=rounds, few=few, bars=bars, rates=rates)


def scaled(stretch: Stretch, by: float) -> Stretch:
    stretch.cpu, stretch.wall = stretch.cpu * by, stretch.wall * by
    return stretch


def expect(found: int, count: int) -> None:
    if found != count:
        raise AssertionError(f"{found} records of {count}")


def ours_read(client: Any, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, client.reader(FULL, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def confluent_read(bootstrap: str, count: int) -> Stretch:
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.queue.backoff.ms": 1,
    }
    consumer = Consumer(settings)
    left = count
    with Stretch() as stretch:
        consumer.assign([TopicPartition(FULL, 0, 0)])
        while left > 0:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    message.value()
                    left -= 1
    consumer.close()
    expect(count - left, count)
    return stretch


async def aio_read(bootstrap: str, count: int) -> Stretch:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    await consumer.start()
    left, partition = count, TopicPartition(FULL, 0)
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


def kafka_python_read(bootstrap: str, count: int) -> Stretch:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True)
    left, partition = count, TopicPartition(FULL, 0)
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


def ours_send(client: Any, rows: list[bytes]) -> Stretch:
    with client.producer(FILLED, linger=LINGER, batch_size=BATCH) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(client: Any, batch: Any, count: int) -> Stretch:
    with client.producer(FILLED, linger=LINGER, batch_size=BATCH) as producer, Stretch() as stretch:
        for _ in range(count // CHUNK):
            producer.send_batch(batch)
        producer.flush(60.0)
    return stretch


def confluent_produce(bootstrap: str, topic: str, rows: list[bytes]) -> Stretch:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER * 1000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    with Stretch() as stretch:
        for value in rows:
            producer.produce(topic, value, KEY)
        left = producer.flush(60)
    expect(left, 0)
    return stretch


async def aio_produce(bootstrap: str, rows: list[bytes]) -> Stretch:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=int(LINGER * 1000), max_batch_size=BATCH
    )
    await producer.start()
    with Stretch() as stretch:
        for value in rows:
            await producer.send(FILLED, value, KEY)
        await producer.flush()
    await producer.stop()
    return stretch


def kafka_python_produce(bootstrap: str, rows: list[bytes]) -> Stretch:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=int(LINGER * 1000), batch_size=BATCH)
    with Stretch() as stretch:
        for value in rows:
            producer.send(FILLED, value, KEY)
        producer.flush(60)
    producer.close()
    return stretch
