"""What RocketMQ's servers do after they have answered: queues fill up behind the receipts, lists of topics cross with a deletion."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from brokers import RocketMQ
from brokers.rocketmq import USERS
from patience import soon, until
from wireproto.net.task import Steps
from wireproto.position import LogOffset
from wireproto.rocketmq.codes import PullOffsetMoved, TopicNotExist
from wireproto.rocketmq.messages import DeleteTopicInNamesrvRequest, GetBrokerRuntimeInfoRequest, RegisterTopicInNamesrvRequest

_numbers = itertools.count()
both_lines = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)


@both_lines
def test_a_reader_may_begin_at_any_receipt(broker: RocketMQ) -> None:
    """In some of so many turns its queue does not show the record yet, and the broker says that there is no such offset."""
    topic = f"late-{next(_numbers)}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic)
        with client.producer(topic) as producer:
            for turn in range(60):
                values = [b"%d:%d" % (turn, n) for n in range(300)]
                place = producer.send_batch(pa.record_batch({"value": values}), partition=0)[-1].position(30.0)
                with client.reader(topic, start=place) as reader:
                    batch = reader.poll(30.0)
                    assert batch is not None
                    assert batch.values() == values[-1:]
        with client.reader(topic, start=LogOffset(topic, 0, 1 << 40)) as reader, pytest.raises(PullOffsetMoved):
            reader.poll(30.0)


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0"], indirect=True)
def test_looks_at_the_end_cost_a_broker_one_walk_over_its_timers(broker: RocketMQ, monkeypatch: Any) -> None:
    """A tenth of a second of a core each, which is what 28 costs a 5.x broker as it is out of the box."""
    topic, walks = f"late-{next(_numbers)}", []
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic, partitions=4)
        producer = client.producer(topic)
        submit = client.cluster.submit

        def submitting(conn: Any, message: Any, *more: Any, **named: Any) -> Any:
            if isinstance(message, GetBrokerRuntimeInfoRequest):
                walks.append(message)
            return submit(conn, message, *more, **named)

        monkeypatch.setattr(client.cluster, "submit", submitting)
        for count in range(20):
            assert sum(place.offset for place in client.admin().positions(topic).values()) == count
            producer.send(b"x").position(30.0)
        assert len(walks) == 1


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0"], indirect=True)  # 4.9's name servers take no topic alone
def test_a_topic_that_comes_back_over_its_deletion_is_deleted_again(broker: RocketMQ, monkeypatch: Any) -> None:
    topic, crossed = f"late-{next(_numbers)}", []
    queue = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic)
        invoking = client.cluster.invoking

        def crossing(address: str, message: Any, *more: Any, **named: Any) -> Steps[Any]:
            reply = yield from invoking(address, message, *more, **named)
            if isinstance(message, DeleteTopicInNamesrvRequest) and not crossed:
                crossed.append(client.request(RegisterTopicInNamesrvRequest(topic=topic), body={"queueDatas": [queue]}))
                assert client.admin().describe_topic(topic).partitions
            return reply

        monkeypatch.setattr(client.cluster, "invoking", crossing)
        client.admin().delete_topic(topic)
        assert crossed
        with pytest.raises(TopicNotExist):
            client.admin().describe_topic(topic)


@both_lines
def test_the_first_commits_of_a_group_all_stay(broker: RocketMQ) -> None:
    """Of those that come at the same moment a broker acknowledges all and may keep one only: in some of so many groups."""
    topic = f"first-{next(_numbers)}"
    partitions = 8
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic, partitions=partitions)
        with client.producer(topic) as producer:
            for partition in range(partitions):
                producer.send(b"", partition=partition).position(30.0)
        ends = client.admin().positions(topic)
        assert len(ends) == partitions
        for turn in range(20):
            group = f"{topic}-{turn}"
            with client.consumer(topic, group, auto_commit=False) as member:
                found: set[object] = set()
                while found != ends.keys():
                    batch = member.poll(30.0)
                    assert batch is not None
                    found.update(batch.next_positions)
                member.commit()
            assert client.admin().group_positions(group, topic) == ends


@both_lines
def test_who_came_and_went_at_once_is_not_listed(broker: RocketMQ) -> None:
    """A broker that is called by who joins calls back; what the member asks then must not overtake its goodbye."""
    topic = f"late-{next(_numbers)}"
    with wireproto.connect(broker.url) as client, client.admin() as admin:
        admin.create_topic(topic)
        for turn in range(60):
            consumer = client.consumer(topic, f"g-{topic}-{turn}", timeout=10.0)
            consumer._assignment.member.members_changed()
            consumer.close()
        assert not [turn for turn in range(60) if admin.describe_group(f"g-{topic}-{turn}").members]


@pytest.mark.parametrize("broker", ["rocketmq-4.9.7-secure", "rocketmq-5.5.0-secure"], indirect=True)
def test_who_left_behind_a_stop_of_its_broker_is_not_listed(broker: RocketMQ) -> None:
    """A broker that goes on reads heartbeats together with the ends of their connections, and takes in the ends first."""
    topic = f"late-{next(_numbers)}"
    groups = [f"g-{topic}-{number}" for number in range(20)]
    who: Any = {"access_key": "RocketMQ", "secret_key": USERS["RocketMQ"]}
    quick: Any = {"request_timeout": 0.5, "heartbeat_interval": 0.3, "rebalance_interval": 0.5, "pull_suspend": 1.0}
    with wireproto.connect(broker.url, **who) as client, client.admin() as admin:
        admin.create_topic(topic)
        with wireproto.connect(broker.url, timeout=20.0, **who, **quick) as ours:
            members = [ours.consumer(topic, group) for group in groups]
            broker.servers[-1].pause()
            try:
                deadline = soon(4.0)
                while deadline > soon(0.0):
                    for member in members:
                        member.poll(0.05)
            finally:
                broker.servers[-1].resume()
            for member in members:
                member.close(30.0)
            until(lambda: not any(admin.describe_group(group).members for group in groups), "somebody is listed")
