"""Reading on real Kafka brokers: whose turn it is, and what a reader with a stop is told."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Broker
from wireproto import EARLIEST, LATEST
from wireproto.errors import DataLoss
from wireproto.kafka.codes import UnknownTopicId, UnknownTopicOrPartition

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
PARTITIONS, RECORDS = 24, 300
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url, partition_bytes=30_000, max_bytes=200_000) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    """24 partitions of 300 kB."""
    name = f"reading-{next(_numbers)}"
    client.admin().create_topic(name, partitions=PARTITIONS)
    with client.producer(name, batch_size=5_000) as producer:
        for number in range(PARTITIONS * RECORDS):
            producer.send(b"%06d" % number + b"x" * 1000, partition=number % PARTITIONS)
    return name


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_partitions_of_one_leader_are_served_alike(client: Any, topic: str) -> None:
    """An answer is full before the leader comes to the last of them."""
    with client.reader(topic, stop=LATEST) as reader:
        found: Counter[int] = Counter()
        while found.total() < PARTITIONS * RECORDS // 4:
            batch = reader.poll(10.0)
            assert batch is not None
            found[batch.partition] += len(batch)
        assert min(found[partition] for partition in range(PARTITIONS)) >= found.total() / PARTITIONS / 2, found
        assert found.total() + sum(len(batch) for batch in reader) == PARTITIONS * RECORDS


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_reader_with_a_stop_is_told_of_a_topic_that_is_deleted_meanwhile(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        assert reader.poll(10.0) is not None
        client.admin().delete_topic(topic)
        with pytest.raises((UnknownTopicOrPartition, UnknownTopicId)):
            read_for(reader, 30.0)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_topic_made_again_is_told_where_its_first_records_would_be_missed(client: Any, broker: Broker, role: str) -> None:
    """It has more records by then than were read of the old one, so that the next one's place is there."""
    name = f"again-{next(_numbers)}"

    def write(values: range) -> None:
        with wireproto.connect(broker.url) as other, other.producer(name) as producer:
            for value in values:
                producer.send(b"%d" % value)

    def values(count: int) -> list[int]:
        found: list[int] = []
        deadline = time.monotonic() + 60.0
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            batch = ours.poll(1.0)
            found += [int(value) for value in batch.values()] if batch is not None else []
        return found

    with wireproto.connect(broker.url) as other:
        other.admin().create_topic(name)
        write(range(10))
        with client.reader(name) if role == "reader" else client.consumer(name, f"g-{name}") as ours:
            assert values(10) == [*range(10)]
            other.admin().delete_topic(name)
            other.admin().create_topic(name)
            write(range(100, 130))
            with pytest.raises(DataLoss, match=r"made again|was cut") as told:
                values(1)
            assert told.value.diverges_at == 0
            ours.seek(EARLIEST)
            assert values(30) == [*range(100, 130)]
            if role == "reader":
                with client.reader(name, reset="nearest") as ours:
                    assert values(30) == [*range(100, 130)]
                    other.admin().delete_topic(name)
                    other.admin().create_topic(name)
                    write(range(200, 210))
                    assert values(10) == [*range(200, 210)]


def read_for(reader: Any, seconds: float) -> None:
    """Read to the stop, which is to be reached within that time."""
    deadline = time.monotonic() + seconds
    while not reader.done:
        reader.poll(1.0)
        assert time.monotonic() < deadline, "it waits for ever"
