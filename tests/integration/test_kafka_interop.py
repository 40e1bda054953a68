"""Byte for byte with clients that we did not write, both ways, on real brokers, for every codec and record format."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from brokers import Broker
from wireproto import LATEST
from wireproto.errors import ValueUnsupported

from .kafka_peers import Row, confluent_read, confluent_write, kafka_python_read, kafka_python_write, rows_of

BROKERS = ["kafka-3.9.2", "kafka-4.3.1", "kafka-4.4.0"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    name = f"interop-{next(_numbers)}"
    client.admin().create_topic(name, partitions=PARTITIONS)
    return name


def bootstrap(broker: Broker) -> str:
    return broker.url.removeprefix("kafka://")


def samples(count: int = 600) -> list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Records with all the edges: nulls, empties, repeated headers, text beyond ASCII, sizes over several batches."""
    source = random.Random(7)
    edges: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (None, None, ()),
        (b"", b"", ()),
        (None, b"value", (("h", b"1"), ("h", None), ("h", b""))),
        (b"\x00\xff", bytes(range(256)), (("ключ", b"\xff\x00"),)),
        (b"k", source.randbytes(100_000), ()),
        (b"k", b"a" * 200_000, (("long", b"x" * 3000),)),
    ]
    found = []
    for number in range(count):
        if number < len(edges):
            key, value, headers = edges[number]
        else:
            key = source.choice([None, b"", b"key-%d" % number])
            value = source.choice([None, b"", b"%d " % number * source.randrange(1, 60)])
            headers = (("n", b"%d" % number),) * source.randrange(3)
        found.append((number % PARTITIONS, 1_700_000_000_000 + number * 7 - (number % 5) * 1000, key, value, headers))
    return found


def expected(sent: list[Any]) -> list[Row]:
    offsets = [itertools.count() for _ in range(PARTITIONS)]
    return sorted(
        Row(partition, next(offsets[partition]), timestamp, key, value, headers) for partition, timestamp, key, value, headers in sent
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_others_read_what_we_write(broker: Broker, client: Any, topic: str, codec: str) -> None:
    sent = samples()
    with client.producer(topic, compression=codec) as producer:
        receipts = [
            producer.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition)
            for partition, timestamp, key, value, headers in sent
        ]
        producer.flush(30.0)
    rows = expected(sent)
    assert sorted((r.position(1.0).partition, r.position(1.0).offset) for r in receipts) == [(row.partition, row.offset) for row in rows]
    assert confluent_read(bootstrap(broker), topic, PARTITIONS, len(sent)) == rows
    assert kafka_python_read(bootstrap(broker), topic, PARTITIONS, len(sent)) == rows
    with client.reader(topic, stop=LATEST) as reader:
        assert rows_of(reader) == rows


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("write", [confluent_write, kafka_python_write])
def test_we_read_what_others_write(broker: Broker, client: Any, topic: str, codec: str, write: Any) -> None:
    sent = samples()
    if write is kafka_python_write:  # which refuses records of two nulls, and null headers
        sent = [row for row in sent if (row[2], row[3]) != (None, None) and all(value is not None for _, value in row[4])]
    write(bootstrap(broker), topic, sent, codec)
    with client.reader(topic, stop=LATEST) as reader:
        assert rows_of(reader) == expected(sent)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_batch_of_columns_arrives_as_records(broker: Broker, client: Any, topic: str, codec: str) -> None:
    count = 5000
    values = [b"v%d" % number if number % 7 else None for number in range(count)]
    keys = [b"k%d" % number if number % 3 else None for number in range(count)]
    stamps = [1_700_000_000_000 + number for number in range(count)]
    table = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
        }
    )
    with client.producer(topic, compression=codec) as producer:
        receipts = producer.send_batch(table, partition=1)
        producer.flush(30.0)
        assert receipts[-1].position(1.0).offset == count - 1
    rows = [Row(1, number, stamps[number], keys[number], values[number], ()) for number in range(count)]
    assert confluent_read(bootstrap(broker), topic, PARTITIONS, count) == rows
    with client.reader(topic, stop=LATEST) as reader:
        batches = list(reader)
    assert rows_of(batches) == rows
    arrow = pa.concat_tables(pa.table(batch) for batch in batches)
    assert arrow.column("value").to_pylist() == values
    assert arrow.column("offset").to_pylist() == list(range(count))


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_keys_go_where_java_and_kafka_python_send_them(broker: Broker, client: Any, topic: str) -> None:
    keys = [b"", b"a", b"ab", b"abc", b"abcd", *(b"key-%d" % number for number in range(100))]
    kafka_python_write(bootstrap(broker), topic, [(None, None, key, b"theirs", ()) for key in keys], "none")
    with client.producer(topic) as producer:
        for key in keys:
            producer.send(b"ours", key=key)
    with client.reader(topic, stop=LATEST) as reader:
        rows = rows_of(reader)
    theirs = {row.key: row.partition for row in rows if row.value == b"theirs"}
    ours = {row.key: row.partition for row in rows if row.value == b"ours"}
    assert len(ours) == len(keys)
    assert ours == theirs
    assert set(ours.values()) == {0, 1, 2}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("message_format", [0, 1])
