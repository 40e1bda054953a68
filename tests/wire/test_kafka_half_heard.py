"""What Kafka's roles make of answers that say less than they should, and of brokers of other versions; on the embedded broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from wireproto import LATEST
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import Disconnected, ProtocolError, TimedOut, TransportError
from wireproto.kafka import fetch, fetcher, wire
from wireproto.kafka.codes import UnknownTopicOrPartition
from wireproto.kafka.positions import by_leader

PROTOCOL, CLIENT = "kafka", {"timeout": 10.0, "max_wait": 0.05}
SOON = 20.0
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """One partition with ten records, a batch each."""
    name = f"half-{next(_numbers)}"
    client.admin().create_topic(name)
    with client.producer(name) as producer:
        for number in range(10):
            producer.send(b"%d" % number).position(SOON)
    return name


@contextmanager
def changed(broker: DevBroker, key: int, change: Callable[[Any], Any]) -> Iterator[None]:
    """Meanwhile the broker's answers to a kind of request are changed."""
    offered: Any = broker._sides["kafka"].offered  # type: ignore[attr-defined]
    plain = offered[key]

    async def answer(context: Any) -> Any:
        return change(await plain[3](context))

    offered[key] = (*plain[:3], answer)
    try:
        yield
    finally:
        offered[key] = plain


@contextmanager
def offering(broker: DevBroker, name: str, newest: int) -> Iterator[None]:
    """Meanwhile the broker knows a request up to this version."""
    side: Any = broker._sides["kafka"]
    before = dict(side.offered)
    side.offer(name, newest)
    try:
        yield
    finally:
        side.offered.update(before)


def test_a_batch_that_an_answer_leaves_out_may_be_in_the_log(client: Any, broker: DevBroker, topic: str) -> None:
    with client.producer(topic, delivery_timeout=3.0) as producer:
        producer.send(b"there is a connection").position(SOON)
        with changed(broker, 0, lambda reply: reply.replace(responses=())):
            receipt = producer.send(b"left out")
            with pytest.raises(TimedOut, match=r"it may still be in the log; last trouble: .*has no entry for the partition"):
                receipt.position(SOON)


def test_an_answer_to_a_fetch_that_cannot_be_read_is_raised_and_asked_for_again_after_a_pause(
    client: Any, topic: str, faults: Faults, seen: Recording
) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        faults.corrupt("Fetch", at=15, times=3)  # how many topics there are
        for _ in range(3):
            with pytest.raises(ProtocolError):
                reader.poll(SOON)
        found = 0
        while found < 10:
            batch = reader.poll(SOON)
            assert batch is not None, "nobody asks again"
            found += len(batch)
    asked = seen.requests("Fetch")[:4]
    assert len({one.connection for one in asked}) == 4, "nothing behind it can be trusted"
    assert min(after.at - before.at for before, after in itertools.pairwise(asked)) >= 0.1 * 0.8 * 0.9


