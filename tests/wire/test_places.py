"""Starts, stops and seeks over the adapters: the same places are taken, and the same are refused in the same words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError, Revoked
from wireproto.position import AtTime, LogOffset, MessageId

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
PLACED = ("kafka", "pulsar", "zookeeper")
PARTITIONED = ("kafka", "pulsar")
_numbers = itertools.count()


@pytest.fixture
def client(broker: DevBroker, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol)) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """Three partitions (ZooKeeper: one) with three records each."""
    name = f"places-{next(_numbers)}"
    many = client.protocol != "zookeeper"
    client.admin().create_topic(name, **({"partitions": 3} if many else {}))
    with client.producer(name) as out:
        for partition in range(3 if many else 1):
            for number in range(3):
                out.send(b"%d:%d" % (partition, number), partition=partition).position(20.0)
    return name


def read(reader: Any) -> list[bytes]:
    found = []
    for _ in range(200):
        if reader.done:
            break
        batch = reader.poll(0.5)
        found += batch.values() if batch is not None else []
    assert reader.done
    return sorted(found)


def other_kind(client: Any, topic: str) -> Any:
    return LogOffset(topic, 0, 1) if client.protocol == "pulsar" else MessageId(topic, 0, 1, 1)


def put(client: Any, reader: Any, way: str, where: Any) -> Any:
    if way == "at":
        return client.admin().positions(reader.topic, where)
    if way == "seek":
        return reader.seek(where)
    return client.reader(reader.topic, **{way: where})


@pytest.mark.parametrize("protocol", PLACED)
@pytest.mark.parametrize("way", ["start", "stop", "seek", "at"])
def test_what_is_no_place_here_is_refused_in_the_same_words(client: Any, topic: str, protocol: str, way: str) -> None:
    position = LogOffset if protocol != "pulsar" else (lambda name, number, at: MessageId(name, number, at, 0))
    for where, text in (
        ("earliest", f"{way} is EARLIEST, LATEST, AtTime, a position or a mapping of positions, not 'earliest'"),
        (position(topic, 9, 1), rf"{way} names {topic}\[9\], which is not among the partitions here"),
        (position("other", 0, 1), rf"{way} names other\[0\], which is not among the partitions here"),
        (other_kind(client, topic), rf"{way} of {topic}\[0\] is .*, not "),
    ):
        with client.reader(topic) as reader, pytest.raises(OptionError, match=text):
            put(client, reader, way, where)


@pytest.mark.parametrize("protocol", PARTITIONED)
def test_each_partition_may_have_a_place_of_its_own_kind(client: Any, topic: str, protocol: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        records = [record for batch in reader for record in batch]
    second = next(record.position for record in records if record.value == b"0:1")
    start = {(topic, 0): second, (topic, 1): EARLIEST, (topic, 2): LATEST}
    with client.reader(topic, start=start, stop=LATEST) as reader:
        assert read(reader) == [b"0:1", b"0:2", b"1:0", b"1:1", b"1:2"]
    assert client.admin().positions(topic, start).keys() == {(topic, number) for number in range(3)}
    with client.reader(topic, stop=LATEST) as reader:
        read(reader)
        reader.seek({(topic, 2): AtTime(1)})
        assert read(reader) == [b"2:0", b"2:1", b"2:2"]


@pytest.mark.parametrize("protocol", PARTITIONED)
def test_a_reader_with_a_stop_in_some_partitions_reads_these_and_ends(client: Any, topic: str, protocol: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        records = [record for batch in reader for record in batch]
    third = next(record.position for record in records if record.value == b"1:2")
    with client.reader(topic, stop=third) as reader:
        assert read(reader) == [b"1:0", b"1:1"]
    with pytest.raises(OptionError, match=rf"{topic}\[0\] has no stop: start and stop name the same partitions"):
        client.reader(topic, start={(topic, 0): EARLIEST, (topic, 1): EARLIEST}, stop={(topic, 1): third})


@pytest.mark.parametrize("protocol", [*PARTITIONED, "rocketmq"])
@pytest.mark.parametrize("way", ["pause", "resume"])
def test_a_partition_that_is_not_ours_is_neither_paused_nor_resumed(client: Any, topic: str, protocol: str, way: str) -> None:
    with client.consumer(topic, "group") as member:
        member.poll(0.0)
        with pytest.raises(Revoked, match=rf"{topic}\[77\] is not assigned to this consumer") as caught:
            getattr(member, way)([(topic, 77)])
        assert caught.value.partitions == ((topic, 77),)
