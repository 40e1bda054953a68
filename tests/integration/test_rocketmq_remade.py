"""A topic that is deleted and made again, under roles that have read on: told at each poll until somebody says where to go on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest

import wireproto
from brokers import RocketMQ
from patience import soon, until
from wireproto.errors import DataLoss, WireprotoError
from wireproto.position import EARLIEST, LogOffset
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import PullOffsetMoved
from wireproto.rocketmq.consumer import RocketConsumer
from wireproto.rocketmq.messages import InvokeBrokerToResetOffsetRequest
from wireproto.rocketmq.reader import RocketReader

_numbers = itertools.count()
both_lines = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
BEFORE, SINCE = 20, 30


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url, pull_suspend=1.0) as opened:
        yield opened


@pytest.fixture(params=["reader", "consumer"])
def role(request: pytest.FixtureRequest, client: RocketClient) -> Iterator[RocketReader | RocketConsumer]:
    """It has read all of a topic."""
    topic = f"remade-{next(_numbers)}"
    client.admin().create_topic(topic)
    write(client, topic, range(BEFORE))
    made = client.reader(topic, start=EARLIEST) if request.param == "reader" else client.consumer(topic, f"g-{topic}", start=EARLIEST)
    with made:
        assert read(made, BEFORE) == list(range(BEFORE))
        yield made


def write(client: RocketClient, topic: str, values: range) -> None:
    with client.producer(topic) as producer:
        receipts = [producer.send(b"%d" % value, partition=0) for value in values]
        for receipt in receipts:
            receipt.position(30.0)


def read(role: RocketReader | RocketConsumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = soon()
    while len(found) < count and deadline > soon(0.0):
        batch = role.poll(1.0)
        found += [int(value) for value in batch.values()] if batch is not None else []
    return found


def where(role: RocketReader | RocketConsumer) -> set[tuple[str, int]]:
    return set(role.positions if isinstance(role, RocketReader) else role.assignment)


def told(role: RocketReader | RocketConsumer) -> WireprotoError | None:
    try:
        batch = role.poll(1.0)
    except PullOffsetMoved as why:
        return why
    assert batch is None
    return None


@both_lines
def test_a_topic_that_was_made_again_is_told_until_a_seek(client: RocketClient, role: RocketReader | RocketConsumer) -> None:
    (topic,) = {topic for topic, _ in where(role)}
    client.admin().delete_topic(topic)
    client.admin().create_topic(topic)
    until(lambda: told(role), "nothing is told")
    write(client, topic, range(SINCE))  # it has grown past what was read
    until(lambda: client.admin().positions(topic)[topic, 0].offset == SINCE, "the queue does not show all of it")
    for _ in range(5):
        why = told(role)
        assert isinstance(why, DataLoss)
        assert (why.topic, why.partition) == (topic, 0)
        assert why.position.offset == BEFORE
        assert "seek to continue" in str(why)
    role.seek(LogOffset(topic, 0, 0))
    assert read(role, SINCE) == list(range(SINCE))


@both_lines
def test_who_goes_on_where_its_group_is_set_reads_a_topic_that_was_made_again(client: RocketClient) -> None:
    topic = f"remade-{next(_numbers)}"
    group = f"g-{topic}"
    with client.admin() as admin:
        admin.create_topic(topic)
        write(client, topic, range(BEFORE))
        with client.consumer(topic, group, start=EARLIEST) as consumer:
            assert read(consumer, BEFORE) == list(range(BEFORE))
            consumer.commit()
            admin.delete_topic(topic)
            admin.create_topic(topic)
            until(lambda: told(consumer), "nothing is told")
            write(client, topic, range(SINCE))
            until(lambda: told(consumer), "nothing is told any more")
            admin.commit(group, {(topic, 0): LogOffset(topic, 0, 1)})  # 5.x resets no group without a position
            reset = InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True, queue_id=0, offset=0)
            client.request(reset, to=(topic, 0))
            found: list[int] = []

            def all_read() -> bool:
                with suppress(PullOffsetMoved):  # before the broker's word has come
                    found.extend(read(consumer, 1))
                return len(found) >= SINCE

            until(all_read, f"{group} does not go on")
            assert found == list(range(SINCE))


@both_lines
@pytest.mark.parametrize(("reset", "unread"), [("raise", SINCE), ("latest", 0)])
def test_the_lag_of_a_topic_that_was_made_again_is_all_that_it_has(client: RocketClient, reset: str, unread: int) -> None:
    """4.9 keeps the offset of a group whose topic is deleted; 5.x forgets it, and the member that stands there knows it still."""
    topic = f"remade-{next(_numbers)}"
    group = f"g-{topic}"
    with client.admin() as admin:
        admin.create_topic(topic)
        write(client, topic, range(BEFORE + SINCE))
        with client.consumer(topic, group, start=EARLIEST, reset=reset) as consumer:
            assert read(consumer, BEFORE + SINCE) == list(range(BEFORE + SINCE))
            consumer.commit()
            assert consumer.lag() == {(topic, 0): 0}
            admin.delete_topic(topic)
            admin.create_topic(topic)
            write(client, topic, range(SINCE))
            assert consumer.lag() == {(topic, 0): unread}
        with client.consumer(topic, group, start=EARLIEST) as consumer:  # at the offset that 4.9 has kept
            assert consumer.lag() == {(topic, 0): SINCE}
