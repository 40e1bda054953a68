"""Masters and one that joins, whose name sorts before theirs: what was noted before is gone on with after, by any client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Broker, RocketMQ, plugin
from patience import until
from spark.logs import Driven
from spark.peers import QUIET
from wireproto.errors import OptionError
from wireproto.position import EARLIEST, LATEST, LogOffset, format_positions, parse_positions, positions_from_json, positions_to_json
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import UpdateAndCreateTopicRequest
from wireproto.spark import worker
from wireproto.spark.rocketmq import RocketMQWire

_numbers = itertools.count()
JOINS = 1  # in `servers`: the name server is 0, broker-a 1


@pytest.fixture(
    scope="module", params=["rocketmq-5.5.0-cluster", *(pytest.param(version, marks=pytest.mark.soak) for version in ("5.5.0", "4.9.7"))]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Two masters, or three of this module's own."""
    if request.param.startswith("rocketmq"):
        yield plugin.start(request.config, request.param)
        return
    with RocketMQ(request.param, nodes=3) as running:
        yield running


def masters(broker: RocketMQ) -> list[str]:
    """The first of them is the one that joins."""
    return [f"broker-{letter}" for letter in "abc"[: broker.nodes]]


def homes(client: RocketClient, topic: str) -> list[str]:
    found = client.admin().describe_topic(topic).partitions
    return [f"{part.details['broker']}/{part.details['queue']}" for part in found if part.details["readable"]]


def make(client: RocketClient, topic: str, *brokers: str) -> None:
    """Two queues on each of these."""
    message = UpdateAndCreateTopicRequest(
        topic=topic, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0, order=False,
    )  # fmt: skip
    for name in brokers:
        client.request(message, to=name)


def shown(broker: RocketMQ, topic: str, count: int) -> RocketClient:
    """A new client, which sees so many queues."""
    until(lambda: _queues(broker, topic) == count)
    return wireproto.connect(broker.url)


def _queues(broker: RocketMQ, topic: str) -> int:
    with wireproto.connect(broker.url) as client:
        return len(homes(client, topic)) if topic in client.admin().list_topics() else 0


def write(client: RocketClient, topic: str, label: str) -> list[bytes]:
    """Five values to each queue, which tell its name."""
    values = {number: [f"{home} {label} {n}".encode() for n in range(5)] for number, home in enumerate(homes(client, topic))}
    with client.producer(topic) as out:
        for number, own in values.items():
            for value in own:
                out.send(value, partition=number).position(30.0)
    return sorted(value for own in values.values() for value in own)


def test_a_position_noted_before_is_resumed_after_by_another_client(broker: RocketMQ) -> None:
    topic, found, rest = f"joining-{next(_numbers)}", [], []
    joins, *others = masters(broker)
    with wireproto.connect(broker.url) as client:
        make(client, topic, *others)
    with shown(broker, topic, 2 * len(others)) as first:
        before = write(first, topic, "before")
        with first.reader(topic, start=EARLIEST, stop=LATEST) as reader:
            for batch in reader:
                found += batch.values()
            noted = dict(reader.positions)
        assert sorted(found) == before
        assert sorted(place.text() for place in noted.values()) == [f"{name}/{queue}:5" for name in others for queue in (0, 1)]
        with first.consumer(topic, f"g-{topic}", start=LATEST) as member:
            assert member.poll(0.0) is None
        make(first, topic, joins)
        with shown(broker, topic, 2 * broker.nodes) as second:
            assert homes(second, topic) != homes(first, topic)
            after = write(second, topic, "after")
            for kept in (positions_from_json(positions_to_json(noted)), parse_positions(format_positions(noted), topic)):
                rest = []
                with second.reader(topic, start=kept, stop=LATEST) as reader:
                    for batch in reader:
                        rest += batch.values()
                assert sorted(rest) == [value for value in after if not value.startswith(b"broker-a")]
            with pytest.raises(OptionError, match="has no start: start and stop name the same partitions"):
                second.reader(topic, start=noted, stop=second.admin().positions(topic))
            with pytest.raises(OptionError, match="does not say of which queue"):
                second.reader(topic, start=LogOffset(topic, 0, 5))
            with second.consumer(topic, f"g-{topic}", start=LATEST) as member:
                read: list[bytes] = []
                until(lambda: (read.extend(_polled(member)), len(read) >= len(after))[1])
                assert sorted(read) == after, "the new broker's queues came after the group began"


@QUIET
def test_a_query_of_spark_goes_on_from_its_checkpoint(broker: RocketMQ) -> None:
    """The format's own reader, driven without Spark; each run of the query has clients of its own."""
    topic = f"joining-{next(_numbers)}"
    joins, *others = masters(broker)

    def put(queues: int, numbers: range) -> None:
        with shown(broker, topic, queues) as client, client.producer(topic) as out:
            for number in numbers:
                out.send(b"%d" % number, partition=number % queues).position(30.0)

    def query(at: Any = None) -> Driven:
        worker.close_all()
        return Driven(RocketMQWire({"nameServer": broker.name_server, "topic": topic, "startingOffsets": "earliest"}), at)

    with wireproto.connect(broker.url) as client:
        make(client, topic, *others)
        put(2 * len(others), range(30))
        with query() as first:
            assert first.step() == list(range(30))
        make(client, topic, joins)
        put(2 * broker.nodes, range(30, 70))
    with query(first.at) as second:
        assert second.step() == list(range(30, 70))
    assert set(second.at[topic]) == {f"{name}/{queue}" for name in masters(broker) for queue in (0, 1)}
    worker.close_all()


def _polled(member: object) -> list[bytes]:
    batch = member.poll(1.0)  # type: ignore[attr-defined]
    return batch.values() if batch is not None else []


def test_a_broker_that_was_stopped_keeps_its_place(broker: RocketMQ) -> None:
    """An ordered stop takes it out of the route at once: a client that is opened then has never seen it."""
    topic = f"joining-{next(_numbers)}"
    with wireproto.connect(broker.url) as client:
        make(client, topic, *masters(broker))
    with shown(broker, topic, 2 * broker.nodes) as first:
        write(first, topic, "before")
        noted = positions_to_json(first.admin().positions(topic))
        after = write(first, topic, "after")
    broker.stop(JOINS)
    try:
        left = 2 * (broker.nodes - 1)
        second = shown(broker, topic, left)
        found: list[bytes] = []
        with second, second.reader(topic, start=positions_from_json(noted), stop=None) as reader:
            until(lambda: (found.extend(_polled(reader)), len(found) >= 5 * left)[1])
            assert sorted(found) == [value for value in after if not value.startswith(b"broker-a")]
            broker.start(JOINS)
            until(lambda: (found.extend(_polled(reader)), len(found) >= 10 * broker.nodes)[1])
            assert sorted(found) == after
    finally:
        if not broker.servers[JOINS].running:
            broker.start(JOINS)
