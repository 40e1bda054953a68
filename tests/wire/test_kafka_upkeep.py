"""What a Kafka client finds out behind its callers' backs: tasks of the client, whose answers callers wait for in their own time."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import wireproto
from kafka_relay import Relay
from patience import soon, until
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.devbroker.kafka.nodes import NODE
from wireproto.errors import TimedOut
from wireproto.kafka.codes import NotCoordinator, RebalanceInProgress, UnknownTopicOrPartition
from wireproto.kafka.metadata import Node
from wireproto.kafka.positions import listing
from wireproto.kafka.routing import TRANSACTION
from wireproto.position import LogOffset

_numbers = itertools.count()
LATE = 30.0
PROTOCOL, CLIENT = "kafka", {"timeout": LATE}


@pytest.fixture
def topic(client: Any) -> str:
    name = f"upkeep-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name) as producer:
        for number in range(20):
            producer.send(b"%d" % number, partition=number % 2)
    return name


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


def test_a_silent_address_is_not_waited_for_when_there_is_another(broker: DevBroker, silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has as long as a connection may take, which is longer than the caller's time; the next one is asked beside it."""
    port = broker.url("kafka").rpartition(":")[2]
    monkeypatch.setattr(random, "shuffle", lambda addresses: None)
    with wireproto.connect(f"kafka://127.0.0.1:{silent},localhost:{port}", connect_timeout=120.0, request_timeout=120.0) as client:
        began = time.monotonic()
        client.admin().list_topics(timeout=LATE)
        assert time.monotonic() - began < LATE / 3, "if they shared the time, half of it would be the silent one's"


def test_a_silent_connection_is_not_waited_for_when_there_is_another_node(client: Any, topic: str, faults: Faults, silent: int) -> None:
    """It stands, and has answered before."""
    cluster, before = client.cluster, len(client.loop.connections)
    faults.stall("Metadata")
    cluster.addresses = (*cluster.addresses, ("127.0.0.1", silent))  # neither answers: nobody is left
    with pytest.raises(TimedOut):
        client.admin().list_topics(timeout=3.0)
    assert len(client.loop.connections) > before, "another one was tried beside it"


def test_a_client_that_is_sent_back_begins_again_at_its_bootstrap_addresses(client: Any, topic: str, faults: Faults, silent: int) -> None:
    """KIP-1102: nothing that it knew holds, neither nodes nor connections; its roles go on."""
    with client.producer(topic) as out, client.consumer(topic, f"g-{topic}") as member:
        out.send(b"0").position(20.0)
        until(lambda: member.poll(0.1) is not None)
        before, cluster = list(client.loop.connections), client.cluster
        cluster.metadata.nodes = {**cluster.metadata.nodes, 7: Node(7, "127.0.0.1", silent)}
        faults.error("Metadata", 129)
        assert topic in client.admin().list_topics(timeout=20.0)
        assert list(cluster.metadata.nodes) == [NODE]
        assert all(conn.closed for conn in before)
        out.send(b"1").position(20.0)
        until(lambda: member.poll(0.1) is not None)
        member.commit(timeout=20.0)


def test_a_client_that_can_reach_no_node_that_it_knows_finds_others_by_its_bootstrap_addresses(
    broker: DevBroker, topic: str, silent: int
) -> None:
    """KIP-899: all of them have moved, and nobody could tell it."""
    connected: Any = wireproto.connect(broker.url("kafka"), timeout=LATE, connect_timeout=0.5)
    with connected as client, client.producer(topic) as out, client.reader(topic, stop=LATEST) as reader:
        cluster = client.cluster
        before = cluster.metadata.nodes
        cluster.metadata.nodes = {number: Node(number, "127.0.0.1", silent) for number in (NODE, 7)}
        cluster.pool.drop_all("the nodes are gone")
        out.send(b"x").position(LATE)
        assert cluster.metadata.nodes == before
        assert sum(len(batch) for batch in reader) == 20


