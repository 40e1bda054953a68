"""Kafka's records as columns: chosen ones, facts of their batches, values as views. The batches are written by aiokafka's builder."""

from __future__ import annotations

import gc
import pickle
import struct
import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder
from aiokafka.record._crecords.legacy_records import LegacyRecordBatchBuilder

from wireproto._codec import Columns, Slice, decode_kafka, memory_pool
from wireproto.errors import Malformed, OptionError, ValueUnsupported

STAMP = 1_700_000_000_000


def batch(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], base: int = 0, codec: int = 0, **identity: int
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2,
        codec,
        bool(identity.get("transactional")),
        identity.get("producer", -1),
        identity.get("epoch", -1),
        identity.get("sequence", -1),
        1 << 30,
    )
    for n, (key, value, headers) in enumerate(rows):
        assert builder.append(n, STAMP + n, key, value, headers) is not None
    data = bytearray(builder.build())
    data[:8] = struct.pack(">q", base)
    data[12:16] = struct.pack(">i", identity.get("leader_epoch", 0))
    return bytes(data)


def decode(section: object, **given: object) -> Columns:
    return decode_kafka(section, topic="t", partition=0, fetch_offset=0, **given)[0]  # type: ignore[arg-type]


def rows_of(size: int, count: int = 50) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Values of about that size; some null, some empty, some short enough to lie within a view; keys and headers now and then."""
    found = []
    for n in range(count):
        value = None if n % 11 == 3 else b"" if n % 13 == 5 else b"%d" % n if n % 7 == 2 else bytes([n]) * (size + n)
        key = None if n % 5 == 1 else b"key %d" % n * (n % 4)
        found.append((key, value, [("h", b"x"), ("none", None)] if n % 9 == 4 else []))
    return found


@pytest.fixture(params=[10, 1000])
def size(request: pytest.FixtureRequest) -> int:
    """Values that are copied, and values that stay views."""
    return int(request.param)


@pytest.fixture(params=[0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"])
def codec(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class TestValues:
    def test_rows_are_what_was_written(self, size: int, codec: int) -> None:
        rows = rows_of(size)
        columns = decode(batch(rows, codec=codec) + batch(rows, base=50, codec=codec))
        assert columns.values() == [value for _, value, _ in rows] * 2
        assert columns.keys() == [key for key, _, _ in rows] * 2
        assert columns.headers() == [tuple(headers) for _, _, headers in rows] * 2
        assert columns.positions() == list(range(100))
        assert columns.timestamps() == [STAMP + n for n in range(50)] * 2
        assert [record.value for record in columns.records("t", 0)] == columns.values()
        assert columns.nbytes == 2 * sum(
            len(key or b"") + len(value or b"") + sum(len(name) + len(v or b"") for name, v in headers) for key, value, headers in rows
        )

    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
    def test_arrow_in_each_layout(self, size: int, codec: int, kind: pa.DataType) -> None:
        rows = rows_of(size)
        columns = decode(batch(rows, codec=codec) + batch(rows, base=50))
        for part in (columns, columns[3:77], columns[9:9], columns[60:]):
            schema = pa.record_batch(part).schema
            wanted = pa.schema([field.with_type(kind) if field.name in ("key", "value") else field for field in schema])
            found = pa.record_batch(part, schema=wanted)
            found.validate(full=True)
            assert found.schema.field("value").type == kind
            assert found.column("value").to_pylist() == part.values()
            assert found.column("key").to_pylist() == part.keys()
            assert pa.record_batch(part).column("value").to_pylist() == part.values()

    def test_text_only_where_it_is_utf8(self, size: int) -> None:
        plain = decode(batch([(b"k", b"a" * size, []), (None, None, [])]))
        text = pa.schema([field.with_type(pa.string()) if field.name == "value" else field for field in pa.record_batch(plain).schema])
        assert pa.record_batch(plain, schema=text).column("value").to_pylist() == ["a" * size, None]
        other = decode(batch([(b"k", b"\xff" * size, [])]))
        schema, _ = other.__arrow_c_array__(text.__arrow_c_schema__())
        assert pa.Schema._import_from_c_capsule(schema).field("value").type == pa.binary()

    def test_a_message_set_behind_a_batch_of_views(self) -> None:
        old = LegacyRecordBatchBuilder(1, 0, 1 << 20)
        old.append(0, STAMP, b"k", b"v" * 500)
        set_of_one = b"\0" * 7 + b"\x02" + bytes(old.build())[8:]
        columns = decode(batch([(None, b"x" * 1000, []), (None, b"y" * 600, [])]) + set_of_one)
        assert columns.values() == [b"x" * 1000, b"y" * 600, b"v" * 500]

    def test_bytes_that_may_change_are_copied(self) -> None:
        section = bytearray(batch([(None, b"x" * 1000, [])]))
        columns = decode(section)
        section[:] = bytes(len(section))
        assert columns.values() == [b"x" * 1000]

    def test_broken_batch_behind_views_ends_there(self) -> None:
        good, broken = batch([(None, b"x" * 1000, [])]), bytearray(batch([(None, b"y" * 1000, [])], base=1))
        broken[-500] ^= 1
        columns, following = decode_kafka(good + broken, topic="t", partition=0, fetch_offset=0)
        assert (columns.values(), following) == ([b"x" * 1000], 1)


class TestLifetime:
    def test_views_outlive_columns_and_answer(self) -> None:
        frame = b"head" + batch([(b"k", bytes([n]) * 1000, []) for n in range(20)])
        before = sys.getrefcount(frame)
        columns = decode(Slice(frame, 4))
        assert sys.getrefcount(frame) == before + 1
        array = pa.record_batch(columns, schema=view_schema(columns)).column("value")
        del columns
        assert sys.getrefcount(frame) == before + 1
        last = array[19:]
        del array
        assert last.to_pylist() == [bytes([19]) * 1000]
        del last
        gc.collect()
        assert sys.getrefcount(frame) == before

    def test_binary_keeps_no_answer_once_columns_are_gone(self) -> None:
        frame = batch([(b"k", bytes([n]) * 1000, []) for n in range(20)])
        before = sys.getrefcount(frame)
        table = pa.record_batch(decode(frame))
        del table
        assert sys.getrefcount(frame) == before

    def test_arrays_given_back_on_another_thread(self) -> None:
        frame = batch([(b"k", bytes([n]) * 1000, []) for n in range(20)])
        before = sys.getrefcount(frame)
        columns = decode(frame)
        kept = [pa.record_batch(columns, schema=view_schema(columns))]
        del columns
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        assert sys.getrefcount(frame) == before

    def test_columns_shared_by_threads(self) -> None:
        columns = decode(batch(rows_of(1000, 200)))
        expected = columns.values()
        wrong: list[object] = []

        def use() -> None:
            for _ in range(20):
                part = columns[10:150]
                table = pa.record_batch(part, schema=view_schema(part))
                if part.values() != expected[10:150] or table.column("value").to_pylist() != expected[10:150]:
                    wrong.append(part)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def view_schema(columns: Columns) -> pa.Schema:
    schema = pa.record_batch(columns).schema
    return pa.schema([field.with_type(pa.binary_view()) if field.name in ("key", "value") else field for field in schema])


class TestChosenColumns:
    @pytest.mark.parametrize("names", [("value",), ("offset", "key"), ("timestamp", "headers"), ("value", "sequence", "offset"), ()])
    def test_only_these(self, names: tuple[str, ...], size: int, codec: int) -> None:
        whole = decode(batch(rows_of(size), codec=codec))
        columns = decode(batch(rows_of(size), codec=codec), columns=names)
        assert set(columns.columns) == set(names)
        assert len(columns) == len(whole)
        exported = pa.record_batch(columns)
        assert set(exported.schema.names) == set(names)
        for name in names:
            if name != "sequence":
                assert columns.column(name) == whole.column(name)
        for name in {"key", "value", "timestamp", "headers", "offset"} - set(names):
            with pytest.raises(ValueUnsupported, match=name):
                columns.column(name)
            with pytest.raises(ValueUnsupported, match=name):
                getattr(columns.record(4, "t", 0), name)
        assert pickle.loads(pickle.dumps(columns[5:9])) == columns[5:9]
        assert Columns.concat([columns, columns]).columns == columns.columns
        repr(columns.record(0, "t", 0))

    def test_unknown_name(self) -> None:
        with pytest.raises(OptionError, match="colour"):
            decode(b"", columns=("colour",))

    def test_facts_of_the_batches(self, codec: int) -> None:
        rows = rows_of(10, 3)
        old = LegacyRecordBatchBuilder(0, 0, 1 << 20)
        old.append(0, None, b"k", b"v")
        section = (
            batch(rows, codec=codec, producer=77, epoch=3, sequence=2**31 - 2, transactional=1, leader_epoch=5)
            + batch(rows[:2], base=3, leader_epoch=6)
            + b"\0" * 7
            + b"\x05"
            + bytes(old.build())[8:]
        )
        names = ("leader_epoch", "producer_id", "producer_epoch", "sequence", "transactional", "timestamp_type")
        columns = decode(section, columns=("offset", *names))
        expected = {
            "leader_epoch": [5, 5, 5, 6, 6, -1],
            "producer_id": [77, 77, 77, -1, -1, -1],
            "producer_epoch": [3, 3, 3, -1, -1, -1],
            "sequence": [2**31 - 2, 2**31 - 1, 0, -1, -1, -1],
            "transactional": [True, True, True, False, False, False],
            "timestamp_type": [0, 0, 0, 0, 0, -1],
        }
        exported = pa.record_batch(columns)
        exported.validate(full=True)
        for name in names:
            assert columns.column(name) == expected[name]
            assert exported.column(name).to_pylist() == expected[name]
            assert pa.record_batch(columns[2:5]).column(name).to_pylist() == expected[name][2:5]
        assert pickle.loads(pickle.dumps(columns)) == columns


class TestPool:
    @pytest.fixture(autouse=True)
    def settled(self) -> Iterator[None]:
        gc.collect()
        limit = memory_pool()["limit"]
        yield
        memory_pool(limit)

    def test_steady_reading_allocates_nothing(self, size: int) -> None:
        section = batch([(b"k" * 16, bytes([n & 255]) * size, []) for n in range(2000)])
        for _ in range(3):
            pa.record_batch(decode(section))
        before = memory_pool()
        for _ in range(10):
            pa.record_batch(decode(section))
        after = memory_pool()
        assert after["fresh"] == before["fresh"]
        assert after["again"] > before["again"]

    def test_it_holds_no_more_than_its_limit(self) -> None:
        memory_pool(1 << 20)
        section = batch([(b"k" * 16, bytes([n & 255]) * 100, []) for n in range(5000)])
        kept = [decode(section) for _ in range(20)]
        assert memory_pool()["held"] <= 1 << 20
        del kept
        assert 0 < memory_pool()["held"] <= 1 << 20
        memory_pool(0)
        decode(section)
        assert memory_pool()["held"] == 0

    def test_columns_that_are_kept_keep_their_memory(self) -> None:
        sections = [batch([(b"k", bytes([m]) * 100, []) for _ in range(1000)]) for m in range(30)]
        kept = [decode(section) for section in sections]
        for m, columns in enumerate(kept):
            assert columns.values() == [bytes([m]) * 100] * 1000


def test_count_that_lies_reserves_nothing() -> None:
    section = bytearray(batch([(b"k", b"v" * 100, [])]))
    section[57:61] = struct.pack(">i", 2**31 - 1)
    with pytest.raises(Malformed):
        decode(section, check_crc=False)
