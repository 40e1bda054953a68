"""KafkaBatchBuilder: read back by kafka-python and aiokafka, and sized, re-labelled and refused as promised."""

from __future__ import annotations

import ctypes
import gc
import mmap
import random
import struct

import pyarrow as pa
import pytest

from peers import kafka_record
from wireproto._codec import Columns, KafkaBatchBuilder, decode_kafka, kafka_batches, kafka_partition, memory_pool
from wireproto.errors import OptionError, ValueUnsupported

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec != "zstd"]
ROWS = [
    (b"v0", b"k0", [("h", b"1"), ("h", None), ("ü", b"")], 1_700_000_000_000),
    (b"", None, [], 1_700_000_000_500),
    (None, b"", [], 1_600_000_000_000),
    (b"x" * 5000, b"k" * 200, [("n" * 70, b"y" * 9000)], 1_700_000_001_000),
    (bytes(range(256)) * 3, b"k4", [], 5),
]


def fill(magic: int, codec: str, rows: list[tuple] | None = None, **options: int) -> KafkaBatchBuilder:
    builder = KafkaBatchBuilder(magic=magic, compression=codec, limit=1 << 24, **options)
    for value, key, headers, timestamp in ROWS if rows is None else rows:
        assert builder.append(value, key, headers if magic == 2 else None, timestamp)
    return builder


def expected(magic: int, rows: list[tuple] | None = None) -> list[tuple]:
    return [
        (n, None if magic == 0 else timestamp, key, value, list(headers) if magic == 2 else [])
        for n, (value, key, headers, timestamp) in enumerate(ROWS if rows is None else rows)
    ]


def read_by_kafka_python(batch: bytes) -> list[tuple]:
    found = []
    records = kafka_record.MemoryRecords(batch)
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in one]
    return found


def read_by_aiokafka(batch: bytes) -> list[tuple]:
    from aiokafka.record.memory_records import MemoryRecords

    found = []
    records = MemoryRecords(batch)
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in one]
    return found


@pytest.mark.parametrize("reader", [read_by_kafka_python, read_by_aiokafka])
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_others_read_what_we_wrote(magic: int, codec: str, reader: object) -> None:
    if reader is read_by_aiokafka and (magic, codec) == (0, "lz4"):
        return  # aiokafka refuses lz4 in v0
    assert reader(fill(magic, codec).finish()) == expected(magic)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_columns_encode_as_rows_do(magic: int, codec: str) -> None:
    rows = [(v, k, h if magic == 2 else [], t) for v, k, h, t in ROWS]
    columns = Columns.from_rows([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], [r[3] for r in rows])
    builder = KafkaBatchBuilder(magic=magic, compression=codec, limit=1 << 24)
    assert builder.append_columns(columns, 0, 5, -1) == 5
    assert builder.finish() == fill(magic, codec, rows).finish()
    part = KafkaBatchBuilder(magic=magic, compression=codec, limit=1 << 24)
    assert part.append_columns(columns[1:], 1, 4, -1) == 3
    assert part.finish() == fill(magic, codec, rows[2:]).finish()


def test_the_head_is_as_other_clients_write_it() -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    theirs = DefaultRecordBatchBuilder(2, 0, 1, 77, 3, 1000, 1 << 20)
    rows = [row for row in ROWS if row[3] > 10**12]
    for n, (value, key, headers, timestamp) in enumerate(rows):
        theirs.append(n, timestamp, key, value, headers)
    ours, wanted = bytearray(fill(2, "none", rows).finish(77, 3, 1000, transactional=True)), bytearray(theirs.build())
    assert ours[12:16] == b"\xff\xff\xff\xff"  # leader epoch: unknown, as Java's producer writes it
    ours[12:16] = wanted[12:16]
    assert ours == wanted


@pytest.mark.parametrize("codec", CODECS)
def test_another_identity_changes_the_head_alone(codec: str) -> None:
    builder = fill(2, codec)
    first, second = builder.finish(5, 0, 10), builder.finish(6, 1, 0)
    assert first[61:] == second[61:]
    assert first == builder.finish(5, 0, 10)
    for batch, facts in ((first, (5, 0, 10)), (second, (6, 1, 0))):
        (found,) = kafka_batches(batch)
        assert (found["producer_id"], found["producer_epoch"], found["base_sequence"]) == facts
        assert decode_kafka(batch, topic="t", partition=0, fetch_offset=0)[1] == 5


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_limit_holds_but_for_a_first_record(magic: int) -> None:
    builder = KafkaBatchBuilder(magic=magic, limit=1000)
    taken = 0
    while builder.append(b"v" * 90, b"k", None, 1):
        taken += 1
    assert len(builder) == taken
    assert 850 < builder.size <= 1000
    assert len(builder.finish()) == builder.size
    large = KafkaBatchBuilder(magic=magic, limit=1000)
    assert large.append(b"v" * 5000)
    assert not large.append(b"")
    columns = Columns.from_rows([b"v" * 90] * 50, [b"k"] * 50)
    by_columns = KafkaBatchBuilder(magic=magic, limit=1000)
    assert by_columns.append_columns(columns, 0, 50, 1) == taken
    assert by_columns.append_columns(columns, taken, 50, 1) == 0
    assert by_columns.finish() == builder.finish()


