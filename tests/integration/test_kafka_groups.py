"""Groups with members that we did not write, members that stop polling, static names, automatic commits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import kafka
import wireproto
from brokers import Broker
from patience import until
from wireproto.errors import ConcurrentUse, OptionError, Revoked, RoleUnsupported
from wireproto.kafka.codes import FencedInstanceId, GroupIdNotFound
from wireproto.position import LogOffset

from .kafka_peers import kafka_python

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    name = f"groups-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    with client.producer(name) as producer:
        for number in range(40):
            producer.send(b"%d" % number, partition=number % 4)
    return name


def drain(consumer: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    until(lambda: (got.extend((consumer.poll(0.5) or _NOTHING).values()), len(got) >= count)[1], f"{count} records")
    return got


class _Nothing:
    def values(self) -> list[bytes]:
        return []


_NOTHING = _Nothing()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_ours_and_librdkafkas_member_share_a_group(broker: Broker, client: Any, topic: str, assignor: str) -> None:
    group = f"g-{topic}"
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.url.removeprefix("kafka://"),
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    theirs.subscribe([topic])
    try:
        with client.consumer(topic, group, heartbeat_interval=0.3, on_revoked=lambda _: ours.commit()) as ours:  # else told by Revoked

            def shared() -> bool:
                ours.poll(0.2)
                theirs.poll(0.2)
                return len(ours.assignment) == len(theirs.assignment()) == 2

            until(shared, "two partitions each")
            held = {(part.topic, part.partition) for part in theirs.assignment()}
            assert held | ours.assignment == {(topic, number) for number in range(4)}
            theirs.close()
            until(lambda: (ours.poll(0.2), len(ours.assignment) == 4)[1], "all partitions")
            ours.commit()
    finally:
        theirs.close()
    theirs = confluent_kafka.Consumer({"bootstrap.servers": broker.url.removeprefix("kafka://"), "group.id": group})
    committed = theirs.committed([confluent_kafka.TopicPartition(topic, number) for number in range(4)], 20)
    theirs.close()
    ours_say = client.admin().group_positions(group, topic)
    assert {(part.topic, part.partition): part.offset for part in committed if part.offset >= 0} == {
        key: position.offset for key, position in ours_say.items()
    }


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_member_that_stops_polling_leaves_and_comes_back(client: Any, topic: str) -> None:
    group = f"g-{topic}"
    events: list[str] = []
    with client.consumer(
        topic,
        group,
        max_poll_interval=8.0,  # above what a loaded machine takes from one poll to the next
        heartbeat_interval=0.2,
        session_timeout=20.0,
        on_assigned=lambda parts: events.append(f"+{len(parts)}"),
        on_revoked=lambda parts: events.append(f"-{len(parts)}"),
    ) as consumer:
        drain(consumer, 40)
        assert client.admin().describe_group(group).state == "Stable"
        until(lambda: client.admin().describe_group(group).state == "Empty", "it has left")
        with pytest.raises(Revoked) as caught:
            consumer.commit()
        assert len(caught.value.partitions) == 4
        assert sorted(drain(consumer, 40)) == sorted(b"%d" % number for number in range(40)), "nothing was committed: all comes again"
        consumer.commit()
    assert events == ["+4", "-4", "+4"]
    assert sum(position.offset for position in client.admin().group_positions(group, topic).values()) == 40


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_static_member_keeps_its_partitions_over_a_restart(client: Any, topic: str) -> None:
    group = f"g-{topic}"
    options = {"group_instance_id": "one", "heartbeat_interval": 0.3}
    first = client.consumer(topic, group, **options)
    drain(first, 40)
    first.commit()
    before = client.admin().describe_group(group)
    first.close()
    assert client.admin().describe_group(group).state == "Stable", "a static member does not leave"
    with client.consumer(topic, group, **options) as second:
        until(lambda: (second.poll(0.2), len(second.assignment) == 4)[1], "all partitions")
        assert len(client.admin().describe_group(group).members) == len(before.members) == 1
        third = client.consumer(topic, group, **options)
        until(lambda: (third.poll(0.2), len(third.assignment) == 4)[1], "the name is taken over")
        with pytest.raises(FencedInstanceId):
            until(lambda: second.poll(0.5) is not None, "it is told", 20.0)
        third.close()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_automatic_commits_cover_what_was_handed_out(client: Any, topic: str) -> None:
    group = f"g-{topic}"
    with client.consumer(topic, group, auto_commit=True) as consumer:
        drain(consumer, 40)
    positions = client.admin().group_positions(group, topic)
    assert {position.offset for position in positions.values()} == {10}
    assert client.admin().describe_group(group).state == "Empty"
    with client.consumer(topic, group, auto_commit=True) as consumer:
        assert consumer.poll(1.5) is None


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_another_client_finds_the_epoch_beside_our_commit(broker: Broker, client: Any, topic: str) -> None:
    """By it whoever resumes there is told of a log that was cut meanwhile."""
    key, group = (topic, 0), f"epoch-{topic}"
    with client.consumer(topic, group) as consumer:
        drain(consumer, 40)
        consumer.commit()
    client.admin().commit(f"{group}-alone", {key: LogOffset(topic, 0, 3)})
    found = []
    for name in (group, f"{group}-alone"):
        with kafka_python(broker.url.removeprefix("kafka://"), group_id=name, enable_auto_commit=False) as theirs:
            found.append(theirs.committed(kafka.TopicPartition(*key), metadata=True))
    assert [(one.offset, one.leader_epoch) for one in found] == [(10, 0), (3, -1)]


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_several_topics_in_one_group(client: Any, topic: str) -> None:
    other = f"{topic}-other"
    client.admin().create_topic(other)
    with client.producer(other) as producer:
        producer.send(b"other")
    with client.consumer([topic, other], f"g-{topic}") as consumer:
        got = drain(consumer, 41)
        assert b"other" in got
        assert len(consumer.assignment) == 5
        assert set(consumer.lag().values()) == {0}


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_a_group_of_the_newer_protocol_is_described_with_what_its_members_hold(broker: Broker, client: Any, topic: str) -> None:
    group, servers = f"g-{topic}", broker.url.removeprefix("kafka://")
    theirs = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer", "client.id": "newer"})
    theirs.subscribe([topic])
    until(lambda: theirs.poll(0.2) is None and len(theirs.assignment()) == 4)
    info = client.admin().describe_group(group)
    (member,) = info.members
    assert (info.state, member.client, set(member.partitions)) == ("Stable", "newer", {(topic, number) for number in range(4)})
    assert info.details["protocol_type"] == "consumer"
    theirs.close()
    until(lambda: client.admin().describe_group(group).state == "Empty")
    assert client.admin().describe_group(group).members == ()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_what_a_consumer_refuses(client: Any, topic: str) -> None:
    with pytest.raises(RoleUnsupported) as caught:
        client.queue(topic, "g")
    assert caught.value.nearest == "consumer"
    with pytest.raises(RoleUnsupported):
        client.tree()
    with pytest.raises(OptionError, match="heartbeat"):
        client.consumer(topic, "g", heartbeat_intervall=1.0)
    with pytest.raises(OptionError):
        client.consumer([], "g")
    with pytest.raises(GroupIdNotFound):
        client.admin().describe_group("nobody-knows-it")
    with client.consumer(topic, f"g-{topic}") as consumer:
        drain(consumer, 40)
        with pytest.raises(Revoked):
            consumer.pause([(topic, 77)])
        with consumer._only, pytest.raises(ConcurrentUse):
            consumer.poll(0.1)
