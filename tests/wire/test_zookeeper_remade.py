"""A queue that is deleted and made again, whose counters begin at 0 again, under who is at it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from wireproto.errors import DataLoss
from wireproto.position import EARLIEST, LATEST, LogOffset

PROTOCOL = "zookeeper"
SECONDS = 20.0
CLIENT = {"timeout": SECONDS}
_topics = itertools.count()


def write(client: Any, topic: str, name: bytes, count: int) -> None:
    with client.producer(topic) as out:
        for number in range(count):
            out.send(b"%s %d" % (name, number))


def named(name: bytes, *numbers: int) -> list[bytes]:
    return [b"%s %d" % (name, number) for number in numbers]


def values(reader: Any, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while len(found) < count:
        batch = reader.poll(SECONDS)
        assert batch is not None
        found += batch.values()
    return found


def remake(client: Any, topic: str, count: int) -> None:
    client.admin().delete_topic(topic)
    client.admin().create_topic(topic)
    write(client, topic, b"new", count)


@pytest.fixture
def queue(dial: Any) -> str:
    topic = f"queue-{next(_topics)}"
    write(dial(), topic, b"old", 10)
    return topic


@pytest.mark.parametrize("count", [0, 5, 10, 15])
def test_a_reader_whose_queue_is_made_again_is_told_until_it_seeks(dial: Any, queue: str, count: int) -> None:
    client, other = dial(), dial()
    with client.reader(queue) as reader:
        assert values(reader, 10) == named(b"old", *range(10))
        remake(other, queue, count)
        for _ in range(2):
            with pytest.raises(DataLoss, match="deleted and made again, and was read up to 10") as told:
                reader.poll(SECONDS)
            assert (told.value.topic, told.value.partition, told.value.position, told.value.diverges_at) == (queue, 0, 10, 0)
        reader.seek(EARLIEST)
        write(other, queue, b"late", 1)
        assert values(reader, count + 1) == [*named(b"new", *range(count)), b"late 0"]


def test_a_reader_that_begins_beyond_the_end_is_told(dial: Any, queue: str) -> None:
    client = dial()
    with client.reader(queue, start=LogOffset(queue, 0, 11)) as reader:
        for _ in range(2):
            with pytest.raises(DataLoss, match="ends at 10, and was to be read from 11") as told:
                reader.poll(SECONDS)
            assert (told.value.position, told.value.diverges_at) == (11, 10)
        reader.seek(LogOffset(queue, 0, 9))
        assert values(reader, 1) == named(b"old", 9)
    with client.reader(queue, start=LogOffset(queue, 0, 10)) as reader:
        assert reader.poll(0.0) is None
        write(client, queue, b"next", 1)
        assert values(reader, 1) == [b"next 0"]


@pytest.mark.parametrize("count", [0, 5, 15])
@pytest.mark.parametrize("stop", [None, LATEST])
def test_what_was_found_in_the_former_queue_is_not_read_out_of_the_new_one(
    dial: Any, queue: str, stop: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wireproto.zookeeper.reader.AHEAD", 2)
    client, other = dial(), dial()
    with client.reader(queue, stop=stop) as reader:
        found = list(reader.poll(SECONDS).values())
        assert found == named(b"old", 0, 1)
        remake(other, queue, count)
        client.tree().catch_up()
        with pytest.raises(DataLoss, match="made again"):
            list(reader)


def test_a_reader_with_a_stop_is_told_that_its_queue_is_gone(dial: Any, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wireproto.zookeeper.reader.AHEAD", 2)
    client = dial()
    with client.reader(queue, stop=LATEST) as reader:
        assert reader.poll(SECONDS).values() == named(b"old", 0, 1)
        client.admin().delete_topic(queue)
        with pytest.raises(DataLoss, match="the queue was deleted, and was read up to 2"):
            reader.poll(SECONDS)


def test_a_worker_goes_on_with_the_new_queue(dial: Any, queue: str) -> None:
    client = dial()
    with client.queue(queue) as worker:
        worker.receive(SECONDS).ack()
        remake(client, queue, 1)
        delivery = worker.receive(SECONDS)
        assert delivery.value == b"new 0"
        delivery.ack()
