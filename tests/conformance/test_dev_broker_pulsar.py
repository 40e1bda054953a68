"""The dev broker's Pulsar side against pulsar-client, which we did not write, unchanged."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import pulsar
from wireproto.devbroker import DevBroker

WAIT = 20_000

pytestmark = pytest.mark.broker("dev-pulsar")


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: DevBroker) -> Iterator[Any]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(f"pulsar://{broker.address('pulsar')}", logger=logger, operation_timeout_seconds=20)
    yield made
    made.close()


def admin(broker: DevBroker, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{broker.address('pulsar', 'admin')}/admin/v2/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=20) as reply:
        text = reply.read()
    return json.loads(text) if text else None


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batched", [False, True])
def test_produced_messages_come_back(client: Any, codec: str, batched: bool) -> None:
    topic = f"codec-{codec}-{batched}"
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(
        topic, compression_type=getattr(pulsar.CompressionType, codec), batching_enabled=batched, batching_max_publish_delay_ms=5
    )
    for n in range(50):
        producer.send_async(b"v%d" % n, None, partition_key=f"k{n}", properties={"p": str(n)}, event_timestamp=1000 + n)
    producer.flush()
    for n in range(50):
        message = consumer.receive(WAIT)
        assert (message.data(), message.partition_key(), message.properties()) == (b"v%d" % n, f"k{n}", {"p": str(n)})
        assert message.event_timestamp() == 1000 + n
        consumer.acknowledge(message)
    consumer.close()
    producer.close()


def test_an_unacknowledged_message_comes_again_to_another_consumer(client: Any) -> None:
    first = client.subscribe("again", "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("again")
    producer.send(b"one")
    assert first.receive(WAIT).data() == b"one"
    first.close()
    second = client.subscribe("again", "s", pulsar.ConsumerType.Shared)
    message = second.receive(WAIT)
    assert (message.data(), message.redelivery_count()) == (b"one", 1)
    second.acknowledge(message)
    second.close()
    producer.close()


def test_reader_reads_from_the_start_and_from_a_message_id(client: Any) -> None:
    producer = client.create_producer("read", batching_enabled=False)
    ids = [producer.send(b"%d" % n) for n in range(10)]
    reader = client.create_reader("read", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT).data())
    assert found == [b"%d" % n for n in range(10)]
    reader.close()
    reader = client.create_reader("read", ids[5])
    assert reader.read_next(WAIT).data() == b"6"
    reader.seek(ids[2])
    assert reader.read_next(WAIT).data() == b"3"
    reader.close()
    producer.close()


def test_consumer_seeks_by_time_and_by_id(client: Any) -> None:
    consumer = client.subscribe("seek", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("seek", batching_enabled=False)
    ids = [producer.send(b"%d" % n) for n in range(5)]
    assert [consumer.receive(WAIT).data() for _ in range(5)] == [b"%d" % n for n in range(5)]
    consumer.seek(ids[3])
    assert consumer.receive(WAIT).data() == b"4"  # this client passes over the id itself, on a real broker too
    consumer.seek(0)
    assert consumer.receive(WAIT).data() == b"0"
    consumer.close()
    producer.close()


def test_partitioned_topic_made_over_http(broker: DevBroker, client: Any) -> None:
    admin(broker, "PUT", "persistent/public/default/parts/partitions", 4)
    assert admin(broker, "GET", "persistent/public/default/parts/partitions")["partitions"] == 4
    assert len(client.get_topic_partitions("parts")) == 4
    producer = client.create_producer("parts", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution)
    for n in range(40):
        producer.send(b"%d" % n, partition_key=f"k{n}")
    consumer = client.subscribe("parts", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert sorted(int(consumer.receive(WAIT).data()) for _ in range(40)) == list(range(40))
    consumer.close()
    producer.close()
    admin(broker, "DELETE", "persistent/public/default/parts/partitions")
    assert not [name for name in admin(broker, "GET", "persistent/public/default") if "parts" in name]


def test_failover_hands_over_and_key_shared_keeps_keys_together(client: Any) -> None:
    producer = client.create_producer("hand", batching_enabled=False)
    first = client.subscribe("hand", "f", pulsar.ConsumerType.Failover, consumer_name="a")
    second = client.subscribe("hand", "f", pulsar.ConsumerType.Failover, consumer_name="b")
    producer.send(b"one")
    message = first.receive(WAIT)
    first.acknowledge(message)
    first.close()
    producer.send(b"two")
    assert second.receive(WAIT).data() == b"two"
    second.close()
    left = client.subscribe("hand", "k", pulsar.ConsumerType.KeyShared)
    right = client.subscribe("hand", "k", pulsar.ConsumerType.KeyShared)
    for n in range(40):
        producer.send(b"%d" % n, partition_key=f"k{n % 8}")
    seen: dict[str, set[str]] = {}
    count = 0
    while count < 40:
        for name, consumer in (("left", left), ("right", right)):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            seen.setdefault(message.partition_key(), set()).add(name)
            consumer.acknowledge(message)
            count += 1
    assert all(len(names) == 1 for names in seen.values())
    left.close()
    right.close()
    producer.close()


def test_unloading_a_topic_brings_its_clients_back(broker: DevBroker, client: Any) -> None:
    consumer = client.subscribe("unload", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("unload")
    producer.send(b"before")
    admin(broker, "PUT", "persistent/public/default/unload/unload")
    producer.send(b"after")
    found: set[bytes] = set()
    for _ in range(4):  # what was handed out and not acknowledged may come twice
        found.add(consumer.receive(WAIT).data())
        if found == {b"before", b"after"}:
            break
    assert found == {b"before", b"after"}
    consumer.close()
    producer.close()
