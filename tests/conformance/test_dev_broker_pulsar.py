"""The dev broker's Pulsar side against pulsar-client, which we did not write, unchanged."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pulsar
import wireproto
from pulsar_server import metadata_of
from pulsar_server import stored as pulsar_entry
from wireproto._codec import crc32c
from wireproto.devbroker import DevBroker
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import NotAllowedError
from wireproto.pulsar.frames import body, decode, encode

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


def test_a_topic_that_is_made_again_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    """Also behind a restart: a place in the one that was deleted is none in it."""
    ledgers = []
    for _ in range(2):
        with DevBroker(["pulsar"], data_dir=tmp_path) as broker, wireproto.connect(broker.url("pulsar")) as client:
            for _ in range(2):
                for topic in ("other", "made-again"):
                    client.admin().create_topic(topic)
                    with client.producer(topic) as out:
                        ledgers.append(out.send(b"one").position(20.0).ledger)
                    client.admin().delete_topic(topic)
    assert len(set(ledgers)) == len(ledgers) == 8


def test_an_unacknowledged_message_comes_again_to_another_consumer(client: Any) -> None:
    first = client.subscribe("again", "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("again")
    producer.send(b"one")
    assert first.receive(WAIT).data() == b"one"
    first.close()
    second = client.subscribe("again", "s", pulsar.ConsumerType.Shared)
    message = second.receive(WAIT)
    assert (message.data(), message.redelivery_count()) == (b"one", 0)  # as 4.2.4 counts: nobody gave it back
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
    message = second.receive(WAIT)  # the ring of hashes has b for this topic's name, as a broker's has
    second.acknowledge(message)
    second.close()
    producer.send(b"two")
    assert first.receive(WAIT).data() == b"two"
    first.close()
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


def stored(client: Any, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT).data())
    reader.close()
    return found


@pytest.mark.parametrize("batch", [1, 5])
def test_what_a_producer_sends_again_is_stored_once_where_the_namespace_says_so(broker: DevBroker, client: Any, batch: int) -> None:
    namespace = f"public/once-{batch}"
    admin(broker, "POST", f"namespaces/{namespace}/deduplication", True)
    assert admin(broker, "GET", f"namespaces/{namespace}/deduplication") is True
    told = {}
    for topic in (f"persistent://{namespace}/seen", f"again-{batch}"):
        for first in (0, 0, 10):
            producer = client.create_producer(
                topic,
                "me",
                initial_sequence_id=100 + first,
                batching_enabled=batch > 1,
                batching_max_messages=max(batch, 2),
                batching_max_publish_delay_ms=60_000,
            )
            ids: list[Any] = []
            for n in range(first, 20):
                producer.send_async(b"%d" % n, lambda _, place, ids=ids: ids.append((place.ledger_id(), place.entry_id())))
            producer.flush()
            producer.close()
            told[topic, first] = ids
    assert stored(client, f"persistent://{namespace}/seen") == [b"%d" % n for n in range(20)]
    assert set(told[f"persistent://{namespace}/seen", 10]) == {(-1, -1)}
    assert len(stored(client, f"again-{batch}")) == 50
    stats = {name: admin(broker, "GET", f"persistent/{name}/stats") for name in (f"{namespace}/seen", f"public/default/again-{batch}")}
    assert [one["deduplicationStatus"] for one in stats.values()] == ["Enabled", "Disabled"]


def test_a_producer_goes_on_behind_what_its_name_has_stored(broker: DevBroker, client: Any) -> None:
    admin(broker, "POST", "namespaces/public/on/deduplication", True)
    topic = "persistent://public/on/topic"
    for expected in (2, 5):
        producer = client.create_producer(topic, "me")
        for n in range(expected - 2, expected + 1):
            producer.send(b"%d" % n)
        assert producer.last_sequence_id() == expected
        producer.close()
        admin(broker, "PUT", "persistent/public/on/topic/unload")
    admin(broker, "POST", "namespaces/public/on/deduplication", False)
    producer = client.create_producer(topic, "me", initial_sequence_id=0)
    producer.send(b"repeated")
    producer.close()
    assert stored(client, topic)[-1] == b"repeated"


# -- as 4.2.4, or refused: nothing is taken for something else ------------------------------------------------------------

MODE = pulsar.ProducerAccessMode


def test_an_exclusive_producer_is_alone(client: Any) -> None:
    alone = client.create_producer("alone", access_mode=MODE.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer("alone", access_mode=MODE.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer("alone")
    alone.send(b"one")
    alone.close()
    shared = client.create_producer("alone")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer("alone", access_mode=MODE.Exclusive)
    shared.close()
    client.create_producer("alone", access_mode=MODE.Exclusive).close()


def test_an_exclusive_producer_is_so_over_an_unload(broker: DevBroker, client: Any) -> None:
    alone = client.create_producer("stays", access_mode=MODE.Exclusive)
    alone.send(b"one")
    admin(broker, "PUT", "persistent/public/default/stays/unload")
    alone.send(b"two")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer("stays")
    alone.close()
    assert stored(client, "stays") == [b"one", b"two"]


def test_what_waits_for_a_topic_is_refused(client: Any) -> None:
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer("waits", access_mode=MODE.WaitForExclusive)


def test_a_schema_is_refused_and_none_is_kept(client: Any) -> None:
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer("schema", schema=pulsar.schema.StringSchema())
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe("schema", "s", schema=pulsar.schema.StringSchema())
    client.create_producer("schema", schema=pulsar.schema.BytesSchema()).close()


@pytest.fixture
def without_transactions(broker: DevBroker) -> Iterator[None]:
    broker.call("pulsar", "configure", transactions=False)
    yield
    broker.call("pulsar", "configure", transactions=True)


@pytest.mark.usefixtures("without_transactions")
def test_nothing_is_taken_for_a_transaction_s_where_there_are_none(broker: DevBroker) -> None:
    ids = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    with wireproto.connect(broker.url("pulsar")) as ours, ours.producer("txn") as out, ours.queue("txn", "g") as queue:
        out.send(b"one").position(20.0)
        delivery = queue.receive(20.0)
        [part] = queue._stream.parts
        place = api.MessageIdData(ledgerId=delivery.position.ledger, entryId=delivery.position.entry)
        asked = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Individual, message_id=[place], **ids)
        with pytest.raises(NotAllowedError, match="Transactions are not enabled"):
            ours.cluster.drive(queue._stream.ask(part, asked, float("inf")), float("inf"))
        stats = ours.cluster.drive(queue._stream.ask(part, api.CommandConsumerStats(consumer_id=part.id), float("inf")), float("inf"))
        assert stats.msgBacklog == 1


def later(entry: bytes) -> bytes:
    """The entry, to be delivered in an hour."""
    meta, payload = metadata_of(entry)
    meta.deliver_at_time = int(time.time() * 1000) + 3_600_000
    head = meta.SerializeToString()
    checked = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked


@pytest.mark.usefixtures("without_transactions")
@pytest.mark.parametrize(
    ("ids", "entry"),
    [({"txnid_most_bits": 1, "txnid_least_bits": 2}, pulsar_entry([b"x"])), ({}, later(pulsar_entry([b"x"])))],
    ids=["of a transaction", "for later"],
)
def test_a_record_that_a_broker_would_hold_back_is_refused(ids: dict[str, int], entry: bytes, broker: DevBroker, client: Any) -> None:
    """And not handed out at once. (pulsar-client would send it again for ever: NotAllowedError ends its connection.)"""
    host, port = broker.address("pulsar").rsplit(":", 1)
    topic = f"held-back-{len(ids)}"
    with socket.create_connection((host, int(port)), timeout=20.0) as sock, sock.makefile("rb") as answers:

        def ask(command: Any, entry: bytes = b"") -> Any:
            frame = encode(command) + entry
            sock.sendall(len(frame).to_bytes(4, "big") + frame)
            return body(decode(answers.read(int.from_bytes(answers.read(4), "big"))))

        ask(api.CommandConnect(client_version="raw", protocol_version=21))
        ask(api.CommandProducer(topic=topic, producer_id=1, request_id=1))
        refused = ask(api.CommandSend(producer_id=1, sequence_id=0, **ids), entry)
        assert (refused.DESCRIPTOR.name, refused.error) == ("CommandSendError", api.NotAllowedError)
    assert stored(client, topic) == []


def test_clusters_are_listed_and_not_changed(broker: DevBroker) -> None:
    assert admin(broker, "GET", "clusters") == ["dev"]
    for method, path in (("POST", "clusters/dev/migrate?migrated=false"), ("PUT", "clusters/other"), ("GET", "clusters/other")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            admin(broker, method, path, None if method == "GET" else {})
        with caught.value as refusal:
            assert refusal.code == 405
