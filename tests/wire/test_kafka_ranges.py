"""Ranges that a client reads one after the other, and what it asks for many topics at once. On the dev broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError
from wireproto.kafka import positions
from wireproto.kafka.codes import UnknownTopicOrPartition
from wireproto.kafka.messages import CreateAclsRequest, FetchRequest

_numbers = itertools.count()
RECORDS, SOON = 40, 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), timeout=SOON) as made:
        yield made


def filled(client: Any, partitions: int = 2, *, name: str = "") -> str:
    topic = name or f"ranges-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=partitions)
    with client.producer(topic) as out:
        for n in range(RECORDS):
            out.send(b"%d" % n, partition=n % partitions, timestamp=1_700_000_000_000 + n)
    return topic


def span(topic: str, partition: int, start: int, stop: int) -> dict[str, LogOffset]:
    return {"start": LogOffset(topic, partition, start), "stop": LogOffset(topic, partition, stop)}


def values(reader: Any) -> list[int]:
    return [int(value) for batch in reader for value in batch.values()]


def test_a_range_costs_its_fetches_alone(broker: DevBroker, client: Any) -> None:
    topic = filled(client)
    with client.reader(topic, **span(topic, 0, 0, 5)) as reader:
        assert values(reader) == [0, 2, 4, 6, 8]
    seen = broker.record("kafka")
    for partition, start in ((0, 5), (1, 0), (1, 10), (0, 15)):
        with client.reader(topic, **span(topic, partition, start, start + 5)) as reader:
            assert values(reader) == [2 * n + partition for n in range(start, start + 5)]
    assert [request.name for request in seen.requests()] == ["Fetch"] * 4


def test_ranges_that_are_read_beside_each_other_have_connections_of_their_own(client: Any) -> None:
    topic = filled(client)
    for _ in range(2):
        with client.reader(topic, **span(topic, 0, 0, 20)) as one, client.reader(topic, **span(topic, 1, 0, 20)) as other:
            assert one._fetcher._purpose != other._fetcher._purpose
            assert (values(one), values(other)) == ([*range(0, RECORDS, 2)], [*range(1, RECORDS, 2)])
    readers = [client.reader(topic, **span(topic, 0, 0, 20)) for _ in range(6)]
    for reader in readers:
        assert len(values(reader)) == 20
        reader.close()
    purposes = {reader._fetcher._purpose for reader in readers}
    (node,) = client.cluster.metadata.nodes.values()
    assert sum(client.cluster.pool.peek(node.address, purpose) is not None for purpose in purposes) == 2, "few are kept"


def test_a_range_that_is_left_in_the_middle_holds_up_no_other(broker: DevBroker, client: Any) -> None:
    topic = filled(client)
    reader = client.reader(topic, **span(topic, 0, 0, RECORDS * 10), max_wait=20.0)
    assert reader.poll(SOON) is not None
    assert reader.poll(0.1) is None, "its next Fetch waits at the broker"
    reader.close()
    began = time.monotonic()
    with client.reader(topic, **span(topic, 0, 0, 20)) as other:
        assert len(values(other)) == 20
    assert time.monotonic() - began < 15.0


def test_a_range_reads_the_topic_that_there_is_now_and_tells_which(broker: DevBroker, client: Any) -> None:
    """What the client knew is of another topic."""
    topic = filled(client)
    with client.reader(topic, **span(topic, 0, 0, 20)) as reader:
        known = reader.topic_id
        assert known == client.admin().describe_topic(topic).details["topic_id"]
    with wireproto.connect(broker.url("kafka"), timeout=SOON) as other:
        other.admin().delete_topic(topic)
        filled(other, 1, name=topic)
    with client.reader(topic, **span(topic, 0, 0, RECORDS)) as reader:
        assert values(reader) == [*range(RECORDS)]
        told = client.admin().describe_topic(topic).details["topic_id"]
        assert reader.topic_id == told != known


def test_a_range_of_what_is_not_there_is_refused(client: Any) -> None:
    topic = filled(client)
    with pytest.raises(OptionError, match=r"\[7\]"):
        client.reader(topic, **span(topic, 7, 0, 1))
    with pytest.raises(UnknownTopicOrPartition):
        client.reader("nowhere", **span("nowhere", 0, 0, 1))


def test_many_topics_are_described_by_one_request(broker: DevBroker, client: Any) -> None:
    names = [filled(client, number) for number in (1, 2, 3)]
    seen = broker.record("kafka")
    found = client.admin().describe_topics(reversed(names))
    assert {name: len(info.partitions) for name, info in found.items()} == dict(zip(names, (1, 2, 3), strict=True))
    assert found[names[0]] == client.admin().describe_topic(names[0])
    assert client.admin().describe_topics([]) == {}
    assert len(seen.requests()) == 2
    every = client.admin().describe_topics()
    assert [*every] == client.admin().list_topics()
    assert {name: every[name] for name in names} == found
    with pytest.raises(UnknownTopicOrPartition) as caught:
        client.admin().describe_topics([names[0], "nowhere"])
    assert caught.value.topic == "nowhere"


def test_positions_of_many_topics_are_asked_for_together(broker: DevBroker, client: Any) -> None:
    one, two = filled(client), filled(client, 4)
    admin = client.admin()
    ends = {(one, 0): 20, (one, 1): 20, **{(two, number): 10 for number in range(4)}}
    seen = broker.record("kafka")
    assert {key: place.offset for key, place in admin.positions([one, two], LATEST).items()} == ends
    assert [request.name for request in seen.requests()] == ["Metadata", "ListOffsets"]
    wanted = {(one, 1): EARLIEST, (two, 3): LATEST, (two, 0): AtTime(1_700_000_000_008), (one, 0): LogOffset(one, 0, 7)}
    seen = broker.record("kafka")
    found = admin.positions([one, two], wanted, committed=True)
    assert {key: place.offset for key, place in found.items()} == {(one, 1): 0, (two, 3): 10, (two, 0): 2, (one, 0): 7}
    asked = [request for request in seen.requests() if request.name != "ApiVersions"]
    assert {request.name for request in asked} == {"ListOffsets", "Fetch"}, (
        "the client knows these topics, and reads the record at the time"
    )
    assert {request.message.isolation_level for request in asked} == {1}
    seen = broker.record("kafka")
    admin.positions([one, two], {key: where for key, where in wanted.items() if where != wanted[two, 0]})
    assert {request.name for request in seen.requests()} == {"ListOffsets"}
    seen = broker.record("kafka")
    assert {place.offset for place in admin.positions(two, AtTime(1_800_000_000_000)).values()} == {10}
    assert [request.name for request in seen.requests()] == ["Metadata", "ListOffsets", "ListOffsets"], "the ends, then the time"
    assert admin.positions(two, LATEST, partitions=[1, 3]) == {(two, number): LogOffset(two, number, 10) for number in (1, 3)}
    assert admin.positions([], LATEST) == {}
    with pytest.raises(OptionError, match=r"\[9\]"):
        admin.positions(one, {(one, 9): LATEST})


def test_the_newest_version_of_a_request_is_told(client: Any) -> None:
    assert client.newest(FetchRequest) >= 12
    assert client.newest(CreateAclsRequest) is None, "the dev broker has none"


@pytest.mark.parametrize("appended", [2000, 6000])
def test_a_time_is_that_of_the_moment_at_which_the_call_began(
    broker: DevBroker, client: Any, monkeypatch: pytest.MonkeyPatch, appended: int
) -> None:
    """Whatever is appended between two look-ups is neither read to a stop, nor lost behind a start."""
    topic = f"ranges-{next(_numbers)}"
    client.admin().create_topic(topic)
    look, sent = positions.listing, [1]
    with wireproto.connect(broker.url("kafka"), timeout=SOON) as other, other.producer(topic, linger=0.0) as out:
        out.send(b"1", timestamp=1000).position(SOON)

        def listing(*given: Any, **how: Any) -> Any:
            found = yield from look(*given, **how)
            sent.append(len(sent) + 1)
            out.send(b"%d" % sent[-1], timestamp=appended).position(SOON)
            return found

        monkeypatch.setattr(positions, "listing", listing)
        with client.reader(topic, start=AtTime(5000)) as reader:
            batch = reader.poll(SOON)
            assert batch is not None
            assert int(batch.values()[0]) == 2
        before = [*sent]
        with client.reader(topic, start=LogOffset(topic, 0, 0), stop=AtTime(9000)) as reader:
            assert values(reader) == before != sent
