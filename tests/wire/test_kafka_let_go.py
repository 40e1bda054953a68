"""Readers and consumers that came to their end, or that the program lets go of: no connection stays behind while their client lives."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import LONG, until
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka")) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    name = f"let-go-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name) as producer:
        for number in range(10):
            producer.send(b"%d" % number, partition=number % 2)
    return name


def own(client: Any) -> list[str]:
    """Connections that readers and members have for themselves."""
    return [purpose for _, purpose in list(client.cluster.pool._open) if purpose.startswith(("bulk", "group"))]


def test_a_reader_at_its_end_has_no_connection_and_gets_one_as_it_seeks(client: Any, topic: str) -> None:
    reader = client.reader(topic, stop=LATEST)
    assert sum(len(batch) for batch in reader) == 10
    assert own(client) == []
    reader.seek(EARLIEST)
    assert not reader.done
    assert sum(len(batch) for batch in reader) == 10
    assert own(client) == []


def test_one_at_its_end_under_asyncio_has_none(broker: DevBroker, topic: str) -> None:
    async def read() -> tuple[int, list[str]]:
        async with wireproto.aio.connect(broker.url("kafka")) as client:
            reader = client.reader(topic, stop=LATEST)
            count = sum([len(batch) async for batch in reader])
            return count, own(client._made)

    assert asyncio.run(read()) == (10, [])


@pytest.mark.parametrize("stop", [None, LATEST])
def test_a_reader_that_is_dropped_has_none(client: Any, topic: str, stop: Any) -> None:
    """Nor does it keep what it had read ahead of what its client may."""
    for _ in range(5):
        reader = client.reader(topic, stop=stop)
        assert reader.poll(LONG) is not None
        assert len(own(client)) >= 1
        del reader
        gc.collect()
        until(lambda: not own(client))
    assert client.cluster.fetch_budget.held == 0


def test_the_connections_of_a_dropped_range_are_the_next_one_s(client: Any, topic: str) -> None:
    places = client.admin().positions(topic, EARLIEST), client.admin().positions(topic, LATEST)
    for _ in range(5):
        assert sum(len(batch) for batch in client.reader(topic, start=places[0], stop=places[1])) == 10
        gc.collect()
        until(lambda: client.cluster._spare)
        assert len(own(client)) == 1


def test_a_consumer_that_is_dropped_leaves_its_group_and_has_none(client: Any, topic: str) -> None:
    group = f"dropped-{next(_numbers)}"
    for _ in range(3):
        consumer = client.consumer(topic, group=group)
        while consumer.poll(LONG) is None:
            pass
        assert any(purpose.startswith("group") for purpose in own(client))
        del consumer
        gc.collect()
        until(lambda: not own(client))
    assert client.admin().describe_group(group).members == ()


def test_one_that_is_dropped_behind_its_client_is_nobody_s_business(broker: DevBroker, topic: str) -> None:
    with wireproto.connect(broker.url("kafka")) as client:
        reader = client.reader(topic)
        assert reader.poll(LONG) is not None
    del reader
    gc.collect()
