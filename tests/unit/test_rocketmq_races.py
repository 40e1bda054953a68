"""RocketMQ's roles where brokers are late and threads cross: queues that show a record after its receipt, commands without an answer."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto._net import Event
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.net.task import Steps
from wireproto.position import LATEST, LogOffset
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import PullOffsetMoved, TopicNotExist
from wireproto.rocketmq.consumer import RocketConsumer

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["rocketmq"], auto_create=False) as started:
        yield started


@pytest.fixture
def client(broker: DevBroker) -> Iterator[RocketClient]:
    """Looks at the members of a group when it is called, and not again within the test."""
    with wireproto.connect(broker.url("rocketmq"), rebalance_interval=300.0) as opened:
        yield opened
        broker.call("rocketmq", "show_queues")
        broker.faults("rocketmq").clear()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"races-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    return name


def put(client: RocketClient, topic: str, count: int, start: int = 0) -> list[LogOffset]:
    """So many numbered records, queue by turn; their places as acknowledged."""
    with client.producer(topic) as out:
        receipts = [out.send(b"%d" % n, partition=n % 2) for n in range(start, start + count)]
        return [receipt.position(30.0) for receipt in receipts]


@pytest.mark.parametrize("moved", ["raise", "earliest", "latest"])
def test_a_place_that_is_acknowledged_is_waited_for(broker: DevBroker, client: RocketClient, topic: str, moved: str) -> None:
    """A broker says "no such offset" of a record that its queue does not show yet: it is neither gone nor to be passed over."""
    broker.call("rocketmq", "hold_queues")
    place = put(client, topic, 20)[16]
    with client.reader(topic, start=place, reset=moved) as reader:
        for seconds in (0.0, 0.05, 0.3):
            assert reader.poll(seconds) is None
        broker.call("rocketmq", "show_queues")
        batch = None
        deadline = time.monotonic() + 60
        while batch is None and time.monotonic() < deadline:
            batch = reader.poll(0.5)
        assert batch is not None
        assert batch.values() == [b"16", b"18"]


def test_a_place_that_never_was_is_told(client: RocketClient, topic: str) -> None:
    put(client, topic, 4)
    with client.reader(topic, start=LogOffset(topic, 0, 1000)) as reader:
        for _ in range(2):
            with pytest.raises(PullOffsetMoved, match="holds 0 up to 2"):
                reader.poll(30.0)
    with client.reader(topic, start=LogOffset(topic, 0, 1000), reset="earliest") as reader:
        assert reader.poll(30.0).values() == [b"0", b"2"]


def test_a_consumer_s_latest_lies_behind_what_is_acknowledged(broker: DevBroker, client: RocketClient, topic: str) -> None:
    with client.consumer(topic, f"g-{topic}") as consumer:
        broker.call("rocketmq", "hold_queues")
        put(client, topic, 4)
        for ask in (lambda: consumer.seek(LATEST, timeout=0.2), lambda: consumer.lag(timeout=0.2)):
            with pytest.raises(TimedOut):
                ask()
        broker.call("rocketmq", "show_queues")
        assert sorted(consumer.lag().values()) == [2, 2]
        consumer.seek(LATEST)
        assert sorted(consumer.lag().values()) == [0, 0]


def drained(consumer: RocketConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        batch = consumer.poll(0.3)
        found.extend(batch.values() if batch is not None else [])
        return len(found) >= count

    until(more)
    return sorted(found)


def test_all_queues_are_set_back_though_a_commit_is_not_answered(broker: DevBroker, client: RocketClient, topic: str) -> None:
    put(client, topic, 6)
    with client.consumer(topic, f"g-{topic}") as consumer:
        assert len(drained(consumer, 6)) == 6
        consumer.commit()
        broker.faults("rocketmq").drop("UpdateConsumerOffset")
        consumer._assignment.member.reset({(topic, queue.broker, queue.queue_id): 1 for queue in consumer._assignment.asked_for().values()})
        assert drained(consumer, 4) == [b"2", b"3", b"4", b"5"]
        assert {place.offset for place in consumer.committed().values()} == {1}
        consumer.commit()
        assert {place.offset for place in consumer.committed().values()} == {3}


def test_queues_that_come_are_read_though_the_first_look_at_one_failed(broker: DevBroker, client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    with client.consumer(topic, group) as first:
        with client.consumer(topic, group) as second:
            until(lambda: (first.poll(0.1), second.poll(0.1), len(first.assignment) == len(second.assignment) == 1)[2])
        broker.faults("rocketmq").drop("QueryConsumerOffset")
        until(lambda: (first.poll(0.1), len(first.assignment) == 2)[1])


def test_a_heartbeat_that_crosses_with_close_leaves_no_member(client: RocketClient, topic: str, monkeypatch: Any) -> None:
    consumer = client.consumer(topic, f"g-{topic}")
    begun, go, connecting = threading.Event(), Event(client.loop), client.cluster.connecting

    def late(*asked: Any) -> Steps[Any]:
        if not begun.is_set():
            begun.set()
            yield go
        return (yield from connecting(*asked))

    monkeypatch.setattr(client.cluster, "connecting", late)
    beating = client.cluster.tasks.spawn(consumer._assignment.member._beat_quietly(), "beating")
    assert begun.wait(60)
    consumer.close()
    go.set()
    beating.wait(time.monotonic() + 60)
    until(lambda: client.admin().describe_group(f"g-{topic}").members == ())


@pytest.mark.parametrize("role", ["consumer", "queue"])
def test_a_topic_that_the_name_servers_do_not_know_for_a_while_is_waited_for(
    broker: DevBroker, client: RocketClient, topic: str, role: str
) -> None:
    """They forget the topics of a broker that is away."""
    seconds = {"rebalance_interval": 0.05, "recovery_timeout": 600.0}
    put(client, topic, 2)
    with wireproto.connect(broker.url("rocketmq"), route_age=0.05) as other:
        opened = getattr(other, role)(topic, f"g-{topic}", **seconds)
        take = opened.poll if role == "consumer" else opened.receive
        until(lambda: take(0.2) is not None)
        client.admin().delete_topic(topic)
        begun = time.monotonic()
        while time.monotonic() < begun + 0.5:
            take(0.05)
        client.admin().create_topic(topic, partitions=2)
        put(client, topic, 8, 100)
        until(lambda: take(0.2) is not None)


def test_a_topic_that_is_gone_for_good_is_told(broker: DevBroker, client: RocketClient, topic: str) -> None:
    with wireproto.connect(broker.url("rocketmq"), route_age=0.05) as other:
        consumer = other.consumer(topic, f"g-{topic}", rebalance_interval=0.05, recovery_timeout=0.3)
        client.admin().delete_topic(topic)
        with pytest.raises(TopicNotExist):
            until(lambda: consumer.poll(0.1) is not None)


def test_a_share_is_taken_by_polls_shorter_than_a_connection_takes(broker: DevBroker, client: RocketClient, topic: str) -> None:
    """Over a long way, with TLS, a connection takes longer than a rebalance within a short poll may."""
    group = f"g-{topic}"
    with client.consumer(topic, group) as first:
        with client.consumer(topic, group) as second:
            until(lambda: (first.poll(0.1), second.poll(0.1), len(first.assignment) == len(second.assignment) == 1)[2])
        main = client.cluster.peek(broker.address("rocketmq", "broker"))
        assert main is not None
        broker.faults("rocketmq").delay("HeartBeat", 1.0, times=-1)
        client.cluster.pool.drop(main)
        until(lambda: (first.poll(0.1), len(first.assignment) == 2)[1])


def test_records_that_were_deleted_while_they_were_read_are_told(broker: DevBroker, client: RocketClient, topic: str) -> None:
    """A broker answers 20, as for what a filter leaves out, with the place behind them: without a filter they are lost."""
    put(client, topic, 20)
    for moved, wanted in (("earliest", [b"10", b"12", b"14", b"16", b"18"]), ("latest", [b"new"]), ("raise", None)):
        broker.call("rocketmq", "remove_while_read", topic, 0, 5)
        start = {(topic, 0): LogOffset(topic, 0, 0)}
        with client.reader(topic, start=start, reset=moved, pull_ahead=3) as reader:
            if wanted is None:
                with pytest.raises(PullOffsetMoved, match="gone"):
                    until(lambda: reader.poll(0.2) is not None)
                continue
            found: list[bytes] = []
            while len(found) < len(wanted):
                batch = reader.poll(0.2)
                found += batch.values() if batch is not None else []
                if moved == "latest" and batch is None and not found:
                    client.producer(topic).send(b"new", partition=0).position(30.0)
            assert (found[:1] if moved == "latest" else found) == wanted  # that one is sent until it comes, perhaps twice
            assert set(found) == set(wanted)


def test_a_worker_that_has_all_it_may_have_in_hand_stays_a_member(client: RocketClient, topic: str) -> None:
    put(client, topic, 4)
    with client.queue(topic, f"g-{topic}", max_unacked=1, max_poll_interval=2.0) as worker:
        held = None
        deadline = time.monotonic() + 60
        while held is None:
            assert time.monotonic() < deadline
            held = worker.receive(0.2)
        assert worker.receive(5.0) is None, "no more before that one is ended"
        held.ack()