def test_many_who_ask_for_one_thing_ask_once(broker: DevBroker, client: Any, topic: str, faults: Faults) -> None:
    seen = broker.record("kafka")
    faults.delay("Metadata", 2.0)
    threads = [threading.Thread(target=client.admin().describe_topic, args=(topic,)) for _ in range(8)]
    before = len(seen.requests("Metadata"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LATE)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen.requests("Metadata")) - before <= 2


def test_a_look_up_goes_on_when_its_caller_gives_up(broker: DevBroker, client: Any, topic: str, faults: Faults) -> None:
    """Else a poll of 10 ms would begin anew each time, and never know."""
    with client.consumer(topic, f"slow-{topic}") as consumer:
        names = ("FindCoordinator", "OffsetFetch", "ListOffsets")
        asked = {name: faults.seen(name) for name in names}
        for name in names:
            faults.delay(name, 0.5)
        found, deadline = 0, time.monotonic() + LATE
        while found < 20:
            assert time.monotonic() < deadline
            batch = consumer.poll(0.01)
            found += len(batch) if batch is not None else 0
        assert all(faults.seen(name) - asked[name] <= 4 for name in names), "begun anew at each poll it is some fifty"


@pytest.mark.parametrize("code", [None, NotCoordinator.code])
def test_what_was_handed_out_is_committed_before_a_join_however_short_the_polls(
    client: Any, topic: str, faults: Faults, code: int | None
) -> None:
    """The answer takes longer than any poll; or it is a refusal that passes."""
    told: list[Any] = []

    def revoked(partitions: Any) -> None:
        told.append(client.admin().group_positions(f"last-{topic}", topic))

    commits = {"auto_commit": True, "auto_commit_interval": 3600.0, "heartbeat_interval": 0.05}
    with client.consumer(topic, f"last-{topic}", on_revoked=revoked, **commits) as consumer:
        found, deadline = 0, time.monotonic() + LATE
        while found < 20:
            assert time.monotonic() < deadline
            batch = consumer.poll(0.01)
            found += len(batch) if batch is not None else 0
        if code is None:
            faults.delay("OffsetCommit", 1.0)
        else:
            faults.error("OffsetCommit", code)
        faults.error("Heartbeat", RebalanceInProgress.code)
        while not told:
            assert time.monotonic() < deadline
            consumer.poll(0.01)
        assert told[0] == {(topic, number): LogOffset(topic, number, 10) for number in (0, 1)}


def test_a_member_and_a_producer_take_no_thread_but_the_io_thread(broker: DevBroker, topic: str, faults: Faults) -> None:
    """Names are numbers here, and nothing computes a key."""
    before = {thread.ident for thread in threading.enumerate()}
    port = broker.url("kafka").rpartition(":")[2]
    mapped = {f"localhost:{port}": f"127.0.0.1:{port}"}
    with wireproto.connect(f"kafka://127.0.0.1:{port}", timeout=LATE, address_map=mapped) as client:
        with client.consumer(topic, f"few-{topic}", heartbeat_interval=0.05) as consumer, client.producer(topic) as producer:
            faults.disconnect("Heartbeat")
            faults.disconnect("Produce")
            faults.disconnect("Fetch")
            producer.send(b"x", partition=0).position(LATE)
            found, deadline = 0, time.monotonic() + LATE
            while found < 21:
                assert time.monotonic() < deadline
                batch = consumer.poll(0.05)
                found += len(batch) if batch is not None else 0
        with client.reader(topic, stop=LATEST) as reader:
            assert sum(len(batch) for batch in reader) == 21
        mine = [thread.name for thread in threading.enumerate() if thread.ident not in before]
    assert [name for name in mine if name.startswith("wireproto") and not name.startswith("wireproto-io")] == []


