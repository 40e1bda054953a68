"""Fetch sessions on real brokers: that the embedded one's are like theirs, and that readers of many partitions live through their ends."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

import wireproto
from brokers import Broker
from patience import until
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.kafka.messages import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReassignablePartition,
    ReassignableTopic,
)
from wireproto.kafka.messages.fetch import FetchForgottenTopic

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
PARTITIONS = 200
_numbers = itertools.count()


def talk(url: str) -> list[Any]:
    """What a broker answers to Fetches by sessions: for each the error, whether it names a session, and what it tells of whom."""
    topic, told = f"talk-{next(_numbers)}", []
    with wireproto.connect(url) as client:
        client.admin().create_topic(topic, partitions=4)
        producer = client.producer(topic)

        def fetch(number: int, epoch: int, named: dict[int, int], *, forgotten: tuple[int, ...] = (), size: int = 1 << 20) -> int:
            asked = tuple(FetchPartition(partition=which, fetch_offset=at, partition_max_bytes=size) for which, at in named.items())
            reply = client.request(
                FetchRequest(
                    max_wait_ms=300,
                    min_bytes=1,
                    max_bytes=size,
                    session_id=number,
                    session_epoch=epoch,
                    topics=(FetchTopic(topic=topic, partitions=asked),) if asked else (),
                    forgotten_topics_data=(FetchForgottenTopic(topic=topic, partitions=forgotten),) if forgotten else (),
                ),
                version=12,
                any=True,
            )
            parts = {
                part.partition_index: (part.error_code, part.high_watermark, bool(part.records))
                for found in reply.responses
                for part in found.partitions
            }
            told.append((reply.error_code, reply.session_id != 0, parts, [*parts] if epoch > 0 else []))
            return int(reply.session_id)

        fetch(0, -1, {0: 0, 1: 0})
        mine = fetch(0, 0, {0: 0, 1: 0, 2: 0})
        fetch(mine, 1, {})
        producer.send(b"1", partition=1)
        producer.send(b"2", partition=2)
        producer.flush()
        fetch(mine, 2, {})  # both have news
        fetch(mine, 3, {})  # and are told again, as nobody asked from further on
        fetch(mine, 4, {1: 1})
        fetch(mine, 5, {2: 1})
        fetch(mine, 6, {})
        fetch(mine, 7, {0: 5})  # beyond its end
        fetch(mine, 8, {})  # an error is told again
        fetch(mine, 9, {0: 0})
        fetch(mine, 10, {3: 0})  # a new one
        fetch(mine, 11, {}, forgotten=(1, 2))
        producer.send(b"3", partition=1)
        producer.flush()
        fetch(mine, 12, {})
        fetch(mine, 13, {1: 0, 2: 0}, size=1)  # no room but for one
        fetch(mine, 14, {}, size=1)
        fetch(mine, 15, {}, size=1)  # who had records goes to the end
        fetch(mine, 17, {})  # out of step
        fetch(mine, 16, {})
        fetch(mine + 1, 1, {})  # unknown
        anew = fetch(mine, 0, {0: 0, 1: 2})
        fetch(mine, 17, {})  # ended by that
        fetch(anew, 1, {1: 0}, forgotten=(0, 1))  # forgets what it names
        fetch(anew, 2, {})  # nothing was left of it
        anew = fetch(0, 0, {0: 0})
        fetch(anew, -1, {})
        fetch(anew, 1, {})
        fetch(0, 0, {})
        fetch(0, 0, {9: 0})
        producer.close()
    return told


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_dev_broker_keeps_sessions_as_brokers_do(broker: Broker) -> None:
    theirs = talk(broker.url)
    with DevBroker(["kafka"]) as ours:
        for number, (one, other) in enumerate(zip(theirs, talk(ours.url("kafka")), strict=True)):
            assert other == one, number


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_idle_partitions_cost_nothing_to_ask_for(broker: Broker, fault_proxy: Any) -> None:
    seen = fault_proxy.record("kafka")
    with wireproto.connect(broker.url, max_wait=0.1, address_map=fault_proxy.address_map(broker.addresses)) as client:
        name = f"idle-{next(_numbers)}"
        client.admin().create_topic(name, partitions=PARTITIONS)
        with client.reader(name, start=LATEST) as reader:
            until(lambda: reader.poll(0.1) is None and len(seen.replies("Fetch")) >= 12)
            assert [request.message.session_epoch for request in seen.requests("Fetch")][:12] == [*range(12)]
            last = [*seen.requests("Fetch")[8:12], *seen.replies("Fetch")[8:12]]
            assert max(len(frame.frame) for frame in last) < 100
    until(lambda: seen.requests("Fetch")[-1].message.session_epoch == -1)
    assert {reply.message.error_code for reply in seen.replies("Fetch")} == {0}


@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster"], indirect=True)
def test_many_partitions_are_read_once_and_in_order_while_leaders_move_and_a_node_is_killed(broker: Broker) -> None:
    """Sessions end with leaders, nodes and connections; what was read goes on from its place."""
    name, records, partitions = f"moves-{next(_numbers)}", 12_000, 60
    turns = itertools.count(1)
    client: Any
    with wireproto.connect(broker.url, request_timeout=10.0, max_wait=0.1) as client:
        client.admin().create_topic(name, partitions=partitions, replication=3, timeout=60.0)

        def move() -> None:
            """The next replica of each partition leads."""
            turn = next(turns)
            order = {n: tuple((n + turn + step) % 3 + 1 for step in range(3)) for n in range(partitions)}
            parts = tuple(ReassignablePartition(partition_index=n, replicas=nodes) for n, nodes in order.items())
            wanted = ReassignableTopic(name=name, partitions=parts)
            client.request(AlterPartitionReassignmentsRequest(timeout_ms=20_000, topics=(wanted,)), timeout=60.0)
            chosen = ElectLeadersTopicPartitions(topic=name, partitions=tuple(range(partitions)))
            client.request(ElectLeadersRequest(election_type=0, topic_partitions=(chosen,), timeout_ms=20_000), timeout=60.0)

        def kill() -> None:
            broker.kill(1)
            broker.start(1)

        def write() -> None:
            with wireproto.connect(broker.url) as other, other.producer(name, linger=0.05) as producer:
                for number in range(records):
                    producer.send(b"%d" % number, partition=number % partitions, timeout=60.0)
                producer.flush(90.0)

        found: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        doing = iter([(records // 8, move), (records // 4, kill), (records // 2, move), (records * 3 // 4, move), (records, None)])
        following, deed = next(doing)
        with client.reader(name) as reader:
            writer = threading.Thread(target=write)
            writer.start()
            try:
                deadline = time.monotonic() + 240.0
                while (count := sum(map(len, found.values()))) < records:
                    assert time.monotonic() < deadline, f"{count} of {records}"
                    if count >= following and deed is not None:
                        deed()
                        following, deed = next(doing)
                    batch = reader.poll(0.5)
                    if batch is not None:
                        found[batch.partition] += [int(value or b"") for value in batch.values()]
            finally:
                writer.join()
            sessions = [session.id for session in reader._fetcher.asking.sessions.values()]
        assert any(sessions), "who was asked last may have none yet"
        assert deed is None
    assert found == {partition: [*range(partition, records, partitions)] for partition in range(partitions)}
