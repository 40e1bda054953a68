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
from wireproto import LATEST
from wireproto.kafka.codes import UnknownTopicId, UnknownTopicOrPartition

BROKERS = ["kafka-3.9.2", "kafka-4.3.1"]
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


def read_for(reader: Any, seconds: float) -> None:
    """Read to the stop, which is to be reached within that time."""
    deadline = time.monotonic() + seconds
    while not reader.done:
        reader.poll(1.0)
        assert time.monotonic() < deadline, "it waits for ever"
