"""What those who read from RocketMQ send, how often and when: pulls, heartbeats, commits, seen on the wire of the embedded broker."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from patience import until
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording, Seen
from wireproto.errors import ChecksumMismatch, DecompressionError, FrameTooLarge, Revoked, WireprotoError
from wireproto.position import LATEST, LogOffset, QueueOffset
from wireproto.rocketmq import fastjson
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.messages import (
    InvokeBrokerToResetOffsetRequest,
    UpdateAndCreateTopicRequest,
)
from wireproto.rocketmq.pulls import AGAIN

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
_numbers = itertools.count()
HARDLY = 0.9
"""Of a wait with jitter: what of it is certain, and no rounding in doubt."""


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"taking-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


@pytest.fixture
def seen(broker: DevBroker, topic: str) -> Recording:
    return broker.record("rocketmq")


def put(client: RocketClient, topic: str, count: int, start: int = 0, **options: Any) -> None:
    with client.producer(topic, **options) as out:
        for number in range(start, start + count):
            out.send(b"%d" % number)


def drained(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        batch = consumer.poll(0.3)
        found.extend(batch.values() if batch is not None else [])
        return len(found) >= count

    until(more)
    return found


def vanish(client: RocketClient) -> None:
    """As a process that is killed: its connections end, nobody says good-bye."""
    client.cluster.close()


def of_group(group: str) -> Callable[[Seen], bool]:
    """Heartbeats of a member, not those that a connection begins with."""
    return lambda seen: group in [item["groupName"] for item in fastjson.loads(bytes(seen.header.body)).get("consumerDataSet") or []]


# membership -----------------------------------------------------------------------------------------------------------------------


def test_a_member_beats_at_its_interval(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.consumer(topic, f"g-{topic}", heartbeat_interval=0.2):
        beats = seen.wait("HeartBeat", 6, timeout=30.0, when=of_group(f"g-{topic}"))
    gaps = [after.at - before.at for before, after in itertools.pairwise(beats[1:])]
    assert sorted(gaps)[len(gaps) // 2] >= 0.2 * HARDLY, gaps  # one that came late shortens the gap behind it
    assert sum(gaps) >= 0.2 * HARDLY * (len(gaps) - 1), gaps


def test_a_member_that_does_not_poll_leaves_its_group(client: RocketClient, topic: str, seen: Recording) -> None:
    group = f"g-{topic}"
    put(client, topic, 3)
    with client.consumer(topic, group, max_poll_interval=0.4) as consumer, client.consumer(topic, group) as other:
        until(lambda: (consumer.poll(0.05), other.poll(0.05), len(client.admin().describe_group(group).members) == 2)[2])
        gone, *_ = seen.wait("UnregisterClient", timeout=30.0)
        assert gone.message.client_id == consumer.member_id
        until(lambda: [one.member for one in client.admin().describe_group(group).members] == [other.member_id])
        consumer.poll(0.0)
        until(lambda: (consumer.poll(0.05), len(client.admin().describe_group(group).members) == 2)[1])


def test_a_member_that_polls_stays(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.consumer(topic, f"g-{topic}", max_poll_interval=2.0) as consumer:
        longest, before = 0.0, time.monotonic()
        end = before + 5.0
        while before < end:
            consumer.poll(0.05)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        assert longest > 1.0 or not seen.requests("UnregisterClient")  # it polled all the time, but where the machine stood still


def test_a_worker_that_does_not_receive_leaves_its_group(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.queue(topic, f"g-{topic}", max_poll_interval=0.4):
        seen.wait("UnregisterClient", timeout=30.0)


def test_members_look_at_their_group_at_their_interval(client: RocketClient, topic: str, seen: Recording) -> None:
    with client.consumer(topic, f"g-{topic}", rebalance_interval=0.3) as consumer:
        until(lambda: (consumer.poll(0.05), len(seen.requests("GetConsumerListByGroup")) >= 8)[1])  # two topics: two at a look
    looks = [request.at for request in seen.requests("GetConsumerListByGroup")]
    assert looks[7] - looks[0] >= 0.3 * HARDLY * 2


# where groups begin -----------------------------------------------------------------------------------------------------------------


def test_who_takes_over_reads_from_where_the_group_began(dial: Callable[..., RocketClient], client: RocketClient, topic: str) -> None:
    """The member that began at the end is gone before it has committed anything."""
    put(client, topic, 4)
    other = dial()
    first = other.consumer(topic, f"g-{topic}", start=LATEST)
    assert first.poll(0.0) is None
    vanish(other)
    put(client, topic, 3, 10)
    with client.consumer(topic, f"g-{topic}", start=LATEST) as second:
        assert drained(second, 3) == [b"10", b"11", b"12"]


@pytest.mark.parametrize("committed", [None, 0, 2])
def test_an_old_broker_s_zero_is_no_offset_unless_it_was_committed(
    request: pytest.FixtureRequest, broker: DevBroker, client: RocketClient, topic: str, committed: int | None
) -> None:
    """4.9 brokers answer 0 for a group that never committed, as long as the queue begins at 0."""
    put(client, topic, 4)
    if committed is not None:
        with client.consumer(topic, f"g-{topic}") as consumer:
            consumer.commit({(topic, 0): LogOffset(topic, 0, committed)})
    request.addfinalizer(lambda: broker.call("rocketmq", "answer_as_old", False))
    broker.call("rocketmq", "answer_as_old", True)
    with client.consumer(topic, f"g-{topic}", start={(topic, 0): LogOffset(topic, 0, 3)}) as consumer:
        expected = [b"0", b"1", b"2", b"3"][3 if committed is None else committed :]
        assert drained(consumer, len(expected)) == expected


def test_an_old_broker_s_table_of_all_offsets_is_asked_for_once_by_all_queues(
    request: pytest.FixtureRequest, broker: DevBroker, client: RocketClient, topic: str, seen: Recording
) -> None:
    """It is that of all groups: megabytes, where there are many."""
    name, group = f"{topic}-wide", f"g-{topic}"
    client.admin().create_topic(name, partitions=16)
    with client.consumer(name, group) as consumer:
        consumer.commit({(name, number): LogOffset(name, number, 0) for number in (0, 3)})
    request.addfinalizer(lambda: broker.call("rocketmq", "answer_as_old", False))
    broker.call("rocketmq", "answer_as_old", True)
    broker.faults("rocketmq").delay("GetAllConsumerOffset", 0.5, times=-1)
    with client.consumer(name, group) as consumer:
        assert len(consumer.assignment) == 16
        assert len(seen.requests("GetAllConsumerOffset")) <= 2
        assert {key[1]: place.offset for key, place in consumer.committed().items()} == {0: 0, 3: 0}


# pulls ----------------------------------------------------------------------------------------------------------------------------


def test_pulls_that_are_refused_wait_longer_and_longer(broker: DevBroker, client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 1)
    broker.faults("rocketmq").error("PullMessage", 17, times=5)
    with client.reader(topic) as reader:
        batch = reader.poll(30.0)
        assert batch is not None
        assert batch.values() == [b"0"]
    pulls = [request.at for request in seen.requests("PullMessage")][:6]
    for attempt, (before, after) in enumerate(itertools.pairwise(pulls), 1):
        assert after - before >= AGAIN.first * AGAIN.factor ** (attempt - 1) * (1 - AGAIN.jitter) * HARDLY


def test_refusals_end_reading_after_recovery_timeout(broker: DevBroker, client: RocketClient, topic: str, seen: Recording) -> None:
    broker.faults("rocketmq").error("PullMessage", 17, times=-1)
    with client.reader(topic, recovery_timeout=0.5) as reader:
        begun = time.monotonic()
        with pytest.raises(WireprotoError):
            reader.poll(30.0)
        assert time.monotonic() - begun >= 0.5


@pytest.mark.parametrize("seconds", [2.0, 7.0])
def test_a_pull_at_the_end_is_held_as_long_as_the_option_says(client: RocketClient, topic: str, seen: Recording, seconds: float) -> None:
    with client.reader(topic, pull_suspend=seconds) as reader:
        until(lambda: (reader.poll(0.05), len(seen.requests("PullMessage")) > 1)[1])
    first, pull = seen.requests("PullMessage")[:2]
    assert not first.message.sys_flag & 2, "it asks where the end is"
    assert first.message.queue_offset == pull.message.queue_offset
    assert pull.message.sys_flag & 2
    assert pull.message.suspend_timeout_millis == seconds * 1000


@pytest.mark.parametrize("most", [1, 4])
def test_so_many_pulls_are_sent_ahead(
    broker: DevBroker, dial: Callable[..., RocketClient], client: RocketClient, topic: str, seen: Recording, most: int
) -> None:
    """None of them is answered: the next one that comes is an old one again, after request_timeout."""
    put(client, topic, 400)
    broker.faults("rocketmq").delay("PullMessage", 0.0)  # the first one tells the end
    broker.faults("rocketmq").drop("PullMessage", times=most)
    with dial(request_timeout=0.5).reader(topic, stop=LATEST, pull_ahead=most, batch_bytes=1 << 10) as reader:
        found: list[bytes] = []
        until(lambda: (found.extend((reader.poll(0.2) or Columns.from_rows([])).values()), reader.done)[1])
    assert found == [b"%d" % number for number in range(400)]
    told, *pulls = seen.requests("PullMessage")[: most + 2]
    offsets = [pull.message.queue_offset for pull in pulls]
    assert len(set(offsets[:most])) == most
    assert offsets[most] in offsets[:most]
    assert 0.5 * HARDLY <= pulls[most].at - told.at < 15.0  # not from when the unanswered one came: that may have been late


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_no_body_unpacks_beyond_decompress_limit(client: RocketClient, topic: str, role: str) -> None:
    with client.producer(topic, compression="zstd") as out:
        out.send(b"small")
        out.send(bytes(1 << 20))
    limited = {"decompress_limit": 1 << 18}
    if role == "reader":
        opened: Any = client.reader(topic, **limited)
    else:
        opened = getattr(client, role)(topic, f"g-{topic}", **limited)
    with opened, pytest.raises(DecompressionError):
        until(lambda: ((opened.receive if role == "queue" else opened.poll)(0.3), False)[1])
    with client.reader(topic, stop=LATEST, decompress_limit=1 << 21) as reader:
        assert [len(value) for batch in reader for value in batch.values()] == [5, 1 << 20]


def test_no_frame_is_larger_than_max_frame(client: RocketClient, dial: Callable[..., RocketClient], topic: str) -> None:
    with client.producer(topic) as out:
        out.send(bytes(200_000))
    with dial(max_frame=100_000).reader(topic, recovery_timeout=0.1) as reader, pytest.raises(FrameTooLarge, match="100000"):
        until(lambda: (reader.poll(0.3), False)[1])


@pytest.mark.parametrize("role", ["reader", "consumer"])
@pytest.mark.parametrize("choice", ["raise", "skip", "unchecked"])
def test_a_body_that_was_changed_on_its_way(broker: DevBroker, client: RocketClient, topic: str, role: str, choice: str) -> None:
    with client.producer(topic) as out:
        out.send(bytes(2000))
    options: dict[str, Any] = {"skip": {"on_corrupt": "skip"}, "unchecked": {"check_crc": False}, "raise": {}}[choice]
    broker.faults("rocketmq").corrupt("PullMessage", at=-1000)
    batch = None
    with client.reader(topic, **options) if role == "reader" else client.consumer(topic, f"g-{topic}", **options) as opened:
        if choice == "raise":
            with pytest.raises(ChecksumMismatch):
                until(lambda: (opened.poll(0.3), False)[1])
            batch = opened.poll(30.0)
            assert batch is not None
            assert batch.values() == [bytes(2000)], "read again, as it is"
            return
        while batch is None:
            batch = opened.poll(0.3)
    if choice == "skip":
        assert len(batch) == 0
        assert len(batch.columns.skipped) == 1
        assert batch.next_positions == {(topic, 0): QueueOffset(topic, 0, 1, "dev", 0)}
    else:
        (value,) = batch.values()
        assert value is not None
        assert len(value) == 2000
        assert value != bytes(2000)


def test_a_batch_is_at_most_batch_bytes_and_at_least_min_bytes(client: RocketClient, topic: str) -> None:
    """Of stored messages: 32 of them a reply, some 4 kB each here."""
    with client.producer(topic) as out:
        for _ in range(400):
            out.send(bytes(4000))

    def sizes(**options: Any) -> list[int]:
        with client.reader(topic, stop=LATEST, **options) as reader:
            return [len(batch) for batch in reader]

    assert set(sizes(batch_bytes=1)) <= {32, 16}, "one reply each"
    assert max(sizes(batch_bytes=300_000, min_bytes=300_000)) == 64
    assert sizes(batch_bytes=4 << 20, min_bytes=4 << 20) == [400]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_only_the_columns_asked_for_are_decoded(client: RocketClient, topic: str, role: str) -> None:
    put(client, topic, 2)
    with (
        client.reader(topic, columns=("value",)) if role == "reader" else client.consumer(topic, f"g-{topic}", columns=("value",)) as opened
    ):
        batch = None
        while batch is None:
            batch = opened.poll(1.0)
        assert batch.columns.columns == ("value",)


# work -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, (0, 16)), ({"retry_level": 4, "max_attempts": 7}, (4, 7))],
    ids=["as Java's consumer: later with each attempt", "as told"],
)
def test_what_is_given_back_bears_the_options(
    client: RocketClient, topic: str, seen: Recording, options: dict[str, Any], told: tuple[int, int]
) -> None:
    put(client, topic, 1)
    with client.queue(topic, f"g-{topic}", **options) as worker:
        delivery = worker.receive(30.0)
        assert delivery is not None
        delivery.release()
    (back,) = seen.requests("ConsumerSendMsgBack")
    assert (back.message.delay_level, back.message.max_reconsume_times) == told


@pytest.mark.parametrize("most", [1, 2])
def test_a_message_is_dead_after_max_attempts(client: RocketClient, topic: str, most: int) -> None:
    group = f"g-{topic}"
    put(client, topic, 1)
    attempts = 0
    with client.queue(topic, group, max_attempts=most) as worker:
        while f"%DLQ%{group}" not in client.admin().list_topics():
            delivery = worker.receive(30.0)
            assert delivery is not None
            attempts += 1
            assert delivery.topic == topic, "the one that it was sent to"
            assert delivery.record.topic == (topic if attempts == 1 else f"%RETRY%{group}")
            delivery.release()
        assert worker.receive(0.1) is None
    assert attempts == most + 1
    with client.reader(f"%DLQ%{group}", stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == [b"0"]


def test_no_more_are_in_hand_than_max_unacked(client: RocketClient, topic: str) -> None:
    put(client, topic, 5)
    with client.queue(topic, f"g-{topic}", max_unacked=2) as worker:
        held = [worker.receive(30.0), worker.receive(30.0)]
        begun = time.monotonic()
        assert worker.receive(0.1) is None
        assert time.monotonic() - begun >= 0.1, "a loop around it does not spin"
        assert held[0] is not None
        held[0].ack()
        third = worker.receive(30.0)
        assert third is not None
        assert third.record.value == b"2"


# commits --------------------------------------------------------------------------------------------------------------------------


def test_what_was_handed_out_is_committed_at_the_interval(client: RocketClient, topic: str, seen: Recording) -> None:
    put(client, topic, 3)
    with client.consumer(topic, f"g-{topic}", auto_commit=True, auto_commit_interval=0.3) as consumer:
        assert drained(consumer, 3) == [b"0", b"1", b"2"]
        begun = time.monotonic()
        until(lambda: (consumer.poll(0.05), seen.requests("UpdateConsumerOffset"))[1] != [])
        assert time.monotonic() - begun < 30.0
        (commit,) = seen.requests("UpdateConsumerOffset")
        assert commit.message.commit_offset == 3
    assert len(seen.requests("UpdateConsumerOffset")) == 1, "nothing new was handed out"


def test_a_batch_whose_work_failed_is_not_committed(client: RocketClient, topic: str) -> None:
    """The batches before it are: they were worked on when the next one was asked for."""
    group = f"g-{topic}"
    put(client, topic, 5)

    def work() -> None:
        with client.consumer(topic, group, auto_commit=True, auto_commit_interval=300.0) as consumer:
            assert drained(consumer, 5)[-1:] == [b"4"]
            put(client, topic, 3, 5)
            drained(consumer, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert {key: place.offset for key, place in client.admin().group_positions(group, topic).items()} == {(topic, 0): 5}
    with client.consumer(topic, group, auto_commit=True, auto_commit_interval=300.0) as consumer:
        assert drained(consumer, 3) == [b"5", b"6", b"7"]
    assert {place.offset for place in client.admin().group_positions(group, topic).values()} == {8}, "a block that ends well commits"


def expelled(client: RocketClient, seen: Recording, consumer: Any) -> None:
    """Wait until the member has left because nobody polled, and its broker knows."""
    seen.wait("UnregisterClient", timeout=30.0, when=lambda gone: gone.message.client_id == consumer._assignment.member.id)
    until(lambda: consumer._assignment.member.left)


@pytest.mark.parametrize("how", ["commit", "positions", "auto", "close"])
def test_who_was_out_of_the_group_does_not_undo_what_others_committed(client: RocketClient, topic: str, seen: Recording, how: str) -> None:
    group = f"g-{topic}"
    put(client, topic, 40)
    options: dict[str, Any] = {"auto_commit": True, "auto_commit_interval": 0.05} if how in ("auto", "close") else {}
    first = client.consumer(topic, group, max_poll_interval=1.5, batch_bytes=1, **options)
    batch = None
    while batch is None:
        batch = first.poll(0.1)
    expelled(client, seen, first)
    with client.consumer(topic, group) as second:
        until(lambda: (second.poll(0.1), bool(second.assignment))[1])
        second.commit({(topic, 0): LogOffset(topic, 0, 40)})
    put(client, topic, 5, 40)
    if how == "commit":
        with pytest.raises(Revoked) as caught:
            first.commit()
        assert caught.value.partitions == ((topic, 0),)
        first.commit()  # told once
    elif how == "positions":
        with pytest.raises(Revoked):
            first.commit({(topic, 0): LogOffset(topic, 0, 4)})
    elif how == "close":
        first.close()
    if how != "close":
        assert drained(first, 5) == [b"%d" % n for n in range(40, 45)]
    places = client.admin().group_positions(group, topic)
    assert places[topic, 0].offset >= 40
    if how != "close":
        first.commit({(topic, 0): LogOffset(topic, 0, 42)})
        assert client.admin().group_positions(group, topic)[topic, 0].offset == 42
        first.close()


def test_an_ack_after_being_out_of_the_group_is_refused(client: RocketClient, topic: str, seen: Recording) -> None:
    group = f"g-{topic}"
    put(client, topic, 10)
    first = client.queue(topic, group, max_poll_interval=0.4)
    held = first.receive(30.0)
    assert held is not None
    expelled(client, seen, first)
    with client.consumer(topic, group) as second:
        until(lambda: (second.poll(0.1), bool(second.assignment))[1])
        second.commit({(topic, 0): LogOffset(topic, 0, 10)})
    with pytest.raises(Revoked):
        held.ack()
    assert client.admin().group_positions(group, topic)[topic, 0].offset == 10
    first.close()


def test_latest_is_the_end_of_the_queues_that_there_were(client: RocketClient, dial: Callable[..., RocketClient], topic: str) -> None:
    """Queues that come later are read from their first record, by members that are there and by such that come later still."""
    group = f"g-{topic}"
    put(client, topic, 4)
    other = dial(route_age=0.05)
    with other.consumer(topic, group, start=LATEST, rebalance_interval=0.05) as consumer:
        assert consumer.poll(0.0) is None
        grow(client, topic, 2)
        with dial(route_age=0.05).producer(topic) as out:
            out.send(b"first", partition=1).position(30.0)
            out.send(b"old queue", partition=0).position(30.0)
        assert sorted(drained(consumer, 2)) == [b"first", b"old queue"]
        consumer.commit()
    grow(client, topic, 3)
    with dial(route_age=0.05).producer(topic) as out:
        out.send(b"nobody was there", partition=2).position(30.0)
    with dial().consumer(topic, group, start=LATEST) as consumer:
        assert drained(consumer, 1) == [b"nobody was there"]
        consumer.commit()
    assert {key[1]: place.offset for key, place in dial().admin().group_positions(group, topic).items()} == {0: 5, 1: 1, 2: 1}


def grow(client: RocketClient, topic: str, queues: int) -> None:
    request = UpdateAndCreateTopicRequest(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0, order=False,
    )  # fmt: skip
    (address,) = client.cluster.drive(client.cluster.masters(client.deadline(10.0)), client.deadline(10.0))
    client.request(request, to=address)


def test_members_that_begin_at_the_end_together_begin_no_queue_at_its_first_record(
    client: RocketClient, dial: Callable[..., RocketClient], broker: DevBroker
) -> None:
    """The second one comes while the first is still noting where the group begins."""
    topic = f"taking-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=6)
    put(client, topic, 60)
    broker.faults("rocketmq").delay("UpdateConsumerOffset", 0.05, times=8)
    opened: list[Any] = []
    clients = [dial(), dial()]
    threads = [threading.Thread(target=lambda one=one: opened.append(one.consumer(topic, f"g-{topic}", start=LATEST))) for one in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    first, second = opened
    until(lambda: (first.poll(0.05), second.poll(0.05), len(first.assignment) == len(second.assignment) == 3)[2])
    put(client, topic, 12, 100)
    found: list[bytes] = []

    def more() -> bool:
        for consumer in opened:
            batch = consumer.poll(0.1)
            found.extend(batch.values() if batch is not None else [])
        return len(found) >= 12

    until(more)
    assert sorted(found) == [b"%d" % n for n in range(100, 112)]


# resets ---------------------------------------------------------------------------------------------------------------------------


def reset(client: RocketClient, topic: str, group: str, offset: int) -> None:
    request = InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True, queue_id=0, offset=offset)
    client.request(request, to=(topic, 0))


@pytest.mark.parametrize(("handed", "goal"), [(32, 590), (32, 600), (600, 10), (600, 0), (600, 600), (64, 31)])
def test_a_reset_that_the_broker_keeps_is_obeyed_whichever_pull_hears_of_it(
    client: RocketClient, topic: str, seen: Recording, handed: int, goal: int
) -> None:
    """Back and forth, with a backlog fetched ahead and at the end of the queue."""
    group = f"g-{topic}"
    put(client, topic, 600)
    with client.consumer(topic, group, pull_suspend=1.0, batch_bytes=1) as consumer:
        drained(consumer, handed)
        reset(client, topic, group, goal)
        found: list[int] = []

        def told() -> bool:
            batch = consumer.poll(0.1)
            found.extend(int(value) for value in (batch.values() if batch is not None else []))
            return any(commit.message.commit_offset == goal for commit in seen.requests("UpdateConsumerOffset"))

        until(told)
        put(client, topic, 1, 600)
        found += [int(value) for value in drained(consumer, 1)]
        until(lambda: (found.extend(int(value) for value in getattr(consumer.poll(0.1), "values", list)()), found[-1] == 600)[1])
        fresh = found[len(found) - (601 - goal) :]
        assert fresh == list(range(goal, 601))
        consumer.commit()
        assert client.admin().group_positions(group, topic)[topic, 0].offset == 601


def test_positions_from_before_a_reset_do_not_undo_it(client: RocketClient, topic: str, seen: Recording) -> None:
    group = f"g-{topic}"
    put(client, topic, 40)
    with client.consumer(topic, group, pull_suspend=1.0, batch_bytes=1) as consumer:
        drained(consumer, 40)
        reset(client, topic, group, 5)
        until(lambda: (consumer.commit({(topic, 0): LogOffset(topic, 0, 40)}), consumer.poll(0.1) is not None)[1])
        assert seen.requests("UpdateConsumerOffset")[-1].message.commit_offset == 5, "before anything from behind it was handed out"
        assert client.admin().group_positions(group, topic)[topic, 0].offset == 5


def test_a_worker_s_messages_from_before_a_reset_are_revoked(client: RocketClient, topic: str) -> None:
    group = f"g-{topic}"
    put(client, topic, 4)
    with client.queue(topic, group, pull_suspend=1.0) as worker:
        for _ in range(3):
            delivery = worker.receive(30.0)
            assert delivery is not None
            delivery.ack()
        old = worker.receive(30.0)
        reset(client, topic, group, 1)
        again: list[Any] = []
        until(lambda: (again.append(worker.receive(0.2)), again[-1] is not None)[1])
        assert again[-1].record.value == b"1"
        assert old is not None
        with pytest.raises(Revoked, match="was set to another offset by an administrator"):
            old.ack()
        again[-1].ack(wait=True)
        assert client.admin().group_positions(group, topic)[topic, 0].offset == 2


def test_a_reader_is_not_led_by_what_a_group_is_told(client: RocketClient, topic: str) -> None:
    put(client, topic, 40)
    with client.reader(topic, group=f"g-{topic}", batch_bytes=1, pull_suspend=1.0, stop={(topic, 0): LogOffset(topic, 0, 45)}) as reader:
        drained(reader, 32)
        reset(client, topic, f"g-{topic}", 0)
        put(client, topic, 5, 40)
        found = drained(reader, 5)
        until(lambda: (found.extend(getattr(reader.poll(0.1), "values", list)()), reader.done)[1])
        assert found == [b"%d" % n for n in range(32, 45)]
