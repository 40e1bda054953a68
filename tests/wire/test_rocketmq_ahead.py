"""What RocketMQ's roles read ahead: within `fetch_memory` of their client, and nothing of it lost where a poll is broken off."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from patience import until
from wireproto._net import Event
from wireproto.devbroker import DevBroker
from wireproto.net.task import Steps
from wireproto.position import LATEST, LogOffset
from wireproto.rocketmq import fetch
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import PullOffsetMoved

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
_numbers = itertools.count()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"ahead-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    return name


def put(client: RocketClient, topic: str, count: int, size: int) -> list[bytes]:
    values = [b"%d" % number + bytes(size) for number in range(count)]
    with client.producer(topic) as out:
        for number, value in enumerate(values):
            out.send(value, partition=number % 4)
    return values


def test_all_readers_of_a_client_hold_no_more_than_fetch_memory(client: RocketClient, dial: Any, topic: str) -> None:
    """A reader that has nothing may ask once beyond it; so each of them goes on."""
    values = put(client, topic, 2000, 1000)
    other = dial(fetch_memory=100_000)
    found: list[list[bytes]] = [[], []]
    most = 0
    with other.reader(topic, stop=LATEST) as first, other.reader(topic, stop=LATEST, min_bytes=1 << 20) as second:

        def more() -> bool:
            nonlocal most
            for reader, into in zip((first, second), found, strict=True):
                batch = reader.poll(0.2)
                most = max(most, other.cluster.fetch_budget.held)
                into.extend(batch.values() if batch is not None else [])
            return first.done and second.done

        until(more)
    assert 50_000 < most < 100_000 + 2 * 40_000
    for into in found:
        assert sorted(into) == sorted(values)
    assert other.cluster.fetch_budget.held == 0


def test_nothing_is_passed_over_where_a_signal_breaks_into_a_poll(
    client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = put(client, topic, 400, 10)
    decode, breaks = fetch.decode_rocketmq, iter([False, True, False, True, True])

    def broken(*args: Any, **more: Any) -> Any:
        if next(breaks, False):
            raise KeyboardInterrupt
        return decode(*args, **more)

    monkeypatch.setattr(fetch, "decode_rocketmq", broken)
    found: list[bytes] = []
    interrupts = 0
    with client.reader(topic, stop=LATEST) as reader:
        while not reader.done:
            try:
                batch = reader.poll(10.0)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            found += batch.values() if batch is not None else []
    assert interrupts == 3
    assert sorted(found) == sorted(values)
    for queue in range(4):
        mine = [value for value in found if int(value.rstrip(b"\0")) % 4 == queue]
        assert mine == values[queue::4]
    assert client.cluster.fetch_budget.held == 0


def test_a_seek_to_a_place_that_is_gone_is_told_by_a_reader_from_the_first_record_on(client: RocketClient, topic: str) -> None:
    put(client, topic, 40, 10)
    with client.reader(topic) as reader:
        reader.seek({(topic, 0): LogOffset(topic, 0, 1000)})
        with pytest.raises(PullOffsetMoved):
            until(lambda: (reader.poll(0.2), False)[1])


def test_queues_are_read_while_another_s_broker_is_looked_for(
    broker: DevBroker, client: RocketClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull was refused, and nobody tells where its queue is now: polls do not wait for that."""
    put(client, topic, 40, 10)
    told, routing = Event(client.loop), client.cluster.routing

    def late(*asked: Any, **more: Any) -> Steps[Any]:
        yield told
        return (yield from routing(*asked, **more))

    with client.reader(topic, stop=LATEST) as reader:
        monkeypatch.setattr(client.cluster, "routing", late)
        broker.faults("rocketmq").error("PullMessage", 17)
        found: list[bytes] = []

        def read(count: int) -> None:
            until(lambda: (found.extend(batch.values() if (batch := reader.poll(0.02)) is not None else []), len(found) >= count)[1])

        read(30)
        assert len(found) == 30
        told.set()
        read(40)
        assert reader.done