def test_rows_without_a_timestamp() -> None:
    columns = Columns.from_rows([b"a", b"b"], timestamps=[None, 7])
    builder = KafkaBatchBuilder()
    builder.append_columns(columns, 0, 2, 1234)
    assert decode_kafka(builder.finish(), topic="t", partition=0, fetch_offset=0)[0].timestamps() == [1234, 7]
    assert builder.max_timestamp == 1234
    none = KafkaBatchBuilder()
    none.append(b"v")
    assert decode_kafka(none.finish(), topic="t", partition=0, fetch_offset=0)[0].timestamps() == [None]


def test_what_cannot_be_written_is_refused_and_leaves_no_trace() -> None:
    builder = fill(2, "none")
    before = builder.finish()
    for bad, kind in (
        ({"value": "text"}, TypeError),
        ({"value": b"v", "key": 5}, TypeError),
        ({"value": b"v", "headers": [("a", b"1"), ("b", "text")]}, TypeError),
        ({"value": b"v", "headers": [("\ud800", b"1")]}, ValueUnsupported),
        ({"value": b"v", "timestamp": "now"}, ValueUnsupported),
        ({"value": b"v", "timestamp": 1.5}, ValueUnsupported),
    ):
        with pytest.raises(kind):
            builder.append(**bad)
        assert builder.finish() == before
    assert builder.append(b"more")
    assert read_by_kafka_python(builder.finish())[-1] == (5, -1, None, b"more", [])
    for magic in (0, 1):
        old = KafkaBatchBuilder(magic=magic)
        with pytest.raises(ValueUnsupported, match="headers"):
            old.append(b"v", None, [("h", b"1")])
        with pytest.raises(ValueUnsupported, match="headers"):
            old.append_columns(Columns.from_rows([b"v"], headers=[{"h": b"1"}]), 0, 1, 0)
        with pytest.raises(ValueUnsupported, match="without records"):
            old.finish()
        with pytest.raises(OptionError):
            KafkaBatchBuilder(magic=magic, compression="zstd")
    with pytest.raises(OptionError):
        KafkaBatchBuilder(compression="brotli")
    with pytest.raises(OptionError):
        KafkaBatchBuilder(magic=3)
    with pytest.raises(IndexError):
        builder.append_columns(Columns.from_rows([b"v"]), 0, 2, 0)


def test_other_buffers_are_taken() -> None:
    builder = KafkaBatchBuilder()
    builder.append(bytearray(b"v"), memoryview(b"k"), {"h": bytearray(b"x")}, 1)
    assert read_by_kafka_python(builder.finish()) == [(0, 1, b"k", b"v", [("h", b"x")])]


def test_random_records_come_back() -> None:
    rng = random.Random(3)

    def blob() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 63, 64, 65, 300, 9000)))

    for _ in range(30):
        rows = [
            (blob(), blob(), [(f"h{n}", blob()) for n in range(rng.choice((0, 1, 70)))], rng.randrange(-(2**40), 2**41))
            for _ in range(rng.randrange(1, 40))
        ]
        batch = fill(2, rng.choice(CODECS), rows).finish()
        columns, following = decode_kafka(batch, topic="t", partition=0, fetch_offset=0)
        assert following == len(rows)
        assert read_by_kafka_python(batch) == expected(2, rows)
        found = zip(columns.positions(), columns.timestamps(), columns.keys(), columns.values(), map(list, columns.headers()), strict=True)
        assert list(found) == expected(2, rows)


