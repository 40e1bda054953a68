"""Quotas of Kafka: the answer comes at once and names a time for which the broker reads nothing more by that connection (KIP-219)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from kafka_nodes import SecondNode
from patience import KEPT
from wireproto import LATEST
from wireproto.devbroker import DevBroker

MUTED, SOON = 2.5, 20.0
PRODUCE, FETCH = 0, 1
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def topic(broker: DevBroker) -> str:
    name = f"quotas-{next(_numbers)}"
    with wireproto.connect(broker.url("kafka")) as client:
        client.admin().create_topic(name, partitions=2)
    return name


@pytest.fixture
def throttle(broker: DevBroker) -> Iterator[Callable[[int], None]]:
    """The next answer to a request of this number says that a quota is used up."""
    offered: dict[int, Any] = broker._side("kafka").offered
    before = dict(offered)

    def once(key: int) -> None:
        name, low, high, handler = offered[key]

        async def answer(context: Any) -> Any:
            offered[key] = before[key]
            return (await handler(context)).replace(throttle_time_ms=int(MUTED * 1000))

        offered[key] = name, low, high, answer

    yield once
    offered.update(before)


def test_a_producer_sends_nothing_by_a_connection_that_is_not_read(broker: DevBroker, topic: str, throttle: Any) -> None:
    """Not until that is over, however short its `request_timeout`, and by that connection: it is no silent one."""
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), request_timeout=1.0) as client, client.producer(topic) as producer:
        producer.send(b"before", partition=0).position(SOON)
        throttle(PRODUCE)
        producer.send(b"too much", partition=0).position(SOON)
        (told,) = (reply.at for reply in seen.replies("Produce") if reply.message.throttle_time_ms)
        receipts = [producer.send(b"later", partition=number) for number in range(2)]
        assert [receipt.position(MUTED + KEPT).offset for receipt in receipts] == [2, 0]
        sent = seen.requests("Produce")
        assert sent[2].at - told >= MUTED - 0.1
        assert len({request.connection for request in sent}) == 1


def test_small_records_without_a_key_leave_a_leader_whose_quota_is_used_up(
    broker: DevBroker, topic: str, throttle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the partition that they stick to has room for thousands of them."""
    _, _, port = broker.address("kafka").rpartition(":")
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as producer:
        where = producer.send(b"here").position(SOON).partition
        SecondNode(monkeypatch)(client.cluster.metadata, topic, where, "localhost", int(port))  # another connection
        throttle(PRODUCE)
        assert producer.send(b"too much").position(SOON).partition == where, "they stick to it"
        assert [producer.send(b"later").position(SOON).partition for _ in range(5)] == [1 - where] * 5


def test_another_connection_is_no_way_round_a_quota(broker: DevBroker, topic: str, throttle: Any) -> None:
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as producer:
        throttle(PRODUCE)
        producer.send(b"too much", partition=0).position(SOON)
        (told,) = (reply.at for reply in seen.replies("Produce"))
        broker.kick("kafka")
        assert producer.send(b"later", partition=0).position(MUTED + KEPT).offset == 1
        assert seen.requests("Produce")[1].at - told >= MUTED - 0.1


def test_a_reader_asks_nothing_by_a_connection_that_is_not_read(broker: DevBroker, topic: str, throttle: Any) -> None:
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), request_timeout=1.0, max_wait=0.05) as client:
        with client.producer(topic) as producer:
            producer.send(b"x", partition=0).position(SOON)
        throttle(FETCH)
        with client.reader(topic, stop=LATEST) as reader:
            assert [batch.values() for batch in reader] == [[b"x"]]
            assert reader.poll(0.0) is None
        with client.reader(topic, partitions=[0]) as reader:
            throttle(FETCH)
            assert reader.poll(SOON) is not None
            (told,) = [reply.at for reply in seen.replies("Fetch") if reply.message.throttle_time_ms][1:]
            assert reader.poll(MUTED + 1.5) is None
            later = [request.at for request in seen.requests("Fetch") if request.at > told]
            assert later[0] - told >= MUTED - 0.1
