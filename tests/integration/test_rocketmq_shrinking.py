"""Queues that a topic loses, or that may not be read for a while: roles go on with the others, and with these when they are back."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import until
from rocketmq_topics import change
from wireproto.position import EARLIEST, LATEST, AtTime
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.errors import NoQueue

OLD, NEW = "rocketmq-4.9.7", "rocketmq-5.5.0"
_numbers = itertools.count()
QUEUES = 4
LOST = {"fewer": (1, 6), "write-only": (QUEUES, 2)}
"""Queues and permissions while some, or all, are not to be read."""


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url, pull_suspend=1.0) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"shrinking-{next(_numbers)}"
    client.admin().create_topic(name, partitions=QUEUES)
    return name


def write(broker: RocketMQ, topic: str, values: range, partitions: range = range(QUEUES)) -> None:
    with wireproto.connect(broker.url) as other, other.producer(topic) as producer:
        for value in values:
            producer.send(b"%d" % value, partition=partitions[value % len(partitions)])


def from_consumer(client: RocketClient, topic: str) -> tuple[Any, Callable[[], list[bytes]]]:
    consumer = client.consumer(topic, f"g-{topic}", start=EARLIEST, rebalance_interval=8.0)

    def more() -> list[bytes]:
        batch = consumer.poll(0.3)
        consumer.commit()
        return list(batch.values()) if batch is not None else []

    return consumer, more


def from_queue(client: RocketClient, topic: str) -> tuple[Any, Callable[[], list[bytes]]]:
    queue = client.queue(topic, f"g-{topic}", rebalance_interval=8.0)

    def more() -> list[bytes]:
        message = queue.receive(timeout=0.3)
        if message is None:
            return []
        message.ack()
        return [message.record.value]

    return queue, more


def from_reader(client: RocketClient, topic: str) -> tuple[Any, Callable[[], list[bytes]]]:
    reader = client.reader(topic, start=EARLIEST)

    def more() -> list[bytes]:
        batch = reader.poll(0.3)
        return list(batch.values()) if batch is not None else []

    return reader, more


@pytest.mark.parametrize(
    ("broker", "role", "lost"),
    [
        (OLD, from_reader, "fewer"),
        (OLD, from_consumer, "write-only"),
        (NEW, from_reader, "fewer"),
        (NEW, from_reader, "write-only"),
        (NEW, from_consumer, "fewer"),
        (NEW, from_queue, "write-only"),
    ],
    indirect=["broker"],
)
def test_a_role_goes_on_without_them_and_with_them_when_they_are_back(
    client: RocketClient, topic: str, broker: RocketMQ, role: Callable[..., Any], lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wireproto.rocketmq")
    write(broker, topic, range(40))
    found: list[bytes] = []
    opened, more = role(client, topic)
    with opened:

        def all_of(count: int) -> None:
            until(lambda: found.extend(more()) or len(set(found)) >= count, f"{count} records")

        all_of(40)
        queues, perm = LOST[lost]
        change(client, topic, queues, perm)
        write(broker, topic, range(40, 50), range(queues))
        if perm & 4:
            all_of(50)
        until(lambda: found.extend(more()) or "is left out" in caplog.text or "gave up" in caplog.text)
        change(client, topic, QUEUES, 6)
        write(broker, topic, range(50, 70))
        all_of(70)
    assert sorted(map(int, found)) == list(range(70)), "each once"


@pytest.mark.parametrize(("broker", "lost"), [(OLD, "fewer"), (NEW, "write-only")], indirect=["broker"])
def test_a_reader_that_has_a_stop_tells_of_them(client: RocketClient, topic: str, broker: RocketMQ, lost: str) -> None:
    write(broker, topic, range(40))
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        change(client, topic, *LOST[lost])
        found: list[bytes] = []

        def read() -> None:
            for batch in reader:
                found.extend(batch.values())

        for _ in range(2):
            with pytest.raises(NoQueue):
                read()
        assert not reader.done
        change(client, topic, QUEUES, 6)
        until(lambda: _ended(read))
    assert sorted(map(int, found)) == list(range(40)), "each once"


def _ended(read: Callable[[], None]) -> bool:
    try:
        read()
    except NoQueue:
        return False
    return True


@pytest.mark.parametrize("perm", [6, 4])
@pytest.mark.parametrize("broker", [OLD, NEW], indirect=True)
def test_records_that_may_go_anywhere_go_to_the_queues_that_are_left(client: RocketClient, topic: str, broker: RocketMQ, perm: int) -> None:
    """Also where the topic is read-only: brokers take them all the same."""
    with wireproto.connect(broker.url) as other, other.producer(topic) as producer:
        assert {producer.send(b"x").position(30.0).partition for _ in range(QUEUES)} == set(range(QUEUES))
        change(client, topic, 1, perm)
        assert {producer.send(b"x").position(30.0).partition for _ in range(40)} == {0}, "at once, though its route is half a minute old"
        with pytest.raises(NoQueue):
            producer.send(b"x", partition=3).position(30.0)
        producer.flush(30.0)
    with wireproto.connect(broker.url) as newcomer, newcomer.producer(topic) as producer:
        assert {producer.send(b"x").position(30.0).partition for _ in range(8)} == {0}


@pytest.mark.parametrize(
    ("broker", "lost"), [(OLD, "fewer"), (OLD, "write-only"), (NEW, "fewer"), (NEW, "write-only")], indirect=["broker"]
)
@pytest.mark.no_rerun
def test_readers_that_are_opened_meanwhile_lose_nothing(client: RocketClient, topic: str, broker: RocketMQ, lost: str) -> None:
    write(broker, topic, range(40))
    client.cluster.route(topic, client.deadline(10.0))
    change(client, topic, *LOST[lost])
    found: list[bytes] = []
    ahead: list[bytes] = []

    def read() -> None:
        for batch in bounded:
            found.extend(batch.values())

    def follow(reader: Any, into: list[bytes], count: int) -> bool:
        batch = reader.poll(0.3)
        into.extend(batch.values() if batch is not None else [])
        return len(into) >= count

    with client.reader(topic, stop=LATEST) as bounded, client.reader(topic) as follower, client.reader(topic, start=LATEST) as latest:
        with pytest.raises(NoQueue):
            read()
        assert not follower.done
        every: list[bytes] = []
        follow(follower, every, 0)  # what may be read already counts, too
        change(client, topic, QUEUES, 6)
        write(broker, topic, range(40, 60))
        until(lambda: follow(follower, every, 60))
        until(lambda: follow(latest, ahead, 20))
        until(lambda: _ended(read))
    assert sorted(map(int, found)) == list(range(40)), "each once, and up to where they ended when it was opened"
    assert sorted(map(int, every)) == list(range(60))
    assert sorted(map(int, ahead)) == list(range(40, 60))


@pytest.mark.parametrize(("broker", "lost"), [(OLD, "fewer"), (NEW, "write-only")], indirect=["broker"])
def test_a_seek_moves_them_too(client: RocketClient, topic: str, broker: RocketMQ, lost: str) -> None:
    write(broker, topic, range(40))
    opened, more = from_reader(client, topic)
    found: list[bytes] = []
    with opened:
        until(lambda: found.extend(more()) or len(found) >= 40)
        change(client, topic, *LOST[lost])
        opened.seek(EARLIEST)
        with pytest.raises(NoQueue):
            opened.seek(AtTime(0))
        change(client, topic, QUEUES, 6)
        until(lambda: found.extend(more()) or len(found) >= 80)
    assert sorted(map(int, found)) == sorted([*range(40)] * 2)
