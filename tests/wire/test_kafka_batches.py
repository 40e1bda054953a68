"""A Kafka batch from records, lists and columns is the same bytes; what is handed out without a copy does not change. Read by aiokafka."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from aiokafka.record._crecords.memory_records import MemoryRecords

from wireproto._codec import Columns, ColumnsBuilder, KafkaBatchBuilder, decode_kafka
from wireproto.errors import Malformed, ValueUnsupported

STAMP = 1_700_000_000_000
SIZES = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 255, 256, 257, 1000, 70_000]


def rows() -> tuple[list[bytes | None], list[bytes | None]]:
    values: list[bytes | None] = [bytes(range(256)) * (size // 256) + bytes(range(size % 256)) for size in SIZES]
    keys: list[bytes | None] = [None if n % 3 == 0 else b"k" * n for n in range(len(values))]
    return [*values, None], [*keys, b"last"]


def read(batch: object) -> list[tuple[bytes | None, bytes | None, int]]:
    found = MemoryRecords(bytes(batch)).next_batch()  # type: ignore[call-overload]
    assert found.validate_crc()
    return [(record.key, record.value, record.timestamp) for record in found]


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_all_ways_in_write_the_same(magic: int, compression: str) -> None:
    values, keys = rows()
    stamp = STAMP if magic else -1
    table = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([STAMP] * len(values), pa.int64()),
        }
    )
    ways = []
    for way in ("append", "lists", "arrow", "copied"):
        builder = KafkaBatchBuilder(magic=magic, compression=compression, limit=1 << 20)
        if way == "append":
            for key, value in zip(keys, values, strict=True):
                assert builder.append(value, key, None, STAMP)
        elif way == "lists":
            assert builder.append_lists(values, keys, now=STAMP) == len(values)
        elif way == "arrow":
            assert builder.append_columns(Columns.from_arrow(table), 0, len(values), -1) == len(values)
        else:
            columns = Columns.from_rows(values, keys=keys, timestamps=[STAMP] * len(values))
            assert builder.append_columns(columns, 0, len(values), -1) == len(values)
        assert builder.size > sum(len(value or b"") for value in values)
        ways.append(builder.finish())
        assert bytes(builder.seal()) == ways[-1]
    assert len(set(ways)) == 1
    if magic == 2 or compression == "none":
        columns, _ = decode_kafka(ways[0], topic="t", partition=0, fetch_offset=0)
        assert (columns.values(), columns.keys()) == (values, keys)
    if magic == 2:
        assert read(ways[0]) == [(key, value, stamp) for key, value in zip(keys, values, strict=True)]


def test_lists_of_other_buffers_and_their_timestamps() -> None:
    builder = KafkaBatchBuilder(limit=1 << 20)
    values = [b"a", bytearray(b"b"), memoryview(b"c"), None]
    assert builder.append_lists(values, [None, b"k", bytearray(b"l"), None], timestamps=[1, None, 3, 4], now=9) == 4
    assert read(builder.finish()) == [(None, b"a", 1), (b"k", b"b", 9), (b"l", b"c", 3), (None, None, 4)]
    for wrong in ([b"a", "text"], [b"a", 5]):
        with pytest.raises(TypeError):
            builder.append_lists(wrong)
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        builder.append_lists([b"a", b"b"], [b"k"])
    with pytest.raises(IndexError):
        builder.append_lists([b"a"], start=2)


def test_a_header_name_that_has_no_utf8_leaves_the_batch_as_it_was() -> None:
    builder = KafkaBatchBuilder(limit=1 << 20)
    assert builder.append(b"a", None, (("h", b"1"),), 5)
    with pytest.raises(ValueUnsupported, match=r"header name '.udc80' holds a lone surrogate"):
        builder.append(b"b", None, (("h", b"2"), ("\udc80", b"3")), 6)
    assert builder.append(b"c", None, (), 7)
    columns, _ = decode_kafka(builder.finish(), topic="t", partition=0, fetch_offset=0)
    assert (columns.values(), columns.headers()) == ([b"a", b"c"], [(("h", b"1"),), ()])


@pytest.mark.parametrize("limit", [61, 100, 1000, 16384])
def test_room_is_kept_to_and_lists_go_on_where_it_ended(limit: int) -> None:
    values = [b"v" * (n % 90) for n in range(2000)]
    batches, start = [], 0
    while start < len(values):
        builder = KafkaBatchBuilder(limit=limit)
        taken = builder.append_lists(values, start=start, now=STAMP)
        same = KafkaBatchBuilder(limit=limit)
        assert same.append_columns(Columns.from_arrow(pa.array(values, pa.binary())), start, len(values), STAMP) == taken
        assert taken >= 1
        sealed = builder.seal()
        assert taken == 1 or len(sealed) <= limit
        assert sealed == same.finish()
        batches.append(sealed)
        start += taken
    assert [value for batch in batches for _, value, _ in read(batch)] == values


def test_sealed_batch_takes_nothing_more_and_stays_as_it_is() -> None:
    builder = KafkaBatchBuilder(limit=1 << 20)
    builder.append(b"one", timestamp=STAMP)
    first = builder.seal(7, 0, 0)
    copy = bytes(first)
    assert builder.seal(7, 0, 0) is first
    assert not builder.append(b"two")
    assert builder.append_lists([b"two"]) == 0
    assert builder.append_columns(Columns.from_rows([b"two"]), 0, 1, 0) == 0
    other = builder.seal(8, 1, 5)
    assert bytes(other) != copy
    assert bytes(first) == copy
    assert read(other) == read(first) == [(None, b"one", STAMP)]
    assert builder.finish(8, 1, 5) == other
    del builder
    gc.collect()
    for _ in range(50):  # whatever is allocated meanwhile
        KafkaBatchBuilder(limit=1 << 20).append(b"x" * 20_000)
    assert bytes(first) == copy


class TestLentArrays:
    def test_slices_nulls_and_missing_keys(self) -> None:
        values = [None if n % 5 == 2 else b"%d" % n * (n % 4) for n in range(100)]
        whole = pa.record_batch({"key": pa.array(values[::-1], pa.binary()), "value": pa.array(values, pa.binary())})
        for start, stop in ((0, 100), (3, 90), (8, 16), (99, 100)):
            columns = Columns.from_arrow(whole.slice(start, stop - start))
            assert columns.values() == values[start:stop]
            assert columns.keys() == values[::-1][start:stop]
            assert columns.timestamps() == [None] * (stop - start)
            assert columns[1:].values() == values[start + 1 : stop]
            back = pa.record_batch(columns)
            back.validate(full=True)
            assert back.column("value").to_pylist() == values[start:stop]
        alone = Columns.from_arrow(pa.array(values, pa.binary())[7:50])
        assert alone.keys() == [None] * 43
        assert alone.values() == values[7:50]

    def test_they_outlive_their_maker(self) -> None:
        before = pa.total_allocated_bytes()
        columns = Columns.from_arrow(pa.record_batch({"value": pa.array([bytes([n]) * 1000 for n in range(200)], pa.binary())}))
        gc.collect()
        assert pa.total_allocated_bytes() > before
        assert columns.values() == [bytes([n]) * 1000 for n in range(200)]
        assert Columns.concat([columns, columns]).values() == columns.values() * 2
        del columns
        gc.collect()
        assert pa.total_allocated_bytes() == before

    def test_starts_out_of_order(self) -> None:
        buffers = [None, pa.array([0, 5, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abcdef")]
        with pytest.raises(Malformed, match="starts"):
            Columns.from_arrow(pa.Array.from_buffers(pa.binary(), 2, buffers))

    def test_one_batch_or_several_of_a_stream(self) -> None:
        parts = [pa.record_batch({"value": pa.array([b"%d" % n, None], pa.binary())}) for n in range(3)]
        for count in (0, 1, 3):
            table = pa.Table.from_batches(parts[:count], schema=parts[0].schema)
            assert Columns.from_arrow(table).values() == [v for n in range(count) for v in (b"%d" % n, None)]


def test_a_builder_of_columns_is_used_again() -> None:
    builder = ColumnsBuilder("offset")
    builder.append(b"a", position=3)
    assert builder.finish().positions() == [3]
    builder.append(b"b", position=4)
    assert builder.finish().values() == [b"b"]