def test_a_connection_that_goes_while_a_fetch_is_made_costs_a_look_up(
    client: Any, topic: str, seen: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = wire.submit
    lost: list[int] = []

    def once(*given: Any, **more: Any) -> Any:
        if not lost:
            lost.append(1)
            raise Disconnected("gone")
        return submit(*given, **more)

    with client.reader(topic, stop=LATEST) as reader:
        looks = len(seen.requests("Metadata"))
        monkeypatch.setattr(wire, "submit", once)
        assert sum(len(batch) for batch in reader) == 10
    assert len(seen.requests("Metadata")) > looks


def test_a_leader_that_cannot_be_reached_is_dialled_after_pauses_and_told_after_request_timeout(
    broker: DevBroker, dial: Callable[..., Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dial(request_timeout=0.3)
    pool = given.cluster.pool
    own, dialled = pool.dial, []

    def counted(address: Any, purpose: str, *more: Any) -> Any:
        dialled.append(purpose)
        return own(address, purpose, *more)

    with given.reader(topic, stop=LATEST) as reader:
        broker.pause("kafka")
        monkeypatch.setattr(pool, "dial", counted)
        began = time.monotonic()
        try:
            with pytest.raises(TransportError):
                reader.poll(SOON)
            tried = dialled.count(reader._fetcher._purpose)
            assert 1 <= tried <= (time.monotonic() - began) / 0.2 + 1
        finally:
            broker.resume("kafka")
        found, deadline = 0, time.monotonic() + SOON
        while found < 10:
            assert time.monotonic() < deadline
            with suppress(TransportError):
                batch = reader.poll(1.0)
                found += len(batch) if batch is not None else 0


def test_offsets_without_records_before_the_stop_end_a_read(
    client: Any, broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is clear that they are not only slow to come."""
    monkeypatch.setattr(fetch, "_DOUBT_TIME", 0.05)
    broker.call("kafka", "leave_out", topic, 0, 10)
    found, deadline = 0, time.monotonic() + SOON
    with client.reader(topic, stop=LATEST) as reader:
        while not reader.done:
            assert time.monotonic() < deadline, "it waits for what never comes"
            batch = reader.poll(0.2)
            found += len(batch) if batch is not None else 0
        assert (found, reader.positions[topic, 0].offset) == (10, 20)


@pytest.mark.parametrize(("newest", "epoch"), [(12, 0), (11, -1)])
def test_a_fetch_tells_the_last_epoch_from_version_12_on(
    broker: DevBroker, dial: Callable[..., Any], topic: str, seen: Recording, newest: int, epoch: int
) -> None:
    with offering(broker, "Fetch", newest), dial().reader(topic) as reader:
        found = 0
        while found < 10:
            batch = reader.poll(SOON)
            assert batch is not None
            found += len(batch)
        reader.poll(0.01)
        last, *_ = seen.wait("Fetch", timeout=SOON, when=lambda one: one.message.topics[0].partitions[0].fetch_offset == 10)
    assert (last.version, last.message.topics[0].partitions[0].last_fetched_epoch) == (newest, epoch)


def test_a_reader_that_is_closed_has_no_connection_of_its_own_any_more(client: Any, topic: str) -> None:
    with client.reader(topic) as reader:
        assert len(reader.poll(SOON)) == 10
        (node,) = client.cluster.metadata.nodes.values()
        own = client.cluster.pool.peek(node.address, reader._fetcher._purpose)
        assert not own.closed
    assert own.closed
    assert own not in client.loop.connections


def test_a_reader_begins_when_it_is_connected(client: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it is time to doubt that it will be."""
    monkeypatch.setattr(fetcher, "_LOOK_EVERY", 10 * SOON)
    with client.reader(topic) as reader:
        assert reader.poll(SOON) is not None


def test_a_node_that_owes_an_answer_is_doubted_after_its_time_and_then_each_second(client: Any, topic: str) -> None:
    with client.reader(topic, start=LATEST, max_wait=0.5) as reader:
        hands = reader._fetcher
        before = time.monotonic()
        while not hands._calls:
            assert reader.poll(0.01) is None
        (node,) = hands._calls
        assert before + 0.5 + 2.0 <= hands._overdue[node] <= time.monotonic() + 0.5 + 2.0
        now = time.monotonic() + 60.0
        hands._doubt_silent(now)
        assert hands._overdue[node] == now + 1.0
        assert hands.asking.stale == {topic}


@pytest.mark.parametrize("route", ["to the leader", "by leaders"])
def test_a_partition_that_is_not_there_is_told_from_one_without_a_leader(client: Any, topic: str, route: str) -> None:
    cluster, until = client.cluster, time.monotonic() + SOON
    steps = cluster.to_leader(topic, 7)(until) if route == "to the leader" else by_leader(cluster, [(topic, 7)], until)
    with pytest.raises(UnknownTopicOrPartition) as told:
        cluster.drive(steps, until)
    assert (told.value.topic, told.value.partition) == (topic, 7)


def test_what_an_old_broker_is_asked_of_a_topic_is_that_topic(
    broker: DevBroker, dial: Callable[..., Any], topic: str, seen: Recording
) -> None:
    """In the first version no topics mean all of them."""
    with offering(broker, "Metadata", 0):
        old = dial()
        assert [one.partition for one in old.admin().describe_topic(topic).partitions] == [0]
        assert {tuple(one.name for one in told.message.topics or ()) for told in seen.requests("Metadata")} == {(topic,)}
        assert topic in old.admin().list_topics()
        assert not seen.requests("Metadata")[-1].message.topics
