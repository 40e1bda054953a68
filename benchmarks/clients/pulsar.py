"""Pulsar clients on a real broker: send and read messages of 100 B value and 16 B key, one topic, batched, uncompressed.

Equal terms: batches of 1,000 messages or 10 ms; the official client checks CRCs always; neither side is called back for a message that it
sends, `last_sequence_id` and a look at the topic prove delivery. The clock runs from subscribing (or the first send) to the last message
(or the last acknowledgement). Subscriptions are dropped after each round: one that lags behind is work for the broker.
"""

from __future__ import annotations

import itertools
import logging
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

import pulsar
import wireproto
from brokers import Pulsar
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .kafka import BOTH, CHUNK, KEY, values
from .stored import expect, scaled, stored

LINGER, BATCH = 0.01, 1000
PEER, PEER_BATCHES, PEER_SENDS = "pulsar-client receive()", "pulsar-client batch_receive()", "pulsar-client send_async()"
MESSAGES = Sizes(200_000, 50_000, CHUNK)
_numbers = itertools.count()


def suite(bench: Bench) -> None:
    with standalone(bench) as broker:
        bench.brokers["pulsar"] = f"Pulsar {broker.version} standalone"
        bench.count(broker.url, full_topic(broker.url, MESSAGES.counted))
        tasks(bench, broker.url, full_topic(broker.url, bench.units(MESSAGES)))


def standalone(bench: Bench) -> AbstractContextManager[Pulsar]:
    """The broker of the suites that need one of Pulsar."""
    return bench.servers.of("pulsar", lambda: Pulsar(fast=bench.quick))


@contextmanager
def official(url: str) -> Iterator[Any]:
    """The official client."""
    logger = logging.getLogger("pulsar")
    logger.setLevel(logging.ERROR)
    client = pulsar.Client(url.partition("?")[0], logger=logger)
    try:
        yield client
    finally:
        client.close()


def full_topic(url: str, count: int) -> str:
    """The name of a new topic with the messages to be read, which the official client wrote: ahead of a count. What it sends in 10 ms is a
    batch, and 50,000 messages from under callgrind, beside other work, were 157, not some 60, which costs a reader half as much again."""
    topic = f"bench-read-{os.getpid()}-{next(_numbers)}"
    with official(url) as peer, wireproto.connect(url) as client:
        client.admin().create_topic(topic, partitions=0)
        peer_send(Place(client, peer, url, topic), values(count))
    return topic


def tasks(bench: Bench, url: str, full: str) -> None:
    """All of them on the broker at that URL: reading from a topic that is full, writing to one of this process."""
    count, filled = bench.units(MESSAGES), f"bench-write-{os.getpid()}"
    with official(url) as peer, wireproto.connect(url) as client:
        client.admin().create_topic(filled, partitions=0)
        read(bench, Place(client, peer, url, full), count)
        send(bench, Place(client, peer, url, filled), count)


@dataclass
class Place:
    """A topic, as each contender gets there."""

    client: Any
    peer: Any
    url: str
    topic: str

    def group(self) -> str:
        """A subscription's name that nobody has had."""
        return f"bench-{os.getpid()}-{next(_numbers)}"

    def forget(self, group: str) -> None:
        """Drop a subscription, whoever made it."""
        admin = parse_qs(urlsplit(self.url).query)["admin"][0]
        path = f"{admin}/admin/v2/persistent/public/default/{self.topic}/subscription/{group}?force=true"
        urllib.request.urlopen(urllib.request.Request(path, method="DELETE"), timeout=30).close()


def read(bench: Bench, place: Place, count: int) -> None:
    uses: dict[str, Callable[[Any], Any]] = {
        "Reader to Arrow": lambda batch: pa.record_batch(batch),
        "Reader .values()": lambda batch: batch.values(),
        "record objects": lambda batch: [record.value for record in batch],
    }
    for task, use in uses.items():
        jobs: dict[str, Job] = {
            "wireproto": lambda use=use: ours_read(place, count, use),
            PEER: lambda: peer_read(place, count, acked=False),
            PEER_BATCHES: lambda: peer_batches(place, count),
        }
        bench.compare(f"read: {task}", count, jobs, rates=(PEER_BATCHES,), measures=BOTH)
    jobs = {"wireproto": lambda: ours_consume(place, count), PEER: lambda: peer_read(place, count, acked=True)}
    bench.compare("consume: record objects, acked cumulatively", count, jobs, rates=(PEER,), measures=BOTH)
    few = count // 4
    jobs = {"wireproto": lambda: ours_worked(place, few), PEER: lambda: peer_worked(place, few)}
    bench.compare("queue: receive and ack each", few, jobs, rates=(PEER,), measures=BOTH)


