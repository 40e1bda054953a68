"""Other people's transactions, as our readers and members see them on a real broker; and what our roles send there, seen on the way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import wireproto
from brokers import Broker
from wireproto import LATEST
from wireproto._codec import KafkaBatchBuilder, kafka_batches
from wireproto.devbroker import DevBroker
from wireproto.kafka.messages import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData

SECONDS = 30.0
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    name = f"transactions-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


def writer(broker: Broker, name: str) -> confluent_kafka.Producer:
    """librdkafka's transactional producer."""
    made = confluent_kafka.Producer({"bootstrap.servers": ",".join(broker.addresses), "transactional.id": name})
    made.init_transactions(SECONDS)
    return made


def write(producer: confluent_kafka.Producer, topic: str, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0


def read(client: Any, topic: str, isolation: str) -> list[bytes]:
    with client.reader(topic, stop=LATEST, isolation=isolation) as reader:
        return [value for batch in reader for value in batch.values()]


def test_readers_and_members_see_what_is_committed_and_no_further(broker: Broker, client: Any, topic: str) -> None:
    """One transaction aborted, one committed, one open; a plain record behind it is not to be seen either."""
    producer = writer(broker, topic)
    write(producer, topic, b"aborted")
    producer.abort_transaction(SECONDS)
    write(producer, topic, b"committed")
    producer.commit_transaction(SECONDS)
    write(producer, topic, b"open")
    with client.producer(topic) as plain:
        end = plain.send(b"behind", partition=0).position(SECONDS).offset + 1
    everything = [b"aborted", b"committed", b"open", b"behind"]
    assert read(client, topic, "uncommitted") == everything
    assert read(client, topic, "committed") == [b"committed"]
    with client.reader(topic, stop=wireproto.LogOffset(topic, 0, end)) as reader:
        assert reader.poll(10.0).values() == [b"committed"]
        assert reader.poll(1.5) is None
        assert not reader.done
        with client.consumer(topic, f"g-{topic}") as member, client.consumer(topic, f"u-{topic}", isolation="uncommitted") as other:
            assert drain(member, 1) == [b"committed"]
            assert member.poll(1.0) is None
            assert member.lag() == {(topic, 0): 0}
            assert drain(other, 4) == everything
            assert other.lag() == {(topic, 0): 0}
            producer.commit_transaction(SECONDS)
            assert drain(member, 2) == [b"open", b"behind"]
        found: list[bytes] = []
        while not reader.done:
            batch = reader.poll(SECONDS)
            found += batch.values() if batch is not None else []
        assert found == [b"open", b"behind"]


def drain(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(60):
        batch = consumer.poll(1.0)
        found += batch.values() if batch is not None else []
        if len(found) >= count:
            return found
    raise AssertionError(f"{found} of {count}")


def test_offsets_of_an_open_transaction_are_waited_for(broker: Broker, client: Any, topic: str) -> None:
    """Going on from the ones before would repeat what the transaction is about to have done."""
    with client.producer(topic) as plain:
        for number in range(4):
            plain.send(b"%d" % number, partition=0)
    group = f"g-{topic}"
    with client.consumer(topic, group) as member:
        assert len(drain(member, 4)) == 4
        member.commit({(topic, 0): wireproto.LogOffset(topic, 0, 1)})
    theirs = confluent_kafka.Consumer({"bootstrap.servers": ",".join(broker.addresses), "group.id": group, "enable.auto.commit": False})
    producer = writer(broker, topic)
    producer.begin_transaction()
    place = confluent_kafka.TopicPartition(topic, 0, 3)
    producer.send_offsets_to_transaction([place], theirs.consumer_group_metadata(), SECONDS)
    with client.consumer(topic, group) as member:
        assert member.poll(2.0) is None
        assert member.assignment == frozenset()
        ended = threading.Thread(target=producer.commit_transaction, args=(SECONDS,))
        ended.start()
        assert drain(member, 1) == [b"3"]
        ended.join()
    theirs.close()


def test_what_is_sent_to_a_real_broker(broker: Broker, topic: str, fault_proxy: Any) -> None:
    seen = fault_proxy.record("kafka")
    with wireproto.connect(broker.url, address_map=fault_proxy.address_map(broker.addresses)) as client:
        for acks, number in (("all", -1), ("1", 1), ("0", 0)):
            for codec in ("none", "lz4", "zstd"):
                with client.producer(topic, acks=acks, compression=codec) as producer:
                    producer.send(b"x" * 1000, partition=0)
                sent = seen.wait("Produce", timeout=SECONDS)
                (facts,) = kafka_batches(sent[-1].message.topic_data[0].partition_data[0].records)
                assert (sent[-1].message.acks, facts["codec"]) == (number, codec)
                seen.clear()
        for isolation, number in (("committed", 1), ("uncommitted", 0)):
            assert len(read(client, topic, isolation)) >= 6
            asked = [*seen.requests("Fetch"), *seen.requests("ListOffsets")]
            assert {request.message.isolation_level for request in asked} == {number}
            seen.clear()


def codes(client: Any, topic: str) -> list[int]:
    """What a broker says to batches of one producer in several epochs, some late, some out of order."""
    identity = client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    found = []
    asked = ((0, 0), (0, 0), (0, 2), (0, 1), (1, 5), (0, 2), (1, 0), (0, 3), (0, 0), (1, 0), (1, 1), (3, 0), (2, 0))
    for ahead, epoch, sequence in (*((0, *one) for one in asked), (1000, 0, 7), (1000, 0, 8), (1000, 0, 20)):
        builder = KafkaBatchBuilder()
        builder.append(b"x", None, (), 1)
        part = PartitionProduceData(index=0, records=builder.finish(identity.producer_id + ahead, epoch, sequence))
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=(part,)),))
        reply = client.request(request, leader=(topic, 0), version=11)
        found.append(reply.responses[0].partition_responses[0].error_code)
    return found


def test_epochs_fence_what_comes_late_and_the_dev_broker_agrees(client: Any, topic: str) -> None:
    """What a producer relies on that begins anew in the next epoch of its id."""
    theirs = codes(client, topic)
    assert theirs[:10] == [0, 0, 45, 0, 45, 0, 0, 47, 47, 0]
    with DevBroker(["kafka"]) as broker, wireproto.connect(broker.url("kafka")) as ours:
        ours.admin().create_topic(topic)
        assert codes(ours, topic) == theirs
