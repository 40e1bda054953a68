"""Kafka's readers on the embedded broker: how much they hold."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import LATE
from wireproto import LATEST
from wireproto.devbroker import DevBroker

ROOM, PART = 200_000, 50_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), fetch_memory=ROOM, partition_bytes=PART, max_wait=0.05) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """Six partitions of 300 kB, in batches of some 10 kB."""
    name = f"reading-{next(_numbers)}"
    client.admin().create_topic(name, partitions=6)
    with client.producer(name, batch_size=10_000) as producer:
        for number in range(6 * 300):
            producer.send(b"%06d" % number + b"x" * 1000, partition=number % 6)
    return name


def count(reader: Any) -> tuple[int, int]:
    """Records up to the end, and the most that the client held meanwhile."""
    found = most = 0
    for batch in reader:
        found += len(batch)
        most = max(most, reader._cluster.fetch_room.held)
    return found, most


def test_readers_of_a_client_keep_to_one_bound_and_give_it_back(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as first, client.reader(topic, stop=LATEST) as second:
        for _ in range(3):  # the first one holds what it can
            assert first.poll(5.0) is not None
        found, most = count(second)
        assert found == 1800, "a reader that holds nothing always comes on"
        assert most <= ROOM + PART
        found, most = count(first)
        assert 0 < found < 1800
        assert most <= ROOM + PART
    assert client.cluster.fetch_room.held == 0


def test_a_closed_and_a_dropped_reader_give_back_what_they_held(client: Any, topic: str) -> None:
    reader = client.reader(topic, stop=LATEST)
    assert reader.poll(5.0) is not None
    assert client.cluster.fetch_room.held > 0
    reader.close()
    assert client.cluster.fetch_room.held == 0


def test_a_paused_partition_does_not_hold_up_the_others(client: Any, topic: str) -> None:
    with client.consumer(topic, f"group-{topic}") as consumer:
        deadline = time.monotonic() + 30
        found = 0
        paused: set[Any] = set()
        while found < 1500 and time.monotonic() < deadline:
            batch = consumer.poll(1.0)
            if batch is None:
                continue
            if not paused:
                paused = {(topic, (batch.partition + 1) % 6)}
                consumer.pause(paused)
            if (topic, batch.partition) in paused:
                continue
            found += len(batch)
        assert found == 1500
        consumer.resume(paused)
        while found < 1800 and time.monotonic() < deadline:
            batch = consumer.poll(1.0)
            found += len(batch) if batch is not None else 0
        assert found == 1800
    assert client.cluster.fetch_room.held == 0


@pytest.mark.parametrize(("slow", "partitions"), [(2, range(6)), (25, [3])])
def test_records_that_are_slow_to_come_are_waited_for(client: Any, broker: DevBroker, topic: str, slow: int, partitions: Any) -> None:
    """Remote storage that takes longer than the broker waits: answers without records and without an error, fewer or more than it
    takes to doubt that there are any."""
    for partition in partitions:
        broker.call("kafka", "move_away", topic, partition, 250, slow=slow)
    with client.reader(topic, stop=LATEST, partitions=partitions) as reader:
        assert count(reader)[0] == 300 * len(partitions)


def test_a_log_that_ends_in_offsets_without_records_ends_a_read(client: Any, broker: DevBroker, topic: str) -> None:
    for partition in range(6):
        broker.call("kafka", "leave_out", topic, partition, 10)
    began = time.monotonic()
    with client.reader(topic, stop=LATEST) as reader:
        assert count(reader)[0] == 1800
        assert {place.offset for place in reader.positions.values()} == {310}
    assert time.monotonic() - began < 10.0 + LATE
