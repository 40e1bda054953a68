"""Several nodes of an embedded cluster: leaders and coordinators that move, nodes that go and come back, and whom that costs nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import wireproto
from patience import LONG, until
from wireproto import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.devbroker.kafka import groups
from wireproto.devbroker.kafka.cluster import slot_of
from wireproto.errors import OptionError, WireprotoError
from wireproto.kafka import messages as m
from wireproto.kafka.codes import LeaderNotAvailable, TransactionalIdNotFound

PROTOCOL, SECONDS = "kafka", 20.0
BROKER = {"nodes": {"kafka.nodes": 3}}
CLIENT = {"timeout": SECONDS, "max_wait": 0.05}
LISTENERS = {1: "main", 2: "node-2", 3: "node-3"}
NOT_LEADER, NOT_COORDINATOR, FENCED, UNKNOWN_EPOCH = 6, 16, 74, 75


@pytest.fixture(autouse=True)
def whole(broker: DevBroker) -> Iterator[None]:
    """Every node is there again for the next test."""
    yield
    broker.resume("kafka")


def of(topic: str, client: Any, node: int) -> Any:
    """What a node's Metadata says of a topic's first partition."""
    (told,) = client.request(m.MetadataRequest(topics=(m.MetadataRequestTopic(name=topic),)), node=node).topics
    return told.partitions[0]


def fetched(client: Any, topic: str, *, node: int, epoch: int, version: int = 12) -> int:
    """The error code of a Fetch under an epoch at a node."""
    part = m.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
    message = m.FetchRequest(max_wait_ms=1, max_bytes=1 << 20, topics=(m.FetchTopic(topic=topic, partitions=(part,)),))
    return int(client.request(message, node=node, version=version).responses[0].partitions[0].error_code)


def read(client: Any, topic: str) -> list[int]:
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        return [int(value) for batch in reader for value in batch.values()]


def others(broker: DevBroker, topic: str) -> list[int]:
    """Nodes that do not lead the topic's first partition."""
    return [number for number in LISTENERS if number != broker.call("kafka", "leader", topic, 0)]


def test_a_clusters_url_names_its_nodes_and_metadata_spreads_leaders_over_them(broker: DevBroker, client: Any) -> None:
    assert list(broker.listeners("kafka").items()) == [(name, broker.address("kafka", name)) for name in LISTENERS.values()]
    assert broker.url("kafka").removeprefix("kafka://").split(",") == list(broker.listeners("kafka").values())
    client.admin().create_topic("spread", partitions=6)
    told = client.request(m.MetadataRequest(topics=(m.MetadataRequestTopic(name="spread"),)))
    assert {one.node_id: f"{one.host}:{one.port}" for one in told.brokers} == dict(enumerate(broker.listeners("kafka").values(), 1))
    assert sorted(part.leader_id for part in told.topics[0].partitions) == [1, 1, 2, 2, 3, 3]
    assert {tuple(sorted(part.isr_nodes)) for part in told.topics[0].partitions} == {(1, 2, 3)}


@pytest.mark.parametrize(("name", "slot"), [("g", 103 % 50), ("orders", 1_008_770_331 % 50), ("polygenelubricants", 0), ("é", 233 % 50)])
def test_a_groups_slot_is_javas_hash_without_its_sign(name: str, slot: int) -> None:
    """Java's hashCode of the second is negative, and that of the third, the least int, has no positive counterpart: it counts as 0."""
    assert slot_of(name) == slot


def test_only_the_leader_appends_and_it_is_named_by_the_others(broker: DevBroker, client: Any, topic: str) -> None:
    leader = broker.call("kafka", "move_leader", topic, 0)
    data = m.TopicProduceData(name=topic, partition_data=(m.PartitionProduceData(index=0, records=b""),))
    for node in others(broker, topic):
        reply = client.request(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=(data,)), node=node, version=10)
        (part,) = reply.responses[0].partition_responses
        assert (part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch) == (NOT_LEADER, leader, 1)
        assert [f"{one.host}:{one.port}" for one in reply.node_endpoints] == [broker.address("kafka", LISTENERS[leader])]


def test_an_epoch_that_is_over_or_to_come_is_refused_by_leader_and_copies(broker: DevBroker, client: Any, topic: str) -> None:
    leader, copy = broker.call("kafka", "move_leader", topic, 0), others(broker, topic)[0]
    assert [fetched(client, topic, node=node, epoch=0) for node in (leader, copy)] == [FENCED, FENCED]
    assert [fetched(client, topic, node=node, epoch=2) for node in (leader, copy)] == [UNKNOWN_EPOCH, UNKNOWN_EPOCH]
    assert [fetched(client, topic, node=node, epoch=1) for node in (leader, copy)] == [0, 0], "KIP-392: a copy may be read"
    assert [fetched(client, topic, node=node, epoch=1, version=10) for node in (leader, copy)] == [0, NOT_LEADER]


