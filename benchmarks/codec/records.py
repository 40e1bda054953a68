"""Kafka's record codec beside aiokafka's and kafka-python's, on the same bytes.

10,000 records of 100 B or 1,000 B value and 16 B key. kafka-python uses the `crc32c` package here, aiokafka its Cython module; CRCs are
checked by all. A record is read by each through its own public objects; who wants only values says so where there is a way to
(`columns=("value",)`). Encoding ends with the batch as it is handed to the connection.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyarrow as pa

from wireproto._codec import Columns, KafkaBatchBuilder, Slice, decode_kafka

from ..harness import Bench

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.record.default_records as kafka_python
    from aiokafka.consumer.fetcher import PartitionRecords
    from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as AioBuilder
    from aiokafka.record._crecords.memory_records import MemoryRecords as AioRecords
    from aiokafka.structs import TopicPartition
    from kafka.consumer.fetcher import Fetcher
    from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

    from kafka import TopicPartition as KafkaPythonPartition

COUNT = 10_000
KEY, STAMP = b"k" * 16, 1_700_000_000_000
SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary()), ("value", pa.binary())])


def theirs(section: bytes, reader: type) -> object:
    records = reader(section)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError("CRC")
        yield from batch


def to_arrow(section: bytes, reader: type) -> pa.RecordBatch:
    offsets, stamps, keys, values = [], [], [], []
    for r in theirs(section, reader):
        offsets.append(r.offset)
        stamps.append(r.timestamp)
        keys.append(r.key)
        values.append(r.value)
    return pa.record_batch(
        [pa.array(offsets), pa.array(stamps, pa.int64()).cast(SCHEMA.field(1).type), pa.array(keys), pa.array(values)], schema=SCHEMA
    )


VALUE = ("value",)


def ours(section: bytes, columns: tuple[str, ...] | None = None) -> Columns:
    return decode_kafka(section, topic="t", partition=0, fetch_offset=0, columns=columns)[0]


def our_append(values: list[bytes]) -> Slice:
    builder = KafkaBatchBuilder(limit=1 << 24)
    append = builder.append
    for value in values:
        append(value, KEY, None, STAMP)
    return builder.seal()


def our_columns(columns: Columns) -> Slice:
    builder = KafkaBatchBuilder(limit=1 << 24)
    builder.append_columns(columns, 0, len(columns), 0)
    return builder.seal()


def our_lists(values: list[bytes], keys: list[bytes]) -> Slice:
    builder = KafkaBatchBuilder(limit=1 << 24)
    if builder.append_lists(values, keys, now=STAMP) != len(values):
        raise AssertionError("no room")
    return builder.seal()


def our_arrow(batch: pa.RecordBatch) -> Slice:
    return our_columns(Columns.from_arrow(batch))


def their_append(values: list[bytes], make: type) -> object:
    builder = make(2, 0, False, -1, -1, -1, 1 << 24)
    append = builder.append
    for n, value in enumerate(values):
        append(n, STAMP, KEY, value, [])
    return builder.build()


def read_four(records: object) -> None:
    for r in records:
        _ = (r.offset, r.timestamp, r.key, r.value)


def read_value(records: object) -> None:
    for r in records:
        _ = r.value


def aiokafka_step(section: bytes) -> list[object]:
    """What its fetcher does with an answer: consumer records."""
    found = PartitionRecords(TopicPartition("t", 0), AioRecords(section), [], 0, None, None, True, 0)
    return list(found)


def kafka_python_step(section: bytes) -> list[object]:
    records = Fetcher.PartitionRecords(0, KafkaPythonPartition("t", 0), KafkaPythonRecords(section))
    return list(records.take(COUNT))


VIEWS = pa.schema(
    [
        *(("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary_view()), ("value", pa.binary_view())),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)


def tasks(bench: Bench) -> None:
    """All of them at both sizes of value."""
    for size in (100, 1000):
        at_size(bench, size, 9)


def at_size(bench: Bench, size: int, rounds: int) -> None:
    """All tasks at one size of value."""
    kp = kafka_python.DefaultRecordBatchBuilder
    values = [bytes([n & 255]) * size for n in range(COUNT)]
    section = bytes(their_append(values, AioBuilder))
    keys = [KEY] * COUNT
    table = pa.record_batch({"key": keys, "value": values, "timestamp": pa.array([STAMP] * COUNT, pa.int64())})
    assert bytes(our_append(values)) == our_lists(values, keys) == our_arrow(table) == section
    rows: dict[str, dict[str, Callable[[], object]]] = {
        "decode to pyarrow": {
            "wireproto": lambda: pa.record_batch(ours(section)),
            "aiokafka": lambda: to_arrow(section, AioRecords),
            "kafka-python": lambda: to_arrow(section, KafkaPythonRecords),
        },
        "decode to pyarrow views": {
            "wireproto": lambda: pa.record_batch(ours(section), schema=VIEWS),
            "aiokafka": lambda: to_arrow(section, AioRecords),
            "kafka-python": lambda: to_arrow(section, KafkaPythonRecords),
        },
        "read 4 fields": {
            "wireproto": lambda: read_four(ours(section).records("t", 0)),
            "aiokafka": lambda: read_four(theirs(section, AioRecords)),
            "kafka-python": lambda: read_four(theirs(section, KafkaPythonRecords)),
        },
        "read the value": {
            "wireproto": lambda: read_value(ours(section, VALUE).records("t", 0)),
            "aiokafka": lambda: read_value(theirs(section, AioRecords)),
            "kafka-python": lambda: read_value(theirs(section, KafkaPythonRecords)),
        },
        "list of values": {
            "wireproto": lambda: ours(section, VALUE).values(),
            "aiokafka": lambda: [r.value for r in theirs(section, AioRecords)],
            "kafka-python": lambda: [r.value for r in theirs(section, KafkaPythonRecords)],
        },
        "encode by append": {
            "wireproto": lambda: our_append(values),
            "aiokafka": lambda: their_append(values, AioBuilder),
            "kafka-python": lambda: their_append(values, kp),
        },
        "consumer step to record objects": {
            "wireproto": lambda: list(ours(section).records("t", 0)),
            "aiokafka": lambda: aiokafka_step(section),
            "kafka-python": lambda: kafka_python_step(section),
        },
        "encode lists": {
            "wireproto": lambda: our_lists(values, keys),
            "aiokafka": lambda: their_append(values, AioBuilder),
            "kafka-python": lambda: their_append(values, kp),
        },
        "encode Arrow columns": {
            "wireproto": lambda: our_arrow(table),
            "aiokafka": lambda: their_append(values, AioBuilder),
            "kafka-python": lambda: their_append(values, kp),
        },
    }
    for task, jobs in rows.items():
        bench.compare(
            f"{task}, {size} B",
            COUNT,
            jobs,
            rounds=rounds,
            passes=5,
            few={"kafka-python": 3},
        )
