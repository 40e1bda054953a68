"""Queues that a topic gets while it is written to: the producer finds them by itself, and each key's records stay in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import LONG, soon
from rocketmq_topics import change, set_queues
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
_numbers = itertools.count()
KEYS = [b"key-%d" % number for number in range(12)]


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url, route_age=0.3) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"growth-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    return name


def grow_and_read(client: RocketClient, topic: str, broker: RocketMQ, role: Any) -> None:
    """Two queues more; what another client writes to all of them is read by the role, each once."""
    change(client, topic, 4, limit=30.0)
    with wireproto.connect(broker.url) as other, other.producer(topic) as producer:
        for number in range(8):
            producer.send(b"%d" % number, partition=number % 4).position(30.0)
    found: list[bytes] = []
    deadline = soon(LONG)
    while len(found) < 8:
        assert time.monotonic() < deadline, found
        batch = role.poll(0.5)
        found += batch.values() if batch is not None else []
    assert sorted(found) == [b"%d" % number for number in range(8)]


def test_keys_follow_in_order(client: RocketClient, topic: str, broker: RocketMQ) -> None:
    deadline, number, receipts = time.monotonic() + 60, itertools.count(), []
    with client.producer(topic) as producer:
        grown_at = None
        while True:
            receipts += [(key, producer.send(b"%d" % next(number), key=key)) for key in KEYS]
            if len(receipts) > 2000 and grown_at is None:
                set_queues(client, topic, 5)
                grown_at = len(receipts)
            assert time.monotonic() < deadline, "the new queues were never used"
            if grown_at is not None and len(receipts) % 1200 == 0 and receipts[-1][1].position(30.0).partition >= 0:
                used = {receipt.position(30.0).partition for _, receipt in receipts[-len(KEYS) * 3 :]}
                if max(used) > 1:
                    break
        for _ in range(3):
            receipts += [(key, producer.send(b"%d" % next(number), key=key)) for key in KEYS]
        producer.flush(30.0)
        places = [producer.send(b"x", partition=place).position(30.0).partition for place in range(5)]
        assert places == [0, 1, 2, 3, 4]
        assert {producer.send(b"y").position(30.0).partition for _ in range(5)} == {0, 1, 2, 3, 4}
    with wireproto.connect(broker.url) as fresh:
        route = fresh.cluster.route(topic, fresh.deadline(10.0))
        last = {key: receipt.position(30.0).partition for key, receipt in receipts[-len(KEYS) :]}
        assert last == {key: route.by_key(key) for key in KEYS}, "keys go where a new client, and Java's, sends them"
        found: dict[bytes, list[tuple[int, int, int]]] = {key: [] for key in KEYS}
        with fresh.reader(topic, start=EARLIEST, stop=LATEST) as reader:
            for batch in reader:
                for record in batch:
                    if record.key is not None:
                        found[record.key].append((batch.partition, record.offset, int(record.value)))
    for key, entries in found.items():
        sent = [n for n, (name, _) in enumerate(receipts) if name == key]
        assert sorted(value for *_, value in entries) == sent, "each once"
        runs = [[value for _, _, value in run] for _, run in itertools.groupby(sorted(entries), lambda entry: entry[0])]
        assert all(run == sorted(run) for run in runs)
        assert len(runs) <= 2
        if len(runs) == 2:
            first, second = sorted(runs)
            assert first[-1] < second[0], "nothing of the old queue is newer than the new queue's first"


def test_an_idle_producer_finds_them_too(client: RocketClient, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"x").position(30.0)
        set_queues(client, topic, 3)
        deadline = time.monotonic() + 30
        while producer.send(b"x").position(30.0).partition != 2:
            assert time.monotonic() < deadline


def test_a_group_that_began_at_the_end_reads_what_came_with_new_queues(client: RocketClient, topic: str, broker: RocketMQ) -> None:
    """Written after the group began, to queues that its members had not seen yet."""
    group = f"g-{topic}"
    with client.producer(topic) as producer:
        producer.send(b"before", partition=0).position(30.0)
    with client.consumer(topic, group, start=LATEST, rebalance_interval=0.5) as consumer:
        assert consumer.poll(0.0) is None
        grow_and_read(client, topic, broker, consumer)


def test_a_reader_without_a_stop_reads_new_queues_from_their_first_record(client: RocketClient, topic: str, broker: RocketMQ) -> None:
    with client.reader(topic, start=EARLIEST) as reader:
        assert reader.poll(0.0) is None
        grow_and_read(client, topic, broker, reader)
