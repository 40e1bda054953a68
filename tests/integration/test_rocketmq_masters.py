"""One of two RocketMQ masters silent or away, resets as 5.x brokers keep them by default, and kinds of topics that only 5.x has."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from patience import LONG, until
from wireproto._codec import RocketBatchBuilder
from wireproto.errors import TimedOut, TransportError, ValueUnsupported
from wireproto.position import EARLIEST, LATEST, QueueOffset
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.errors import NoMaster
from wireproto.rocketmq.messages import (
    GetBrokerClusterInfoRequest,
    InvokeBrokerToResetOffsetRequest,
    SendBatchMessageRequest,
    UnregisterBrokerRequest,
    UpdateBrokerConfigRequest,
)

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
_numbers = itertools.count()


@pytest.fixture
def client(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: RocketClient) -> str:
    """Two queues on each broker."""
    name = f"masters-{next(_numbers)}"
    client.admin().create_topic(name, partitions=4)
    until(lambda: len(client.cluster.route(name, client.deadline(10.0), fresh=True).queues) == 4)
    return name


@pytest.fixture
def second(broker: RocketMQ) -> Iterator[Any]:
    """The process of broker-b, which goes on when the test ends."""
    yield broker.servers[2]
    broker.servers[2].resume()


def taken(consumer: Any, count: int, patience: float = 60.0) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        batch = consumer.poll(0.3)
        found.extend(batch.values() if batch is not None else [])
        return len(found) >= count

    until(more, limit=patience)
    return found


def owners(client: RocketClient, topic: str) -> list[str]:
    """The broker of each partition."""
    return [queue.broker for queue in client.cluster.route(topic, client.deadline(10.0)).queues]


def test_who_reads_goes_on_with_the_other_broker_when_one_is_killed(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    with client.producer(topic) as producer, client.consumer(topic, f"g-{topic}") as consumer, client.reader(topic) as reader:
        for n in range(4):
            producer.send(b"%d" % n, partition=n).position(30.0)
        assert len(taken(consumer, 4)) == len(taken(reader, 4)) == 4
        broker.kill(2)
        try:
            for n in range(40):
                producer.send(b"alone %d" % n, partition=n % 2).position(30.0)
            assert len(taken(consumer, 40)) == 40
            assert len(taken(reader, 40)) == 40
            free = [producer.send(b"free %d" % n) for n in range(20)]
            assert {owners(client, topic)[receipt.position(30.0).partition] for receipt in free} == {"broker-a"}
            assert len(taken(consumer, 20)) == 20
        finally:
            broker.start(2)
        producer.send(b"back", partition=3).position(60.0)
        assert taken(consumer, 1) == [b"back"]


def test_a_bounded_read_waits_for_the_broker_that_left(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """Where a queue ends that no route names, nobody can say before its broker is back: a passing trouble, and no wrong option."""
    with client.producer(topic) as producer:
        for n in range(4):
            producer.send(b"%d" % n, partition=n).position(30.0)
    places = {(topic, n): QueueOffset(topic, n, 0, name, n % 2) for n, name in enumerate(owners(client, topic))}
    broker.stop(2)
    try:
        until(lambda: {queue.broker for queue in client.cluster.route(topic, client.deadline(10.0), fresh=True).readable()} == {"broker-a"})
        for start in (places, EARLIEST):
            with pytest.raises((TransportError, NoMaster)):
                client.reader(topic, start=start, stop=LATEST, timeout=2.0)
        with ThreadPoolExecutor(2) as threads:
            opening = [threads.submit(client.reader, topic, start=start, stop=LATEST, timeout=120.0) for start in (places, EARLIEST)]
            broker.start(2)
            for made in opening:
                with made.result(120.0) as reader:
                    assert sorted(value for batch in reader for value in batch.values() if value) == [b"0", b"1", b"2", b"3"]
    finally:
        broker.start(2)


def test_a_silent_broker_holds_neither_its_own_records_nor_those_of_others_for_ever(client: RocketClient, topic: str, second: Any) -> None:
    """Its sockets stay open: nothing is refused, nothing is lost, nothing is answered."""
    with client.producer(topic, request_timeout=1.0, delivery_timeout=10.0) as producer:  # longer than the other one stands still
        for n in range(4):
            producer.send(b"%d" % n, partition=n).position(30.0)
        second.pause()
        begun = time.monotonic()
        receipt = producer.send(b"in vain", partition=3)
        assert producer.send(b"beside", partition=0).position(30.0).partition == 0
        with pytest.raises((TimedOut, TransportError)):
            receipt.position(LONG)
        assert 9.5 <= time.monotonic() - begun < 30.0
        producer.flush(30.0)
        second.resume()
        until(lambda: producer.send(b"again", partition=3).position(30.0).partition == 3)


def test_a_member_goes_on_without_the_name_server_and_without_the_first_broker(broker: RocketMQ, topic: str) -> None:
    """First both name servers are silent, then the broker that is asked first for whatever any may tell; longer than a route is young."""
    brisk = {"rebalance_interval": 0.5, "heartbeat_interval": 0.5}
    with (
        wireproto.connect(broker.url, route_age=0.3, request_timeout=2.0) as member,
        member.consumer(topic, f"g-{topic}", **brisk) as consumer,
        wireproto.connect(broker.url) as writer,
        writer.producer(topic) as producer,
    ):
        for silent, partitions in (((0, 3), (0, 1, 2, 3)), ((1,), (2, 3))):
            number = itertools.count()
            for server in silent:
                broker.servers[server].pause()
            try:
                end = time.monotonic() + 6.0
                while time.monotonic() < end:
                    values = [b"%d %d" % (silent[0], next(number)) for _ in range(8)]
                    for at, value in enumerate(values):
                        producer.send(value, partition=partitions[at % len(partitions)]).position(30.0)
                    assert sorted(taken(consumer, 8)) == sorted(values)
                    time.sleep(0.2)  # so some twenty times, and not as often as a processor can
            finally:
                for server in silent:
                    broker.servers[server].resume()
        producer.send(b"back", partition=0).position(60.0)
        assert taken(consumer, 1) == [b"back"]
        consumer.commit()


def test_a_broker_that_the_name_server_has_forgotten_is_read_on(broker: RocketMQ, client: RocketClient, topic: str) -> None:
    """So it is for some seconds whenever the two have lost their connection. Nobody else can be given its queues meanwhile."""
    both = [f"127.0.0.1:{port}" for port in broker.name_server_ports]

    def listed() -> set[str]:
        return {name for address in both for name in client.request(GetBrokerClusterInfoRequest(), to=address).json()["brokerAddrTable"]}

    gone = UnregisterBrokerRequest(
        broker_name="broker-a", broker_addr=f"127.0.0.1:{broker.broker_ports[0]}", cluster_name="DefaultCluster", broker_id=0
    )
    with (
        wireproto.connect(broker.url, route_age=0.1) as member,
        member.consumer(topic, f"g-{topic}", rebalance_interval=0.2) as consumer,
        wireproto.connect(broker.url) as writer,
        writer.producer(topic) as producer,
    ):
        values = [b"%d" % n for n in range(8)]
        for n, value in enumerate(values):
            producer.send(value, partition=n % 4).position(30.0)
        assert sorted(taken(consumer, 8)) == values

        def forgotten() -> bool:
            for address in both:  # again where the broker has just told one of them of itself
                client.request(gone, to=address)
            return listed() == {"broker-b"}

        until(forgotten)
        more: list[bytes] = []
        while not more or listed() == {"broker-b"}:  # the broker tells the name server of itself each ten seconds
            producer.send(b"more", partition=0).position(30.0)
            more += taken(consumer, 1)
            assert (topic, 0) in consumer.assignment
        assert set(more) == {b"more"}, "what was handed out does not come again, nor is the queue left unread"
        producer.send(b"end", partition=1).position(60.0)
        assert taken(consumer, 1) == [b"end"]
        consumer.commit()


@pytest.mark.parametrize("where", ["backlog", "end"])
def test_a_reset_that_the_broker_keeps_is_obeyed_by_the_members(client: RocketClient, topic: str, where: str) -> None:
    """It is told with one pull's answer, whichever that is; until then commits are ignored, from then on they count."""
    group = f"g-{topic}"
    with client.producer(topic) as producer:
        for n in range(640):
            producer.send(b"%d" % n, partition=0)
    with client.consumer(topic, group, pull_suspend=1.0, batch_bytes=1) as consumer:
        taken(consumer, 64 if where == "backlog" else 640)
        consumer.commit()
        goal = 600 if where == "backlog" else 10
        client.request(
            InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True, queue_id=0, offset=goal), to=(topic, 0)
        )
        found: list[int] = []

        def there() -> bool:
            batch = consumer.poll(0.3)
            found.extend(int(value) for value in (batch.values() if batch is not None else []) if value is not None)
            return goal in found and found[-1] == 639

        until(there)
        begun = len(found) - 1 - found[::-1].index(goal)
        assert found[begun:] == list(range(goal, 640)), "from there on, each once"
        assert where == "end" or len(set(range(64, 600)) - set(found)) > 100, "what was fetched ahead is dropped"
        consumer.commit()
        assert {place.offset for key, place in consumer.committed().items() if key[1] == 0} == {640}