def test_a_coordinator_that_keeps_silent_is_left_when_another_one_is_told(broker: DevBroker, topic: str) -> None:
    """Its connection stands, and a join may take minutes; the nodes say who it is by now."""
    group = f"left-{topic}"
    long = {"request_timeout": 300.0, "max_poll_interval": 300.0}
    with (
        closing(Relay(broker.address("kafka"), silent=True)) as old,
        wireproto.connect(broker.url("kafka"), timeout=LATE, **long) as client,
        client.consumer(topic, group) as consumer,
    ):
        cluster = client.cluster
        cluster.metadata.nodes = {**cluster.metadata.nodes, 77: Node(77, "127.0.0.1", old.port)}
        cluster._coordinators[0, group] = 77
        found, deadline = 0, time.monotonic() + LATE
        while found < 20:
            assert time.monotonic() < deadline, old.swallowed.is_set()
            batch = consumer.poll(0.05)
            found += len(batch) if batch is not None else 0
        assert old.swallowed.is_set()


def test_what_was_told_of_a_topic_stands_when_the_time_runs_out_while_it_is_asked_again(broker: DevBroker, faults: Faults) -> None:
    """Else it hangs on a moment whether a deleted topic is told as such or as a time-out."""
    with wireproto.connect(broker.url("kafka"), unknown_topic_timeout=LATE) as client:
        client.admin().list_topics()
        asked = itertools.count()
        faults.stall("Metadata", 1000, when=lambda facts: next(asked) >= 2)  # two are answered
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic"):
            client.reader("never-made", timeout=2.0)
        assert next(asked) > 2


def test_what_was_told_of_a_partition_stands_when_the_time_runs_out_while_it_is_asked_again(broker: DevBroker, faults: Faults) -> None:
    """As above, for who has just made the topic and asks where it ends."""
    with wireproto.connect(broker.url("kafka"), unknown_topic_timeout=0.01) as client:
        client.admin().list_topics()
        asked = itertools.count()
        faults.stall("Metadata", 1000, when=lambda facts: next(asked) >= 2)
        cluster: Any = client.cluster  # type: ignore[attr-defined]
        until = time.monotonic() + 2.0
        with pytest.raises(UnknownTopicOrPartition):
            cluster.drive(listing(cluster, {("never-made", 0): -1}, until, committed=False, made=True), until)
        assert next(asked) > 2


def test_a_node_that_is_told_how_long_it_may_take_has_all_of_that(broker: DevBroker, topic: str, faults: Faults) -> None:
    """And is asked once: who is asked to make a topic again says that it is there already."""
    with wireproto.connect(broker.url("kafka"), request_timeout=0.3) as client:
        seen = broker.record("kafka")
        faults.delay("CreateTopics", 1.0)
        client.admin().create_topic(f"{topic}-slow", timeout=LATE)
        assert len(seen.requests("CreateTopics")) == 1


def test_what_is_not_answered_in_time_is_asked_on_another_connection(broker: DevBroker, topic: str, faults: Faults) -> None:
    with wireproto.connect(broker.url("kafka"), request_timeout=0.3) as client:
        client.admin().list_topics()
        seen = broker.record("kafka")
        faults.drop("ListOffsets")
        client.admin().positions(topic, timeout=LATE)
        assert len({request.connection for request in seen.requests("ListOffsets")}) > 1


@pytest.mark.parametrize("ends", ["begun", "asked"])
def test_a_coordinator_that_nobody_reaches_is_looked_up_again(client: Any, topic: str, ends: str) -> None:
    """Its node was killed between two transactions: another one is the coordinator since."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    name = f"moved-{topic}"
    with client.transactions(name) as work:
        with work.begin() as turn:
            turn.send(b"before", topic=topic)
        cluster = client.cluster
        cluster.metadata.nodes[77] = replace(next(iter(cluster.metadata.nodes.values())), id=77, host="127.0.0.1", port=port)
        cluster._coordinators[TRANSACTION, name] = 77
        if ends == "begun":
            with work.begin(timeout=LATE) as turn:
                turn.send(b"behind", topic=topic)
        else:
            cluster.drive(cluster.retrying(lambda: cluster.to_coordinator(name, TRANSACTION)(soon(LATE)), soon(LATE)), soon(LATE))
        assert cluster._coordinators[TRANSACTION, name] != 77
