"""The dev broker's Kafka side against clients that we did not write: confluent-kafka and kafka-python, unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from wireproto.devbroker import DevBroker

SECONDS = 20.0

pytestmark = pytest.mark.broker("dev-kafka")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with DevBroker(["kafka"]) as broker:
        yield broker.address("kafka")


def create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # must live until its futures are done
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(SECONDS)


def confluent_records(servers: str, topic: str, group: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        while len(found) < count:
            batch = consumer.consume(count - len(found), SECONDS)
            assert batch, f"{len(found)} of {count} within {SECONDS} s"
            for message in batch:
                assert message.error() is None
                found.append((message.partition(), message.key(), message.value()))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_produces_and_consumes_in_a_group(servers: str, codec: str) -> None:
    topic = f"confluent-{codec}"
    create(servers, topic, 3)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": codec})
    sent = [(n % 3, b"k%d" % n, b"v%d" % n) for n in range(300)]
    for partition, key, value in sent:
        producer.produce(topic, value, key, partition, headers=[("h", b"1")])
    assert producer.flush(SECONDS) == 0
    assert sorted(confluent_records(servers, topic, f"group-{codec}", 300)) == sorted(sent)


def test_kafka_python_reads_what_confluent_wrote_and_goes_on_after_its_commit(servers: str) -> None:
    topic = "shared"
    create(servers, topic, 1)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"one", b"k", headers=[("h", b"x"), ("h", None)], timestamp=1_357_034_400_000)
    assert producer.flush(SECONDS) == 0
    assert confluent_records(servers, topic, "both", 1) == [(0, b"k", b"one")]
    ours = KafkaProducer(bootstrap_servers=servers)
    where = ours.send(topic, b"two", key=b"k2").get(SECONDS)
    ours.close()
    assert (where.partition, where.offset) == (0, 1)
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id="both", consumer_timeout_ms=int(SECONDS * 1000))
    try:
        record = next(consumer)
        assert (record.offset, record.value) == (1, b"two")
        consumer.seek(TopicPartition(topic, 0), 0)
        record = next(consumer)
        assert (record.value, record.timestamp, record.headers) == (b"one", 1_357_034_400_000, [("h", b"x"), ("h", None)])
        found = consumer.offsets_for_times({TopicPartition(topic, 0): 1_357_034_400_001})
        assert found[TopicPartition(topic, 0)].offset == 1
    finally:
        consumer.close()


def test_two_members_share_a_topic_and_one_takes_over(servers: str) -> None:
    topic = "pair"
    create(servers, topic, 2)
    settings = {"bootstrap.servers": servers, "group.id": "pair", "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe([topic])
        second.subscribe([topic])
        for _ in range(400):
            first.poll(0.05)
            second.poll(0.05)
            if len(first.assignment()) == len(second.assignment()) == 1:
                break
        assert {part.partition for part in first.assignment() + second.assignment()} == {0, 1}
        second.close()
        for _ in range(400):
            first.poll(0.05)
            if len(first.assignment()) == 2:
                break
        assert len(first.assignment()) == 2
    finally:
        first.close()


def test_a_topic_that_exists_is_refused_and_one_that_is_gone_is_unknown(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("once", 1, 1)])["once"].result(SECONDS)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("once", 1, 1)])["once"].result(SECONDS)
    admin.delete_topics(["once"])["once"].result(SECONDS)
    assert "once" not in admin.list_topics(timeout=SECONDS).topics


def test_confluent_is_told_at_once_what_there_is_not(servers: str) -> None:
    """Transactions, and settings of a topic that no broker knows."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(SECONDS)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("bogus", 1, 1, config={"bogus.config": "3"})])["bogus"].result(SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
