"""Kafka's readers on the embedded broker: how much they hold."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from kafka_nodes import SecondNode
from patience import KEPT, LATE, soon, until
from wireproto import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.errors import ConnectError, WireprotoError
from wireproto.kafka.codes import CorruptMessage, KafkaStorageError, UnknownServerError, UnknownTopicOrPartition

ROOM, PART = 200_000, 50_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), fetch_memory=ROOM, partition_bytes=PART, max_wait=0.05) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """Six partitions of 300 kB, in batches of some 10 kB."""
    name = f"reading-{next(_numbers)}"
    client.admin().create_topic(name, partitions=6)
    with client.producer(name, batch_size=10_000) as producer:
        for number in range(6 * 300):
            producer.send(b"%06d" % number + b"x" * 1000, partition=number % 6)
    return name


def count(reader: Any) -> tuple[int, int]:
    """Records up to the end, and the most that the client held meanwhile."""
    found = most = 0
    for batch in reader:
        found += len(batch)
        most = max(most, reader._cluster.fetch_budget.held)
    return found, most


def test_readers_of_a_client_keep_to_one_bound_and_give_it_back(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as first, client.reader(topic, stop=LATEST) as second:
        for _ in range(3):  # the first one holds what it can
            assert first.poll(5.0) is not None
        found, most = count(second)
        assert found == 1800, "a reader that holds nothing always comes on"
        assert most <= ROOM + PART
        found, most = count(first)
        assert 0 < found < 1800
        assert most <= ROOM + PART
    assert client.cluster.fetch_budget.held == 0


def test_a_closed_and_a_dropped_reader_give_back_what_they_held(client: Any, topic: str) -> None:
    reader = client.reader(topic, stop=LATEST)
    assert reader.poll(5.0) is not None
    assert client.cluster.fetch_budget.held > 0
    reader.close()
    assert client.cluster.fetch_budget.held == 0


def test_a_paused_partition_does_not_hold_up_the_others(client: Any, topic: str) -> None:
    with client.consumer(topic, f"group-{topic}") as consumer:
        deadline = time.monotonic() + 30
        found = 0
        paused: set[Any] = set()
        while found < 1500 and time.monotonic() < deadline:
            batch = consumer.poll(1.0)
            if batch is None:
                continue
            if not paused:
                paused = {(topic, (batch.partition + 1) % 6)}
                consumer.pause(paused)
            if (topic, batch.partition) in paused:
                continue
            found += len(batch)
        assert found == 1500
        consumer.resume(paused)
        while found < 1800 and time.monotonic() < deadline:
            batch = consumer.poll(1.0)
            found += len(batch) if batch is not None else 0
        assert found == 1800
    assert client.cluster.fetch_budget.held == 0


@pytest.mark.parametrize(("slow", "partitions"), [(2, range(6)), (25, [3])])
def test_records_that_are_slow_to_come_are_waited_for(client: Any, broker: DevBroker, topic: str, slow: int, partitions: Any) -> None:
    """Remote storage that takes longer than the broker waits: answers without records and without an error, fewer or more than it
    takes to doubt that there are any."""
    for partition in partitions:
        broker.call("kafka", "move_away", topic, partition, 250, slow=slow)
    with client.reader(topic, stop=LATEST, partitions=partitions) as reader:
        assert count(reader)[0] == 300 * len(partitions)


def test_a_log_that_ends_in_offsets_without_records_ends_a_read_and_the_log_says_so(
    client: Any, broker: DevBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(6):
        broker.call("kafka", "leave_out", topic, partition, 10)
    began = time.monotonic()
    with client.reader(topic, stop=LATEST) as reader:
        assert count(reader)[0] == 1800
        assert {place.offset for place in reader.positions.values()} == {310}
    assert time.monotonic() - began < 10.0 + KEPT
    for partition in range(6):
        told = f"{topic}[{partition}]: offsets 300 to 309 hold no record"
        assert [record.levelname for record in caplog.records if record.getMessage().startswith(told)] == ["WARNING"]


def test_partitions_of_one_leader_are_served_alike(broker: DevBroker) -> None:
    """Its answers are full before it comes to the last of them, in the order of the request."""
    name, parts = f"reading-{next(_numbers)}", 24
    with wireproto.connect(broker.url("kafka"), partition_bytes=20_000, max_bytes=150_000, max_wait=0.05) as client:
        client.admin().create_topic(name, partitions=parts)
        with client.producer(name, batch_size=5_000) as producer:
            for number in range(parts * 200):
                producer.send(b"%06d" % number + b"x" * 1000, partition=number % parts)
        with client.reader(name, stop=LATEST) as reader:
            found: Counter[int] = Counter()
            while found.total() < parts * 200 // 4:
                batch = reader.poll(5.0)
                assert batch is not None
                found[batch.partition] += len(batch)
            assert min(found[partition] for partition in range(parts)) >= found.total() / parts / 2, found
            assert found.total() + count(reader)[0] == parts * 200


def test_a_paused_partition_lets_the_others_wait_for_news(broker: DevBroker) -> None:
    """It does not wait for room, so its leader need not hurry."""
    name = f"reading-{next(_numbers)}"
    with wireproto.connect(broker.url("kafka"), max_wait=0.05) as client:
        client.admin().create_topic(name, partitions=6)
        with client.consumer(name, f"group-{name}") as consumer:
            while not consumer.assignment:
                consumer.poll(0.1)
            consumer.pause([(name, 3)])
            seen, until = broker.record("kafka"), time.monotonic() + 30
            asked: list[Any] = []
            while len(asked) < 3 and time.monotonic() < until:
                consumer.poll(0.1)
                fetches = (request.message for request in seen.requests("Fetch"))
                asked = list(itertools.dropwhile(lambda fetch: len(fetch.topics[0].partitions) == 6, fetches))  # what was on its way ends
            assert {(len(fetch.topics[0].partitions), fetch.max_wait_ms) for fetch in asked} == {(5, 50)}


@pytest.fixture
def second_node(monkeypatch: pytest.MonkeyPatch) -> SecondNode:
    return SecondNode(monkeypatch)


def test_a_node_that_cannot_be_reached_holds_up_no_other(broker: DevBroker, topic: str, second_node: SecondNode) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        wireproto.connect(broker.url("kafka"), partition_bytes=20_000, max_wait=0.05) as client,
        client.reader(topic, stop=LATEST, partitions=[0, 1]) as reader,
    ):
        second_node(client.cluster.metadata, topic, 1, *silent.getsockname())
        began, found = time.monotonic(), 0
        while found < 300:
            batch = reader.poll(20.0)
            assert batch is not None
            found += len(batch)
        assert time.monotonic() - began < 5.0 + LATE, "fifteen Fetches"
        assert not reader.done


def test_a_leader_that_refuses_is_looked_up_and_told_when_no_other_comes(broker: DevBroker, topic: str, second_node: SecondNode) -> None:
    """The other nodes answer, and go on naming it."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = gone.getsockname()
    with (
        wireproto.connect(broker.url("kafka"), max_wait=0.05, request_timeout=1.0) as client,
        client.reader(topic, partitions=[3]) as reader,
    ):
        second_node(client.cluster.metadata, topic, 3, *nowhere)
        seen = broker.record("kafka")
        with pytest.raises(ConnectError, match=str(nowhere[1])):
            until(lambda: reader.poll(0.05) is not None, limit=20.0)
        assert seen.requests("Metadata")