def test_a_fetch_that_waits_is_answered_when_its_leader_changes(broker: DevBroker, client: Any, topic: str) -> None:
    part = m.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=0, partition_max_bytes=1 << 20)
    message = m.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=(m.FetchTopic(topic=topic, partitions=(part,)),))
    codes: list[int] = []
    node = broker.call("kafka", "leader", topic, 0)

    def ask() -> None:
        codes.append(client.request(message, node=node, version=12).responses[0].partitions[0].error_code)

    broker.faults("kafka").clear()
    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: broker.faults("kafka").seen("Fetch"))
    broker.call("kafka", "move_leader", topic, 0)
    asking.join(SECONDS)
    assert codes == [FENCED]


@pytest.mark.no_rerun
def test_nothing_is_lost_or_repeated_while_leaders_move_and_nodes_go_and_come(broker: DevBroker, client: Any, dial: Any) -> None:
    client.admin().create_topic("restless", partitions=3)
    found: list[int] = []
    with dial().reader("restless", start=EARLIEST) as reader, client.producer("restless", linger=0.0) as producer:
        for turn in range(12):
            for number in range(10):
                producer.send(b"%d" % (10 * turn + number), partition=number % 3)
            if turn % 4 == 3:
                broker.pause("kafka", LISTENERS[turn // 4 + 1])
            else:
                broker.call("kafka", "move_leader", "restless", turn % 3)
            producer.flush()
            until(partial(full, reader, found, 10 * turn + 10))
            broker.resume("kafka")
    assert sorted(found) == list(range(120))
    assert sorted(read(client, "restless")) == list(range(120))


def full(role: Any, found: list[int], count: int) -> bool:
    return take(role, found) >= count


def take(role: Any, found: list[int]) -> int:
    """How many there are with those that came now."""
    batch = role.poll(0.05)
    found.extend(int(value) for value in batch.values()) if batch is not None else None
    return len(found)


@pytest.mark.parametrize("how", ["moves", "stops"])
def test_a_group_goes_on_when_its_coordinator_changes(broker: DevBroker, client: Any, topic: str, how: str) -> None:
    group = f"group-{how}"
    found: list[int] = []
    with client.producer(topic) as producer, client.consumer(topic, group=group, start=EARLIEST) as consumer:
        producer.send(b"0")
        producer.flush()
        until(lambda: take(consumer, found) == 1)
        consumer.commit()
        node = broker.call("kafka", "coordinator", group)
        if how == "moves":
            broker.call("kafka", "move_coordinator", group)
        else:
            broker.pause("kafka", LISTENERS[node])
        assert broker.call("kafka", "coordinator", group) not in (node, -1)
        producer.send(b"1")
        producer.flush()
        until(lambda: take(consumer, found) == 2)
        consumer.commit(timeout=SECONDS)
    broker.resume("kafka")
    assert found == [0, 1]
    asked = m.OffsetFetchRequest(group_id=group, topics=(m.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),))
    assert client.request(asked, version=7).topics[0].partitions[0].committed_offset == 2


@contextmanager
def at_an_old_address(client: Any, node: int) -> Iterator[None]:
    """What a client has that knew a node before it came back under another address: nobody listens where it knows it."""
    known = client.cluster.metadata.nodes[node]
    with closing(socket.socket()) as nobody:
        nobody.bind(("127.0.0.1", 0))
        client.cluster.metadata.nodes = {
            **client.cluster.metadata.nodes,
            node: replace(known, host="127.0.0.1", port=nobody.getsockname()[1]),
        }
        client.cluster.pool.drop_all("the node is gone")
        yield


def led_by_another(broker: DevBroker, topic: str, node: int) -> None:
    """Have the topic led by a node that is not this one, so that nobody asks for its metadata because of that."""
    if broker.call("kafka", "leader", topic, 0) == node:
        broker.call("kafka", "move_leader", topic, 0, next(number for number in LISTENERS if number != node))


def test_a_group_goes_on_when_its_coordinator_is_back_under_another_address(broker: DevBroker, client: Any, topic: str) -> None:
    """FindCoordinator tells it; metadata, which is kept for minutes, does not yet."""
    node = broker.call("kafka", "coordinator", topic)
    led_by_another(broker, topic, node)
    found: list[int] = []
    with client.producer(topic) as producer, client.consumer(topic, group=topic, start=EARLIEST, heartbeat_interval=0.05) as consumer:
        producer.send(b"0").position(SECONDS)
        until(lambda: take(consumer, found) == 1)
        with at_an_old_address(client, node):
            consumer.commit(timeout=SECONDS)
            assert client.cluster.metadata.nodes[node].address[1] == int(broker.address("kafka", LISTENERS[node]).rpartition(":")[2])
        with at_an_old_address(client, node):
            seen = broker.record("kafka")
            until(lambda: consumer.poll(0.05) is None and bool(seen.requests("Heartbeat")))
    assert found == [0]


def test_transactions_go_on_when_their_coordinator_is_back_under_another_address(broker: DevBroker, client: Any, topic: str) -> None:
    node = client.request(m.FindCoordinatorRequest(key_type=1, coordinator_keys=(topic,)), version=4).coordinators[0].node_id
    led_by_another(broker, topic, node)
    with client.transactions(topic) as work:
        turn = work.begin()
        turn.send(b"0", topic=topic)
        work.topics.flush(SECONDS)
        with at_an_old_address(client, node):
            turn.commit(timeout=SECONDS)
    assert read(client, topic) == [0]


def test_a_producer_goes_on_when_a_leader_is_back_under_another_address(broker: DevBroker, client: Any, topic: str) -> None:
    with client.producer(topic, linger=0.0) as producer:
        for number in range(3):
            with at_an_old_address(client, broker.call("kafka", "leader", topic, 0)):
                producer.send(b"%d" % number).position(SECONDS)
    assert read(client, topic) == [0, 1, 2]


def test_a_group_is_known_to_its_coordinator_alone(broker: DevBroker, client: Any) -> None:
    mine = broker.call("kafka", "coordinator", "alone")
    for node in LISTENERS:
        code = client.request(m.HeartbeatRequest(group_id="alone", generation_id=1, member_id="who"), node=node).error_code
        assert code == (25 if node == mine else NOT_COORDINATOR)
        reply = client.request(m.LeaveGroupRequest(group_id="alone", members=(m.MemberIdentity(member_id="who"),)), node=node, version=5)
        assert reply.error_code == (0 if node == mine else NOT_COORDINATOR)
        (told,) = client.request(m.DescribeGroupsRequest(groups=("alone",)), node=node).groups
        assert told.error_code == (0 if node == mine else NOT_COORDINATOR)


def test_what_one_node_alone_holds_has_no_leader_while_that_is_away(broker: DevBroker, client: Any) -> None:
    client.admin().create_topic("single", partitions=1, replication=1)
    holder = broker.call("kafka", "leader", "single", 0)
    other = holder % 3 + 1
    assert of("single", client, other).replica_nodes == (holder,)
    broker.pause("kafka", LISTENERS[holder])
    away = of("single", client, other)
    assert (away.error_code, away.leader_id, away.leader_epoch, away.isr_nodes, away.offline_replicas) == (5, -1, 1, (), (holder,))
    broker.resume("kafka", LISTENERS[holder])
    back = of("single", client, other)
    assert (back.error_code, back.leader_id, back.leader_epoch, back.isr_nodes) == (0, holder, 2, (holder,))
    with pytest.raises(OptionError, match="cannot lead"):
        broker.call("kafka", "move_leader", "single", 0, other)


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_partitions_with_leaders_are_read_while_one_has_none(broker: DevBroker, client: Any, role: str, caplog: Any) -> None:
    """And that one, from its beginning, when its node is back."""
    topic = f"leaderless-{role}"
    client.admin().create_topic(topic, partitions=3, replication=1)
    with client.producer(topic) as producer:
        for number in range(9):
            producer.send(b"%d" % number, partition=number % 3)
    holder = broker.call("kafka", "leader", topic, 0)
    broker.pause("kafka", LISTENERS[holder])
    found: list[int] = []
    opened = client.reader(topic) if role == "reader" else client.consumer(topic, f"{topic}-{role}")
    with opened as reading:
        until(partial(full, reading, found, 6))
        assert sorted(number % 3 for number in found) == [1, 1, 1, 2, 2, 2]
        assert "no leader" in caplog.text
        if role == "consumer":
            assert len(reading.assignment) == 3
            reading.commit(timeout=SECONDS)
            assert {key[1] for key in reading.committed()} == {1, 2}
        broker.resume("kafka")
        until(partial(full, reading, found, 9))
        assert sorted(found) == list(range(9))
        if role == "consumer":
            reading.commit(timeout=SECONDS)
            assert {place.offset for place in reading.committed().values()} == {3}


def test_a_partition_without_a_leader_begins_at_the_record_of_a_time(broker: DevBroker, client: Any) -> None:
    """And not at the transaction's marker before it, which bears the later time at which the transaction ended."""
    topic = "leaderless-at-a-time"
    client.admin().create_topic(topic, partitions=2, replication=1)
    with client.transactions(topic) as work, work.begin() as turn:
        turn.send(b"1", topic=topic, partition=0, timestamp=1000)
    until(lambda: client.admin().positions(topic, LATEST, committed=True)[topic, 0].offset == 2, "its marker is not there")
    with client.producer(topic) as producer:
        for number, partition in ((2, 0), (3, 1), (4, 0)):
            producer.send(b"%d" % number, partition=partition, timestamp=number * 1000)
    broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
    found: list[int] = []
    with client.reader(topic, start=AtTime(2500)) as reading:
        until(partial(full, reading, found, 1))
        assert found == [3]
        broker.resume("kafka")
        until(partial(full, reading, found, 2))
        assert sorted(found) == [3, 4]


def test_a_partition_without_a_leader_may_be_paused_and_sought(broker: DevBroker, client: Any) -> None:
    topic = "leaderless-and-moved"
    client.admin().create_topic(topic, partitions=2, replication=1)
    with client.producer(topic) as producer:
        for number in range(6):
            producer.send(b"%d" % number, partition=number % 2)
    broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
    found: list[int] = []
    with client.consumer(topic, topic) as reading:
        until(partial(full, reading, found, 3))
        reading.pause([(topic, 0)])
        reading.seek({(topic, 0): LogOffset(topic, 0, 1)})
        broker.resume("kafka")
        assert reading.positions[topic, 0].offset == 1
        assert reading.poll(0.2) is None, "it is paused"
        reading.resume([(topic, 0)])
        until(partial(full, reading, found, 5))
    assert sorted(found) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_seek_moves_partitions_with_leaders_while_one_has_none(broker: DevBroker, client: Any, role: str, caplog: Any) -> None:
    """And that one, to the same time, when its node is back."""
    topic = f"leaderless-sought-{role}"
    client.admin().create_topic(topic, partitions=2, replication=1)
    with client.producer(topic) as producer:
        for number in range(6):
            producer.send(b"%d" % number, partition=number % 2, timestamp=1000 + number)
    found: list[int] = []
    opened = client.reader(topic, start=EARLIEST) if role == "reader" else client.consumer(topic, topic, start=EARLIEST)
    with opened as reading:
        until(partial(full, reading, found, 6))
        broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
        reading.seek(AtTime(1001), timeout=SECONDS)
        found.clear()
        until(partial(full, reading, found, 3))
        assert found == [1, 3, 5]
        assert f"{topic}[0]: it has no leader now" in caplog.text
        broker.resume("kafka")
        until(partial(full, reading, found, 5))
        assert found[3:] == [2, 4]
        if role == "consumer":
            reading.commit(timeout=SECONDS)
            assert {place.offset for place in reading.committed().values()} == {3}


def test_a_partition_without_a_leader_begins_where_it_was_sought_last(broker: DevBroker, client: Any) -> None:
    topic = "leaderless-sought-twice"
    client.admin().create_topic(topic, partitions=2, replication=1)
    with client.producer(topic) as producer:
        for number in range(6):
            producer.send(b"%d" % number, partition=number % 2, timestamp=1000 + number)
    broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
    found: list[int] = []
    with client.reader(topic, start=EARLIEST) as reading:
        until(partial(full, reading, found, 3))
        reading.seek({(topic, 0): AtTime(1003)}, timeout=SECONDS)
        broker.resume("kafka")
        until(partial(full, reading, found, 4))
    assert found[3:] == [4]


def test_what_is_asked_of_all_leaders_has_the_others_answers_where_one_is_missing(broker: DevBroker, client: Any) -> None:
    topic = "leaderless-asked"
    client.admin().create_topic(topic, partitions=3, replication=1)
    with client.producer(topic) as producer:
        for number in range(6):
            producer.send(b"%d" % number, partition=number % 3, timestamp=1000 + number)
    with client.consumer(topic, topic, start=EARLIEST) as reading:
        until(partial(full, reading, [], 6))
        broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
        with pytest.raises(LeaderNotAvailable) as caught:
            reading.lag(timeout=LONG)
        assert (caught.value.topic, caught.value.partition) == (topic, 0)
        assert caught.value.known == {(topic, 1): 0, (topic, 2): 0}
        for where, offset in ((LATEST, 2), (AtTime(1003), 1)):
            with pytest.raises(LeaderNotAvailable) as caught:
                client.admin().positions(topic, where, timeout=2.0)
            assert (caught.value.topic, caught.value.partition) == (topic, 0)
            assert caught.value.known == {(topic, number): LogOffset(topic, number, offset) for number in (1, 2)}
        broker.resume("kafka")
        assert reading.lag(timeout=LONG) == dict.fromkeys([(topic, 0), (topic, 1), (topic, 2)], 0)


def test_a_reader_to_a_stop_waits_for_all_leaders(broker: DevBroker, client: Any) -> None:
    """Else a part would pass for the whole."""
    topic = "leaderless-bounded"
    client.admin().create_topic(topic, partitions=2, replication=1)
    broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
    with pytest.raises(LeaderNotAvailable):
        client.reader(topic, start=EARLIEST, stop=LATEST, timeout=2.0)


def test_more_copies_than_nodes_are_refused_and_copies_lie_where_they_are_wanted(client: Any) -> None:
    with pytest.raises(WireprotoError, match="INVALID_REPLICATION_FACTOR"):
        client.admin().create_topic("fourfold", replication=4)
    for name, nodes, code in (("by-hand", (3, 1), 0), ("nowhere", (1, 9), 39), ("twice", (2, 2), 39)):
        place = m.CreatableReplicaAssignment(partition_index=0, broker_ids=nodes)
        wanted = m.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=(place,))
        reply = client.request(m.CreateTopicsRequest(timeout_ms=1000, topics=(wanted,)), node=2)
        assert reply.topics[0].error_code == code
    told = of("by-hand", client, 2)
    assert (told.leader_id, told.replica_nodes) == (3, (3, 1))


