"""Fetch sessions on the embedded broker: what idle partitions cost, and what becomes of records when a session ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto import EARLIEST, LATEST, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.kafka import fetcher
from wireproto.kafka.sessions import FROM

_numbers = itertools.count()


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), max_wait=0.02, request_timeout=2.0) as made:
        yield made


def made(client: Any, partitions: int) -> str:
    name = f"sessions-{next(_numbers)}"
    client.admin().create_topic(name, partitions=partitions)
    return name


def kept(broker: DevBroker) -> int:
    """How many sessions the broker keeps."""
    count: int = broker.call("kafka", "sessions_kept")
    return count


def numbers(reader: Any, count: int, *, faults: Any = None) -> list[int]:
    """The values of so many records, as they come."""
    found: list[int] = []

    def enough() -> bool:
        if faults is not None:
            faults(len(found))
        batch = reader.poll(0.1)
        found.extend(int(value) for value in batch.values()) if batch is not None else None
        return len(found) >= count

    until(enough)
    return found


@pytest.mark.parametrize(("role", "partitions"), [("reader", 2000), ("consumer", 300)])
def test_idle_partitions_cost_nothing_to_ask_for(broker: DevBroker, client: Any, role: str, partitions: int) -> None:
    """Each Fetch and its answer would be 100 kB. Where a broker is late a new session begins, which names all in its first two."""
    name = made(client, partitions)
    with client.reader(name, start=LATEST) if role == "reader" else client.consumer(name, f"g-{name}", start=LATEST) as ours:
        until(lambda: ours.poll(0.05) is None and kept(broker) == 1)
        seen = broker.record("kafka")

        def idle() -> bool:
            return len(seen.replies("Fetch")) >= 12 and not any(request.message.topics for request in seen.requests("Fetch")[-10:])

        until(lambda: ours.poll(0.05) is None and idle())
        requests, replies = seen.requests("Fetch")[2:], seen.replies("Fetch")[-10:]
        assert {request.message.session_epoch for request in requests if request.message.topics} <= {0, 1}
        small = [request for request in requests if not request.message.topics]
        assert max(len(request.frame) for request in small) + max(len(reply.frame) for reply in replies) < 200
        with client.producer(name) as producer:
            producer.send(b"1", partition=partitions // 3)
        assert numbers(ours, 1) == [1]
    until(lambda: kept(broker) == 0)


def test_a_few_partitions_take_none_of_the_broker_s_places(broker: DevBroker, client: Any) -> None:
    name = made(client, FROM - 1)
    with client.producer(name) as producer, client.reader(name) as reader:
        producer.send(b"1")
        assert numbers(reader, 1) == [1]
        assert kept(broker) == 0


def test_a_broker_without_a_place_left_is_read_all_the_same(broker: DevBroker, client: Any) -> None:
    broker.call("kafka", "limit_sessions", 1)
    name = made(client, 20)
    with client.reader(name) as first, client.reader(name) as second, client.producer(name) as producer:
        until(lambda: first.poll(0.05) is None and kept(broker) == 1)
        for number in range(100):
            producer.send(b"%d" % number, partition=number % 20)
        assert [sorted(numbers(reader, 100)) for reader in (second, first)] == [[*range(100)]] * 2
        assert kept(broker) == 1


@pytest.mark.parametrize("fault", ["restart", "forgotten", "cut", "silent", "another epoch"])
def test_a_session_that_ends_costs_no_record_and_repeats_none(broker: DevBroker, client: Any, fault: str) -> None:
    name = made(client, 20)
    times = itertools.count(50, 1500 if fault == "silent" else 300)
    following = next(times)

    def hurt(found: int) -> None:
        nonlocal following
        if found < following:
            return
        following = next(times)
        if fault == "restart":
            broker.pause("kafka")
            broker.resume("kafka")
        elif fault == "forgotten":
            broker.call("kafka", "forget_sessions")
        elif fault == "another epoch":
            broker.call("kafka", "forget_sessions", epochs=True)
        elif fault == "cut":
            broker.faults("kafka").lose_reply("Fetch")
        else:
            broker.faults("kafka").stall("Fetch")

    with client.producer(name, batch_size=200) as producer, client.reader(name) as reader:
        for number in range(3000):
            producer.send(b"%d" % number, partition=number % 20)
        found = numbers(reader, 3000, faults=hurt)
        assert sorted(found) == [*range(3000)]
        for partition in range(20):
            mine = [number for number in found if number % 20 == partition]
            assert mine == sorted(mine)
        producer.send(b"3000")
        assert numbers(reader, 1) == [3000]


def test_a_paused_partition_is_not_sent_and_goes_on_where_it_was(broker: DevBroker, client: Any) -> None:
    name = made(client, 20)
    with client.consumer(name, f"g-{name}") as consumer, client.producer(name) as producer:
        until(lambda: consumer.poll(0.05) is None and kept(broker) == 1)
        consumer.pause([(name, 3)])
        for number in range(40):
            producer.send(b"%d" % number, partition=number % 20)
        assert sorted(numbers(consumer, 38)) == [number for number in range(40) if number % 20 != 3]
        consumer.resume([(name, 3)])
        assert numbers(consumer, 2) == [3, 23]


def test_a_seek_to_the_end_and_back_reads_what_is_there(broker: DevBroker, client: Any) -> None:
    """The broker does not tell again where the log ends."""
    name = made(client, 20)
    with client.consumer(name, f"g-{name}") as consumer, client.producer(name) as producer:
        for number in range(40):
            producer.send(b"%d" % number, partition=number % 20)
        assert sorted(numbers(consumer, 40)) == [*range(40)]
        for _ in range(3):
            consumer.seek(LogOffset(name, 7, 0))
            assert numbers(consumer, 2) == [7, 27]
            consumer.seek(LogOffset(name, 7, 2))
            assert consumer.poll(0.1) is None


@pytest.mark.parametrize("newest", [4, 6, 7, 11])
def test_older_brokers_are_read_with_and_without(broker: DevBroker, client: Any, newest: int) -> None:
    broker.call("kafka", "offer", "Fetch", newest)
    name = made(client, 20)
    with client.producer(name) as producer, client.reader(name) as reader:
        until(lambda: reader.poll(0.05) is None and kept(broker) == (newest >= 7))
        for number in range(40):
            producer.send(b"%d" % number, partition=number % 20)
        assert sorted(numbers(reader, 40)) == [*range(40)]


def test_what_has_come_is_handed_out_without_a_look_at_every_partition_each_time(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "_FULL", 600.0)
    name, partitions = made(client, 300), 300
    with client.producer(name) as producer, client.reader(name, start=EARLIEST) as reader:
        asking = reader._fetcher.asking
        find, looks = asking.leader, itertools.count()

        def counted(cursor: Any) -> Any:
            next(looks)
            return find(cursor)

        asking.leader = counted
        for turn in range(3):
            for number in range(partitions):
                producer.send(b"%d" % (turn * partitions + number), partition=number)
            producer.flush()
            assert sorted(numbers(reader, partitions)) == [*range(turn * partitions, (turn + 1) * partitions)]
    assert next(looks) < 30 * partitions