def test_a_leader_that_falls_silent_is_left_for_the_next_one(broker: DevBroker, topic: str, second_node: SecondNode) -> None:
    """Long before it has to answer; what it may still say is dropped."""
    port = int(broker.url("kafka").rpartition(":")[2])
    with wireproto.connect(broker.url("kafka"), max_wait=0.05) as client, client.reader(topic, stop=LATEST, partitions=[3]) as reader:
        seen = broker.record("kafka")
        broker.faults("kafka").stall("Fetch")
        threading.Thread(
            target=lambda: (seen.wait("Fetch", timeout=20.0), second_node(client.cluster.metadata, topic, 3, "localhost", port))
        ).start()
        began = time.monotonic()
        batch = reader.poll(25.0)
        assert batch is not None
        assert time.monotonic() - began < 10.0 + KEPT
        assert len(batch) + count(reader)[0] == 300


def polled(reader: Any, seconds: float, enough: int = 1 << 62) -> tuple[int, WireprotoError | None]:
    """What comes within that time, until it is enough: records, and what was raised."""
    found, until = 0, time.monotonic() + seconds
    while found < enough and time.monotonic() < until and not reader.done:
        try:
            batch = reader.poll(0.2)
        except WireprotoError as why:
            return found, why
        found += len(batch) if batch is not None else 0
    return found, None


def test_who_asks_for_positions_is_soon_told_of_a_topic_that_was_known_and_is_deleted(client: Any, broker: DevBroker, topic: str) -> None:
    """Of one that was never known, too; not when the time is over."""
    client.admin().describe_topic(topic)
    with wireproto.connect(broker.url("kafka")) as other:
        other.admin().delete_topic(topic)
    began = time.monotonic()
    with pytest.raises(UnknownTopicOrPartition):
        client.admin().positions(topic, {(topic, 0): LATEST, (topic, 1): LATEST}, timeout=60.0)
    assert time.monotonic() - began < 30.0


