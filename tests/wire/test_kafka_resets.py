"""Where a reader of Kafka goes on when the log does not hold what comes next, as the option `reset` says; on the embedded broker."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from patience import until
from taking import values
from wireproto import EARLIEST, LATEST, LogOffset
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import DataLoss
from wireproto.kafka.codes import NotLeaderOrFollower, OffsetOutOfRange, TopicAuthorizationFailed

PROTOCOL, CLIENT = "kafka", {"timeout": 10.0, "max_wait": 0.05}
SOON = 20.0
POLICIES = ("earliest", "latest", "nearest")
NO_EPOCHS = 11
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """Two partitions, ten records a batch each in the first: old 0 to old 9, a second apart, long ago."""
    name = f"resets-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    write(client, name, b"old", 10, since=1_000_000)
    return name


def write(client: Any, topic: str, name: bytes, count: int, *, since: int, partition: int = 0) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%s %d" % (name, number), partition=partition, timestamp=since + 1000 * number).position(SOON)


@contextmanager
def old_fetches(broker: DevBroker) -> Iterator[None]:
    """Meanwhile the broker's newest Fetch is one that cannot tell that a log was cut."""
    offered: Any = broker._sides["kafka"].offered  # type: ignore[attr-defined]
    before = dict(offered)
    broker.call("kafka", "offer", "Fetch", NO_EPOCHS)
    try:
        yield
    finally:
        offered.update(before)


def named(name: bytes, *numbers: int) -> list[bytes]:
    return [b"%s %d" % (name, number) for number in numbers]


def test_without_the_option_it_is_raised_each_time(client: Any, broker: DevBroker, topic: str) -> None:
    broker.call("kafka", "trim", topic, 0, 6)
    with client.reader(topic, start=LogOffset(topic, 0, 2)) as reader:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as told:
                values(reader, 1)
            assert told.value.position == 2


