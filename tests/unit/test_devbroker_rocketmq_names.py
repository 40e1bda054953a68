"""The dev broker's name servers know what brokers registered with them, as those of 4.9.7 and 5.5.0 do: nothing after a restart."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker, command
from wireproto.errors import BrokerError, Disconnected, OptionError
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import (
    DeleteTopicInNamesrvRequest,
    GetAllTopicListFromNameserverRequest,
    GetBrokerClusterInfoRequest,
    GetMaxOffsetRequest,
    GetRouteInfoByTopicRequest,
)

SECOND = "names-2"


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["rocketmq"], auto_create=False, nodes={"rocketmq.name_servers": 2, "rocketmq.slaves": 1}) as started:
        yield started


@pytest.fixture
def client(broker: DevBroker) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url("rocketmq")) as opened:
        yield opened


def ask(broker: DevBroker, client: RocketClient, message: Any, server: str) -> Any:
    """The answer of one name server, as JSON; its code where it refuses."""
    try:
        reply = client.request(message, to=broker.address("rocketmq", server))
    except BrokerError as why:
        return why.code
    except Disconnected:  # of a connection that a pause has cut
        return ask(broker, client, message, server)
    return reply.json() if reply.body else reply.code


def routed(broker: DevBroker, client: RocketClient, server: str, *topics: str) -> list[bool]:
    """Which topics a name server knows the route of."""
    return [ask(broker, client, GetRouteInfoByTopicRequest(topic=topic), server) != 17 for topic in topics]


def members(broker: DevBroker, client: RocketClient, server: str) -> dict[str, list[str]]:
    """The numbers of each broker's members that a name server knows."""
    found = ask(broker, client, GetBrokerClusterInfoRequest(), server)["brokerAddrTable"]
    return {name: sorted(map(str, data["brokerAddrs"])) for name, data in found.items()}


def test_brokers_register_with_every_name_server(broker: DevBroker, client: RocketClient) -> None:
    client.admin().create_topic("t", partitions=2)
    for server in ("main", SECOND):
        tree = ask(broker, client, GetRouteInfoByTopicRequest(topic="t"), server)
        (data,) = tree["brokerDatas"]
        assert data["brokerAddrs"] == {"0": broker.address("rocketmq", "broker"), "1": broker.address("rocketmq", "slave")}
        assert [queues["readQueueNums"] for queues in tree["queueDatas"]] == [2]
        assert ask(broker, client, GetAllTopicListFromNameserverRequest(), server)["topicList"] == ["t"]


def test_a_client_goes_on_by_the_name_server_that_is_left(broker: DevBroker, client: RocketClient) -> None:
    for gone, number in (("main", 1), (SECOND, 2)):
        broker.pause("rocketmq", gone)
        client.admin().create_topic(f"t{number}")
        with client.producer(f"t{number}") as producer:
            assert producer.send(b"x").position(30.0).offset == 0
        broker.resume("rocketmq", gone)
        broker.call("rocketmq", "announce")
    assert routed(broker, client, "main", "t1", "t2") == [True, True]


def test_a_name_server_that_is_back_knows_nothing_until_brokers_register(broker: DevBroker, client: RocketClient) -> None:
    client.admin().create_topic("t")
    broker.pause("rocketmq", SECOND)
    broker.resume("rocketmq", SECOND)
    assert routed(broker, client, SECOND, "t") == [False]
    assert members(broker, client, SECOND) == {}
    assert routed(broker, client, "main", "t") == [True]
    broker.call("rocketmq", "announce")
    assert routed(broker, client, SECOND, "t") == [True]
    assert members(broker, client, SECOND) == {"dev": ["0", "1"]}


