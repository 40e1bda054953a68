"""Two masters: a topic's queues lie on both, a group shares them, and one that is away takes nothing along."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

import wireproto
from brokers import RocketMQ
from wireproto.errors import Revoked
from wireproto.position import EARLIEST, LATEST, QueueOffset
from wireproto.rocketmq.client import RocketClient

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
SECOND = 2  # in `servers`: the name server is 0, broker-a 1
_numbers = itertools.count()


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url, route_age=0.5) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"cluster-{os.getpid()}-{next(_numbers)}"
    client.admin().create_topic(name, partitions=5)
    return name


def homes(client: RocketClient, topic: str) -> dict[int, str]:
    return {queue.partition: queue.broker for queue in client.cluster.route(topic, client.deadline(10.0)).queues}


def read(client: RocketClient, topic: str, wanted: set[bytes]) -> list[bytes]:
    """All values once those wanted are among them: a queue shows a record a moment after it was acknowledged."""
    deadline = time.monotonic() + 60
    while True:
        with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
            found = [value for batch in reader for value in batch.values()]
        if wanted <= set(found):
            return found
        assert time.monotonic() < deadline, f"missing {sorted(wanted - set(found))[:5]}"


@pytest.mark.no_rerun
def test_queues_are_numbered_over_both_and_hold_each_record_once(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    assert homes(client, topic) == {0: "broker-a", 1: "broker-a", 2: "broker-a", 3: "broker-b", 4: "broker-b"}
    sent = {b"%d" % number: b"key-%d" % (number % 9) for number in range(300)}
    with client.producer(topic) as producer:
        places = {value: producer.send(value, key=key) for value, key in sent.items()}
        named = [producer.send(b"p", partition=partition).position(30.0).partition for partition in range(5)]
    assert named == [0, 1, 2, 3, 4]
    by_key = {key: {places[value].position(30.0).partition for value in sent if sent[value] == key} for key in sent.values()}
    assert all(len(partitions) == 1 for partitions in by_key.values())
    assert {homes(client, topic)[min(partitions)] for partitions in by_key.values()} == {"broker-a", "broker-b"}
    with wireproto.connect(broker.url) as other:
        assert sorted(read(other, topic, {*sent})) == sorted([*sent, *[b"p"] * 5])
        assert set(other.admin().positions(topic)) == {(topic, partition) for partition in range(5)}


def test_two_members_share_the_queues_of_both(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    with wireproto.connect(broker.url) as other, client.consumer(topic, f"g-{topic}") as one, other.consumer(topic, f"g-{topic}") as two:
        deadline = time.monotonic() + 60
        while sorted([*one.assignment, *two.assignment]) != [(topic, partition) for partition in range(5)] or not two.assignment:
            assert time.monotonic() < deadline, (one.assignment, two.assignment)
            one.poll(0.1)
            two.poll(0.1)
        sent = {b"%d" % number for number in range(100)}
        with client.producer(topic) as producer:
            for value in sent:
                producer.send(value)
        found: list[bytes | None] = []
        while set(found) != sent:
            assert time.monotonic() < deadline, f"missing {sorted(sent - {value for value in found if value})[:5]}"
            for member in (one, two):
                batch = member.poll(0.1)
                found += batch.values() if batch is not None else []
        ends = client.admin().positions(topic)
        while client.admin().group_positions(f"g-{topic}", topic) != ends:
            assert time.monotonic() < deadline, client.admin().group_positions(f"g-{topic}", topic)
            for member in (one, two):
                with suppress(Revoked):  # a queue fell to the other one, as a broker that answered late has told; it comes again there
                    member.commit()
                member.poll(0.1)


def test_one_that_is_away_takes_nothing_along(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """Writing goes on over the other master, reading of it too; what the one held is there when it is back."""
    with client.producer(topic, delivery_timeout=120.0) as producer:
        before = {b"before-%d" % number: producer.send(b"before-%d" % number) for number in range(50)}
        producer.flush(30.0)
        there = {value for value, receipt in before.items() if homes(client, topic)[receipt.position(30.0).partition] == "broker-b"}
        assert 0 < len(there) < 50
        broker.kill(SECOND)
        try:
            during = {b"during-%d" % number: producer.send(b"during-%d" % number, partition=number % 3) for number in range(30)}
            assert {homes(client, topic)[receipt.position(60.0).partition] for receipt in during.values()} == {"broker-a"}
            stays = {(topic, partition): QueueOffset(topic, partition, 0, "broker-a", partition) for partition in range(3)}
            found: set[bytes | None] = set()
            deadline = time.monotonic() + 60
            with client.reader(topic, start=stays) as reader:
                while not {*before} - there | {*during} <= found:
                    assert time.monotonic() < deadline, "the other master's queues were not read"
                    batch = reader.poll(1.0)
                    found |= set(batch.values()) if batch is not None else set()
        finally:
            broker.start(SECOND)
        after = {b"after-%d" % number: producer.send(b"after-%d" % number, partition=number % 5) for number in range(20)}
        producer.flush(60.0)
    assert {receipt.position(1.0).partition for receipt in after.values()} == {0, 1, 2, 3, 4}
    assert {*before, *during, *after} <= set(read(client, topic, {*before, *during, *after}))
