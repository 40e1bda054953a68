"""What is left when something fails half way: no socket, no consumer at a broker, no member of a group."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from pulsar_server import PulsarServer
from wireproto import EARLIEST
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError, Closed
from wireproto.net import dial
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import ConsumerBusy

_numbers = itertools.count()


def test_a_client_that_is_closed_while_it_dials_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with DevBroker(["kafka"]) as broker, wireproto.connect(broker.url("kafka"), timeout=5.0) as client:
        sockets: list[socket.socket] = []
        plain = dial.dialling

        def late(*given: Any, **named: Any) -> Any:
            sockets.append((yield from plain(*given, **named)))
            client.loop.close()
            return sockets[-1]

        monkeypatch.setattr(dial, "dialling", late)
        with pytest.raises(Closed):
            client.admin().list_topics()
    assert [one.fileno() for one in sockets] == [-1]


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_a_pulsar_role_that_gets_only_some_of_its_partitions_gives_them_back(role: str) -> None:
    def subscribe(link: Any, ask: Any) -> Any:
        if ask.topic.endswith("-1"):
            return api.CommandError(request_id=ask.request_id, error="ConsumerBusy", message="taken")
        return api.CommandSuccess(request_id=ask.request_id)

    answers: Any = {
        "partitionMetadata": lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
            request_id=ask.request_id, partitions=2, response="Success"
        ),
        "subscribe": subscribe,
        "getLastMessageId": lambda link, ask: api.CommandGetLastMessageIdResponse(
            request_id=ask.request_id, last_message_id=api.MessageIdData(ledgerId=7, entryId=3)
        ),
    }
    with PulsarServer(**answers) as server, wireproto.connect(server.url, timeout=5.0) as client:
        given: tuple[Any, ...] = ("t",) if role == "reader" else ("t", "g")
        with pytest.raises(ConsumerBusy):
            getattr(client, role)(*given, timeout=3.0)
        [taken] = [one.consumer_id for one in server.commands("subscribe") if one.topic.endswith("-0")][:1]
        with server.came:
            assert server.came.wait_for(lambda: taken in {one.consumer_id for one in server.commands("close_consumer")}, 10.0)


def test_a_pulsar_producer_that_gets_only_some_of_its_partitions_gives_them_back() -> None:
    def producer(link: Any, ask: Any) -> Any:
        if ask.topic.endswith("-1"):
            return api.CommandError(request_id=ask.request_id, error="ProducerBusy", message="taken")
        return api.CommandProducerSuccess(request_id=ask.request_id, producer_name="p")

    answers: Any = {
        "partitionMetadata": lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
            request_id=ask.request_id, partitions=2, response="Success"
        ),
        "producer": producer,
    }
    with PulsarServer(**answers) as server, wireproto.connect(server.url, timeout=5.0) as client:
        with pytest.raises(BrokerError):
            client.producer("t", timeout=2.0)
        [taken] = [one.producer_id for one in server.commands("producer") if one.topic.endswith("-0")][:1]
        with server.came:
            assert server.came.wait_for(lambda: taken in {one.producer_id for one in server.commands("close_producer")}, 10.0)


@pytest.mark.parametrize("role", ["consumer", "queue"])
def test_a_rocketmq_member_that_cannot_take_its_share_leaves_the_group(role: str) -> None:
    with DevBroker(["rocketmq"], auto_create=False) as broker:
        seen = broker.record("rocketmq")
        with wireproto.connect(broker.url("rocketmq"), timeout=5.0) as client:
            client.admin().create_topic("t")
            broker.faults("rocketmq").error("QueryConsumerOffset", 16, times=-1)
            with pytest.raises(BrokerError):
                getattr(client, role)("t", "g")
            [left] = seen.wait("UnregisterClient", 1, timeout=5.0)
            assert left.message.consumer_group == "g"


@pytest.fixture
def old(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of a Kafka broker that speaks a request in that version at most."""
    with DevBroker(["kafka"]) as broker:
        for name, newest in request.param.items():
            broker._sides["kafka"].offer(name, newest)  # type: ignore[attr-defined]
        seen = broker.record("kafka")
        with wireproto.connect(broker.url("kafka"), timeout=5.0) as client:
            client.seen = seen
            yield client


@pytest.mark.parametrize("old", [{"FindCoordinator": 3}, {"FindCoordinator": 0}], indirect=True)
def test_a_coordinator_is_found_at_older_brokers(old: Any) -> None:
    old.admin().create_topic("t")
    old.producer("t").send(b"x").position(5.0)
    with old.consumer("t", "the group", start=EARLIEST) as member:
        while member.poll(1.0) is None:
            continue
        member.commit()
        assert {place.offset for place in member.committed().values()} == {1}
    asked = old.seen.requests("FindCoordinator")
    assert {one.message.key for one in asked} == {"the group"}
    assert not any(one.message.coordinator_keys for one in asked)


@pytest.mark.parametrize("old", [{"Metadata": 0}, {"Metadata": 3}], indirect=True)
def test_older_brokers_are_asked_for_nodes_without_every_topic(old: Any) -> None:
    old.admin().create_topic("t")
    assert old.admin().list_topics() == ["t"]
    old.admin().list_groups()
    [last] = old.seen.requests("Metadata")[-1:]
    if last.version == 0:
        assert [one.name for one in last.message.topics] == ["?"], "an empty list means every topic there; no topic can have this name"
    else:
        assert last.message.topics == ()


@pytest.mark.parametrize("old", [{"OffsetFetch": 7}, {"OffsetFetch": 1}, {"OffsetCommit": 2}, {"JoinGroup": 3}], indirect=True)
def test_a_group_works_at_older_brokers(old: Any) -> None:
    old.admin().create_topic("t", partitions=2)
    with old.producer("t") as out:
        for partition in range(2):
            out.send(b"x", partition=partition)
    for _ in range(2):
        with old.consumer("t", "g", start=EARLIEST) as member:
            while not member.assignment or set(member.lag().values()) != {0}:
                member.poll(0.5)
            member.commit()
    assert {place.offset for place in old.admin().group_positions("g", "t").values()} == {1}