def test_a_topic_made_before_they_register_hides_the_others_from_4_9(broker: DevBroker, client: RocketClient) -> None:
    """As measured on 4.9.7: with the one topic comes the version of all, so that the rest is no news until the broker starts again."""
    broker.call("rocketmq", "answer_as_old", True)
    client.admin().create_topic("before")
    broker.pause("rocketmq", SECOND)
    broker.resume("rocketmq", SECOND)
    client.admin().create_topic("after")
    assert members(broker, client, SECOND) == {"dev": ["0"]}
    broker.call("rocketmq", "announce")
    assert routed(broker, client, SECOND, "before", "after") == [False, True]
    broker.pause("rocketmq", "broker")
    broker.resume("rocketmq", "broker")
    assert routed(broker, client, SECOND, "before", "after") == [True, True]


def test_a_topic_made_before_they_register_is_refused_by_5_x(broker: DevBroker, client: RocketClient) -> None:
    client.admin().create_topic("before")
    broker.pause("rocketmq", SECOND)
    broker.resume("rocketmq", SECOND)
    client.admin().create_topic("after")
    assert routed(broker, client, SECOND, "before", "after") == [False, False]
    assert members(broker, client, SECOND) == {"dev": []}
    broker.call("rocketmq", "announce")
    assert routed(broker, client, SECOND, "before", "after") == [True, True]


def test_a_broker_that_goes_leaves_the_routes_and_its_topics_go_with_the_last_of_its_name(broker: DevBroker, client: RocketClient) -> None:
    client.admin().create_topic("t")
    broker.pause("rocketmq", "broker")
    assert members(broker, client, "main") == {"dev": ["1"]}
    assert routed(broker, client, "main", "t") == [True]
    broker.pause("rocketmq", "slave")
    assert members(broker, client, "main") == {}
    assert routed(broker, client, "main", "t") == [False]
    broker.resume("rocketmq")
    assert members(broker, client, "main") == members(broker, client, SECOND) == {"dev": ["0", "1"]}
    assert routed(broker, client, "main", "t") == [True]


@pytest.mark.parametrize(("old", "again"), [(True, False), (False, True)])
def test_a_topic_is_deleted_at_one_name_server_alone(broker: DevBroker, client: RocketClient, old: bool, again: bool) -> None:
    """5.x learns again what its brokers still have."""
    broker.call("rocketmq", "answer_as_old", old)
    client.admin().create_topic("t")
    assert ask(broker, client, DeleteTopicInNamesrvRequest(topic="t"), SECOND) == 0
    assert (routed(broker, client, SECOND, "t"), routed(broker, client, "main", "t")) == ([False], [True])
    broker.call("rocketmq", "announce")
    assert routed(broker, client, SECOND, "t") == [again]


def test_name_servers_and_brokers_answer_their_own_commands_alone(broker: DevBroker, client: RocketClient) -> None:
    assert ask(broker, client, GetMaxOffsetRequest(topic="t", queue_id=0), "main") == 3
    assert ask(broker, client, GetRouteInfoByTopicRequest(topic="t"), "broker") == 3


def test_only_nodes_that_a_protocol_has_are_counted_and_paused(broker: DevBroker) -> None:
    for wrong in ({"rocketmq.masters": 2}, {"rocketmq.name_servers": 0}, {"rocketmq.slaves": -1}, {"kafka.brokers": 3}):
        with pytest.raises(OptionError):
            DevBroker(["rocketmq"], nodes=wrong)
    with pytest.raises(OptionError, match="no listener 'slave-2'"):
        broker.pause("rocketmq", "slave-2")
    assert list(broker.listeners("rocketmq")) == ["main", SECOND, "broker", "slave"]


def test_the_command_line_counts_nodes() -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    options = parser.parse_args(["--protocols", "rocketmq", "--nodes", "rocketmq.slaves=2", "--nodes", "rocketmq.name_servers=2"])
    with command.broker_of(options) as broker:
        assert list(broker.listeners("rocketmq")) == ["main", "names-2", "broker", "slave", "slave-2"]
        assert broker.url("rocketmq").count(",") == 1