def test_acks_0_at_another_node_ends_the_connection(broker: DevBroker, client: Any, topic: str) -> None:
    """As that is all that a client can notice; what it sends after it asked who leads arrives."""
    found: list[int] = []
    with client.reader(topic, start=EARLIEST) as reader, client.producer(topic, acks="0", linger=0.0) as producer:
        producer.send(b"0")
        until(lambda: take(reader, found) == 1)
        broker.call("kafka", "move_leader", topic, 0)

        def arrived() -> bool:
            producer.send(b"1")
            producer.flush()
            return take(reader, found) > 1

        until(arrived)
    assert found[0] == 0


def test_where_an_epoch_ends_is_told_by_the_leader(broker: DevBroker, client: Any, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(b"0")
        producer.flush()
        leader = broker.call("kafka", "move_leader", topic, 0)
        producer.send(b"1")
        producer.flush()

    def end(epoch: int, node: int = leader) -> tuple[int, int, int]:
        part = m.OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=epoch)
        message = m.OffsetForLeaderEpochRequest(replica_id=-1, topics=(m.OffsetForLeaderTopic(topic=topic, partitions=(part,)),))
        (told,) = client.request(message, node=node).topics[0].partitions
        return told.error_code, told.leader_epoch, told.end_offset

    assert [end(epoch) for epoch in (-1, 0, 1, 2)] == [(0, -1, -1), (0, 0, 1), (0, 1, 2), (0, -1, -1)]
    assert end(0, others(broker, topic)[0]) == (NOT_LEADER, -1, -1)


@pytest.mark.parametrize("first", ["transactions", "group", "positions", "description"])
def test_a_new_client_looks_again_for_a_coordinator_that_is_gone(
    broker: DevBroker, topic: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that answers has served the client, so a coordinator that it names, and that died a moment ago, is no wrong address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = listener.getsockname()[1]
    answer, asked = groups._coordinator, []

    def coordinator(context: Any, key: str) -> Any:
        asked.append(key)
        if len(asked) == 1:
            return m.Coordinator(key=key, node_id=7, host="127.0.0.1", port=gone, error_code=0)
        return answer(context, key)

    monkeypatch.setattr(groups, "_coordinator", coordinator)
    with wireproto.connect(broker.url("kafka"), **CLIENT) as client:
        if first == "transactions":
            client.transactions(topic).close()
        elif first == "group":
            with client.consumer(topic, topic) as consumer:
                until(lambda: consumer.poll(0.1) is not None or consumer.assignment)
        elif first == "description":
            with pytest.raises(TransactionalIdNotFound):
                client.admin().describe_transactions(f"none-{topic}")
        else:
            assert client.admin().group_positions(topic, topic) == {}
    assert len(asked) >= 2
