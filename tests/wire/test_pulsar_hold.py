"""A subscription that is moved by hand, and a commit from outside. On the dev broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto import EARLIEST, LATEST, MessageId, Position
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError
from wireproto.pulsar.codes import ConsumerBusy

CAME = 30.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("pulsar")) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"held-{next(_numbers)}"


def put(client: Any, topic: str, count: int = 6) -> list[Position]:
    with client.producer(topic, batching=False) as out:
        return [out.send(b"%d" % n).position(CAME) for n in range(count)]


def first(client: Any, topic: str, group: str) -> bytes:
    with client.consumer(topic, group, mode="exclusive") as consumer:
        batch = consumer.poll(CAME)
        assert batch is not None
        return bytes(batch.values()[0])


def behind(place: Any) -> MessageId:
    return MessageId(place.topic, place.partition, place.ledger, place.entry, after=True)


def test_a_hold_keeps_all_until_it_is_moved_and_goes_forward_only(client: Any, topic: str) -> None:
    places = put(client, topic)
    key = (topic, places[0].partition)
    start = client.admin().positions(topic, EARLIEST)
    with client.hold("g") as hold:
        hold.move(start)
        with pytest.raises(ConsumerBusy):
            client.consumer(topic, "g", mode="exclusive", timeout=1.0)
    assert first(client, topic, "g") == b"0"
    with client.hold("g", consumer_name="mine") as hold:
        hold.move({key: places[4]})
        hold.move({key: places[1]})
    assert first(client, topic, "g") == b"4"


def test_a_commit_from_outside_is_one_move(client: Any, topic: str) -> None:
    places = put(client, topic)
    assert client.admin().commit("g", {(topic, places[0].partition): behind(places[2])}) == frozenset()
    assert first(client, topic, "g") == b"3"
    assert client.admin().commit("g", {(topic, places[0].partition): places[5]}) == frozenset()
    assert first(client, topic, "g") == b"5"


def test_nothing_is_sent_to_a_hold(broker: DevBroker, client: Any, topic: str) -> None:
    places = put(client, topic)
    seen = broker.record("pulsar")
    with client.hold("g") as hold:
        hold.move({(topic, places[0].partition): places[3]})
    assert not seen.requests("flow")
    assert len(seen.requests("ack")) == 1


def test_what_is_no_place_of_the_partition_is_refused(client: Any, topic: str) -> None:
    places = put(client, topic)
    with client.hold("g") as hold:
        with pytest.raises(OptionError):
            hold.move({(topic, 7): MessageId(topic, 7, 1, 1)})
        with pytest.raises(OptionError):
            hold.move({(topic, places[0].partition): LATEST})


def test_places_of_some_partitions_alone(client: Any, topic: str) -> None:
    put(client, topic)
    (number,) = (part.partition for part in client.admin().describe_topic(topic).partitions)
    assert client.admin().positions(topic, LATEST, partitions=[]) == {}
    assert [*client.admin().positions(topic, LATEST, partitions=[number])] == [(topic, number)]
    (part,) = client.admin().describe_topic(topic).partitions
    assert part.details["name"] == f"persistent://public/default/{topic}"
