"""Brokers that take smaller messages than the client thinks: what is too large fails alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from wireproto import LATEST
from wireproto.errors import BrokerError
from wireproto.flow.parts import Parts
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import UpdateBrokerConfigRequest

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
LIMIT, USUAL = 65536, 4194304
"""`maxMessageSize` of the broker in this module, and out of the box."""
_numbers = itertools.count()


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url) as opened:

        def limit(size: int) -> None:
            opened.request(UpdateBrokerConfigRequest(), body=f"maxMessageSize={size}\n", to=f"127.0.0.1:{broker.broker_ports[0]}")

        limit(LIMIT)
        try:
            yield opened
        finally:
            limit(USUAL)


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"large-{next(_numbers)}"
    client.admin().create_topic(name, partitions=1)
    return name


def stored(client: RocketClient, topic: str) -> list[bytes]:
    return [value for batch in client.reader(topic, stop=LATEST) for value in batch.values() if value is not None]


def test_records_that_gather_stay_within_max_message_size(client: RocketClient, topic: str) -> None:
    values = [b"%4d" % number + b"x" * 1000 for number in range(1000)]
    with client.producer(topic, max_message_size=LIMIT) as out:
        receipts = [out.send(value) for value in values]
        places: list[Any] = [receipt.position(30.0) for receipt in receipts]
    assert [place.offset for place in places] == list(range(1000))
    assert not any(isinstance(receipt.batch.outcome.value, Parts) for receipt in receipts), "the broker refused a batch as too large"
    assert len({receipt.sequence for receipt in receipts}) < 200, "records do not gather"
    assert stored(client, topic) == values


def test_a_record_that_is_too_large_keeps_no_other_one_back(client: RocketClient, topic: str) -> None:
    """The producer does not know the broker's limit; values, keys and headers of the others are as they were sent."""
    large = {3, 40}
    values = [b"%d" % number if number not in large else b"x" * (LIMIT + 5000) for number in range(60)]
    with client.producer(topic, linger=0.5) as out:
        receipts = [
            out.send(value, key=b"k%d" % number, headers={"n": b"%d" % number}) if number % 2 else out.send(value)
            for number, value in enumerate(values)
        ]
        places: list[Any] = []
        for number, receipt in enumerate(receipts):
            if number in large:
                with pytest.raises(BrokerError):
                    receipt.position(30.0)
            else:
                places.append(receipt.position(30.0))
                assert receipt.warning == 0
                assert f"{topic}[0]" in repr(receipt)
    assert [place.offset for place in places] == list(range(58))
    found = [record for batch in client.reader(topic, stop=LATEST) for record in batch]
    kept = [number for number in range(60) if number not in large]
    assert [record.value for record in found] == [values[number] for number in kept]
    assert [(record.key, tuple(record.headers)) for record in found] == [
        (b"k%d" % number, (("n", b"%d" % number),)) if number % 2 else (None, ()) for number in kept
    ]
