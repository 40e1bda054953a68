"""Columns: rows in and out as lists, records, slices and Arrow."""

from __future__ import annotations

import ctypes
import gc
import pickle
import random
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from wireproto._codec import Columns, ColumnsBuilder, Record
from wireproto.position import LogOffset, MessageId

ROWS = [
    (10, 1000, b"k1", b"v1", (("a", b"1"), ("a", None), ("b", b""))),
    (11, None, None, b"", ()),
    (13, -5, b"", None, (("ü", b"x" * 300),)),
    (20, 2**53, b"key", bytes(range(256)) * 3, ()),
    (21, 0, b"k" * 40, b"short", (("", b"e"),)),
]


def build(rows: list[tuple] | None = None, kind: str = "offset") -> Columns:
    builder = ColumnsBuilder(kind)
    for position, timestamp, key, value, headers in ROWS if rows is None else rows:
        builder.append(value, key=key, headers=headers, timestamp=timestamp, position=position)
    return builder.finish()


def random_rows(count: int, seed: int = 1) -> list[tuple]:
    rng = random.Random(seed)

    def blob(most: int) -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 12, 13, 31, 32, 33, most)))

    return [
        (
            n * 3,
            None if rng.random() < 0.2 else rng.randrange(2**41),
            blob(20),
            blob(300),
            tuple((f"h{rng.randrange(5)}", blob(40)) for _ in range(rng.choice((0, 0, 1, 3)))),
        )
        for n in range(count)
    ]


def plain_rows(batch: pa.RecordBatch) -> list[tuple]:
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [tuple((h["name"], h["value"]) for h in row) for row in batch.column("headers").to_pylist()]
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    offsets, keys, values = columns
    return list(zip(offsets, times, keys, values, headers, strict=True))


def test_lists_tell_null_from_empty() -> None:
    columns = build()
    assert len(columns) == 5
    assert columns.positions() == [10, 11, 13, 20, 21]
    assert columns.timestamps() == [1000, None, -5, 2**53, 0]
    assert columns.keys() == [b"k1", None, b"", b"key", b"k" * 40]
    assert columns.values() == [b"v1", b"", None, bytes(range(256)) * 3, b"short"]
    assert columns.headers() == [row[4] for row in ROWS]


def test_records_carry_topic_partition_and_position() -> None:
    first, *_, last = build().records("t", 3)
    assert (first.topic, first.partition, first.position, first.offset) == ("t", 3, LogOffset("t", 3, 10), 10)
    assert (first.timestamp, first.key, first.value, first.headers) == (1000, b"k1", b"v1", ROWS[0][4])
    assert (last.position.offset, last.headers) == (21, (("", b"e"),))
    (message,) = build([((5, 6, -1), 1, None, b"v", ())], "message_id").records("p", -1)
    assert message.position == MessageId("p", -1, 5, 6, -1)
    with pytest.raises(AttributeError):
        _ = message.offset


def test_records_compare_hash_print_and_pickle() -> None:
    ours, theirs = list(build().records("t", 0)), list(build().records("t", 0))
    assert ours == theirs
    assert len({*ours, *theirs}) == 5
    assert ours[0] != next(build().records("t", 1))
    assert ours[0] != ours[1]
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert "t[0] 10" in repr(ours[0])
    assert "(768 bytes)" in repr(ours[3])
    with pytest.raises(AttributeError):
        ours[0].value = b""  # type: ignore[misc]
    with pytest.raises(TypeError):
        Record()
    (message,) = build([((5, 6, 0), 1, None, b"v", ())], "message_id").records("p", -1)
    assert pickle.loads(pickle.dumps(message)) == message


def test_columns_are_made_by_their_makers_only() -> None:
    with pytest.raises(TypeError):
        Columns()
    columns = build()
    assert pickle.loads(pickle.dumps(columns)) == columns
    assert columns != build()[1:]
    with pytest.raises(TypeError):
        columns[0]
    with pytest.raises(ValueError):
        columns[::2]
    with pytest.raises(IndexError):
        columns.record(5, "t", 0)


def test_slices_are_windows() -> None:
    columns = build(random_rows(100))
    for start, stop in ((0, 100), (1, 99), (7, 8), (8, 50), (50, 50), (60, 40), (-3, 1000)):
        part = columns[start:stop]
        assert part.values() == columns.values()[start:stop]
        assert part.headers() == columns.headers()[start:stop]
        assert plain_rows(pa.record_batch(part)) == plain_rows(pa.record_batch(columns))[start:stop]
        again = part[1:][:2]
        assert again.positions() == columns.positions()[start:stop][1:][:2]
        assert [r.offset for r in again.records("t", 0)] == again.positions()