@pytest.mark.parametrize("broker", ["kafka-3.9.2"], indirect=True)
def test_old_message_sets_are_written_and_read(broker: Broker, client: Any, topic: str, message_format: int, codec: str) -> None:
    """Old Produce versions; 3.9 stores them as v2 batches, and gives them back in the old formats to old Fetch versions."""
    values = [b"value %d" % number * 3 for number in range(50)]
    stamp = None if message_format == 0 else 1_700_000_000_000
    with client.producer(topic, message_format=message_format, compression=codec) as producer:
        for value in values:
            producer.send(value, key=b"k", timestamp=stamp, partition=0)
        with pytest.raises(ValueUnsupported, match="headers"):
            producer.send(b"v", headers={"a": b"b"}, partition=0)
        producer.flush(30.0)
    with client.reader(topic, stop=LATEST) as reader:
        rows = rows_of(reader)
    assert [row.value for row in rows] == values
    assert [row.offset for row in rows] == list(range(50))
    if stamp is not None:
        assert {row.timestamp for row in rows} == {stamp}
    assert [row.value for row in kafka_python_read(bootstrap(broker), topic, 1, 50)] == values


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_columns_are_spread_by_key_and_checked(broker: Broker, client: Any, topic: str) -> None:
    keys = [b"k%d" % (number % 50) for number in range(2000)]
    values = [b"%d" % number for number in range(2000)]
    table = pa.record_batch({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())})
    with client.producer(topic) as producer:
        receipts = producer.send_batch(table)
        assert {receipt.position(10.0).partition for receipt in receipts} == {0, 1, 2}
        for key in set(keys):
            producer.send(b"single", key=key)
        with pytest.raises(ValueUnsupported, match="larger than"):
            producer.send_batch(pa.record_batch({"value": pa.array([b"small", b"x" * (2 << 20)], pa.binary())}))
        with pytest.raises(ValueUnsupported, match="1970"):
            producer.send_batch(pa.record_batch({"value": pa.array([b"v"], pa.binary()), "timestamp": pa.array([-1], pa.timestamp("ms"))}))
        producer.send_batch(pa.record_batch({"value": pa.array([b"anywhere"] * 10, pa.binary())}))
        numbered = pa.record_batch({"value": pa.array([b"there"], pa.binary()), "partition": pa.array([2], pa.int32())})
        assert producer.send_batch(numbered)[0].position(10.0).partition == 2
    rows = confluent_read(bootstrap(broker), topic, PARTITIONS, 2061)
    assert len(rows) == 2061
    for key in set(keys):
        mine = [row for row in rows if row.key == key]
        assert len({row.partition for row in mine}) == 1, "columns and single records agree on the partition"
        numbers = [int(row.value or b"") for row in sorted(mine, key=lambda row: row.offset) if row.value != b"single"]
        assert numbers == sorted(numbers)
        assert len(numbers) == 40


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_all_that_nobody_acknowledges_leaves_before_a_flush_is_over(broker: Broker, client: Any, topic: str) -> None:
    """More than a connection holds, at once; and its close comes behind."""
    rows = [b"%06d" % number + bytes(500) for number in range(20_000)]
    table = pa.record_batch({"value": pa.array(rows, pa.binary())})
    with wireproto.connect(broker.url) as other, other.producer(topic, acks="0", compression="none") as producer:
        for number in range(PARTITIONS):
            producer.send_batch(table, partition=number)
        producer.flush(60.0)
    found = confluent_read(bootstrap(broker), topic, PARTITIONS, PARTITIONS * len(rows))
    assert [row.value for row in found] == rows * PARTITIONS
