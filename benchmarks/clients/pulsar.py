"""Pulsar clients on a real broker: send and read messages of 100 B value and 16 B key, one topic, batched, uncompressed.

Equal terms: batches of 1,000 messages or 10 ms; the official client checks CRCs always. The clock runs from subscribing (or the first
send) to the last message (or the last acknowledgement).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import pulsar
import wireproto
from brokers import Pulsar
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Stretch
from .kafka import CHUNK, KEY, expect, scaled, values

FULL, FILLED = "bench-read", "bench-write"
LINGER, BATCH = 0.01, 1000
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    count, rounds = (50_000, 3) if bench.quick else (200_000, 5)
    logger = logging.getLogger("pulsar")
    logger.setLevel(logging.ERROR)
    with Pulsar(fast=bench.quick) as broker, wireproto.connect(broker.url) as client:
        bench.brokers["pulsar"] = f"Pulsar {broker.version} standalone"
        for topic in (FULL, FILLED):
            client.admin().create_topic(topic, partitions=0)
        peer = pulsar.Client(broker.url.partition("?")[0], logger=logger)
        try:
            peer_send(peer, FULL, values(count))
            read(bench, client, peer, count, rounds)
            send(bench, client, peer, count, rounds)
        finally:
            peer.close()


def read(bench: Bench, client: Any, peer: Any, count: int, rounds: int) -> None:
    uses: dict[str, Callable[[Any], Any]] = {
        "Reader to Arrow": lambda batch: pa.record_batch(batch),
        "Reader .values()": lambda batch: batch.values(),
        "record objects": lambda batch: [record.value for record in batch],
    }
    for task, use in uses.items():
        bench.compare(
            f"read: {task}",
            count,
            {
                "wireproto": lambda use=use: ours_read(client, count, use),
                "pulsar-client receive()": lambda: peer_read(peer, count, acked=False),
                "pulsar-client batch_receive()": lambda: peer_batches(peer, count),
            },
            rounds=rounds,
            bars={"pulsar-client receive()": 15, "pulsar-client batch_receive()": 9} if task == "Reader to Arrow" else None,
        )
    bench.compare(
        "consume: record objects, acked cumulatively",
        count,
        {"wireproto": lambda: ours_consume(client, count), "pulsar-client receive()": lambda: peer_read(peer, count, acked=True)},
        rounds=rounds,
        bars={"pulsar-client receive()": 4},
    )


def send(bench: Bench, client: Any, peer: Any, count: int, rounds: int) -> None:
    rows = values(count)
    batch = pa.record_batch({"key": [KEY] * CHUNK, "value": rows[:CHUNK]})
    slow = count // 5  # a fifth of the messages for the one that takes 20 us each; times are scaled
    theirs = lambda: scaled(peer_send(peer, FILLED, rows[:slow]), count / slow)  # noqa: E731
    for task, ours, bar in (
        ("send() per message", lambda: ours_send(client, rows), 20.0),
        ("send_batch from Arrow", lambda: ours_send_batch(client, batch, count), 60.0),
    ):
        bench.compare(
            f"produce: {task}",
            count,
            {"wireproto": ours, "pulsar-client send_async()": theirs},
            rounds=rounds,
            bars={"pulsar-client send_async()": bar},
        )


def ours_read(client: Any, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, client.reader(FULL, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def ours_consume(client: Any, count: int) -> Stretch:
    """Commits what each poll handed out, as the peer acknowledges every thousandth message."""
    left = count
    with Stretch() as stretch, client.consumer(FULL, f"bench-{next(_numbers)}", mode="exclusive") as log:
        while left > 0:
            batch = log.poll(1.0)
            if batch is not None:
                for record in batch:
                    _ = record.value
                left -= len(batch)
                log.commit(batch.next_positions)
    expect(count - left, count)
    return stretch


def peer_read(peer: Any, count: int, *, acked: bool) -> Stretch:
    with Stretch() as stretch:
        consumer = peer.subscribe(
            FULL, f"bench-{next(_numbers)}", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10_000
        )
        for number in range(1, count + 1):
            message = consumer.receive(20_000)
            _ = message.data()
            if acked and number % BATCH == 0:
                consumer.acknowledge_cumulative(message)
    consumer.close()
    return stretch


def peer_batches(peer: Any, count: int) -> Stretch:
    left = count
    policy = pulsar.ConsumerBatchReceivePolicy(10_000, -1, 100)
    with Stretch() as stretch:
        consumer = peer.subscribe(
            FULL,
            f"bench-{next(_numbers)}",
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=10_000,
            batch_receive_policy=policy,
        )
        while left > 0:
            for message in consumer.batch_receive():
                _ = message.data()
                left -= 1
    consumer.close()
    expect(count - left, count)
    return stretch


def ours_send(client: Any, rows: list[bytes]) -> Stretch:
    with client.producer(FILLED, linger=LINGER, batch_records=BATCH, batch_size=1 << 20) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(client: Any, batch: Any, count: int) -> Stretch:
    with client.producer(FILLED, linger=LINGER, batch_records=BATCH, batch_size=1 << 20) as producer, Stretch() as stretch:
        for _ in range(count // CHUNK):
            producer.send_batch(batch)
        producer.flush(60.0)
    return stretch


def peer_send(peer: Any, topic: str, rows: list[bytes]) -> Stretch:
    failed: list[Any] = []

    def sent(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    producer = peer.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_allowed_size_in_bytes=1 << 20,
        batching_max_publish_delay_ms=int(LINGER * 1000),
        max_pending_messages=20_000,
        block_if_queue_full=True,
    )
    key = KEY.decode()
    with Stretch() as stretch:
        for value in rows:
            producer.send_async(value, sent, partition_key=key)
        producer.flush()
    producer.close()
    expect(len(failed), 0)
    return stretch
