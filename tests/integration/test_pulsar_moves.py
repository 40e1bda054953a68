"""Pulsar when things move: topics unloaded in mid-flight, a broker that goes away and comes back, members that share."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from brokers.pulsar import Pulsar
from integration.pulsar_tools import drain, loses_nothing, new_topic, ours
from patience import until
from wireproto import EARLIEST, LATEST, AtTime
from wireproto.pulsar.codes import TopicTerminatedError

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)


def unload(broker: Pulsar, topic: str) -> None:
    broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}/unload")


def at(client: Any, topic: str) -> tuple[int, int]:
    """Where the group of the test stands, by the broker's word."""
    (mark,) = client.admin().group_positions("moves", topic).values()
    return mark.ledger, mark.entry


def values(role: Any, wanted: int, **options: Any) -> list[bytes]:
    return [record.value for record in drain(role, wanted, **options)]


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.no_rerun
def test_a_topic_unloaded_in_mid_produce_loses_nothing_and_keeps_the_order(broker: Pulsar, batching: bool) -> None:
    topic = new_topic(broker)
    with ours(broker) as client:
        with client.producer(topic, batching=batching, batch_records=50) as producer, ThreadPoolExecutor(1) as pool:
            sent: list[bytes] = []
            for _ in range(8):
                first: Any = None
                unloading = pool.submit(unload, broker, topic)
                while not unloading.done():
                    for _ in range(100):
                        sent.append(b"%d" % len(sent))
                        receipt = producer.send(sent[-1])
                        first = first or receipt
                    time.sleep(0.005)
                first.position(180.0)  # and those behind it are on their way still when the topic is unloaded again
            producer.flush(180.0)
        read = [record.value for batch in client.reader(topic, start=EARLIEST, stop=LATEST) for record in batch]
    # what was acknowledged and sent again may stand there twice (no deduplication here): its first copies are in order and complete
    assert list(dict.fromkeys(read)) == sent


def test_a_reader_goes_on_over_unloads_without_gap_or_repeat(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, batching=False) as producer, client.reader(topic, start=EARLIEST) as reader:
        sent: list[bytes] = []
        read: list[bytes] = []
        for _ in range(5):
            for _ in range(50):
                sent.append(b"%d" % len(sent))
                producer.send(sent[-1])
            producer.flush()
            read += values(reader, 20)
            unload(broker, topic)
            read += values(reader, len(sent) - len(read))
    assert read == sent


def test_a_consumer_goes_on_over_unloads_without_repeat(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic) as producer:
        with client.consumer(topic, "moves", mode="exclusive") as consumer:
            sent: list[bytes] = []
            read: list[bytes] = []
            for _ in range(3):
                for _ in range(50):
                    sent.append(b"%d" % len(sent))
                    last = producer.send(sent[-1])
                producer.flush()
                unload(broker, topic)
                read += values(consumer, len(sent) - len(read))
            consumer.commit()
            end = last.position(30.0)
            # a broker answers an acknowledgement before it has noted it, where it has to make a ledger for the mark first
            until(lambda: at(client, topic) >= (end.ledger, end.entry), "the commit is not noted")
        assert read == sent
        with client.consumer(topic, "moves", mode="exclusive") as consumer:
            assert consumer.poll(1.0) is None


@pytest.mark.soak
@pytest.mark.no_rerun
def test_a_crash_loses_nothing_acknowledged(broker: Pulsar) -> None:
    """What test_pulsar_transaction_faults.py::test_a_broker_that_is_killed_… proves beside transactions, on a broker without them."""
    with loses_nothing(broker) as sends:
        broker.kill()
        sends()
        broker.start()


