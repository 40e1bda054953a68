"""A log that was cut below what somebody has read, and goes on with other records: readers and members are told, and skip none of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from taking import values
from wireproto import EARLIEST, LATEST, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.errors import DataLoss

SOON = 20.0
_numbers = itertools.count()


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), timeout=10.0, max_wait=0.1) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """One partition with ten records, a batch each."""
    name = f"cuts-{next(_numbers)}"
    client.admin().create_topic(name)
    write(client, name, b"old", 10)
    return name


def write(client: Any, topic: str, name: bytes, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%s %d" % (name, number)).position(SOON)


def test_a_reader_behind_whose_back_the_log_was_cut_is_told(client: Any, broker: DevBroker, topic: str) -> None:
    with client.reader(topic) as reader:
        assert len(values(reader, 10)) == 10
        broker.call("kafka", "elect", topic, 0, 5)
        write(client, topic, b"new", 10)
        for _ in range(2):
            with pytest.raises(DataLoss, match="ends at offset 5 now, and was read up to 10") as told:
                values(reader, 1)
            assert (told.value.topic, told.value.partition, told.value.position, told.value.diverges_at) == (topic, 0, 10, 5)
        reader.seek(LogOffset(topic, 0, 5))
        assert values(reader, 10) == [b"new %d" % number for number in range(10)]


@pytest.mark.parametrize("given", [True, False])
def test_a_member_that_resumes_at_a_commit_behind_the_cut_is_told(client: Any, broker: DevBroker, topic: str, given: bool) -> None:
    """The commit keeps the epoch beside the offset."""
    seen = broker.record("kafka")
    with client.consumer(topic, "g") as member:
        values(member, 10)
        member.commit({(topic, 0): LogOffset(topic, 0, 10)} if given else None)
    (sent,) = seen.requests("OffsetCommit")
    assert sent.message.topics[0].partitions[0].committed_leader_epoch == 0
    broker.call("kafka", "elect", topic, 0, 5)
    write(client, topic, b"new", 10)
    with client.consumer(topic, "g") as member:
        with pytest.raises(DataLoss, match="ends at offset 5"):
            values(member, 1)
        member.seek(LogOffset(topic, 0, 5))
        assert values(member, 10) == [b"new %d" % number for number in range(10)]
        member.commit()
        assert seen.requests("OffsetCommit")[-1].message.topics[0].partitions[0].committed_leader_epoch == 1


def test_elections_that_lose_nothing_go_unnoticed(client: Any, broker: DevBroker, topic: str) -> None:
    seen = broker.record("kafka")
    with client.reader(topic) as reader, client.consumer(topic, "g") as member:
        for turn in range(4):
            for role in (reader, member):
                assert len(values(role, 10)) == 10
            member.commit()
            broker.call("kafka", "elect", topic, 0, 10 * turn + 10)
            write(client, topic, b"turn %d" % turn, 10)
        assert member.poll(SOON) is not None
        member.commit({(topic, 0): LogOffset(topic, 0, 3)})
    told = [seen.message.topics[0].partitions[0].committed_leader_epoch for seen in seen.requests("OffsetCommit")]
    assert told == [0, 1, 2, 3, -1], "of a place that is not the last record's nothing is known"
    with client.consumer(topic, "g") as member:
        assert len(values(member, 47)) == 47
    with client.reader(topic, start=LogOffset(topic, 0, 25), stop=LATEST) as reader:
        assert sum(len(batch) for batch in reader) == 25
        reader.seek(EARLIEST)
        assert sum(len(batch) for batch in reader) == 50


def test_a_broker_that_cannot_be_asked_is_read_as_before(client: Any, broker: DevBroker, topic: str) -> None:
    broker.call("kafka", "offer", "Fetch", 11)
    with wireproto.connect(broker.url("kafka"), max_wait=0.1) as older, older.reader(topic) as reader:
        assert len(values(reader, 10)) == 10
        write(client, topic, b"new", 5)
        assert len(values(reader, 5)) == 5