def test_a_reader_with_a_stop_is_told_of_a_topic_that_is_deleted_meanwhile(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        assert reader.poll(5.0) is not None
        client.admin().delete_topic(topic)
        _, why = polled(reader, 20.0)
        assert isinstance(why, UnknownTopicOrPartition)


def test_a_broken_copy_at_the_leader_is_raised(client: Any, broker: DevBroker, topic: str) -> None:
    with client.reader(topic, partitions=[2]) as reader:
        broker.faults("kafka").error("Fetch", CorruptMessage.code)
        found, why = polled(reader, 20.0)
        assert found == 0
        assert isinstance(why, CorruptMessage)
        assert polled(reader, 1.0)[1] is None, "whoever goes on asks again"


def test_trouble_of_a_remote_storage_passes(client: Any, broker: DevBroker, topic: str) -> None:
    """It is answered with -1."""
    with client.reader(topic, stop=LATEST) as reader:
        broker.faults("kafka").error("Fetch", UnknownServerError.code, times=3)
        assert polled(reader, 20.0) == (1800, None)


def test_a_reader_with_a_stop_is_told_of_trouble_that_lasts(broker: DevBroker, topic: str, caplog: Any) -> None:
    """Who follows the log waits until it passes. Both are logged."""
    with (
        wireproto.connect(broker.url("kafka"), request_timeout=1.0) as client,
        client.reader(topic, stop=LATEST) as reader,
        client.reader(topic) as follower,
    ):
        broker.faults("kafka").error("Fetch", KafkaStorageError.code, times=1000)
        found, why = polled(reader, 20.0)
        assert found == 0
        assert isinstance(why, KafkaStorageError)
        assert polled(follower, 2.0) == (0, None)
        broker.faults("kafka").clear()
        assert polled(follower, 30.0, 1800) == (1800, None)
    assert any("has not been read for" in record.message and "KAFKA_STORAGE_ERROR" in record.message for record in caplog.records)


@pytest.mark.parametrize("ms", [-1, -10, -(10**12)])
def test_a_time_before_1970_is_before_every_record(client: Any, ms: int) -> None:
    """Kafka has such numbers for the ends of a log: -1 is the place after its last record."""
    name = f"reading-{next(_numbers)}"
    client.admin().create_topic(name)
    with client.producer(name) as producer:
        for number in range(5):
            producer.send(b"%d" % number)
    assert client.admin().positions(name, AtTime(ms)) == {(name, 0): LogOffset(name, 0, 0)}
    with client.reader(name, start=AtTime(ms), stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == [b"%d" % number for number in range(5)]
    with client.reader(name, stop=AtTime(ms)) as reader:
        assert [*reader] == []


@pytest.mark.parametrize("role", ["reader", "reader that starts at the end", "consumer that starts at the end"])
def test_partitions_that_are_added_are_read_from_their_beginning(broker: DevBroker, role: str) -> None:
    """By somebody else, who writes to them before we know."""
    name, start = f"reading-{next(_numbers)}", LATEST if "end" in role else EARLIEST
    with wireproto.connect(broker.url("kafka")) as other, wireproto.connect(broker.url("kafka"), metadata_max_age=0.2) as client:
        other.admin().create_topic(name)
        group = f"group-{name}"
        made = client.reader(name, start=start) if "reader" in role else client.consumer(name, group, start=start, auto_commit=True)
        with made as ours:
            until = soon()
            while not ours.positions:
                ours.poll(0.1)
                assert time.monotonic() < until
            broker.call("kafka", "grow", name, 3)
            with wireproto.connect(broker.url("kafka")) as newcomer, newcomer.producer(name) as producer:
                for number in range(9):
                    producer.send(b"%d" % number, partition=number % 3)
            found: list[int] = []
            until = soon()
            while len(found) < 9 and time.monotonic() < until:
                batch = ours.poll(0.5)
                found += [int(value) for value in batch.values()] if batch is not None else []
            assert sorted(found) == [*range(9)]


def test_a_reader_of_named_partitions_or_with_a_stop_keeps_to_those(broker: DevBroker) -> None:
    name = f"reading-{next(_numbers)}"
    with wireproto.connect(broker.url("kafka"), metadata_max_age=0.05) as client:
        client.admin().create_topic(name)
        with client.reader(name, stop=LATEST) as bounded, client.reader(name, partitions=[0]) as some, client.reader(name) as all_of_it:
            broker.call("kafka", "grow", name, 2)
            until = soon()
            while len(all_of_it.positions) < 2:
                for reader in (bounded, some, all_of_it):
                    reader.poll(0.05)
                assert time.monotonic() < until
            some.poll(0.05)
            assert [len(bounded.positions), len(some.positions)] == [1, 1]
