"""Records that may go to any queue leave a broker that refuses them or is silent, for one that takes them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import BrokerError, TimedOut
from wireproto.rocketmq.client import RocketClient

_numbers = itertools.count()
SENDS = ("SendMessageV2", "SendBatchMessage")


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[DevBroker, DevBroker]]:
    """The first one is the name server of both; partitions 0 and 1 of a topic are its, 2 and 3 the other's."""
    with DevBroker(["rocketmq"], auto_create=False) as first, DevBroker(["rocketmq"], auto_create=False) as other:
        first.call("rocketmq", "register", "other", other.address("rocketmq", "broker"))
        yield first, other


@pytest.fixture
def dial(brokers: tuple[DevBroker, DevBroker]) -> Iterator[Callable[..., RocketClient]]:
    opened: list[RocketClient] = []

    def dial(**options: Any) -> RocketClient:
        opened.append(wireproto.connect(brokers[0].url("rocketmq"), **options))
        return opened[-1]

    yield dial
    for broker in brokers:
        broker.faults("rocketmq").clear()
    for client in opened:
        client.close(5.0)


@pytest.fixture
def client(dial: Callable[..., RocketClient]) -> RocketClient:
    return dial()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"elsewhere-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    assert len(client.cluster.route(name, client.deadline(10.0), fresh=True).queues) == 4
    return name


def refuse(broker: DevBroker, code: int) -> None:
    for name in SENDS:
        broker.faults("rocketmq").error(name, code, times=-1)


def silence(broker: DevBroker) -> None:
    for name in SENDS:
        broker.faults("rocketmq").drop(name, times=-1)


def sends(seen: Recording) -> int:
    return len([request for request in seen.requests() if request.name in SENDS])


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
def test_a_broker_that_refuses_is_left(brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str, code: int) -> None:
    """Drained (16), disk full (14), busy (2) … while it stays in the route."""
    refuse(brokers[1], code)
    seen = brokers[1].record("rocketmq")
    begun = time.monotonic()
    with client.producer(topic, batch_size=1) as producer:
        receipts = [producer.send(b"%d" % n) for n in range(40)]
        assert {receipt.position(30.0).partition for receipt in receipts} <= {0, 1}
        for _ in range(40):
            producer.send(b"x").position(30.0)
    assert time.monotonic() - begun < 20.0
    assert sends(seen) < 30, "it is not asked for each record"


def test_a_broker_that_is_silent_is_left(brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str) -> None:
    silence(brokers[1])
    seen = brokers[1].record("rocketmq")
    with client.producer(topic, request_timeout=0.5) as producer:
        receipts = [producer.send(b"%d" % n) for n in range(40)]
        assert {receipt.position(30.0).partition for receipt in receipts} <= {0, 1}
        for n in range(200):
            producer.send(b"%d" % n).position(30.0)
    assert sends(seen) < 20


def test_records_that_have_their_place_wait_for_it(brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str) -> None:
    brokers[1].faults("rocketmq").error("SendMessageV2", 2, times=4)
    with client.producer(topic) as producer:
        assert producer.send(b"there", partition=2).position(30.0).partition == 2
    refuse(brokers[1], 1)
    producer = client.producer(topic)
    with pytest.raises(BrokerError) as caught:
        producer.send(b"there", partition=3).position(30.0)
    assert caught.value.code == 1
    producer.flush()


@pytest.mark.parametrize("code", [1, 204])
def test_where_nobody_takes_it_the_refusal_is_told(
    brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str, code: int
) -> None:
    for broker in brokers:
        refuse(broker, code)
    producer = client.producer(topic, delivery_timeout=20.0)
    begun = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        producer.send(b"x").position(30.0)
    assert caught.value.code == code
    assert time.monotonic() - begun < 15.0, "at once, and not when its time is over"
    producer.flush()


def test_where_all_are_silent_the_record_s_time_ends(brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str) -> None:
    for broker in brokers:
        silence(broker)
    producer = client.producer(topic, delivery_timeout=1.0, request_timeout=0.2)
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        producer.send(b"x").position(30.0)
    assert 0.9 <= time.monotonic() - begun < 10.0
    producer.flush()


def test_a_broker_that_takes_records_again_gets_some(brokers: tuple[DevBroker, DevBroker], client: RocketClient, topic: str) -> None:
    for name in SENDS:
        brokers[1].faults("rocketmq").error(name, 16, times=3)
    with client.producer(topic) as producer:
        deadline = time.monotonic() + 60
        places: set[int] = set()
        while not places & {2, 3}:
            assert time.monotonic() < deadline
            places.add(producer.send(b"x").position(30.0).partition)
            client.cluster.pause(0.02)
