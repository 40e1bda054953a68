"""The dev broker's Kafka side against clients that we did not write, unchanged: confluent-kafka, kafka-python, aiokafka; and in each of the
versions that it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import wireproto
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from wireproto._codec import KafkaBatchBuilder
from wireproto.devbroker import DevBroker
from wireproto.devbroker.kafka.side import OFFERED
from wireproto.kafka import messages as m

SECONDS = 60.0
MUTED = 3.0

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
        consumer.topics()  # an answer to its last request: `close` leaves the socket open of one that it has not sent yet
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
    """A transaction that may last too long, and settings of a topic that no broker knows."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x", "transaction.timeout.ms": 1_000_000})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    admin = AdminClient({"bootstrap.servers": servers})
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic("bogus", 1, 1, config={"bogus.config": "3"})])["bogus"].result(SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG


@pytest.mark.parametrize("group", ["aio", None], ids=["by group", "by assign"])
def test_aiokafka_reads(servers: str, group: str | None) -> None:
    topic = f"aio-{group}"
    create(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers})
    sent = [(number % 2, b"%d" % number) for number in range(10)]
    for partition, value in sent:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(SECONDS) == 0

    async def read() -> list[tuple[int, bytes]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
        if group is None:
            consumer.assign([TopicPartition(topic, number) for number in range(2)])
        else:
            consumer.subscribe([topic])
        async with consumer:
            found = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in sent]
        return [(record.partition, record.value) for record in found]

    assert sorted(asyncio.run(read())) == sorted(sent)


def test_confluent_is_told_that_there_are_no_groups_of_kip_848(servers: str) -> None:
    """librdkafka looks for a coordinator that offers them for ever, else, and says nothing."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "new", "group.protocol": "consumer"})
    try:
        consumer.subscribe(["any"])
        told = consumer.poll(SECONDS)
        assert told is not None
        assert told.error().code() == KafkaError._FATAL
        assert "version not supported" in told.error().str()
    finally:
        consumer.close()


def test_confluent_hears_of_a_quota_and_is_not_read_until_it_is_over() -> None:
    with DevBroker(["kafka"]) as broker:
        create(broker.address("kafka"), "throttled", 1)
        told: list[float] = []
        settings = {"bootstrap.servers": broker.address("kafka"), "linger.ms": 0, "max.in.flight": 1}
        producer = Producer(settings | {"throttle_cb": lambda event: told.append(event.throttle_time)})
        seen = broker.record("kafka")
        broker.call("kafka", "throttle", "Produce", MUTED)
        for value in (b"1", b"2"):
            producer.produce("throttled", value)
            assert producer.flush(SECONDS) == 0
        assert told[0] == MUTED
        asked, (answer, next_answer) = seen.requests("Produce"), seen.replies("Produce")
        assert answer.at - asked[0].at < MUTED, "it is answered at once"
        assert next_answer.at - answer.at >= MUTED


def test_each_version_of_each_request_that_is_offered_is_answered(servers: str) -> None:
    """A field that a version lacks ends the connection: nobody could ask in that version at all."""
    with wireproto.connect(f"kafka://{servers}") as client:
        client.admin().create_topic("swept", partitions=1)
        ask: Any = client.request
        for name, low, high, _ in OFFERED.values():
            for version in range(low, high + 1):
                reply = ask(asked(name, version), version=version, any=None)
                assert 3 not in codes_in(reply), (name, version, "it knows the topic")


def codes_in(reply: Any) -> set[int]:
    """Of the first topic's partitions."""
    topics = [*getattr(reply, "topics", ()), *getattr(reply, "responses", ())][:1]
    parts = [part for topic in topics for name in ("partitions", "partition_responses") for part in getattr(topic, name, ())]
    return {getattr(part, "error_code", 0) for part in parts}


def asked(name: str, version: int) -> Any:
    """A question of this name, about the topic "swept" where it is about a topic."""
    known = {"key": "swept"} if (name, version < 4) == ("FindCoordinator", True) else ABOUT.get(name, {})
    return getattr(m, f"{name}Request")(**known)


def of_a_record() -> bytes:
    builder = KafkaBatchBuilder()
    builder.append(b"x", None, (), 1)
    return bytes(builder.finish())


def about(part: Any, kind: Any, name: str = "name", inner: str = "partitions") -> tuple[Any, ...]:
    """The first partition of the topic, as a request names it."""
    return (kind(**{name: "swept", inner: (part,)}),)


ABOUT: dict[str, dict[str, Any]] = {
    "Produce": {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": about(m.PartitionProduceData(index=0, records=of_a_record()), m.TopicProduceData, inner="partition_data"),
    },
    "Fetch": {
        "max_wait_ms": 1,
        "max_bytes": 1 << 20,
        "topics": about(m.FetchPartition(partition=0, partition_max_bytes=1 << 20, current_leader_epoch=-1), m.FetchTopic, name="topic"),
    },
    "ListOffsets": {"topics": about(m.ListOffsetsPartition(partition_index=0, timestamp=-1), m.ListOffsetsTopic)},
    "Metadata": {"topics": (m.MetadataRequestTopic(name="swept"),)},
    "OffsetCommit": {
        "group_id": "swept",
        "topics": about(m.OffsetCommitRequestPartition(partition_index=0, committed_metadata=""), m.OffsetCommitRequestTopic),
    },
    "OffsetFetch": {"group_id": "swept", "topics": about(0, m.OffsetFetchRequestTopic, inner="partition_indexes")},
    "FindCoordinator": {"coordinator_keys": ("swept",)},
}


def test_a_compacted_topic_takes_no_record_without_a_key(servers: str) -> None:
    admin, producer = AdminClient({"bootstrap.servers": servers}), Producer({"bootstrap.servers": servers, "linger.ms": 50})
    for created in admin.create_topics([NewTopic("compacted", 1, config={"cleanup.policy": "compact,delete"})]).values():
        created.result()
    told: list[Any] = []
    for key in (b"key", None, b""):
        producer.produce("compacted", b"value", key=key, on_delivery=lambda error, _: told.append(error and error.code()))
        producer.flush(10.0)
    assert told == [None, KafkaError.INVALID_RECORD, None]