@pytest.mark.parametrize("role", ["reader", "consumer"])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_retention_took_is_passed_over_and_told(
    client: Any, broker: DevBroker, topic: str, policy: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    if role == "reader":
        opened = client.reader(topic, start=LogOffset(topic, 0, 2), reset=policy)
    else:
        client.admin().commit("g", {(topic, 0): LogOffset(topic, 0, 2)})
        opened = client.consumer(topic, "g", reset=policy)
    broker.call("kafka", "trim", topic, 0, 6)
    with opened as reading, caplog.at_level(logging.WARNING, "wireproto.kafka"):
        if policy == "latest":
            while not (lines := [record.getMessage() for record in caplog.records]):
                assert reading.poll(0.1) is None
            write(client, topic, b"new", 2, since=2_000_000)
            assert values(reading, 2) == named(b"new", 0, 1)
        else:
            assert values(reading, 4) == named(b"old", 6, 7, 8, 9)
            lines = [record.getMessage() for record in caplog.records]
        at = 10 if policy == "latest" else 6
        (line,) = lines
        assert line.startswith(f"{topic}[0]: offset 2 does not exist, reading continues at {at}: 2 to {at - 1} are passed over, unread (")
        if role == "consumer":
            reading.commit()
            assert client.admin().group_positions("g", topic)[topic, 0] == LogOffset(topic, 0, 12 if policy == "latest" else 10)


@pytest.mark.parametrize(("policy", "at"), [("earliest", 0), ("latest", 9), ("nearest", 5)])
def test_beyond_the_end_the_policy_says_where_to_go(
    client: Any, broker: DevBroker, topic: str, dial: Any, policy: str, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader cannot tell where the log was cut; records that were written since are as late as the last one read, or later."""
    with old_fetches(broker), dial().reader(topic, reset=policy) as reader, caplog.at_level(logging.WARNING, "wireproto.kafka"):
        assert len(values(reader, 10)) == 10
        broker.call("kafka", "elect", topic, 0, 5)
        write(client, topic, b"new", 4, since=2_000_000)
        found: list[bytes] = []
        while not caplog.records:
            batch = reader.poll(0.1)
            found += batch.values() if batch is not None else []
        assert caplog.records[0].getMessage().startswith(f"{topic}[0]: offset 10 does not exist, reading continues at {at} (")
        write(client, topic, b"last", 1, since=3_000_000)
        wanted = [*named(b"old", 0, 1, 2, 3, 4), *named(b"new", 0, 1, 2, 3), b"last 0"][at:]
        assert found + values(reader, len(wanted) - len(found)) == wanted


def test_the_nearest_record_of_what_was_never_read_is_the_first(client: Any, topic: str) -> None:
    with client.reader(topic, start=LogOffset(topic, 0, 5000), reset="nearest") as reader:
        assert values(reader, 10) == named(b"old", *range(10))


def test_the_nearest_is_the_end_where_all_is_older_than_what_was_read(client: Any, broker: DevBroker, topic: str, dial: Any) -> None:
    with old_fetches(broker), dial().reader(topic, reset="nearest") as reader:
        assert len(values(reader, 10)) == 10
        broker.call("kafka", "elect", topic, 0, 5)
        assert reader.poll(1.0) is None
        write(client, topic, b"new", 2, since=2_000_000)
        assert values(reader, 2) == named(b"new", 0, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cut_whose_place_is_known_is_gone_on_from_there(
    client: Any, broker: DevBroker, topic: str, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client.consumer(topic, "g", reset=policy) as member, caplog.at_level(logging.WARNING, "wireproto.kafka"):
        assert len(values(member, 10)) == 10
        broker.call("kafka", "elect", topic, 0, 5)
        write(client, topic, b"new", 10, since=2_000_000)
        assert values(member, 10) == named(b"new", *range(10))
    assert "offset 10 does not exist, reading continues at 5 (the log was cut" in caplog.records[0].getMessage()


def test_a_bounded_reader_goes_on_within_its_range_alone(client: Any, broker: DevBroker, topic: str) -> None:
    with client.reader(topic, start=LogOffset(topic, 0, 2), stop=LATEST, reset="earliest") as reader:
        broker.call("kafka", "trim", topic, 0, 6)
        assert [value for batch in reader for value in batch.values()] == named(b"old", 6, 7, 8, 9)
    stop = LogOffset(topic, 0, 50)
    with client.reader(topic, start=LogOffset(topic, 0, 40), stop=stop, reset="earliest") as reader:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as told:
                values(reader, 1)
            assert told.value.position == 40
    with client.reader(topic, start=LogOffset(topic, 0, 6), stop=stop, reset="earliest") as reader:
        assert len(values(reader, 4)) == 4
        broker.call("kafka", "elect", topic, 0, 7)
        with pytest.raises(DataLoss):
            values(reader, 1)


def test_a_position_that_is_there_after_all_is_kept(client: Any, topic: str, faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    faults.error("Fetch", OffsetOutOfRange.code)
    with client.reader(topic, start=LogOffset(topic, 0, 4), reset="latest") as reader, caplog.at_level(logging.WARNING, "wireproto.kafka"):
        assert values(reader, 6) == named(b"old", 4, 5, 6, 7, 8, 9)


def test_others_are_read_while_one_is_looked_up(client: Any, broker: DevBroker, topic: str, faults: Faults, seen: Recording) -> None:
    write(client, topic, b"other", 3, since=1_000_000, partition=1)
    with client.reader(topic, start={(topic, 0): LogOffset(topic, 0, 2), (topic, 1): EARLIEST}, reset="earliest", max_bytes=200) as reader:
        broker.call("kafka", "trim", topic, 0, 6)
        held = faults.drop("ListOffsets")
        assert values(reader, 3) == named(b"other", 0, 1, 2)
        while held.times:
            assert reader.poll(0.05) is None
        assert reader.poll(0.1) is None
        asked = len(seen.requests("Fetch"))
        until(lambda: reader.poll(0.05) is None and len(seen.requests("Fetch")) > asked)
        partitions = [
            part.partition for seen in seen.requests("Fetch")[asked:] for named in seen.message.topics for part in named.partitions
        ]
        assert set(partitions) == {1}, "the partition that is looked up is not asked for meanwhile"
        reader.seek(LogOffset(topic, 0, 8))
        assert values(reader, 2) == named(b"old", 8, 9), "a seek comes before what the look-up says"


def test_a_look_up_that_fails_is_made_again_unless_it_is_refused_for_good(
    client: Any, broker: DevBroker, topic: str, faults: Faults
) -> None:
    broker.call("kafka", "trim", topic, 0, 6)
    faults.error("ListOffsets", NotLeaderOrFollower.code)
    faults.disconnect("ListOffsets")
    with client.reader(topic, start=LogOffset(topic, 0, 2), reset="earliest") as reader:
        assert values(reader, 4) == named(b"old", 6, 7, 8, 9)
    with client.reader(topic, start=LogOffset(topic, 0, 2), reset="earliest") as reader:
        faults.error("ListOffsets", TopicAuthorizationFailed.code)
        with pytest.raises(TopicAuthorizationFailed):
            values(reader, 1)
        assert values(reader, 4) == named(b"old", 6, 7, 8, 9)


def test_a_look_up_that_nobody_answers_is_made_again(client: Any, broker: DevBroker, topic: str, faults: Faults) -> None:
    broker.call("kafka", "trim", topic, 0, 6)
    with client.reader(topic, start=LogOffset(topic, 0, 2), reset="earliest", request_timeout=0.3) as reader:
        held = faults.drop("ListOffsets", times=3)
        assert values(reader, 4) == named(b"old", 6, 7, 8, 9)
        assert held.times == 0