def by_aiokafka(rows: list[tuple[bytes | None, bytes | None, int]]) -> bytes:
    """Values, keys and timestamps as aiokafka's builder writes them."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 28)
    for n, (value, key, timestamp) in enumerate(rows):
        builder.append(n, timestamp, key, value, [])
    batch = builder.build()
    return bytes(batch[:12]) + b"\xff\xff\xff\xff" + bytes(batch[16:])


EDGES = (None, 0, 1, 3, 4, 7, 8, 15, 16, 31, 32, 33, 62, 63, 64, 65, 255, 256, 257, 4095, 7998, 7999, 8000, 8001, 8191, 8192, 20_000)


def ways_to_encode(rows: list[tuple[bytes | None, bytes | None, int]], limit: int = 1 << 28) -> dict[str, tuple[int, bytes]]:
    """Records taken and the batch, by each way in."""
    values, keys, stamps = ([row[n] for row in rows] for n in range(3))
    made = {}
    builder = KafkaBatchBuilder(limit=limit)
    made["append"] = sum(builder.append(value, key, None, time) for value, key, time in rows), builder.finish()
    builder = KafkaBatchBuilder(limit=limit)
    made["lists"] = builder.append_lists(values, keys, timestamps=stamps), builder.finish()
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        arrays = [pa.array([b"pad", b"\x00" * 20, *column, b"more"], kind) for column in (values, keys)]
        times = pa.array([5, 6, *stamps, 7], pa.timestamp("ms", "UTC"))
        batch = pa.record_batch([*arrays, times], names=["value", "key", "timestamp"])[2:-1]  # offsets into all buffers
        for source in (batch, pa.table(batch)):
            builder = KafkaBatchBuilder(limit=limit)
            columns = Columns.from_arrow(source)
            made[f"{kind} from a {type(source).__name__}"] = builder.append_columns(columns, 0, len(columns), -1), builder.finish()
    return made


def test_every_way_in_writes_what_aiokafka_writes() -> None:
    rng = random.Random(6)

    def blob(size: int | None) -> bytes | None:
        return None if size is None else rng.randbytes(size)

    steps = (0, 1, -1, 63, 64, 8191, 8192, 2**20 - 1, 2**20, -(2**20), 2**27, 2**34, -(2**41))
    rows = [(blob(value), blob(key), 1_700_000_000_000 + rng.choice(steps)) for value in EDGES for key in EDGES]
    rng.shuffle(rows)
    few = [(b"v" * (n % 7), b"k", 1_700_000_000_000 + n) for n in range(8300)]  # offsets of one, two and three bytes
    wholes = [(b"v" * (n % 70), bytes([n]) * 16, 5) for n in range(100)]  # no nulls
    for case in (rows, few, wholes, [rows[0]], [(b"", b"", 0)], [(None, None, 0)] * 3, [(b"x" * 300_000, b"k" * 70_000, 1)] * 3):
        wanted = by_aiokafka(case)
        for way, (taken, batch) in ways_to_encode(case).items():
            assert taken == len(case), way
            assert batch == wanted, way


def test_the_limit_is_kept_to_the_byte() -> None:
    rows = [(b"v" * 40, b"k" * 5, 1_700_000_000_000 + n) for n in range(40)]
    whole = len(by_aiokafka(rows))
    for limit in (*range(whole - 120, whole + 3), 61, 0):
        builder = KafkaBatchBuilder(limit=limit)
        taken = sum(builder.append(value, key, None, time) for value, key, time in rows)
        batch = builder.finish()
        assert len(batch) <= limit or taken == 1
        assert (taken == 40) == (limit >= whole)
        for way, made in ways_to_encode(rows, limit).items():
            assert made == (taken, batch), way


def test_nothing_is_read_beyond_the_end_of_an_arrow_buffer() -> None:
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as memory:
        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert protect(at + page, page, 0) == 0  # a read of the second page ends the process
        for size in (1, 5, 9, 17, 33, 100, 255):
            count = 12
            memory[page - count * size : page] = random.Random(size).randbytes(count * size)
            starts = pa.py_buffer(struct.pack(f"<{count + 1}i", *range(0, (count + 1) * size, size)))
            data = pa.foreign_buffer(at + page - count * size, count * size)
            values = pa.Array.from_buffers(pa.binary(), count, [None, starts, data])
            batch = pa.record_batch([values, values], names=["value", "key"])
            builder = KafkaBatchBuilder(limit=1 << 20)
            assert builder.append_columns(Columns.from_arrow(batch), 0, count, 7) == count
            plain = values.to_pylist()
            assert builder.finish() == by_aiokafka([(value, value, 7) for value in plain])
        protect(at + page, page, mmap.PROT_READ | mmap.PROT_WRITE)


def test_partitions_are_javas() -> None:
    from kafka.partitioner import murmur2

    rng = random.Random(4)
    for size in (*range(20), 100, 1001):
        key = rng.randbytes(size)
        for partitions in (1, 2, 3, 7, 100):
            assert kafka_partition(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions
    assert struct.unpack(">i", struct.pack(">I", murmur2(b"21")))[0] == -973932308  # Java's own UtilsTest
    with pytest.raises(ValueError):
        kafka_partition(b"k", 0)


def test_the_collector_gives_a_sealed_batchs_memory_back_once() -> None:
    """A failed producer's batches are found in a cycle: the collector takes their members away before it frees them."""
    limit = memory_pool()["limit"]
    memory_pool(0)
    memory_pool(limit)

    def sealed_in_a_cycle(size: int) -> None:
        builder = KafkaBatchBuilder(limit=1)
        assert builder.append(bytes(size))
        builder.seal()
        keeper: list[object] = [builder]
        keeper.append(keeper)

    for size in (20_000, 200_000):
        gc.collect()  # of what other tests left
        held = memory_pool()["held"]
        gc.disable()
        try:
            sealed_in_a_cycle(size)
            gc.collect()
        finally:
            gc.enable()
        assert size <= memory_pool()["held"] - held < 2 * size