def test_a_reset_is_not_undone_by_positions_from_before(client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    with client.producer(topic) as producer:
        for n in range(40):
            producer.send(b"%d" % n, partition=0)
    with client.consumer(topic, group, pull_suspend=1.0) as consumer:
        taken(consumer, 40)
        client.request(
            InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True, queue_id=0, offset=5), to=(topic, 0)
        )
        found: list[bytes] = []
        while b"5" not in found:
            consumer.commit()
            batch = consumer.poll(0.3)
            found += batch.values() if batch is not None else []
    places = client.admin().group_positions(group, topic)
    assert places[topic, 0].offset == 5, "the records that come again have not been committed"


def test_a_compacted_topic_is_known_for_one(client: RocketClient) -> None:
    """The broker would acknowledge records without a key that share a command, and nobody would ever read them."""
    name = f"compacted-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2, config={"attributes": "+cleanup.policy=COMPACTION"})
    with client.producer(name) as producer:
        with pytest.raises(ValueUnsupported, match="key"):
            producer.send(b"lost")
        assert producer.send(b"kept", key=b"k").position(30.0).offset == 0


def test_a_stop_within_what_is_stored_as_one_is_kept(client: RocketClient) -> None:
    """A queue of batches (5.x) keeps what Java's `batch` sends as one message, and gives it out whole from any offset in it."""
    name = f"batches-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2, config={"attributes": "+queue.type=BatchCQ"})
    for first in (0, 10):
        body = RocketBatchBuilder()
        for number in range(first, first + 10):
            body.append(b"%d" % number, unique_id=f"id{number}")
        send = SendBatchMessageRequest(
            producer_group="g", topic=name, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0, sys_flag=0,
            born_timestamp=1, flag=0, properties=f"UNIQ_KEY\x01batch{first}\x02", batch=True,
        )  # fmt: skip
        client.request(send, body=body.finish(), to=(name, 0))
    for start, stop in ((0, 5), (5, 15), (12, 13), (0, 20)):
        places = {word: {(name, 0): QueueOffset(name, 0, at, "broker-a", 0)} for word, at in (("start", start), ("stop", stop))}
        with client.reader(name, **places) as reader:
            assert [value for batch in reader for value in batch.values()] == [b"%d" % number for number in range(start, stop)]
            assert reader.positions == places["stop"]


def test_a_broker_that_is_drained_is_left(client: RocketClient) -> None:
    """An operator takes its right to be written to, which holds at once for topics that are in order; in the route it changes later."""
    topic = f"masters-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=4, config={"order": "true"})
    until(lambda: len(client.cluster.route(topic, client.deadline(10.0), fresh=True).queues) == 4)
    with client.producer(topic) as producer:
        for n in range(4):
            producer.send(b"%d" % n, partition=n).position(30.0)
        client.request(UpdateBrokerConfigRequest(), body="brokerPermission=4\n", to="broker-b")
        try:
            receipts = [producer.send(b"%d" % n, timestamp=n) for n in range(40)]
            assert {owners(client, topic)[receipt.position(30.0).partition] for receipt in receipts} == {"broker-a"}
        finally:
            client.request(UpdateBrokerConfigRequest(), body="brokerPermission=6\n", to="broker-b")
        places = set()

        def both() -> bool:
            time.sleep(0.2)  # its route is young for half a minute
            places.add(owners(client, topic)[producer.send(b"x").position(30.0).partition])
            return len(places) == 2

        until(both)
