"""What Kafka's admin says while one of three brokers is silent: what the others know, and which one it is."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.proxy import FaultProxy
from patience import soon
from wireproto.devbroker import DevBroker
from wireproto.devbroker.kafka import groups
from wireproto.errors import TimedOut, TransportError
from wireproto.kafka.codes import CoordinatorNotAvailable, LeaderNotAvailable, TransactionalIdNotFound
from wireproto.kafka.messages import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from wireproto.position import EARLIEST, LATEST, LogOffset

PROTOCOL = "kafka"
BROKER = {"nodes": {"kafka.nodes": 3}}
SILENT = 2
LISTENERS = {1: "main", 2: "node-2", 3: "node-3"}


@pytest.fixture
def client(broker: DevBroker, dial: Any, proxy: FaultProxy) -> Any:
    """One that knows the topic t, whose partitions 0 to 2 are led by nodes 1 to 3 with a record each; node 2 is reached by the proxy."""
    address = broker.address("kafka", LISTENERS[SILENT])
    made = dial(f"kafka://{broker.address('kafka', LISTENERS[1])}", address_map={address: proxy.through(address)}, timeout=20.0)
    if "t" not in made.admin().list_topics():
        made.admin().create_topic("t", partitions=3)
        with made.producer("t") as out:
            for number in range(3):
                out.send(b"x", partition=number).position(20.0)
    for number in range(3):
        if broker.call("kafka", "leader", "t", number) != number + 1:
            broker.call("kafka", "move_leader", "t", number, number + 1)
    made.admin().describe_topic("t")
    return made


def test_groups_are_those_of_the_brokers_that_answer(broker: DevBroker, client: Any, proxy: FaultProxy, caplog: Any) -> None:
    names: dict[int, str] = {}
    for number in range(100):
        names.setdefault(broker.call("kafka", "coordinator", f"g-{number}"), f"g-{number}")
    for name in names.values():
        client.admin().commit(name, {("t", 0): LogOffset("t", 0, 0)})
    assert client.admin().list_groups() == sorted(names.values())
    proxy.stall()
    assert client.admin().list_groups(timeout=1.0) == sorted(name for node, name in names.items() if node != SILENT)
    address = broker.address("kafka", LISTENERS[SILENT])
    assert f"broker {address} does not answer; the result is without its part" in caplog.text
    assert client.admin().describe_group(names[1], timeout=5.0).name == names[1]
    assert client.admin().group_positions(names[3], "t", timeout=5.0) == {("t", 0): LogOffset("t", 0, 0)}


def test_an_error_of_positions_has_what_the_others_answered(client: Any, proxy: FaultProxy) -> None:
    proxy.stall()
    for where, offset in ((LATEST, 1), (EARLIEST, 0)):
        with pytest.raises(TransportError) as failed:
            client.admin().positions("t", where, timeout=1.5)
        assert failed.value.known == {("t", number): LogOffset("t", number, offset) for number in range(3) if number != SILENT - 1}


def told_by(cluster: Any, silent: str) -> Any:
    """As `cluster.asking`: each node has 7 bytes of each partition, one says nothing. The embedded broker knows no sizes."""

    def asking(message: DescribeLogDirsRequest, until: float, to: Any, **_: Any) -> Any:
        conn = yield from to(until)
        if conn.peer == silent:
            raise TimedOut("no reply in time", peer=silent)
        topics = [
            DescribeLogDirsTopic(
                name=topic.topic,
                partitions=tuple(DescribeLogDirsPartition(partition_index=number, partition_size=7) for number in topic.partitions),
            )
            for topic in message.topics or ()
        ]
        return DescribeLogDirsResponse(results=(DescribeLogDirsResult(topics=tuple(topics)),))

    return asking


def test_sizes_are_asked_of_all_leaders_and_those_that_answered_are_known(
    broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = broker.address("kafka", LISTENERS[1])
    monkeypatch.setattr(client.cluster, "asking", told_by(client.cluster, address))
    with pytest.raises(TimedOut) as failed:
        client.admin().sizes(["t"])
    assert (failed.value.peer, failed.value.known) == (address, {("t", 1): 7, ("t", 2): 7})


def test_sizes_name_a_partition_without_a_leader(broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client.admin().create_topic("single", partitions=2, replication=1)
    monkeypatch.setattr(client.cluster, "asking", told_by(client.cluster, ""))
    assert client.admin().sizes(["single"]) == {("single", 0): 7, ("single", 1): 7}
    holder = broker.call("kafka", "leader", "single", 1)
    broker.pause("kafka", LISTENERS[holder])
    try:
        client.cluster.refresh(["single"], soon())
        with pytest.raises(LeaderNotAvailable) as failed:
            client.admin().sizes(["single"], timeout=5.0)
    finally:
        broker.resume("kafka")
    assert (failed.value.topic, failed.value.partition, failed.value.known) == ("single", 1, {("single", 0): 7})


def test_producers_name_a_partition_without_a_leader_and_those_of_the_others_are_known(broker: DevBroker, client: Any) -> None:
    admin = client.admin()
    admin.create_topic("written", partitions=2, replication=1)
    with client.producer("written") as out:
        for number in range(2):
            out.send(b"x", partition=number).position(20.0)
    told = admin.describe_producers("written")
    assert [len(told["written", number]) for number in range(2)] == [1, 1]
    broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", "written", 1)])
    try:
        client.cluster.refresh(["written"], soon())
        with pytest.raises(LeaderNotAvailable) as failed:
            admin.describe_producers("written", timeout=2.0)
    finally:
        broker.resume("kafka")
    assert (failed.value.topic, failed.value.partition) == ("written", 1)
    assert failed.value.known == {("written", 0): told["written", 0]}


def transactions(broker: DevBroker, client: Any) -> dict[int, str]:
    """A transactional id that is known by each node."""
    names = {node: f"t-{node}" for node in LISTENERS}
    for node, name in names.items():
        if broker.call("kafka", "coordinator", name) != node:
            broker.call("kafka", "move_coordinator", name, node)
    for name in names.values():
        with client.transactions(name) as work, work.begin() as turn:
            turn.send(b"x", topic="t", partition=0)
    return names


def test_transactions_of_the_coordinators_that_answer_are_known(broker: DevBroker, client: Any, proxy: FaultProxy) -> None:
    names = transactions(broker, client)
    told = client.admin().describe_transactions(names.values())
    proxy.stall()
    with pytest.raises(TransportError) as failed:
        client.admin().describe_transactions(names.values(), timeout=4.0)
    assert failed.value.known == {name: told[name] for node, name in names.items() if node != SILENT}


def test_transactions_are_known_beside_one_that_there_is_none_of(broker: DevBroker, client: Any) -> None:
    names = transactions(broker, client)
    told = client.admin().describe_transactions(names.values())
    with pytest.raises(TransactionalIdNotFound) as failed:
        client.admin().describe_transactions([*names.values(), "missing"])
    assert failed.value.known == told


def test_transactions_are_known_beside_one_that_has_no_coordinator(broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = transactions(broker, client)
    told = client.admin().describe_transactions(names.values())
    answer = groups._coordinator

    def coordinator(context: Any, key: str) -> Any:
        return answer(context, key).replace(error_code=CoordinatorNotAvailable.code) if key == "homeless" else answer(context, key)

    monkeypatch.setattr(groups, "_coordinator", coordinator)
    with pytest.raises(CoordinatorNotAvailable, match="homeless") as failed:
        client.admin().describe_transactions([*names.values(), "homeless"], timeout=1.5)
    assert failed.value.known == told
