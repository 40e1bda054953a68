"""Three nodes of the dev broker's Kafka side against clients that we did not write: leaders move under them, and a node goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafka import KafkaConsumer, KafkaProducer
from wireproto.devbroker import DevBroker

SECONDS, PARTITIONS, EACH = 60.0, 3, 20
LISTENERS = {1: "main", 2: "node-2", 3: "node-3"}

pytestmark = pytest.mark.broker("dev-kafka")


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"], nodes={"kafka.nodes": 3}) as made:
        yield made


@pytest.fixture
def topic(broker: DevBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("[", "-").replace("]", "")
    admin = AdminClient({"bootstrap.servers": servers(broker)})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(SECONDS)
    yield str(name)
    broker.resume("kafka")


def servers(broker: DevBroker) -> str:
    return ",".join(broker.listeners("kafka").values())


def disturb(broker: DevBroker, topic: str, turn: int, *, stop: bool = True) -> None:
    """First its leaders move, then (`stop`) one of them goes away with what it coordinates; then it is back."""
    if turn == 1 or (turn and not stop):
        for partition in range(PARTITIONS):
            broker.call("kafka", "move_leader", topic, partition)
    elif turn == 2:
        broker.pause("kafka", LISTENERS[broker.call("kafka", "leader", topic, 0)])
    else:
        broker.resume("kafka")


def values(turn: int) -> list[bytes]:
    return [b"%d" % number for number in range(turn * EACH, (turn + 1) * EACH)]


def sent() -> list[bytes]:
    return [value for turn in range(4) for value in values(turn)]


def test_confluent_writes_and_reads_in_a_group_across_nodes(broker: DevBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers(broker), "enable.idempotence": True, "reconnect.backoff.ms": 10})
    settings = {"bootstrap.servers": servers(broker), "group.id": topic, "auto.offset.reset": "earliest", "reconnect.backoff.ms": 10}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        for turn in range(4):
            disturb(broker, topic, turn)
            for number, value in enumerate(values(turn)):
                producer.produce(topic, value, partition=number % PARTITIONS)
            assert producer.flush(SECONDS) == 0
            while len(found) < (turn + 1) * EACH:
                message = consumer.poll(SECONDS)
                assert message is not None, f"{len(found)} within {SECONDS} s"
                if message.error() is None:
                    found.append(bytes(message.value() or b""))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    assert sorted(found) == sorted(sent())


def test_kafka_python_writes_and_reads_across_nodes(broker: DevBroker, topic: str) -> None:
    """No node goes away here: kafka-python leaves the sockets open by which it reached none."""
    producer = KafkaProducer(bootstrap_servers=servers(broker), acks="all", retries=100)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=servers(broker), group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=int(SECONDS * 1000)
    )
    found: list[bytes] = []
    try:
        for turn in range(4):
            disturb(broker, topic, turn, stop=False)
            broker.call("kafka", "move_coordinator", topic)
            for number, value in enumerate(values(turn)):
                producer.send(topic, value, partition=number % PARTITIONS)
            producer.flush(SECONDS)
            while len(found) < (turn + 1) * EACH:
                found.append(next(consumer).value)
        consumer.topics()  # an answer to its last request: `close` leaves the socket open of one that it has not sent yet
    finally:
        consumer.close()
        producer.close()
    assert sorted(found) == sorted(sent())


def test_aiokafka_writes_and_reads_across_nodes(broker: DevBroker, topic: str) -> None:
    """No node goes away here, nor does a leader move before the first record: aiokafka's consumer asks the same node for ever then."""

    async def run() -> list[bytes]:
        found: list[bytes] = []
        reading = AIOKafkaConsumer(topic, bootstrap_servers=servers(broker), group_id=topic, auto_offset_reset="earliest")
        async with AIOKafkaProducer(bootstrap_servers=servers(broker), enable_idempotence=True) as producer, reading as consumer:
            for turn in range(4):
                await asyncio.to_thread(partial(disturb, broker, topic, turn, stop=False))
                for number, value in enumerate(values(turn)):
                    await asyncio.wait_for(producer.send_and_wait(topic, value, partition=number % PARTITIONS), SECONDS)
                while len(found) < (turn + 1) * EACH:
                    found.append((await asyncio.wait_for(consumer.getone(), SECONDS)).value)
        return found

    assert sorted(asyncio.run(run())) == sorted(sent())
