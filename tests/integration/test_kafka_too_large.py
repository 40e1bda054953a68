"""Batches larger than a topic allows: they are sent again in halves, and only a record that is too large alone fails."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

import wireproto
import wireproto.aio
from brokers import Broker
from wireproto import LATEST
from wireproto.kafka.codes import MessageTooLarge

from .kafka_peers import confluent_read

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
RECORDS, LIMIT = 1500, 3000
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    name = f"large-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2, config={"max.message.bytes": str(LIMIT)})
    return name


def values(random_bytes: random.Random) -> list[bytes]:
    """Of all sizes that fit, which no codec makes smaller, and each hundredth one that does not."""
    return [
        b"%06d" % number + random_bytes.randbytes(LIMIT + 500 if number % 100 == 50 else random_bytes.randrange(1200))
        for number in range(RECORDS)
    ]


def too_large(value: bytes) -> bool:
    return len(value) > LIMIT


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("idempotence", [True, False])
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_what_a_batch_is_too_large_for_is_stored_in_parts(broker: Any, client: Any, topic: str, idempotence: bool, codec: str) -> None:
    """Several are in flight, each too large; some have a record that is so alone."""
    sent = values(random.Random(7))
    with client.producer(topic, idempotence=idempotence, compression=codec, linger=0.005) as producer:
        receipts = [
            producer.send(value, key=b"k", headers={"n": b"1"}, partition=n % 2, timestamp=1000 + n) for n, value in enumerate(sent)
        ]
        with pytest.raises(MessageTooLarge):
            producer.flush(60.0)
        for part in (0, 1):
            rows = [row for row in confluent_read(broker.bootstrap, topic, 2, sum(not too_large(v) for v in sent)) if row.partition == part]
            kept = [n for n in range(part, RECORDS, 2) if not too_large(sent[n])]
            assert [(row.value, row.timestamp) for row in rows] == [(sent[n], 1000 + n) for n in kept], "once each, and in order"
            assert {(row.key, row.headers) for row in rows} == {(b"k", (("n", b"1"),))}
            assert [receipts[n].position(1.0).offset for n in kept] == [row.offset for row in rows], "each receipt tells its own place"
        for number, value in enumerate(sent):
            if too_large(value):
                with pytest.raises(MessageTooLarge):
                    receipts[number].position(1.0)
        assert producer._budget.used == 0, "what is settled holds no room"
        producer.flush(1.0)  # all was told
    end = client.admin().positions(topic, LATEST)
    assert sum(position.offset for position in end.values()) == sum(not too_large(value) for value in sent)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_rows_of_a_batch_are_stored_in_parts_whichever_face_sends_them(broker: Any, client: Any, topic: str) -> None:
    rows = [b"%06d" % number + bytes(100) for number in range(RECORDS)]
    with client.producer(topic) as producer:
        producer.send_batch(pyarrow.record_batch({"value": rows}), partition=0)
        producer.flush(60.0)

    async def others() -> list[Any]:
        async with wireproto.aio.connect(broker.url) as ours, await ours.producer(topic, linger=0.05) as out:
            futures = [out.send(row if number != 70 else bytes(2 * LIMIT), partition=1) for number, row in enumerate(rows[:200])]
            return await asyncio.gather(*futures, return_exceptions=True)

    places = asyncio.run(others())
    assert isinstance(places.pop(70), MessageTooLarge)
    assert [place.offset for place in places] == [*range(199)]
    found = confluent_read(broker.bootstrap, topic, 2, RECORDS + 199)
    assert [row.value for row in found] == rows + rows[:70] + rows[71:200]
