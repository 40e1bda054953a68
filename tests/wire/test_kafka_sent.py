"""What Kafka's roles send when something goes wrong on the embedded broker: how often, how soon, under which identity, and what not."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.partitioner.default import murmur2 as their_murmur2

import wireproto
from wireproto import LATEST
from wireproto._codec import Columns, kafka_batches, kafka_partition
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.recording import Recording
from wireproto.errors import TimedOut
from wireproto.kafka.codes import DuplicateSequenceNumber, InvalidRecord, UnknownTopicOrPartition

SOON = 20.0
BACK_OFF = 0.1 * 0.8  # seconds: the least that the policy's jitter leaves of the first pause
_numbers = itertools.count()


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[DevBroker, Recording]]:
    with DevBroker(["kafka"]) as broker:
        yield broker, broker.record("kafka")


@pytest.fixture
def broker(recorded: tuple[DevBroker, Recording]) -> DevBroker:
    return recorded[0]


@pytest.fixture
def seen(recorded: tuple[DevBroker, Recording], topic: str) -> Recording:
    """Without the making of the topic."""
    recorded[1].clear()
    return recorded[1]


@pytest.fixture
def faults(broker: DevBroker) -> Iterator[Faults]:
    given = broker.faults("kafka")
    given.clear()
    yield given
    given.clear()


@pytest.fixture
def client(broker: DevBroker, faults: Faults) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), timeout=10.0, unknown_topic_timeout=0.1) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """Two partitions with ten records each."""
    name = f"sent-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    with client.producer(name) as producer:
        for number in range(20):
            producer.send(b"%d" % number, partition=number % 2)
    return name


def take(consumer: Any, count: int) -> list[bytes]:
    """So many records."""
    found: list[bytes] = []
    deadline = time.monotonic() + SOON
    while len(found) < count:
        assert time.monotonic() < deadline, found
        batch = consumer.poll(1.0)
        found += batch.values() if batch is not None else []
    return found


def batches(seen: Recording) -> list[tuple[int, int, int, int]]:
    """Producer id, epoch, sequence and count of every batch that was sent, in order."""
    return [
        (facts["producer_id"], facts["producer_epoch"], facts["base_sequence"], facts["count"])
        for request in seen.requests("Produce")
        for topic in request.message.topic_data
        for part in topic.partition_data
        for facts in kafka_batches(part.records)
    ]


# --- members ---


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_that_moves_ends_no_membership(client: Any, topic: str, faults: Faults, seen: Recording, code: int) -> None:
    """Beats that are told so look for it, and go on with the same generation; nothing is taken away."""
    told: list[Any] = []
    with client.consumer(topic, f"g-{topic}", heartbeat_interval=0.05, on_revoked=told.append) as consumer:
        take(consumer, 20)
        faults.error("Heartbeat", code)
        before = len(seen.requests("Heartbeat"))
        seen.wait("Heartbeat", before + 4, timeout=SOON)
        assert consumer.poll(0.1) is None
        consumer.commit()
        assert len(consumer.assignment) == 2
        assert told == []
    assert len(seen.requests("SyncGroup")) == 1


def test_a_member_that_closes_leaves_at_once(client: Any, topic: str, seen: Recording) -> None:
    with client.consumer(topic, f"g-{topic}") as consumer:
        take(consumer, 20)
        member = consumer._coordinator.membership.member
    assert [entry.member_id for request in seen.requests("LeaveGroup") for entry in request.message.members] == [member]
    assert client.admin().describe_group(f"g-{topic}").state == "Empty"


def test_partitions_that_are_added_come_to_a_member(client: Any, topic: str, broker: DevBroker, seen: Recording) -> None:
    with client.consumer(topic, f"g-{topic}", metadata_max_age=0.1, heartbeat_interval=0.05) as consumer:
        take(consumer, 20)
        consumer.commit()
        broker.call("kafka", "grow", topic, 3)
        with client.producer(topic, metadata_max_age=0.1) as producer:
            client.cluster.refresh((topic,), client.deadline())
            producer.send(b"in the new one", partition=2).position(SOON)
        assert take(consumer, 1) == [b"in the new one"]
        assert len(consumer.assignment) == 3


def test_stable_offsets_are_waited_for(client: Any, topic: str, broker: DevBroker, seen: Recording) -> None:
    """A transaction that commits offsets of the group is open: a member that began at the ones before would repeat records."""
    with client.consumer(topic, f"g-{topic}") as consumer:
        take(consumer, 20)
        consumer.commit()
    broker.call("kafka", "hold_offsets", f"g-{topic}")
    with client.consumer(topic, f"g-{topic}") as consumer:
        deadline = time.monotonic() + SOON
        while len(seen.replies("OffsetFetch")) < 5:
            assert time.monotonic() < deadline, "it is satisfied with less"
            assert consumer.poll(0.1) is None
        assert consumer.assignment == frozenset()
        broker.call("kafka", "hold_offsets", f"g-{topic}", held=False)
        while not consumer.assignment:
            assert time.monotonic() < deadline, "it never begins"
            assert consumer.poll(0.1) is None
        assert {place.offset for place in consumer.positions.values()} == {10}
    assert all(request.message.require_stable for request in seen.requests("OffsetFetch"))


# --- readers ---


def test_a_leader_that_refuses_or_hangs_up_is_asked_again_after_a_pause(client: Any, topic: str, faults: Faults, seen: Recording) -> None:
    with client.reader(topic, stop=LATEST, partitions=[0]) as reader:
        refused = faults.error("Fetch", 6, times=5)
        assert sum(len(batch) for batch in reader) == 10
        assert not refused.times
    asked = [request.at for request in seen.requests("Fetch")]
    assert len(asked) >= 6
    assert min(after - before for before, after in itertools.pairwise(asked[:6])) >= BACK_OFF * 0.9
    seen.clear()
    with client.reader(topic, stop=LATEST, partitions=[0]) as reader:
        faults.disconnect("Fetch", times=5)
        assert sum(len(batch) for batch in reader) == 10
    asked = [request.at for request in seen.requests("Fetch")]
    assert min(after - before for before, after in itertools.pairwise(asked[:6])) >= BACK_OFF * 0.9


@pytest.mark.parametrize("role", ["reader", "consumer", "producer", "describe", "positions"])
def test_who_looks_for_a_topic_makes_none(client: Any, topic: str, seen: Recording, role: str) -> None:
    """The broker makes topics that are asked for so: only a producer that is told to may ask so."""
    name = f"{topic}-{role}"
    ways: dict[str, Any] = {
        "reader": lambda: client.reader(name, stop=LATEST),
        "consumer": lambda: client.consumer(name, "g"),
        "producer": lambda: client.producer(name),
        "describe": lambda: client.admin().describe_topic(name, timeout=5.0),
        "positions": lambda: client.admin().positions(name, LATEST, timeout=5.0),
    }
    with pytest.raises(UnknownTopicOrPartition):
        ways[role]()
    assert name not in client.admin().list_topics()
    assert not any(request.message.allow_auto_topic_creation for request in seen.requests("Metadata"))


# --- producers ---


@pytest.mark.parametrize("code", [45, 47, 49, 59])
def test_a_producer_that_the_broker_does_not_know_starts_over(client: Any, topic: str, faults: Faults, seen: Recording, code: int) -> None:
    """In the next epoch of its id, which fences what is still under way, from sequence 0 on; each record lands once, in order."""
    with client.producer(topic) as producer:
        for number in range(4):
            if number == 2:
                faults.error("Produce", code)
            producer.send(b"%d" % number, partition=0, headers={"new": b""}).position(SOON)
    sent = batches(seen)
    assert [sequence for _, _, sequence, _ in sent] == [10, 11, 12, 0, 1], "behind what the client's first producer wrote"
    assert len({identity[:2] for identity in sent[:3]}) == 1
    assert len({identity[:2] for identity in sent[3:]}) == 1
    assert sent[3][:2] == (sent[0][0], sent[0][1] + 1)
    assert not seen.requests("InitProducerId"), "the client's producers have one id"
    with client.reader(topic, stop=LATEST, partitions=[0]) as reader:
        landed = [record.value for batch in reader for record in batch if record.headers]
    assert landed == [b"0", b"1", b"2", b"3"]


def test_what_was_held_up_on_the_way_does_not_land_again_when_it_comes_late(
    client: Any, topic: str, faults: Faults, seen: Recording
) -> None:
    """Two batches on a path that stalls. Sent again, the first is refused for good, and the second starts over behind the hole; then the
    path delivers what it held."""
    with client.producer(topic, linger=0.0, request_timeout=0.1) as producer:
        for _ in range(2):
            producer.send(b"before", partition=0).position(SOON)
        faults.delay("Produce", 2.5)
        faults.error("Produce", InvalidRecord.code)
        hole, again = producer.send(b"hole", partition=0), producer.send(b"again", partition=0)
        with pytest.raises(InvalidRecord):
            hole.position(SOON)
        place = again.position(SOON).offset
        assert producer.send(b"behind", partition=0).position(SOON).offset == place + 1
        deadline = time.monotonic() + SOON
        while len(seen.replies("Produce")) < len(seen.requests("Produce")):
            assert time.monotonic() < deadline, "the path does not deliver"
            client.cluster.pause(0.05)
        producer.flush(SOON)
    with client.reader(topic, stop=LATEST, partitions=[0]) as reader:
        values = [value for batch in reader for value in batch.values()]
    assert values[-4:] == [b"before", b"before", b"again", b"behind"]


def test_a_record_whose_answers_were_lost_may_still_be_in_the_log_and_says_so(client: Any, topic: str, faults: Faults) -> None:
    with client.producer(topic, request_timeout=0.2, delivery_timeout=3.0) as producer:
        producer.send(b"x", partition=0).position(SOON)
        lost = faults.lose_reply("Produce", times=-1)
        receipt = producer.send(b"in doubt", partition=0)
        with pytest.raises(TimedOut, match="it may still be in the log"):
            receipt.position(SOON)
        producer.flush(SOON)
        lost.times = 0
    with client.producer(topic, request_timeout=30.0, delivery_timeout=2.0) as producer:
        producer.send(b"x", partition=1).position(SOON)
        faults.error("Produce", 6, times=-1)
        receipt = producer.send(b"refused", partition=1)
        with pytest.raises(TimedOut) as caught:
            receipt.position(SOON)
        assert "may still" not in str(caught.value), "each sending of it was answered"
        producer.flush(SOON)


def test_a_record_that_nobody_answered_in_time_fails_with_timed_out(client: Any, topic: str, faults: Faults) -> None:
    with client.producer(topic, request_timeout=0.2, delivery_timeout=0.3) as producer:
        silent = faults.drop("Produce", times=-1)
        receipt = producer.send(b"unanswered", partition=0)
        with pytest.raises(TimedOut, match=r"not acknowledged within 0\.3 s"):
            receipt.position(SOON)
        silent.times = 0
        producer.flush(SOON)


def test_keys_go_where_javas_client_sends_them(client: Any, topic: str) -> None:
    """With a number of partitions that is no power of two, where the hash's sign shows."""
    keys = [b"%d" % number * (number % 5 + 1) for number in range(200)]
    assert sum((their_murmur2(key) & 0xFFFFFFFF) >> 31 for key in keys) > 50, "half of them have the sign"
    for count in (1, 3, 7, 12, 1000):
        assert [kafka_partition(key, count) for key in keys] == [(their_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    client.admin().create_topic(f"{topic}-seven", partitions=7)
    with client.producer(f"{topic}-seven") as producer:
        single = [producer.send(b"", key=key) for key in keys]
        producer.send_batch(Columns.from_rows(keys, keys))
        producer.flush(SOON)
    expected = [(their_murmur2(key) & 0x7FFFFFFF) % 7 for key in keys]
    assert [receipt.position(SOON).partition for receipt in single] == expected
    with client.reader(f"{topic}-seven", stop=LATEST) as reader:
        placed = {record.value: record.partition for batch in reader for record in batch if record.value}
    assert [placed[key] for key in keys] == expected


def test_a_record_that_an_earlier_sending_stored_is_stored_at_a_place_that_nobody_knows(client: Any, topic: str, faults: Faults) -> None:
    faults.error("Produce", DuplicateSequenceNumber.code)
    with client.producer(topic) as producer:
        receipt = producer.send(b"x", partition=0)
        producer.flush(SOON)
        with pytest.raises(DuplicateSequenceNumber, match="whose offset the broker does not report"):
            receipt.position(SOON)
        assert producer.send(b"y", partition=0).position(SOON).offset == 10