def send(bench: Bench, place: Place, count: int) -> None:
    rows = values(count)
    batch = pa.record_batch({"key": [KEY] * CHUNK, "value": rows[:CHUNK]})
    slow = count // 5  # a fifth of the messages for the one that takes 10 us each; times are scaled
    theirs = stored(place.client, place.topic, slow, lambda: peer_send(place, rows[:slow]))
    ours_by_task: dict[str, Callable[[], Stretch]] = {
        "send() per message": lambda: ours_send(place, rows),
        "send_batch from Arrow": lambda: ours_send_batch(place, batch, count),
    }
    for task, ours in ours_by_task.items():
        jobs: dict[str, Job] = {
            "wireproto": stored(place.client, place.topic, count, ours),
            PEER_SENDS: lambda: scaled(theirs(), count / slow),
        }
        bench.compare(f"produce: {task}", count, jobs, rates=(PEER_SENDS,), measures=BOTH)
    few = count // 100
    jobs = {
        "wireproto": stored(place.client, place.topic, few, lambda: ours_acknowledged(place, rows[:few])),
        "pulsar-client send()": stored(place.client, place.topic, few, lambda: peer_acknowledged(place, rows[:few])),
    }
    bench.compare("produce: acknowledged one by one", few, jobs, ahead=("pulsar-client send()",), measures=BOTH)


def ours_read(place: Place, count: int, use: Callable[[Any], Any]) -> Stretch:
    found = 0
    with Stretch() as stretch, place.client.reader(place.topic, start=EARLIEST, stop=LATEST) as reader:
        for batch in reader:
            use(batch)
            found += len(batch)
    expect(found, count)
    return stretch


def ours_consume(place: Place, count: int) -> Stretch:
    """Commits what each poll handed out, as the peer acknowledges every thousandth message."""
    left, group = count, place.group()
    with Stretch() as stretch, place.client.consumer(place.topic, group, mode="exclusive") as log:
        while left > 0:
            batch = log.poll(1.0)
            if batch is not None:
                for record in batch:
                    _ = record.value
                left -= len(batch)
                log.commit(batch.next_positions)
    expect(count - left, count)
    place.forget(group)
    return stretch


def peer_read(place: Place, count: int, *, acked: bool) -> Stretch:
    earliest = pulsar.InitialPosition.Earliest
    with Stretch() as stretch:
        consumer = place.peer.subscribe(place.topic, place.group(), initial_position=earliest, receiver_queue_size=10_000)
        for number in range(1, count + 1):
            message = consumer.receive(20_000)
            _ = message.data()
            if acked and number % BATCH == 0:
                consumer.acknowledge_cumulative(message)
    consumer.unsubscribe()
    return stretch


def ours_worked(place: Place, count: int) -> Stretch:
    group = place.group()
    with Stretch() as stretch, place.client.queue(place.topic, group) as queue:
        for _ in range(count):
            delivery = queue.receive(20.0)
            assert delivery is not None
            _ = delivery.value
            delivery.ack()
    place.forget(group)
    return stretch


def peer_worked(place: Place, count: int) -> Stretch:
    group, earliest = place.group(), pulsar.InitialPosition.Earliest
    with Stretch() as stretch:
        consumer = place.peer.subscribe(place.topic, group, consumer_type=pulsar.ConsumerType.Shared, initial_position=earliest)
        for _ in range(count):
            message = consumer.receive(20_000)
            _ = message.data()
            consumer.acknowledge(message)
        consumer.close()
    place.forget(group)
    return stretch


def peer_batches(place: Place, count: int) -> Stretch:
    left, group = count, place.group()
    policy = pulsar.ConsumerBatchReceivePolicy(10_000, -1, 100)
    with Stretch() as stretch:
        consumer = place.peer.subscribe(
            place.topic,
            group,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=10_000,
            batch_receive_policy=policy,
        )
        while left > 0:
            for message in consumer.batch_receive():
                _ = message.data()
                left -= 1
    consumer.unsubscribe()
    expect(count - left, count)
    return stretch


def ours_send(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic, linger=LINGER, batch_records=BATCH, batch_size=1 << 20) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY)
        producer.flush(60.0)
    return stretch


def ours_send_batch(place: Place, batch: Any, count: int) -> Stretch:
    with place.client.producer(place.topic, linger=LINGER, batch_records=BATCH, batch_size=1 << 20) as producer, Stretch() as stretch:
        for _ in range(count // CHUNK):
            producer.send_batch(batch)
        producer.flush(60.0)
    return stretch


def ours_acknowledged(place: Place, rows: list[bytes]) -> Stretch:
    with place.client.producer(place.topic) as producer, Stretch() as stretch:
        for value in rows:
            producer.send(value, key=KEY).position(30.0)
    return stretch


def peer_acknowledged(place: Place, rows: list[bytes]) -> Stretch:
    producer, key = place.peer.create_producer(place.topic), KEY.decode()
    with Stretch() as stretch:
        for value in rows:
            producer.send(value, partition_key=key)
    producer.close()
    return stretch


def peer_send(place: Place, rows: list[bytes]) -> Stretch:
    producer = place.peer.create_producer(
        place.topic,
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
            producer.send_async(value, None, partition_key=key)
        producer.flush()
    expect(producer.last_sequence_id(), len(rows) - 1)
    producer.close()
    return stretch
