"""Queues that a topic gets later, or that may not be read when a reader opens or seeks: it reads them when they are there, or says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from patience import until
from rocketmq_topics import change
from wireproto.errors import OptionError
from wireproto.position import EARLIEST, LATEST, AtTime
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.errors import NoQueue

PROTOCOL, BROKER, CLIENT = "rocketmq", {"auto_create": False}, {"route_age": 0.2, "pull_suspend": 1.0}
_numbers = itertools.count()
STARTS = [EARLIEST, LATEST, AtTime(0)]


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"coming-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    return name


def put(dial: Callable[..., Any], topic: str, text: bytes, partitions: int = 2) -> None:
    """As another client, from which ours learns nothing."""
    with dial().producer(topic) as out:
        for partition in range(partitions):
            out.send(b"%s %d" % (text, partition), partition=partition).position(10.0)


def read(reader: Any, *wanted: bytes) -> None:
    """These values come, each once, and no others."""
    found: list[bytes] = []

    def more() -> bool:
        batch = reader.poll(0.1)
        found.extend(batch.values() if batch is not None else [])
        return len(found) >= len(wanted)

    until(more, f"{sorted(wanted)}", 20.0)
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("start", STARTS)
def test_a_reader_without_a_stop_reads_queues_that_come_later_from_their_first_record(
    client: RocketClient, topic: str, dial: Callable[..., Any], start: Any
) -> None:
    put(dial, topic, b"old")
    with client.reader(topic, start=start) as reader:
        if start != LATEST:
            read(reader, b"old 0", b"old 1")
        change(client, topic, 4)
        put(dial, topic, b"new", 4)
        read(reader, b"new 0", b"new 1", b"new 2", b"new 3")
        assert {key[1] for key in reader.positions} == {0, 1, 2, 3}
        assert not reader.done


def test_it_finds_them_while_other_queues_give_it_enough_to_do(client: RocketClient, topic: str, dial: Callable[..., Any]) -> None:
    with dial().producer(topic) as out:
        for _ in range(3000):
            out.send(b"old", partition=0)
    with client.reader(topic, batch_bytes=1) as reader:
        change(client, topic, 3)
        put(dial, topic, b"new", 3)
        found: list[bytes] = []

        def more() -> bool:
            batch = reader.poll(0.0)
            found.extend(batch.values() if batch is not None else [])
            return b"new 2" in found

        until(more)


def test_a_reader_of_named_places_reads_those_alone(client: RocketClient, topic: str, dial: Callable[..., Any]) -> None:
    put(dial, topic, b"old")
    with client.reader(topic, start={(topic, 1): EARLIEST}) as reader:
        change(client, topic, 3)
        put(dial, topic, b"new", 3)
        read(reader, b"old 1", b"new 1")
        assert set(reader.positions) == {(topic, 1)}


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("start", STARTS)
def test_opened_while_queues_are_not_to_be_read_it_reads_them_when_they_are(
    client: RocketClient, topic: str, dial: Callable[..., Any], start: Any, queues: int
) -> None:
    put(dial, topic, b"old")
    client.cluster.route(topic, client.deadline(10.0))
    change(client, topic, queues, 6 if queues == 1 else 2)
    with client.reader(topic, start=start) as reader:
        assert not reader.done
        reader.poll(0.0)
        change(client, topic, 2)
        put(dial, topic, b"new")
        old = [] if start == LATEST else [b"old 0", b"old 1"]
        read(reader, *old, b"new 0", b"new 1")
        assert set(reader.positions) == {(topic, 0), (topic, 1)}


@pytest.mark.parametrize("queues", [1, 2])
def test_a_reader_with_a_stop_that_is_opened_meanwhile_says_so(
    client: RocketClient, topic: str, dial: Callable[..., Any], queues: int
) -> None:
    put(dial, topic, b"old")
    client.cluster.route(topic, client.deadline(10.0))
    change(client, topic, queues, 6 if queues == 1 else 2)
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        found: list[bytes] = []

        def ended() -> bool:
            try:
                for batch in reader:
                    found.extend(batch.values())
            except NoQueue:
                return False
            return True

        assert not ended()
        assert not reader.done
        change(client, topic, 2)
        until(ended)
    assert sorted(found) == [b"old 0", b"old 1"]


def test_one_that_has_no_records_there_is_done_without_them(client: RocketClient, topic: str, dial: Callable[..., Any]) -> None:
    put(dial, topic, b"old", 1)
    client.cluster.route(topic, client.deadline(10.0))
    change(client, topic, 1)
    with client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == [b"old 0"]
        assert reader.done


@pytest.mark.parametrize("queues", [1, 2])
def test_where_its_start_or_stop_is_a_time_opening_says_so(client: RocketClient, topic: str, dial: Callable[..., Any], queues: int) -> None:
    put(dial, topic, b"old")
    client.cluster.route(topic, client.deadline(10.0))
    change(client, topic, queues, 6 if queues == 1 else 2)
    with pytest.raises(NoQueue):
        client.reader(topic, start=AtTime(0), stop=LATEST)


def went(reader: Any, topic: str) -> list[int]:
    """Where its two queues are read next."""
    return [reader.positions[topic, number].offset for number in range(2)]


@pytest.mark.parametrize("queues", [1, 2])
def test_a_seek_moves_queues_that_are_not_to_be_read_now(client: RocketClient, topic: str, dial: Callable[..., Any], queues: int) -> None:
    put(dial, topic, b"old")
    with client.reader(topic) as reader:
        read(reader, b"old 0", b"old 1")
        change(client, topic, queues, 6 if queues == 1 else 2)
        reader.seek(EARLIEST)
        assert went(reader, topic) == [0, 0]
        reader.seek(LATEST)
        assert went(reader, topic) == [1, 1]
        with pytest.raises(NoQueue):
            reader.seek(AtTime(0))
        assert went(reader, topic) == [1, 1], "it moves all of them or none"
        reader.seek({(topic, 0): EARLIEST})
        assert went(reader, topic) == [0, 1]
        reader.seek(EARLIEST)
        change(client, topic, 2)
        read(reader, b"old 0", b"old 1")


def test_a_reader_of_one_queue_seeks_that_one(client: RocketClient, topic: str, dial: Callable[..., Any]) -> None:
    put(dial, topic, b"old")
    with client.reader(topic, start={(topic, 1): EARLIEST}) as reader:
        read(reader, b"old 1")
        reader.seek(EARLIEST)
        assert set(reader.positions) == {(topic, 1)}
        read(reader, b"old 1")
        with pytest.raises(OptionError, match="does not read partition 0"):
            reader.seek({(topic, 0): EARLIEST})
