"""A long life beside a real broker: members that lose a partition and get it back, refusals that pass, records that are refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

import patience
from brokers.pulsar import Pulsar
from integration.pulsar_tools import drain, new_topic, ours, unload_kept
from wireproto import LATEST, UnknownPosition
from wireproto.errors import OptionError, Revoked, RoleUnsupported
from wireproto.pulsar.codes import NotAllowedError, ProducerBlockedQuotaExceededException

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)


REST = "/admin/v2/persistent/public/default/"


def values(role: Any, wanted: int, **options: Any) -> list[bytes]:
    return [record.value for record in drain(role, wanted, **options)]


def test_what_a_member_did_not_commit_comes_again_when_it_is_fed_again(broker: Pulsar, fault_proxy: Any) -> None:
    """It loses its connection, another member is fed meanwhile and leaves without a commit: nothing is lost, whoever reads on."""
    topic = new_topic(broker)
    sent = [b"%d" % number for number in range(100)]
    with ours(broker) as client, client.producer(topic, batch_records=10) as producer:
        for value in sent:
            producer.send(value)
    with ours(broker, address_map=fault_proxy.address_map(broker.addresses)) as one, ours(broker) as two:
        first = one.consumer(topic, "group", consumer_name="a", priority=1)
        assert values(first, 100) == sent
        fault_proxy.refuse()
        second = two.consumer(topic, "group", consumer_name="b", priority=0)
        assert values(second, 100) == sent
        fault_proxy.heal()
        until = time.monotonic() + 60.0
        while first._stream.parts[0].conn is None and time.monotonic() < until:
            assert first.poll(0.2) is None
        with pytest.raises(Revoked):
            first.commit()
        second.close()
        assert values(first, 100) == sent
        first.commit()
        first.close()
        with two.consumer(topic, "group") as fresh:
            assert fresh.lag() == {(topic, -1): 0}


def test_a_member_whose_window_is_full_when_it_loses_a_partition_reads_on_when_it_gets_it_back(broker: Pulsar) -> None:
    topic = new_topic(broker)
    sent = [b"%05d" % number * 200 for number in range(2000)]
    with ours(broker) as one, ours(broker) as two, one.producer(topic, batching=False) as producer:
        for value in sent:
            producer.send(value)
        producer.flush(60.0)
        first = one.consumer(topic, "group", consumer_name="a", priority=1, receive_memory=1 << 16)
        found = values(first, 500)
        first.commit()
        second = two.consumer(topic, "group", consumer_name="b", priority=0)
        other = values(second, 1)
        assert other == sent[len(found) : len(found) + len(other)]
        second.close()
        while len(fresh := list(dict.fromkeys(found))) < len(sent):
            more = values(first, 1)
            assert more, f"silence after {len(fresh)} of {len(sent)}"
            found += more  # some perhaps twice: a broker that makes sure of the active member goes back to the mark
        assert fresh == sent
        first.close()


def in_force(attempt: Any, error: type[Exception]) -> None:
    """A policy comes into force some time after it was told."""
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        try:
            attempt()
        except error:
            return
    pytest.fail("the policy never came into force")


def test_a_batch_above_the_topic_s_limit_fails_alone(broker: Pulsar) -> None:
    """Brokers learn that limit from a policy that may change at any time; what is sent behind the batch is stored once."""
    topic = new_topic(broker)
    broker.call("POST", f"{REST}{topic}/maxMessageSize", 2000)
    with ours(broker) as client:

        def probe() -> None:
            with client.producer(topic, batching=False) as one:
                one.send(b"p" * 3000).position(20.0)

        in_force(probe, NotAllowedError)
        with client.producer(topic, batch_records=50, linger=3600.0, delivery_timeout=20.0) as producer:
            refused = [producer.send(b"x" * 100) for _ in range(50)]
            behind = []
            for number in range(3):
                behind.append(producer.send(b"behind %d" % number))
                producer.seal()
            for receipt in (refused[0], refused[-1]):
                with pytest.raises(NotAllowedError, match="maximum message size"):
                    receipt.position(30.0)
            assert len({receipt.position(30.0) for receipt in behind}) == 3
            with pytest.raises(NotAllowedError):
                producer.flush(30.0)
        read = [value for batch in client.reader(topic, stop=LATEST) for value in batch.values()]
    assert [value for value in read if not value.startswith(b"p")] == [b"behind 0", b"behind 1", b"behind 2"]


def test_a_producer_goes_on_when_a_full_quota_is_lifted(broker: Pulsar) -> None:
    topic = new_topic(broker)
    quota = f"{REST}{topic}/backlogQuota?backlogQuotaType=destination_storage"
    with ours(broker) as client:
        client.consumer(topic, "slow", mode="exclusive").close()
        producer = client.producer(topic, batching=False, delivery_timeout=60.0)
        for _ in range(10):
            producer.send(b"x" * 1000)
        producer.flush()
        broker.call("POST", quota, {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"})
        in_force(lambda: client.producer(topic).close(), ProducerBlockedQuotaExceededException)
        broker.call("PUT", f"{REST}{topic}/unload")
        in_force(lambda: producer.send(b"refused?").position(60.0), ProducerBlockedQuotaExceededException)
        broker.call("DELETE", quota)
        until = time.monotonic() + 60.0
        place = None
        while place is None and time.monotonic() < until:
            try:
                place = producer.send(b"taken").position(60.0)
            except ProducerBlockedQuotaExceededException:
                continue
        assert place is not None
        producer.close()


def test_ids_end_with_63_bits_and_begin_anew_under_another_name(broker: Pulsar) -> None:
    """What the Spark sink's names and ids are made for: brokers answer larger ones as repeated, and store nothing."""
    topic = new_topic(broker)
    with ours(broker) as client:
        broker.call("POST", f"{REST}{topic}/deduplicationEnabled", True)
        until = time.monotonic() + 60.0
        while client.admin().deduplication(topic) != "Enabled" and time.monotonic() < until:
            broker.call("PUT", f"{REST}{topic}/unload")
            client.producer(topic).close()
        places = []
        with client.producer(topic, producer_name="task", first_sequence=(1 << 23) - 1 << 40) as producer:
            places.append(producer.send(b"last").position(20.0))
        for batch in (1 << 23, (1 << 24) - 1):
            with pytest.raises(OptionError, match="first_sequence"):
                client.producer(topic, producer_name="task", first_sequence=batch << 40)
        with client.producer(topic, producer_name="task-g1", first_sequence=0) as producer:
            places.append(producer.send(b"next").position(20.0))
    assert [isinstance(place, UnknownPosition) for place in places] == [False, False]


