"""A record comes back byte for byte, or is refused before anything is sent: key, value, headers, timestamp, null and empty apart."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from conformance.features import CARRIED
from conformance.helpers import records, values, write
from conformance.seats import Seat
from wireproto import LATEST
from wireproto.devbroker.recording import Recording
from wireproto.errors import OptionError, ValueUnsupported
from wireproto.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata

ALL_BYTES = bytes(range(256))

EDGES: dict[str, dict[str, Any]] = {
    "null_value": {"value": None},
    "empty_value": {"value": b""},
    "null_key": {"value": b"v", "key": None},
    "text_key": {"value": b"v", "key": "UA1545-ü".encode()},
    "empty_key": {"value": b"v", "key": b""},
    "binary_key": {"value": b"v", "key": b"\xff\xfe\x00" + ALL_BYTES},
    "spaced_key": {"value": b"v", "key": b"two words"},
    "text_header": {"value": b"v", "headers": [("a", b"1"), ("b", "ä".encode())]},
    "binary_header": {"value": b"v", "headers": [("a", b"\xff\x00")]},
    "empty_header": {"value": b"v", "headers": [("a", b"")]},
    "null_header": {"value": b"v", "headers": [("a", None)]},
    "repeated_header": {"value": b"v", "headers": [("a", b"1"), ("b", b"2"), ("a", b"3")]},
}


@pytest.mark.parametrize("edge", EDGES)
def test_edges_are_carried_or_refused(seat: Seat, client: Any, topic: str, edge: str) -> None:
    fields = dict(EDGES[edge])
    value = fields.pop("value")
    with client.producer(topic) as producer:
        if seat.features.fate(edge) is CARRIED:
            producer.send(value, **fields).position(30.0)
        else:
            with pytest.raises(ValueUnsupported):
                producer.send(value, **fields)
        producer.send(b"end").position(30.0)
    read = records(client, topic)
    assert read[-1].value == b"end"
    if seat.features.fate(edge) is CARRIED:
        record = read[0]
        assert len(read) == 2
        assert (record.value, record.key) == (value, fields.get("key"))
        if "headers" in fields:
            got, sent = list(record.headers), fields["headers"]
            assert got == sent if seat.protocol == "kafka" else sorted(got) == sorted(sent)
    else:
        assert len(read) == 1, "a refused record must not be sent"


@pytest.mark.parametrize("size", [1, 255, 4096, 100_000, 500_000])
def test_values_come_back_byte_for_byte(client: Any, topic: str, size: int) -> None:
    sent = [random.Random(size).randbytes(size), ALL_BYTES[:size], b"\x00" * size]
    write(client, topic, sent)
    assert values(client, topic) == sent


def test_order_and_count_hold(client: Any, topic: str) -> None:
    sent = [b"%06d" % number for number in range(500)]
    positions = write(client, topic, sent)
    read = records(client, topic)
    assert [record.value for record in read] == sent
    assert [record.position for record in read] == positions
    assert positions == sorted(positions)
    assert len(set(positions)) == len(positions)


def test_timestamp(seat: Seat, client: Any, topic: str) -> None:
    before = int(time.time() * 1000) - 2000
    given = 1357034400000  # 2013: an old one must not be dropped by retention
    with client.producer(topic) as producer:
        if seat.features.timestamp:
            producer.send(b"given", timestamp=given)
        else:
            with pytest.raises(ValueUnsupported):
                producer.send(b"given", timestamp=given)
        producer.send(b"stamped")
        producer.flush(30.0)
    read = {record.value: record.timestamp for record in records(client, topic)}
    if seat.features.timestamp:
        assert read[b"given"] == given
    assert before <= read[b"stamped"] <= int(time.time() * 1000) + 2000


def test_too_large_is_refused_before_it_is_sent(client: Any, topic: str) -> None:
    with client.producer(topic) as producer:
        with pytest.raises(ValueUnsupported):
            producer.send(b"x" * (64 << 20))
        producer.send(b"small").position(30.0)
    assert values(client, topic) == [b"small"]


def test_batches_are_columns(client: Any, topic: str) -> None:
    import pyarrow as pa

    sent = [b"%d" % number for number in range(50)]
    write(client, topic, sent)
    read: list[bytes] = []
    with client.reader(topic, stop=_latest()) as reader:
        for batch in reader:
            table = pa.record_batch(batch)
            assert table.num_rows == len(batch) > 0
            assert table.column("value").to_pylist() == batch.values() == [record.value for record in batch]
            assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
            assert [record.topic for record in batch] == [topic] * len(batch)
            read += batch.values()
    assert read == sent


def _latest() -> Any:
    from wireproto import LATEST

    return LATEST


def test_send_batch_takes_arrow(seat: Seat, client: Any, topic: str) -> None:
    import pyarrow as pa

    sent = [b"%d" % number for number in range(300)]
    columns: dict[str, Any] = {"value": pa.array(sent, pa.binary())}
    if seat.features.fate("text_key") is CARRIED:
        columns["key"] = pa.array([b"k%d" % (number % 7) for number in range(300)], pa.binary())
    with client.producer(topic) as producer:
        receipts = producer.send_batch(pa.record_batch(columns))
        producer.flush(30.0)
        assert all(receipt.done for receipt in receipts)
        last = receipts[-1].position(1.0)
    read = records(client, topic)
    assert [record.value for record in read] == sent
    assert read[-1].position == last
    if "key" in columns:
        assert [record.key for record in read] == columns["key"].to_pylist()


def test_partition_is_chosen_by_number_and_by_key(seat: Seat, client: Any, fresh: Any) -> None:
    if not seat.features.partitions:
        pytest.skip("has no partitions")
    topic = fresh(partitions=4)
    assert len(client.admin().describe_topic(topic).partitions) == 4
    with client.producer(topic) as producer:
        for partition in range(4):
            assert producer.send(b"p%d" % partition, partition=partition).position(30.0).partition == partition
        keyed = {key: {producer.send(b"v", key=key).position(30.0).partition for _ in range(3)} for key in (b"a", b"b", b"c", b"d")}
    assert all(len(partitions) == 1 for partitions in keyed.values()), keyed
    read = records(client, topic)
    assert len(read) == 4 + 12
    assert {record.partition for record in read if (record.value or b"").startswith(b"p")} == {0, 1, 2, 3}


@pytest.mark.only("kafka", "pulsar")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "zlib"])
def test_each_codec(seat: Seat, dial: Any, fresh: Any, fault_proxy: Any, codec: str) -> None:
    """What was sent comes back, and was packed on its way to the broker by this codec and no other."""
    if codec == {"kafka": "zlib", "pulsar": "gzip"}[seat.protocol]:
        pytest.skip(f"{seat.protocol} has no {codec}")
    topic = fresh()
    seen = fault_proxy.record(seat.protocol)
    url, options = seat.through(fault_proxy)
    client = dial(url, compression=codec, **options)
    sent = [b"a text that compresses well, number %d" % number for number in range(2000)]
    write(client, topic, sent)
    assert values(client, topic) == sent
    packed = {"kafka": kafka_codecs, "pulsar": pulsar_codecs}[seat.protocol](seen)
    assert packed, "nothing was sent"
    assert set(packed) == {codec}


def kafka_codecs(seen: Recording) -> list[str]:
    """Of each batch that was sent: the lowest bits of its attributes."""
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    parts = [part for request in seen.requests("Produce") for topic in request.message.topic_data for part in topic.partition_data]
    return [names[int.from_bytes(bytes(part.records)[21:23], "big") & 7] for part in parts]


def pulsar_codecs(seen: Recording) -> list[str]:
    """Of each entry that was sent: a field of its metadata, behind magic and CRC."""
    found = []
    for request in seen.requests("send"):
        size = int.from_bytes(request.rest[6:10], "big")
        found.append(CompressionType.Name(MessageMetadata.FromString(request.rest[10 : 10 + size]).compression).lower())
    return found


def test_chosen_columns_only(seat: Seat, client: Any, topic: str) -> None:
    if seat.protocol == "zookeeper":
        pytest.skip("a ZooKeeper queue is read node by node: there is nothing to leave out")
    write(client, topic, [b"one", b"two"])
    with client.reader(topic, stop=LATEST, columns=("value",)) as reader:
        batches = list(reader)
    assert [value for batch in batches for value in batch.values()] == [b"one", b"two"]
    assert {batch.columns.columns for batch in batches if len(batch)} == {("value",)}
    with pytest.raises(OptionError, match="colour"):
        next(iter(client.reader(topic, stop=LATEST, columns=("colour",))))