def test_concatenation() -> None:
    rows = random_rows(300)
    columns = build(rows)
    joined = Columns.concat([columns[:10], columns[10:10], columns[10:211], columns[211:]])
    assert joined == columns
    assert plain_rows(pa.record_batch(joined)) == rows
    with pytest.raises(ValueError):
        Columns.concat([columns, Columns.from_rows([b"v"])])


def test_a_row_that_fails_leaves_the_builder_as_it_was() -> None:
    builder = ColumnsBuilder("offset")
    builder.append(b"one", key=None, headers={"a": None}, position=1)
    for bad in (
        {"value": "text", "position": 2},
        {"value": b"v", "key": "text", "position": 2},
        {"value": b"v", "headers": [("a", b"1"), ("b", "text")], "position": 2},
        {"value": b"v", "headers": [("a", None), ("\ud800", None)], "position": 2},
        {"value": b"v", "position": None},
        {"value": b"v", "timestamp": "now", "position": 2},
    ):
        with pytest.raises((TypeError, ValueError)):
            builder.append(**bad)
    builder.append(b"two", timestamp=7, headers=[("c", b"")], position=2)
    columns = builder.finish()
    assert plain_rows(pa.record_batch(columns)) == [
        (1, None, None, b"one", (("a", None),)),
        (2, 7, None, b"two", (("c", b""),)),
    ]
    assert len(builder) == 0
    assert len(builder.finish()) == 0


def test_arrow_schema() -> None:
    headers = pa.field(
        "headers",
        pa.list_(pa.field("item", pa.struct([pa.field("name", pa.string(), False), pa.field("value", pa.binary())]), False)),
        False,
    )
    tail = [pa.field("timestamp", pa.timestamp("ms", "UTC")), pa.field("key", pa.binary()), pa.field("value", pa.binary()), headers]
    for kind, fields in {
        "none": [],
        "offset": [pa.field("offset", pa.int64(), False)],
        "sequence": [pa.field("sequence", pa.int64(), False)],
        "message_id": [pa.field("ledger", pa.int64(), False), pa.field("entry", pa.int64(), False), pa.field("index", pa.int32(), False)],
    }.items():
        columns = ColumnsBuilder(kind).finish()
        assert pa.schema(columns) == pa.schema(fields + tail)
        assert pa.record_batch(columns).num_rows == 0
    assert pa.schema(Columns.from_rows([b"v"], partitions=[3])).names == ["partition", "timestamp", "key", "value", "headers"]


def test_arrow_export_is_repeatable_and_outlives_its_source() -> None:
    rows = random_rows(1000)
    columns = build(rows)
    batches = [pa.record_batch(columns), pa.record_batch(columns), pa.table(columns).combine_chunks().to_batches()[0]]
    child = batches[0].column("value")
    part = pa.record_batch(columns[500:510])
    del columns
    gc.collect()
    for batch in batches:
        batch.validate(full=True)
        assert plain_rows(batch) == rows
    del batches, batch
    part.validate(full=True)
    assert child.to_pylist() == [row[3] for row in rows]
    assert plain_rows(part) == rows[500:510]


def grown(act: Callable[[], object]) -> int:
    """KiB that the process grows by, doing it 12,000 times after as many that make its pools."""
    for _ in range(12_000):
        act()
    gc.collect()
    before = resident()
    for _ in range(12_000):
        act()
    gc.collect()
    return resident() - before


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10


@pytest.mark.parametrize("name", ["__arrow_c_schema__", "__arrow_c_array__", "__arrow_c_stream__"])
def test_unconsumed_capsules_are_freed(name: str) -> None:
    """Whoever asks for a capsule need not take what is in it. Those that are not freed are seen: with their destructors taken away."""
    export = getattr(build(random_rows(50)), name)
    forget = ctypes.pythonapi.PyCapsule_SetDestructor
    forget.argtypes = [ctypes.py_object, ctypes.c_void_p]

    def leak() -> None:
        found = export()
        for capsule in found if isinstance(found, tuple) else (found,):
            forget(capsule, None)

    assert grown(export) < 128
    assert grown(leak) > 256


