"""What Kafka's roles are told to do: which partitions, from where to where, and what they refuse; on the embedded broker."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from patience import until
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import Closed, ConcurrentUse, OptionError, Revoked
from wireproto.kafka.codes import UnknownTopicOrPartition
from wireproto.position import AtTime, LogOffset, MessageId

PROTOCOL, BROKER, CLIENT = "kafka", {"auto_create": False}, {"timeout": 10.0, "unknown_topic_timeout": 0.2, "max_wait": 0.05}
_numbers = itertools.count()


@pytest.fixture
def topic(client: Any) -> str:
    """Three partitions with 5 records each, `<partition>:<number>`, of times 100 to 104."""
    name = f"uses-{next(_numbers)}"
    client.admin().create_topic(name, partitions=3)
    with client.producer(name) as out:
        for number in range(5):
            for partition in range(3):
                out.send(b"%d:%d" % (partition, number), partition=partition, timestamp=100 + number)
    return name


def values(role: Any, count: int | None = None) -> list[bytes]:
    """What a reader reads to its end, or so many records."""
    found: list[bytes] = []
    for _ in range(2000):
        if (count is None and role.done) or (count is not None and len(found) >= count):
            return sorted(found)
        batch = role.poll(0.5)
        found += batch.values() if batch is not None else []
    raise AssertionError(f"no end: {found}")


def of(partition: int, start: int, stop: int) -> list[bytes]:
    return [b"%d:%d" % (partition, number) for number in range(start, stop)]


def test_a_mapping_restricts_a_reader_to_its_partitions(client: Any, topic: str) -> None:
    start = {(topic, 1): LogOffset(topic, 1, 2), (topic, 2): LogOffset(topic, 2, 4)}
    with client.reader(topic, start=start, stop=LATEST) as reader:
        assert set(reader.positions) == set(start)
        assert reader.positions[topic, 1] == LogOffset(topic, 1, 2)
        assert reader.stops == {(topic, 1): LogOffset(topic, 1, 5), (topic, 2): LogOffset(topic, 2, 5)}
        assert values(reader) == of(1, 2, 5) + of(2, 4, 5)
        assert reader.positions[topic, 2] == LogOffset(topic, 2, 5)


def test_a_stop_is_the_first_position_that_is_not_read(client: Any, topic: str) -> None:
    with client.reader(topic, stop={(topic, 0): LogOffset(topic, 0, 3)}) as reader:
        assert values(reader) == of(0, 0, 3)
    with client.reader(topic, start=AtTime(101), stop=AtTime(103)) as reader:
        assert values(reader) == sorted(of(0, 1, 3) + of(1, 1, 3) + of(2, 1, 3))
    with client.reader(topic, start=AtTime(105), stop=LATEST) as reader:
        assert reader.done, "nothing is that late: the end"
    with client.reader(topic, start=LogOffset(topic, 0, 5), stop=LogOffset(topic, 0, 5)) as reader:
        assert reader.done
        assert reader.poll(0.0) is None
    with client.reader(topic) as reader:
        assert reader.stops == {}
        assert not reader.done


def test_partitions_are_chosen_by_number(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST, partitions=(2, 0)) as reader:
        assert values(reader) == of(0, 0, 5) + of(2, 0, 5)
    with pytest.raises(OptionError, match="there is no partition 3: the topic has 3"):
        client.reader(topic, partitions=(3,))
    with pytest.raises(OptionError, match=rf"start names {topic}\[1\], which is not among the partitions here"):
        client.reader(topic, start=LogOffset(topic, 1, 0), partitions=(0,))
    with pytest.raises(OptionError, match=r"\[0\] has no start"):
        client.reader(topic, start=LogOffset(topic, 1, 0), stop=LogOffset(topic, 0, 0))
    with pytest.raises(UnknownTopicOrPartition):
        client.reader("nowhere")


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (LogOffset("T", 0, -1), "before the beginning"),
        (LogOffset("other", 0, 1), "other"),
        (MessageId("T", 0, 1, 1), "is a number or EARLIEST, LATEST, AtTime, not MessageId"),
        ({("T", 0): LogOffset("T", 1, 1)}, r"is no position in T\[0\]"),
        ("earliest", "is EARLIEST, LATEST, AtTime, a position or a mapping"),
    ],
)
def test_what_is_no_place_in_the_log_is_refused(client: Any, topic: str, where: Any, text: str) -> None:
    def put(one: Any) -> Any:
        if isinstance(one, dict):
            return {(topic if key[0] == "T" else key[0], key[1]): put(value) for key, value in one.items()}
        if isinstance(one, LogOffset) and one.topic == "T":
            return LogOffset(topic, one.partition, one.offset)
        return MessageId(topic, one.partition, 1, 1) if isinstance(one, MessageId) else one

    with pytest.raises(OptionError, match=re.sub(r"\bT\b", topic, text)):
        client.reader(topic, start=put(where))
    with client.reader(topic) as reader, pytest.raises(OptionError, match=re.sub(r"\bT\b", topic, text)):
        reader.seek(put(where))


def test_a_seek_moves_what_it_names(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        assert len(values(reader)) == 15
        reader.seek({(topic, 1): LogOffset(topic, 1, 3)})
        assert not reader.done
        assert values(reader) == of(1, 3, 5)
        reader.seek(AtTime(104))
        assert values(reader) == of(0, 4, 5) + of(1, 4, 5) + of(2, 4, 5)
        with pytest.raises(OptionError, match=rf"seek names {topic}\[7\], which is not among the partitions here"):
            reader.seek(LogOffset(topic, 7, 0))


def test_iterating_ends_at_the_stop_and_yields_no_empty_batches(client: Any, topic: str) -> None:
    with client.reader(topic, stop=LATEST) as reader:
        sizes = [len(batch) for batch in reader]
    assert sum(sizes) == 15
    assert min(sizes) > 0


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_role_belongs_to_one_thread_at_a_time_and_ends(client: Any, topic: str, role: str) -> None:
    before = len(client.loop.connections)
    opened = client.reader(topic, start=LATEST) if role == "reader" else client.consumer(topic, f"g-{topic}", start=LATEST)
    while role == "consumer" and not opened.assignment:
        opened.poll(0.2)
    began = threading.Event()
    refused: list[BaseException] = []
    ended = threading.Event()

    def elsewhere() -> None:
        began.set()
        while not refused:
            try:
                opened.poll(20.0)
            except ConcurrentUse:
                continue  # the test's own poll was first
            except BaseException as why:
                refused.append(why)
        ended.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    assert began.wait(5.0)
    for _ in range(200):
        try:
            opened.poll(0.01)
        except ConcurrentUse:
            break
    else:
        raise AssertionError("two threads polled at once")
    opened.close(10.0)
    assert ended.wait(10.0), "a close ends the other thread's call"
    thread.join(5.0)
    assert [type(why) for why in refused] == [Closed]
    with pytest.raises(Closed):
        opened.poll(0.0)
    until(lambda: len(client.loop.connections) == before, "a connection of the role is left")  # one being dialled goes soon


def test_offsets_are_asked_for_as_the_isolation_says(client: Any, topic: str, seen: Recording) -> None:
    for isolation, level in (("committed", 1), ("uncommitted", 0)):
        seen.clear()
        with client.reader(topic, stop=LATEST, isolation=isolation) as reader:
            values(reader)
        assert {one.message.isolation_level for one in seen.requests("ListOffsets")} == {level}
        assert {one.message.isolation_level for one in seen.requests("Fetch")} == {level}
        assert {one.message.replica_id for one in seen.requests("ListOffsets")} == {-1}


def test_a_partition_that_cannot_tell_now_is_asked_again_and_only_that(client: Any, topic: str, broker: DevBroker, seen: Recording) -> None:
    refusals = iter([{1}, set()])
    offered = broker._sides["kafka"].offered  # type: ignore[attr-defined]
    plain = offered[2]

    async def some(context: Any) -> Any:
        reply = await plain[3](context)
        refused = next(refusals)
        return reply.replace(
            topics=tuple(
                one.replace(
                    partitions=tuple(
                        part.replace(error_code=6, offset=-1) if part.partition_index in refused else part for part in one.partitions
                    )
                )
                for one in reply.topics
            )
        )

    seen.clear()
    offered[2] = (*plain[:3], some)
    try:
        found = client.admin().positions(topic)
    finally:
        offered[2] = plain
    assert {place.offset for place in found.values()} == {5}
    asked = [sorted(part.partition_index for part in one.message.topics[0].partitions) for one in seen.requests("ListOffsets")]
    assert asked == [[0, 1, 2], [1]]
    assert seen.requests("Metadata"), "who leads is looked up in between"


# consumers


@pytest.fixture
def member(client: Any, topic: str) -> Iterator[Any]:
    with client.consumer(topic, f"g-{topic}", start=EARLIEST) as made:
        while not made.assignment:
            made.poll(0.2)
        made.seek(EARLIEST)
        yield made


@pytest.mark.parametrize(
    ("topics", "group", "options", "text"),
    [
        ((), "g", {}, "at least one topic"),
        (("t",), "", {}, "the name of a group"),
        (("t",), "g", {"start": LogOffset("t", 0, 1)}, "a group starts at EARLIEST, LATEST or AtTime"),
    ],
)
def test_a_consumer_that_cannot_be_is_refused(client: Any, topics: Any, group: str, options: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        client.consumer(topics, group, **options)


def test_a_commit_is_what_was_handed_out_or_what_is_named(client: Any, topic: str, member: Any, seen: Recording) -> None:
    assert len(values(member, 15)) == 15
    member.commit({(topic, 1): LogOffset(topic, 1, 2)})
    [first] = seen.requests("OffsetCommit")
    committed = [(one.partition_index, one.committed_offset) for one in first.message.topics[0].partitions]
    assert committed == [(1, 2)]
    assert first.message.member_id
    assert first.message.generation_id_or_member_epoch >= 1
    assert {key[1]: place.offset for key, place in member.committed().items()} == {1: 2}
    member.commit()
    assert {key[1]: place.offset for key, place in member.committed().items()} == {0: 5, 1: 5, 2: 5}
    assert set(member.lag().values()) == {0}
    with pytest.raises(OptionError):
        member.commit({(topic, 1): LogOffset(topic, 2, 2)})


def test_lag_is_what_is_left_to_hand_out(topic: str, member: Any) -> None:
    member.seek({(topic, 0): LogOffset(topic, 0, 4), (topic, 1): LogOffset(topic, 1, 5)})
    assert member.lag() == {(topic, 0): 1, (topic, 1): 0, (topic, 2): 5}
    assert {key[1]: place.offset for key, place in member.positions.items()} == {0: 4, 1: 5, 2: 0}


def test_a_paused_partition_waits_and_goes_on_where_it_stood(topic: str, member: Any) -> None:
    member.pause([(topic, 1)])
    assert values(member, 10) == of(0, 0, 5) + of(2, 0, 5)
    assert member.poll(0.3) is None
    member.resume([(topic, 1)])
    assert values(member, 5) == of(1, 0, 5)
    for change in (member.pause, member.resume):
        with pytest.raises(Revoked, match=r"\[9\]"):
            change([(topic, 9)])


def test_a_member_seeks_only_what_it_has(topic: str, member: Any) -> None:
    with pytest.raises(Revoked, match=r"\[9\]"):
        member.seek({(topic, 9): LogOffset(topic, 9, 1)})
    member.seek(LATEST)
    assert member.poll(0.2) is None
    member.seek(AtTime(104))
    assert values(member, 3) == of(0, 4, 5) + of(1, 4, 5) + of(2, 4, 5)


def test_a_group_starts_where_it_was_told_only_without_a_commit(client: Any, topic: str) -> None:
    group = f"start-{topic}"
    with client.consumer(topic, group, start=AtTime(103)) as first:
        assert len(values(first, 6)) == 6
        first.commit({(topic, 0): LogOffset(topic, 0, 1)})
    with client.consumer(topic, group, start=LATEST) as second:
        assert values(second, 4) == of(0, 1, 5)
        assert second.poll(0.2) is None
