"""Queues over a link that takes longer than each call waits: calls go on behind one another, and everything comes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper
from brokers.proxy import FaultProxy
from patience import soon, until
from wireproto.errors import DataLoss
from wireproto.position import EARLIEST, LATEST

ONE = pytest.mark.parametrize("broker", ["zookeeper-3.9.5"], indirect=True)
DELAY = 0.15
"""Seconds that each way takes."""
SHORT = 0.02
"""Seconds that each call waits. A role takes a tenth of a second for its asking all the same."""
COUNT = 6
_numbers = itertools.count()


@pytest.fixture
def near(broker: ZooKeeper) -> Iterator[Any]:
    with wireproto.connect(broker.url) as client:
        yield client


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy() as made:
        yield made


@pytest.fixture
def far(broker: ZooKeeper, proxy: FaultProxy) -> Iterator[Any]:
    with wireproto.connect(proxy.url(broker.url)) as client:
        client.tree().exists("/")
        proxy.delay(DELAY)
        yield client
        proxy.heal()


def queue() -> str:
    return f"slow-{next(_numbers)}"


def write(client: Any, topic: str, values: range) -> None:
    with client.producer(topic) as out:
        for value in values:
            out.send(b"%d" % value)


def polled(reader: Any, count: int) -> list[int]:
    found: list[int] = []
    deadline = soon()
    while len(found) < count and deadline > soon(0.0):
        batch = reader.poll(SHORT)
        found += [int(value) for value in batch.values()] if batch is not None else []
    return found


@ONE
def test_a_worker_gets_every_message(near: Any, far: Any) -> None:
    topic = queue()
    with far.queue(topic, "g") as worker:
        assert worker.receive(SHORT) is None  # nobody has made the queue
        write(near, topic, range(COUNT))
        found: list[int] = []

        def next_one() -> bool:
            delivery = worker.receive(SHORT)
            if delivery is not None:
                found.append(int(delivery.record.value))
                delivery.ack()
            return len(found) == COUNT

        until(next_one, "messages do not come")
        assert found == list(range(COUNT))


@ONE
def test_a_worker_goes_on_behind_a_cut(near: Any, far: Any, proxy: FaultProxy) -> None:
    topic = queue()
    write(near, topic, range(1))
    with far.queue(topic, "g") as worker:
        until(lambda: worker.receive(SHORT) is not None or worker._claiming is not None, "nothing is claimed")
        assert worker._claiming is not None
        proxy.cut()  # nobody knows whether the claim is there
        deliveries: list[Any] = []

        def next_one() -> bool:
            delivery = worker.receive(SHORT)
            if delivery is not None:
                deliveries.append(delivery)
            return bool(deliveries)

        until(next_one, "the message does not come")
        deliveries[0].ack()


@ONE
@pytest.mark.parametrize("stop", [None, LATEST])
def test_a_reader_gets_every_message(near: Any, far: Any, stop: Any) -> None:
    topic = queue()
    write(near, topic, range(COUNT))
    with far.reader(topic, start=EARLIEST, stop=stop) as reader:
        assert polled(reader, COUNT) == list(range(COUNT))
        if stop is None:
            write(near, topic, range(COUNT, 2 * COUNT))
            assert polled(reader, COUNT) == list(range(COUNT, 2 * COUNT))
        else:
            until(lambda: reader.poll(SHORT) is None and reader.done, "it does not end")


@ONE
def test_a_reader_with_a_stop_passes_over_what_a_worker_has_finished(near: Any, far: Any) -> None:
    topic = queue()
    write(near, topic, range(COUNT))
    with far.reader(topic, start=EARLIEST, stop=LATEST) as reader, near.queue(topic, "g") as worker:
        reader.poll(SHORT)  # it has asked for the list
        for _ in range(COUNT):
            delivery = worker.receive(30.0)
            assert delivery is not None
            delivery.ack()
        found: list[int] = []

        def done() -> bool:
            batch = reader.poll(SHORT)
            found.extend(int(value) for value in batch.values()) if batch is not None else None
            return reader.done

        until(done, "it does not end")
        assert found == sorted(found)


@ONE
def test_a_reader_is_told_that_its_queue_was_made_again(near: Any, far: Any) -> None:
    topic = queue()
    write(near, topic, range(COUNT))
    with far.reader(topic, start=EARLIEST) as reader:
        assert polled(reader, COUNT) == list(range(COUNT))
        near.admin().delete_topic(topic)
        near.admin().create_topic(topic)
        write(near, topic, range(1))

        def told() -> bool:
            try:
                assert reader.poll(SHORT) is None
            except DataLoss:
                return True
            return False

        until(told, "nothing is told")
