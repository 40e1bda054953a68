"""A worker's acks in groups at real brokers: flush and close wait until brokers have stored them, and a refusal is raised."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import suppress
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers import RocketMQ
from patience import LONG, until
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import SubscriptionGroupNotExist
from wireproto.rocketmq.messages import DeleteSubscriptionGroupRequest, InvokeBrokerToResetOffsetRequest

COUNT = 20
LATER = 600.0
"""Seconds that no test takes: no timer sends a group."""
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-5.5.0", pytest.param("rocketmq-4.9.7", marks=pytest.mark.soak)], indirect=True)


@pytest.fixture
def topic(broker: RocketMQ) -> str:
    name = f"Acks-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(name, partitions=2)
        with client.producer(name) as producer:
            for number in range(COUNT):
                producer.send(b"%d" % number, partition=number % 2)
    return name


def take(worker: Any, count: int) -> list[Any]:
    found = []
    while len(found) < count:
        delivery = worker.receive(LONG)
        assert delivery is not None, [one.value for one in found]
        found.append(delivery)
    return found


def left(broker: RocketMQ, topic: str, group: str, most: int) -> set[bytes]:
    """The values that a new client's worker of the group gets, after which nothing comes; `most` of them are expected."""
    found = set()
    with wireproto.connect(broker.url) as client, client.queue(topic, group, ack_group_time=LATER) as worker:
        found = {delivery.value for delivery in take(worker, most)}
        more = worker.receive(3.0)
        assert more is None, more.value
    return found


def committed(broker: RocketMQ, topic: str, group: str) -> int:
    with wireproto.connect(broker.url) as client:
        assert isinstance(client, RocketClient)
        return sum(int(at.offset) for key, at in client.admin().group_positions(group, topic).items() if key[0] == topic)  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["flush", "close", "ack"])
def test_what_was_acked_is_stored_when_the_call_returns(broker: RocketMQ, topic: str, call: str) -> None:
    group = f"g-{topic}"
    with wireproto.connect(broker.url, ack_group_time=LATER) as client:
        worker = client.queue(topic, group)
        done = take(worker, COUNT // 2)
        for delivery in done:
            delivery.ack(wait=call == "ack")
        if call != "ack":
            assert committed(broker, topic, group) == 0, "nothing leaves before"
            getattr(worker, call)()
        assert committed(broker, topic, group) == COUNT // 2
        worker.close()
    rest = left(broker, topic, group, COUNT - COUNT // 2)
    assert rest == {b"%d" % number for number in range(COUNT)} - {delivery.value for delivery in done}


def test_after_a_flush_a_worker_of_the_group_gets_nothing_while_the_first_is_killed(broker: RocketMQ, topic: str) -> None:
    """The first client never says goodbye: its sockets are closed."""
    group = f"g-{topic}"
    client = wireproto.connect(broker.url, ack_group_time=LATER)
    worker = client.queue(topic, group)
    for delivery in take(worker, COUNT):
        delivery.ack()
    worker.flush()
    worker._assignment.end()
    assert isinstance(client, RocketClient)
    client.cluster.loop.close()
    assert left(broker, topic, group, 0) == set()


def test_an_ack_leaves_in_its_time_while_the_worker_is_busy_elsewhere(broker: RocketMQ, topic: str) -> None:
    group = f"g-{topic}"
    with wireproto.connect(broker.url) as client, client.queue(topic, group) as worker:
        for delivery in take(worker, COUNT):
            delivery.ack()
        until(lambda: committed(broker, topic, group) == COUNT)


@pytest.mark.parametrize("call", ["receive", "flush", "close", "ack"])
def test_a_refused_ack_is_raised_once(broker: RocketMQ, topic: str, call: str) -> None:
    """A broker of 5.x refuses the commits of a group that was deleted; one of 4.9 stores them."""
    if broker.version.startswith("4."):
        pytest.skip("4.9 takes every commit")
    group = f"g-{topic}"
    with wireproto.connect(broker.url, ack_group_time=0.05 if call == "receive" else LATER, heartbeat_interval=LATER) as client:
        assert isinstance(client, RocketClient)
        worker = client.queue(topic, group)
        held = take(worker, COUNT)
        assert worker.receive(0.5) is None, "the pulls that would make the group again are held by the broker"
        held.pop(0).ack(wait=True)
        client.request(DeleteSubscriptionGroupRequest(group_name=group, clean_offset=True), to=broker.addresses[1])
        if call == "ack":
            with pytest.raises(SubscriptionGroupNotExist):
                held[0].ack(LONG, wait=True)
        else:
            held[0].ack()
            with pytest.raises(SubscriptionGroupNotExist, match=rf"not committed: {topic}\[\d\] from offset \d on"):
                getattr(worker, call)(LONG)
        with suppress(SubscriptionGroupNotExist):  # the close tries again
            worker.close()


def test_a_close_commits_what_an_administrator_has_set_and_not_the_acks_from_before(broker: RocketMQ, topic: str) -> None:
    """These brokers do not store the reset: they ask the members to commit it, which is all that is left of it."""
    group = f"g-{topic}"
    with wireproto.connect(broker.url, ack_group_time=LATER) as client:
        assert isinstance(client, RocketClient)
        worker = client.queue(topic, group)
        held = take(worker, COUNT)
        early = [delivery for delivery in held if int(delivery.value) < 6]  # of both queues: a broker sets only those that have an offset
        for delivery in early:
            delivery.ack()
        worker.flush()
        for delivery in held:
            if delivery not in early:
                delivery.ack()
        assert committed(broker, topic, group) == 6
        reset = InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
        client.request(reset)
        until(lambda: len(worker._assignment.member.resets) == 2, "the broker's request has come")
        worker.close()
    assert committed(broker, topic, group) == 0
    assert left(broker, topic, group, COUNT) == {b"%d" % number for number in range(COUNT)}


def test_asyncio_has_the_same_groups(broker: RocketMQ, topic: str) -> None:
    group = f"g-{topic}"

    async def work() -> set[bytes]:
        async with wireproto.aio.connect(broker.url, ack_group_time=LATER) as client:
            worker = client.queue(topic, group)
            held: list[Any] = [await worker.receive(LONG) for _ in range(12)]
            assert None not in held
            for delivery in held[:6]:
                await delivery.ack()
            assert committed(broker, topic, group) == 0
            await worker.flush()
            assert committed(broker, topic, group) == 6
            await held[6].ack(wait=True)
            assert committed(broker, topic, group) == 7
            for delivery in held[7:]:
                await delivery.ack()
            await worker.close()
            assert committed(broker, topic, group) == 12
            return {delivery.value for delivery in held}

    done = asyncio.run(asyncio.wait_for(work(), LONG))
    assert left(broker, topic, group, COUNT - 12) == {b"%d" % number for number in range(COUNT)} - done
