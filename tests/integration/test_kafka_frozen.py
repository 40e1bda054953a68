"""One of three Kafka nodes is stopped: its sockets stay, and nothing answers. What hangs on the others goes on as before."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Broker
from wireproto.kafka.messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
)
from wireproto.kafka.messages.describe_quorum import DescribeQuorumRequestTopicData, PartitionData

_numbers = itertools.count()
SESSION = 4.0
"""Seconds after which a cluster gives up a node that is silent (`broker.session.timeout.ms`)."""
GIVEN_UP = SESSION + 15.0
"""Until then others lead, on a loaded machine too; who waits for the silent node itself waits for the request's time-out, 30 s."""
HEALTHY = 12.0
"""Seconds for what takes milliseconds on a quiet machine; a node that is silent would take the request's time-out, 30 s."""
ASLEEP = 90.0
"""Seconds after which the node goes on whatever the test does: longer than all that is measured meanwhile."""


@pytest.fixture
def topic(broker: Broker) -> str:
    """Partition 0 on the first node alone, 1 on the second, 2 on the third."""
    name = f"frozen-{next(_numbers)}"
    with wireproto.connect(broker.url, unknown_topic_timeout=30.0) as client:  # nodes hear of it one after the other
        nodes = sorted({part.details["leader"] for part in _any(client).partitions} | {1, 2, 3})
        placed = tuple(CreatableReplicaAssignment(partition_index=at, broker_ids=(node,)) for at, node in enumerate(nodes))
        wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=placed)
        reply = client.request(CreateTopicsRequest(topics=(wanted,), timeout_ms=30_000))
        assert not reply.topics[0].error_code, reply
        deadline = time.monotonic() + 30.0
        while len(client.admin().describe_topic(name).partitions) < 3:
            assert time.monotonic() < deadline
    return name


def _any(client: Any) -> Any:
    name = f"any-{next(_numbers)}"
    client.admin().create_topic(name, partitions=3, replication=1)
    return client.admin().describe_topic(name)


@pytest.fixture
def node(broker: Broker) -> int:
    """The node to be stopped: not the active controller, without which a healthy node, too, has no producer ids to give out; and no node
    takes it for that, as one does that has not passed on a request since the controller was another. Each is made to pass one on here. And
    all are in the cluster: one that the test before has stopped is given no partition to lead until it has been heard of again."""
    log = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),))
    told: set[int] = set()
    known: set[int] = set()
    deadline = time.monotonic() + 60.0
    while len(told) != 1 or known != {len(broker.addresses)}:
        assert time.monotonic() < deadline, (told, known)
        told, known = set(), set()
        for address in broker.addresses:
            with wireproto.connect(f"kafka://{address}") as client:
                reply = client.request(DescribeQuorumRequest(topics=(log,)), any=True)
                known.add(len(client.request(DescribeClusterRequest(), any=True).brokers))
            told.add(reply.topics[0].partitions[0].leader_id - 1)
    (controller,) = told
    return next(at for at in range(3) if at != controller)


@pytest.fixture
def client(broker: Broker, node: int) -> Iterator[Any]:
    """Look-ups of its go to that node."""
    with wireproto.connect(f"kafka://{broker.addresses[node]}") as made:
        yield made


def longest(client: Any, topic: str, partitions: tuple[int, ...], seconds: float) -> float:
    """The longest that a record of these partitions takes from `send` to a reader's `poll`; or that it took to open these. One after the
    other, each a moment after the one before: what is measured is what a record waits, and not how many there may be."""
    began = time.monotonic()
    with client.producer(topic, linger=0.0) as producer, client.reader(topic, start=wireproto.LATEST, partitions=partitions) as reader:
        worst = time.monotonic() - began
        until = time.monotonic() + seconds
        for number in itertools.count():
            began = time.monotonic()
            if began > until:
                break
            value = b"%d" % number
            producer.send(value, partition=partitions[number % len(partitions)]).position(60.0)
            seen: list[bytes | None] = []
            while value not in seen:
                assert time.monotonic() - began < 60.0
                batch = reader.poll(1.0)
                seen = batch.values() if batch is not None else []
            worst = max(worst, time.monotonic() - began)
            time.sleep(0.02)
    return worst


@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster"], indirect=True)
def test_a_node_that_is_stopped_holds_up_no_healthy_partition(broker: Broker, client: Any, topic: str, node: int) -> None:
    """It is the one that look-ups have gone to so far. Records to it are on their way all the while."""
    admin = client.admin()
    admin.describe_topic(topic)
    (asked,) = {conn.peer.rpartition(":")[2] for conn in client.loop.connections}
    assert broker.addresses[node].rpartition(":")[2] == asked
    partitions = tuple(number for number in range(3) if number != node)
    with client.producer(topic) as producer:
        for number in range(3):
            producer.send(b"before", partition=number).position(30.0)
        broker.servers[node].pause()
        resumed = threading.Timer(ASLEEP, broker.servers[node].resume)
        resumed.start()
        try:
            stuck = producer.send(b"stuck", partition=node)
            assert longest(client, topic, partitions, 8.0) < HEALTHY
            began = time.monotonic()
            admin.list_topics(timeout=30.0)
            assert time.monotonic() - began < HEALTHY
            with wireproto.connect(broker.url) as fresh:
                fresh.admin().describe_topic(topic, timeout=30.0)
                assert longest(fresh, topic, partitions, 3.0) < HEALTHY
        finally:
            broker.servers[node].resume()
            resumed.cancel()
        assert stuck.position(90.0).partition == node


@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster"], indirect=True)
def test_what_is_on_its_way_to_a_node_that_is_stopped_goes_to_the_next_leader(broker: Broker, node: int) -> None:
    """At default options, and while the node still sleeps: once the cluster has given it up. It may have taken what it never answered."""
    name = f"frozen-{next(_numbers)}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(name, partitions=6, replication=3)
        led = {part.partition for part in client.admin().describe_topic(name).partitions if part.details["leader"] == node + 1}
        assert led
        with client.producer(name) as producer:
            for number in range(6):
                producer.send(b"before", partition=number).position(30.0)
            receipts = [producer.send(b"on its way", partition=number) for number in led]
            broker.servers[node].pause()
            resumed = threading.Timer(ASLEEP, broker.servers[node].resume)
            resumed.start()
            try:
                began = time.monotonic()
                receipts += [producer.send(b"behind", partition=number) for number in range(6)]
                for receipt in receipts:
                    receipt.position(GIVEN_UP)
                assert time.monotonic() - began < GIVEN_UP
            finally:
                broker.servers[node].resume()
                resumed.cancel()
        with client.reader(name, stop=wireproto.LATEST) as reader:
            found = sorted((batch.partition, value) for batch in reader for value in batch.values())
        assert found == sorted(
            [(number, b"before") for number in range(6)]
            + [(number, b"behind") for number in range(6)]
            + [(number, b"on its way") for number in led]
        )