@pytest.mark.parametrize("wanted", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.int32()])
@pytest.mark.parametrize("window", [(0, 200), (3, 150), (8, 9), (17, 17)])
def test_requested_schema_is_honoured(wanted: pa.DataType, window: tuple[int, int]) -> None:
    rows = [
        (o, t, None if k is None else k.hex().encode(), None if v is None else v.hex().encode(), h) for o, t, k, v, h in random_rows(200)
    ]
    columns = build(rows)[window[0] : window[1]]
    given = pa.binary() if wanted == pa.int32() else wanted
    request = pa.schema([pa.field("value", wanted), pa.field("key", wanted), pa.field("nonsense", pa.int8())]).__arrow_c_schema__()
    schema, array = columns.__arrow_c_array__(request)
    batch = pa.RecordBatch._import_from_c_capsule(schema, array)
    batch.validate(full=True)
    assert (batch.schema.field("value").type, batch.schema.field("key").type) == (given, given)
    assert batch.column("value").cast(pa.binary()).to_pylist() == [row[3] for row in rows[window[0] : window[1]]]
    assert batch.column("key").cast(pa.binary()).to_pylist() == [row[2] for row in rows[window[0] : window[1]]]
    reader = pa.RecordBatchReader._import_from_c_capsule(columns.__arrow_c_stream__(request))
    assert reader.read_all().schema == batch.schema


def test_strings_are_given_only_for_utf8() -> None:
    request = pa.schema([pa.field("value", pa.string())]).__arrow_c_schema__
    good = ["", "a", "ü", "€", "\U0001f600", "\ud7ff", "\ue000", "\U0010ffff"]
    bad = [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xc3",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5",
        b"\xe2\x82",
        b"\xff",
    ]
    columns = Columns.from_rows([text.encode() for text in good])
    batch = pa.RecordBatch._import_from_c_capsule(*columns.__arrow_c_array__(request()))
    assert batch.column("value").to_pylist() == good
    for value in bad:
        batch = pa.RecordBatch._import_from_c_capsule(*Columns.from_rows([b"ok", value]).__arrow_c_array__(request()))
        assert batch.schema.field("value").type == pa.binary()


def test_threads_share_columns() -> None:
    rows = random_rows(300)
    columns = build(rows)
    expected = columns.values()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                assert columns[10:].values() == expected[10:]
                assert pa.record_batch(columns).num_rows == 300
                assert sum(1 for _ in columns.records("t", 0)) == 300
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_from_rows_checks_lengths_and_types() -> None:
    columns = Columns.from_rows(
        [b"a", bytearray(b"b"), None],
        keys=[None, memoryview(b"k"), b""],
        headers=[None, {"h": b"1"}, ()],
        timestamps=[1, None, 3],
        partitions=[0, 1, 2],
    )
    assert columns.values() == [b"a", b"b", None]
    assert columns.keys() == [None, b"k", b""]
    assert columns.headers() == [(), (("h", b"1"),), ()]
    assert columns.partitions() == [0, 1, 2]
    assert columns.positions() == [None] * 3
    assert columns[1:].partitions() == [1, 2]
    assert Columns.from_rows([b"a"]).partitions() is None
    with pytest.raises(ValueError):
        Columns.from_rows([b"a"], keys=[])
    assert len(Columns.from_rows([])) == 0


def test_records_that_are_kept_stay_what_they_are() -> None:
    """An iterator hands a record out again only when nobody else has it."""
    rows = [(n, n // 2, b"k%d" % n, b"v%d" % n, ()) for n in range(50)]
    columns = build(rows)
    for step in range(1, 6):  # keep every so many-th, and drop the others
        kept, seen = [], []
        for n, record in enumerate(columns.records("t", 0)):
            seen.append((record.offset, record.timestamp, record.key, record.value))
            if n % step == 0:
                kept.append(record)
        assert seen == [row[:4] for row in rows]
        assert [record.offset for record in kept] == list(range(0, 50, step))
        assert len({id(record) for record in kept}) == len(kept)
    pairs = zip(columns.records("t", 0), columns.records("t", 1), strict=True)
    assert [(a.offset, a.partition, b.offset, b.partition) for a, b in pairs] == [(n, 0, n, 1) for n in range(50)]
    iterator = columns.records("t", 0)
    first, second = next(iterator), next(iterator)
    third, tail = next(iterator), list(iterator)
    assert [record.value for record in (first, second, third, *tail)] == [row[3] for row in rows]


def test_records_have_their_fields_under_names_made_at_run_time() -> None:
    record = next(build().records("t", 3))
    names = ("topic", "partition", "position", "offset", "timestamp", "key", "value", "headers")
    for name in names:
        assert getattr(record, "".join(list(name))) == getattr(record, name) == getattr(type(record), name).__get__(record)
    with pytest.raises(AttributeError, match="val"):
        _ = record.val
