"""Two masters of RocketMQ and two name servers, of which one or both are gone; resets, however the brokers are set to do them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import until
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import TopicNotExist
from wireproto.rocketmq.messages import (
    GetBrokerClusterInfoRequest,
    GetRouteInfoByTopicRequest,
    InvokeBrokerToResetOffsetRequest,
    PutKvConfigRequest,
    UpdateNamesrvConfigRequest,
)

FIRST, SECOND = 0, 3
"""The name servers' places among the servers."""
BOTH = {"broker-a", "broker-b"}
_numbers = itertools.count()


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url, route_age=0.3, request_timeout=2.0) as opened:
        yield opened


@pytest.fixture
def topic(broker: RocketMQ, client: RocketClient) -> str:
    """Two queues on each broker, of which both name servers know: they hear of a topic one by one, within seconds."""
    name = f"names-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    until(lambda: [routed(client, name, port) for port in broker.name_server_ports] == [BOTH, BOTH])
    return name


def routed(client: RocketClient, topic: str, port: int) -> set[str]:
    """Brokers whose queues of the topic this name server tells."""
    try:
        queues = client.request(GetRouteInfoByTopicRequest(topic=topic), to=f"127.0.0.1:{port}").json()["queueDatas"]
    except TopicNotExist:
        return set()
    return {queue["brokerName"] for queue in queues}


def registered(client: RocketClient, port: int) -> set[str]:
    """Brokers that this name server knows."""
    return {*client.request(GetBrokerClusterInfoRequest(), to=f"127.0.0.1:{port}").json()["brokerAddrTable"]}


def put(producer: Any, what: str) -> list[bytes]:
    """A record to each queue."""
    values = [f"{what} {partition}".encode() for partition in range(4)]
    for partition, value in enumerate(values):
        producer.send(value, partition=partition).position(30.0)
    return values


def taken(consumer: Any, wanted: list[bytes]) -> None:
    found: list[bytes] = []

    def all_of_it() -> bool:
        batch = consumer.poll(0.3)
        found.extend(batch.values() if batch is not None else [])
        return set(wanted) <= set(found)

    until(all_of_it)


def works(broker: RocketMQ, topic: str, group: str, what: str) -> None:
    """A client that is made now finds its way."""
    with (
        wireproto.connect(broker.url, connect_timeout=2.0, request_timeout=2.0) as fresh,
        fresh.consumer(topic, group) as consumer,
        fresh.producer(topic) as producer,
    ):
        taken(consumer, put(producer, what))


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
@pytest.mark.parametrize("gone", [FIRST, pytest.param(SECOND, marks=pytest.mark.soak)])
def test_one_name_server_is_enough(broker: RocketMQ, client: RocketClient, topic: str, gone: int) -> None:
    """For who is there, who comes, and a topic that is made meanwhile; without the other one too who is there goes on."""
    with (
        client.consumer(topic, f"g-{topic}", rebalance_interval=0.5, heartbeat_interval=0.5) as consumer,
        client.producer(topic) as producer,
    ):
        taken(consumer, put(producer, "before"))
        broker.kill(gone)
        try:
            works(broker, topic, f"h-{topic}", "new clients")
            client.admin().create_topic(f"{topic}-new", partitions=2)
            with client.producer(f"{topic}-new") as other:
                other.send(b"x").position(30.0)
            taken(consumer, put(producer, "by the other one"))
            broker.kill(FIRST + SECOND - gone)
            try:
                for number in range(3):
                    taken(consumer, put(producer, f"by none {number}"))
                consumer.commit()
            finally:
                broker.start(FIRST + SECOND - gone)
            left = broker.name_server_ports[0 if gone == SECOND else 1]
            until(lambda: routed(client, topic, left) == BOTH)  # brokers come to it each ten seconds
            works(broker, topic, f"i-{topic}", "after it began empty")
        finally:
            broker.start(gone)
            until(lambda: [registered(client, port) for port in broker.name_server_ports] == [BOTH, BOTH])
        taken(consumer, put(producer, "again"))


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster", "rocketmq-5.5.0-cluster-old-reset"], indirect=True)
def test_a_group_is_set_back_on_all_brokers_under_its_members(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """Told with an answer to a pull, or by a call of the broker: both members go back, whoever owns which broker's queues."""
    group = f"g-{topic}"
    quick = {"pull_suspend": 1.0, "rebalance_interval": 0.5}
    with client.producer(topic) as producer, client.consumer(topic, group, **quick) as one, client.consumer(topic, group, **quick) as other:
        until(lambda: [one.poll(0.1), other.poll(0.1)] and len(one.assignment) == len(other.assignment) == 2)
        values = [*put(producer, "first"), *put(producer, "second")]
        found: list[bytes] = []

        def all_of_it() -> bool:
            for member in (one, other):
                batch = member.poll(0.1)
                found.extend(batch.values() if batch is not None else [])
            return set(values) <= set(found)

        until(all_of_it)
        one.commit()
        other.commit()
        found.clear()
        for port in broker.broker_ports:
            reset = InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
            client.request(reset, to=f"127.0.0.1:{port}")
        until(all_of_it)
        one.commit()
        other.commit()
        assert {place.offset for member in (one, other) for place in member.committed().values()} == {2}


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
def test_keys_of_an_order_topic_go_by_the_name_servers_list(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """Name servers tell it where `orderMessageEnable` is set; Java's producers take these queues, in this order."""
    for port in broker.name_server_ports:
        server = f"127.0.0.1:{port}"
        client.request(UpdateNamesrvConfigRequest(), body=b"orderMessageEnable=true\n", to=server)
        client.request(PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=topic, value="broker-b:2;broker-a:1"), to=server)
    route = client.cluster.route(topic, client.deadline(10.0), fresh=True)
    wanted = [("broker-b", 0), ("broker-b", 1), ("broker-a", 0)]
    assert [route.queues[number].home for number in route.keyed] == wanted
    with client.producer(topic) as producer:
        for key, code in ((b"TagA", 2598919), ("标签".encode(), 857175), (b"polygenelubricants", 0)):
            place = producer.send(b"x", key=key).position(30.0)
            assert (place.broker, place.queue) == wanted[code % 3]