def test_failover_of_two_members(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as one, ours(broker) as two, one.producer(topic, batching=False) as producer:
        first = one.consumer(topic, "pair", consumer_name="a")
        second = two.consumer(topic, "pair", consumer_name="b")
        for number in range(10):
            producer.send(b"%d" % number)
        producer.flush()
        records: list[Any] = []
        until = time.monotonic() + 60.0
        while not records and time.monotonic() < until:  # the broker picks the one it feeds by the topic's hash
            records = drain(first, 1, seconds=0.2)
            if not records:
                first, second = second, first
        records += drain(first, 10 - len(records))
        assert [record.value for record in records] == [b"%d" % number for number in range(10)]
        assert second.poll(1.0) is None
        assert first.assignment == {(topic, -1)}
        assert second.assignment == frozenset()
        first.commit({(topic, -1): records[6].position})
        first.close()
        assert values(second, 4) == [b"6", b"7", b"8", b"9"]
        second.close()


@pytest.mark.no_rerun
def test_key_shared_members_share_by_key_and_lose_nothing(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as one, ours(broker) as two, one.producer(topic, batching=False) as producer:
        queues = [one.queue(topic, "keys", mode="key-shared"), two.queue(topic, "keys", mode="key-shared")]
        for number in range(200):
            producer.send(b"%d" % number, key=b"k%d" % (number % 20))
        producer.flush()
        seen: list[dict[bytes, list[int]]] = [{}, {}]
        left = 200
        until = time.monotonic() + 120.0
        while left and time.monotonic() < until:
            for mine, queue in zip(seen, queues, strict=True):
                delivery = queue.receive(0.05)
                if delivery is not None:
                    mine.setdefault(delivery.key, []).append(int(delivery.value))
                    delivery.ack()
                    left -= 1
        for queue in queues:
            queue.close()
    assert left == 0
    assert not seen[0].keys() & seen[1].keys()
    assert all(numbers == sorted(numbers) for mine in seen for numbers in mine.values())


def test_released_and_unacked_messages_of_a_batch_come_again(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, linger=60.0) as producer:
        with client.queue(topic, "work") as queue:
            for number in range(4):
                producer.send(b"%d" % number)
            producer.flush()
            held = [queue.receive(20.0) for _ in range(4)]
            assert [(d.value, d.attempt, d.position.index) for d in held] == [(b"%d" % n, 1, n) for n in range(4)]
            held[1].ack()
            held[2].release()
            again = queue.receive(20.0)
            assert (again.value, again.attempt > 1) == (b"2", True)
            again.ack()
        with client.queue(topic, "work") as queue:
            rest = [queue.receive(20.0), queue.receive(20.0)]
            assert sorted(d.value for d in rest) == [b"0", b"3"]
            for delivery in rest:
                delivery.ack()
            assert queue.receive(0.5) is None


def test_start_and_stop_by_time(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client:
        with client.producer(topic, batching=False) as producer:
            for number in range(5):
                producer.send(b"early%d" % number, timestamp=1).position(30.0)
            time.sleep(0.05)
            between = int(time.time() * 1000)
            time.sleep(0.05)
            for number in range(5):
                producer.send(b"late%d" % number, timestamp=1).position(30.0)
        late = [record.value for batch in client.reader(topic, start=AtTime(between), stop=LATEST) for record in batch]
        early = [record.value for batch in client.reader(topic, stop=AtTime(between)) for record in batch]
        nothing = [record.value for batch in client.reader(topic, start=AtTime(between + 10**6), stop=LATEST) for record in batch]
        with client.consumer(topic, "late", start=AtTime(between), mode="exclusive") as consumer:
            followed = values(consumer, 5)
            while followed[-1:] != [b"late4"]:
                more = values(consumer, 1)
                assert more, f"nothing comes after {followed}"
                followed += more
    assert late == [b"late%d" % number for number in range(5)]
    assert early == [b"early%d" % number for number in range(5)]
    assert nothing == []
    assert followed[-5:] == late  # whole seconds: perhaps some early ones before


def test_what_a_broker_has_a_group_skip_does_not_come_and_what_was_handed_out_can_be_committed(broker: Pulsar) -> None:
    """As an operator does it, or a quota that evicts a backlog, or a time to live: the group's mark moves past what nobody has read."""
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, batching=False) as producer:
        for number in range(30):
            producer.send(b"%d" % number)
        producer.flush()
        with client.consumer(topic, "moves", receive_memory=1) as log:
            [first] = values(log, 1)
            assert first == b"0"
            broker.call("POST", f"/admin/v2/persistent/public/default/{topic}/subscription/moves/skip_all")
            end = at(client, topic)
            log.commit()
            assert at(client, topic) == end, "it does not go back"
            assert list(log.lag().values()) == [0]
            producer.send(b"later").position(30.0)
            found = [first]
            while found[-1] != b"later":
                found += values(log, 1)
            assert len(set(found)) == len(found) < 30, "have not answered the requests in flight comes, each once"
            log.commit()
        with client.queue(topic, "moves", receive_messages=1) as queue:
            for number in range(30):
                producer.send(b"again %d" % number)
            producer.flush()
            held = queue.receive(30.0)
            assert held.value == b"again 0"
            broker.call("POST", f"/admin/v2/persistent/public/default/{topic}/subscription/moves/skip_all")
            held.ack()
            producer.send(b"last").position(30.0)
            found = []
            while (delivery := queue.receive(30.0)).value != b"last":
                found.append(delivery.value)
                delivery.ack()
            delivery.ack()
            assert len(found) <= 1, "have not answered the requests in flight"


def test_a_new_subscription_begins_at_a_position(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client:
        with client.producer(topic, batching=False) as producer:
            places = [producer.send(b"%d" % number).position(30.0) for number in range(10)]
        starts = (
            ("at", places[4], 4),
            ("mapping", {(topic, -1): places[7]}, 7),
            ("behind", replace(places[7], after=True), 8),
            ("behind all", replace(places[9], after=True), 10),
        )
        for name, where, first in starts:
            with client.consumer(topic, name, start=where, mode="exclusive") as consumer:
                assert values(consumer, 10 - first) == [b"%d" % number for number in range(first, 10)]
                assert [(place.entry, place.after) for place in consumer.committed().values()] == [(first - 1, True)]
                consumer.commit()
            with client.consumer(topic, name, start=EARLIEST, mode="exclusive") as consumer:
                assert consumer.poll(0.5) is None  # the group's own position goes before `start`


def test_a_terminated_topic_is_read_to_its_end(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client:
        with client.producer(topic) as producer:
            producer.send(b"last")
        broker.call("POST", f"/admin/v2/persistent/public/default/{topic}/terminate", {})
        read = [record.value for batch in client.reader(topic, start=EARLIEST) for record in batch]
        with pytest.raises(TopicTerminatedError):
            client.producer(topic, timeout=20.0)
    assert read == [b"last"]
