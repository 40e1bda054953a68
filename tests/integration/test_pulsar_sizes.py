"""Batches about as large as a broker of Pulsar 4.2.4 takes: cut, sealed, stored once, and read by pulsar-client."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import pulsar
from brokers.pulsar import Pulsar
from integration.pulsar_tools import drain, new_topic, ours, read_theirs, theirs
from wireproto import EARLIEST, LATEST, UnknownPosition
from wireproto._codec import Columns

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)
LIMIT = 5 << 20  # a broker's default maxMessageSize
CUT = 4 << 20
SINK: dict[str, Any] = {"batch_records": 1000, "batch_size": CUT, "linger": 3600.0}


def random_rows(count: int, size: int) -> Columns:
    rng = random.Random(size)
    return Columns.from_rows([rng.randbytes(size - rng.randrange(50)) for _ in range(count)], keys=[b"k%d" % n for n in range(count)])


def entries(client: Any, topic: str) -> Counter[tuple[int, int]]:
    """Messages of each stored entry."""
    return Counter(place[:2] for batch in client.reader(topic, start=EARLIEST, stop=LATEST) for place in batch.columns.positions())


@pytest.mark.parametrize("size", [1000, 9_000, 100_000, LIMIT // 2])
def test_batches_as_large_as_the_broker_takes(broker: Pulsar, size: int, oracle: Callable[..., None]) -> None:
    rows = random_rows(max(3, 12_000_000 // size), size)
    topic = new_topic(broker)
    with ours(broker) as client, theirs(broker) as official:
        with client.producer(topic, batch_records=100_000, batch_size=LIMIT, linger=3600.0) as producer:
            producer.send_batch(rows)
            producer.seal()
            producer.flush(60.0)
        assert [message.data() for message in read_theirs(official, topic)] == rows.values()
        stored = entries(client, topic)
        assert len(stored) <= 2 + len(rows) * (size + 40) // (LIMIT - size)
        assert [record.value for record in drain(client.reader(topic, start=EARLIEST, stop=LATEST), len(rows))] == rows.values()
    oracle("pulsar-client", messages=len(rows))


def test_a_cut_for_size_is_stored_once_when_the_same_rows_come_again(broker: Pulsar, oracle: Callable[..., None]) -> None:
    """The rows of a sink: a thousand at a time, cut at 4 MiB and sealed; a broker that de-duplicates keeps the first of each batch."""
    if "public/cuts" not in broker.call("GET", "/admin/v2/namespaces/public"):
        broker.call("PUT", "/admin/v2/namespaces/public/cuts")
        broker.call("POST", "/admin/v2/namespaces/public/cuts/deduplication", True)
    name = f"sizes-{os.getpid()}"
    broker.call("PUT", f"/admin/v2/persistent/public/cuts/{name}")
    topic = f"persistent://public/cuts/{name}"
    rows = random_rows(2000, 9_000)
    with ours(broker) as client, theirs(broker) as official:
        for turn in range(2):
            with client.producer(topic, producer_name=f"sink-{name}", first_sequence=7 << 40, **SINK) as producer:
                receipts = []
                for start in range(0, len(rows), 1000):
                    receipts += producer.send_batch(rows[start : start + 1000], timeout=60.0)
                    producer.seal()
                places = [receipt.position(60.0) for receipt in receipts]
            assert len(places) == 6  # each thousand: two cut at 4 MiB and what is left
            assert all(isinstance(place, UnknownPosition) == bool(turn) for place in places)
        reader = official.create_reader(topic, pulsar.MessageId.earliest)
        found = [reader.read_next(20_000).data() for _ in range(len(rows))]
        assert found == rows.values()
        assert not reader.has_message_available()
        reader.close()
    oracle("pulsar-client", messages=len(found))
