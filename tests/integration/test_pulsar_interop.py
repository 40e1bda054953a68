"""Pulsar, byte for byte: what we write the official client reads, and the reverse, on the real broker."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, drain, new_topic, ours, pulsar, read_theirs, theirs
from patience import soon
from wireproto import EARLIEST, LATEST

real = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)

CODECS = ["none", "lz4", "zlib", "zstd", "snappy"]
ROWS: list[tuple[bytes, bytes | None, dict[str, bytes], int]] = [
    (b"plain", b"key", {"a": b"1", "b": "é".encode()}, 1_700_000_000_000),
    (b"", None, {}, 1),
    (bytes(range(256)), "ключ".encode(), {"empty": b""}, 2**40),
    (b"z" * 70_000, b"\xff\x00not text", {}, 1_700_000_000_001),
    *[(b"%d" % number * 20, b"k%d" % (number % 7), {"n": b"%d" % number}, 1000 + number) for number in range(50)],
]


@real
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_we_write_the_official_client_reads(broker: Pulsar, codec: str, batching: bool) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, compression=codec, batching=batching, linger=60.0) as producer:
        receipts = [producer.send(value, key=key, headers=headers, timestamp=when) for value, key, headers, when in ROWS]
        producer.flush()
        places = [receipt.position() for receipt in receipts]
    with theirs(broker) as client:
        messages = read_theirs(client, topic)
    assert [message.data() for message in messages] == [row[0] for row in ROWS]
    assert [message.event_timestamp() for message in messages] == [row[3] for row in ROWS]
    assert [message.properties() for message in messages] == [{k: v.decode() for k, v in row[2].items()} for row in ROWS]
    assert [message.partition_key() for message in messages] == [_key_text(row[1]) for row in ROWS]
    ids = [(m.message_id().ledger_id(), m.message_id().entry_id(), m.message_id().batch_index()) for m in messages]
    assert ids == [(place.ledger, place.entry, place.index) for place in places]
    assert (max(place.index for place in places) > 0) is batching


def _key_text(key: bytes | None) -> str:
    if key is None:
        return ""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return base64.b64encode(key).decode()


@real
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_the_official_client_writes_we_read(broker: Pulsar, codec: str, batching: bool) -> None:
    topic = new_topic(broker)
    rows = [row for row in ROWS if row[1] is None or row[1].isascii() or row[1].decode("utf-8", "ignore").encode() == row[1]]
    kinds: dict[str, Any] = {
        "none": pulsar.CompressionType.NONE,
        "lz4": pulsar.CompressionType.LZ4,
        "zlib": pulsar.CompressionType.ZLib,
        "zstd": pulsar.CompressionType.ZSTD,
        "snappy": pulsar.CompressionType.SNAPPY,
    }
    with theirs(broker) as client:
        producer = client.create_producer(
            PREFIX + topic, compression_type=kinds[codec], batching_enabled=batching, batching_max_publish_delay_ms=200
        )
        for value, key, headers, when in rows:
            properties = {name: text.decode() for name, text in headers.items()}
            producer.send_async(
                value, lambda *_: None, partition_key=key.decode() if key else None, properties=properties, event_timestamp=when
            )
        producer.flush()
    with ours(broker) as client, client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        records = [record for batch in reader for record in batch]
    assert [record.value for record in records] == [row[0] for row in rows]
    assert [record.key for record in records] == [row[1] for row in rows]
    assert [record.timestamp for record in records] == [row[3] for row in rows]
    assert [dict(record.headers) for record in records] == [row[2] for row in rows]
    assert (max(record.position.index for record in records) > 0) is batching


@real
def test_null_and_empty_values_stay_apart(broker: Pulsar) -> None:
    topic = new_topic(broker)
    for batching in (False, True):
        with ours(broker) as client, client.producer(topic, batching=batching) as producer:
            producer.send(None, key=b"")
            producer.send(b"")
    with ours(broker) as client:
        records = drain(client.reader(topic), 4)
    assert [(record.value, record.key) for record in records] == [(None, b""), (b"", None)] * 2


@real
def test_a_subscription_is_shared_with_the_official_client(broker: Pulsar) -> None:
    """What the one commits the other goes on from: whole entries and within a batch."""
    topic = new_topic(broker)
    with ours(broker) as client, theirs(broker) as other:
        with client.producer(topic, linger=60.0) as producer:
            for number in range(10):
                producer.send(b"%d" % number)
            producer.flush()
        with client.consumer(topic, "both", mode="exclusive") as consumer:
            records = drain(consumer, 10)
            consumer.commit({(topic, -1): records[4].position})
        consumer = other.subscribe(PREFIX + topic, "both", pulsar.ConsumerType.Exclusive)
        message = consumer.receive(10_000)
        assert message.data() == b"4"
        consumer.close()


@real
def test_a_batch_larger_than_the_link_takes_is_refused_before_sending(broker: Pulsar) -> None:
    from wireproto.errors import ValueUnsupported

    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic) as producer:
        with pytest.raises(ValueUnsupported):
            producer.send(b"x" * (5 << 20) + b"y")
        place = producer.send(b"x" * ((5 << 20) - 200)).position(20)
        with client.reader(topic, stop=LATEST) as reader:
            (batch,) = list(reader)
    assert (len(batch), len(batch.values()[0] or b""), place.entry) == (1, (5 << 20) - 200, 0)


@pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)  # which has it
def test_entries_behind_the_brokers_own_metadata(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with ours(broker) as client, client.producer(topic, compression="zstd", linger=0.2) as producer:
        for value, key, headers, when in ROWS:
            producer.send(value, key=key, headers=headers, timestamp=when)
        producer.flush()
        records = [record for batch in client.reader(topic, stop=LATEST) for record in batch]
    assert [(record.value, record.key, dict(record.headers), record.timestamp) for record in records] == ROWS


@real
def test_workers_of_a_key_shared_group_share_no_key_of_batches_by_key(broker: Pulsar) -> None:
    topic = new_topic(broker)
    keys = [b"k-%d" % number for number in range(7)]
    with ours(broker) as client, client.producer(topic, batching="key", linger=0.2) as producer:
        workers = [client.queue(topic, "g", mode="key-shared") for _ in range(2)]
        receipts = [producer.send(b"%d" % turn, key=key) for turn in range(20) for key in keys]
        producer.flush()
        assert len({one.position(0.0).entry for one in receipts}) < len(receipts), "records did share batches"
        found: list[dict[bytes, list[bytes]]] = [{}, {}]
        deadline = soon(60.0)
        while sum(len(values) for mine in found for values in mine.values()) < len(receipts) and time.monotonic() < deadline:
            for worker, mine in zip(workers, found, strict=True):
                while (delivery := worker.receive(0.2)) is not None:
                    mine.setdefault(delivery.key, []).append(delivery.value)
                    delivery.ack()
        assert sorted([*found[0], *found[1]]) == keys, "a key went to both, or to none"
        assert all(values == [b"%d" % turn for turn in range(20)] for mine in found for values in mine.values())
        for worker in workers:
            worker.close()
