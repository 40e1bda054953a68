"""confluent-kafka and kafka-python as plain functions: what they wrote or read, as tuples in one shape."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import confluent_kafka

import kafka

SECONDS = 60.0


class Row(NamedTuple):
    """A record as every client sees it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def confluent_read(bootstrap: str, topic: str, partitions: int, count: int) -> list[Row]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"c-{topic}", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    rows: list[Row] = []
    deadline = time.monotonic() + SECONDS
    try:
        while len(rows) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(rows), 1.0):
                assert message.error() is None, message.error()
                headers = tuple((name, value) for name, value in message.headers() or ())
                rows.append(Row(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    return sorted(rows)


@contextmanager
def kafka_python(bootstrap: str, **options: Any) -> Iterator[kafka.KafkaConsumer]:
    """A consumer of kafka-python that leaves no socket behind.

    Its `close` ends the thread that writes: a request that this one has not come to send yet keeps its socket open for good, and whichever
    test runs when that is collected fails. It asks for metadata again 100 ms after it has begun, and for records ahead of each poll; what
    it was asked for last is answered when `topics` is.
    """
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, bootstrap_timeout_ms=int(SECONDS * 1000), **options)
    try:
        yield consumer
        consumer.topics()
    finally:
        consumer.close()


def kafka_python_read(bootstrap: str, topic: str, partitions: int, count: int) -> list[Row]:
    rows: list[Row] = []
    with kafka_python(bootstrap, auto_offset_reset="earliest", check_crcs=True) as consumer:
        consumer.assign([kafka.TopicPartition(topic, number) for number in range(partitions)])
        deadline = time.monotonic() + SECONDS
        while len(rows) < count and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                rows += [Row(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    return sorted(rows)


def confluent_write(bootstrap: str, topic: str, sent: Sequence[Any], codec: str) -> None:
    """In order, whatever has to be sent again."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "enable.idempotence": True}
    )
    for partition, timestamp, key, value, headers in sent:
        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=list(headers))
    assert producer.flush(SECONDS) == 0


def kafka_python_write(bootstrap: str, topic: str, sent: Sequence[Any], codec: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=20)
    futures = [producer.send(topic, value, key, list(headers), partition, timestamp) for partition, timestamp, key, value, headers in sent]
    for future in futures:
        future.get(SECONDS)
    producer.close()


def rows_of(batches: Any) -> list[Row]:
    """Our own records in the same shape."""
    return sorted(
        Row(record.partition, record.position.offset, record.timestamp, record.key, record.value, record.headers)
        for batch in batches
        for record in batch
    )