def test_a_subscription_that_is_reset_from_outside_is_read_again(broker: Pulsar) -> None:
    """By the admin interface, to the beginning: what this member has committed comes again, and its next commit does not undo that."""
    topic = new_topic(broker)
    sent = [b"%d" % number for number in range(100)]
    with ours(broker) as client, client.producer(topic, batch_records=10) as producer:
        for value in sent:
            producer.send(value)
        producer.flush()
        with client.consumer(topic, "group") as consumer:
            assert values(consumer, 100) == sent
            consumer.commit()
            unload_kept(broker, topic, "group")
            assert consumer.poll(3.0) is None, "an unload is no reset"
            earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
            broker.call("POST", f"{REST}{topic}/subscription/group/resetcursor", earliest)
            assert values(consumer, 100) == sent
            consumer.commit()
            assert consumer.lag() == {(topic, -1): 0}


@pytest.mark.parametrize("role", ["consumer", "queue", "reader"])
def test_partitions_that_a_topic_gets_are_read(broker: Pulsar, role: str) -> None:
    topic = new_topic(broker, partitions=1)
    with ours(broker, metadata_max_age=0.5) as client, client.producer(topic) as producer:
        producer.send(b"before")
        producer.flush()
        opened = client.reader(topic) if role == "reader" else getattr(client, role)(topic, "group")
        take = opened.receive if role == "queue" else opened.poll
        found: list[bytes] = []

        def until(wanted: int) -> None:
            deadline = time.monotonic() + 60.0
            while len(found) < wanted and time.monotonic() < deadline:
                got = take(0.5)
                if got is not None:
                    found.extend([got.value] if role == "queue" else got.values())

        until(1)
        broker.call("POST", f"{REST}{topic}/partitions", 3)
        with client.producer(topic) as more:
            for number in range(3):
                more.send(b"%d" % number, partition=number)
            more.flush()
        until(4)
        assert sorted(found) == [b"0", b"1", b"2", b"before"]
        opened.close()


def test_partitions_that_a_topic_gets_are_written(broker: Pulsar) -> None:
    """A key goes where a producer that was opened later has it go, and so do other clients' (their hash is the same)."""
    topic = new_topic(broker, partitions=1)
    keys = [b"k-%d" % number for number in range(20)]
    with ours(broker, metadata_max_age=0.5) as client, client.producer(topic) as early:
        assert {early.send(b"", key=key).position(30.0).partition for key in keys} == {0}
        broker.call("POST", f"{REST}{topic}/partitions", 3)
        with client.producer(topic) as late:
            wanted = [late.send(b"", key=key).position(30.0).partition for key in keys]
        assert set(wanted) == {0, 1, 2}
        patience.until(lambda: [early.send(b"", key=key).position(30.0).partition for key in keys] == wanted)


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_topic_that_keeps_nothing_is_read_from_now_on(broker: Pulsar, role: str) -> None:
    name = new_topic(broker)
    topic = f"non-persistent://public/default/{name}"
    broker.call("PUT", f"/admin/v2/non-persistent/public/default/{name}")
    with ours(broker) as client, client.producer(topic, batching=False) as producer:
        assert client.reader(topic, stop=LATEST).done
        with pytest.raises(RoleUnsupported):
            client.queue(topic, "group")
        producer.send(b"before").position(20.0)
        sent, found = 0, list[int]()
        with client.reader(topic) if role == "reader" else client.consumer(topic, "group") as reader:
            while len(found) < 20:  # the broker may drop what a connection cannot take at once, and calls each message 0:0
                assert sent < 100
                producer.send(b"%d" % sent).position(20.0)
                sent += 1
                batch = reader.poll(0.5)
                found += map(int, batch.values()) if batch is not None else []
        assert found == sorted(set(found)), "in order, each once, and nothing from before"


def test_large_messages_are_asked_for_as_there_is_room(broker: Pulsar) -> None:
    """A member that is busy with one leaves the others at the broker, and its connection is read all the while."""
    topic = new_topic(broker)
    with ours(broker, receive_memory=8 << 20) as client, client.producer(topic, batching=False) as producer:
        for number in range(60):
            producer.send(bytes([number]) * 1_000_000)
        producer.flush()
        with client.consumer(topic, "group") as consumer:
            [first] = values(consumer, 1)
            found = [first]
            while len(found) < 60:
                found += values(consumer, 1)
                assert not any(conn.held_back for conn in client.loop.connections)
                assert client.loop.unread <= 12 << 20
            assert [value[0] for value in found] == list(range(60))
