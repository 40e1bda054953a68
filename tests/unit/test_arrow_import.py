"""Columns from Arrow: every layout of bytes, chunks, offsets, and arrays that lie."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa
import pytest

from wireproto._codec import Columns, ColumnsBuilder
from wireproto.errors import Malformed, ValueUnsupported

VALUES = [b"v0", b"", None, b"a value of more than twelve bytes", b"x" * 1000, "ü".encode(), None, b"twelve bytes"]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
HEADERS = [[("a", b"1"), ("a", None)], [], None, [("b", b"")], [], [("ü", b"x" * 50)], [], []]
PAIR = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])


def headers_array(kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        return pa.array(HEADERS, kind)
    return pa.array([None if row is None else [{"name": n, "value": v} for n, v in row] for row in HEADERS], kind)


def texts(kind: pa.DataType) -> pa.Array:
    plain = [None if v is None else v.decode() for v in VALUES] if "string" in str(kind) else VALUES
    return pa.array(plain, kind)


@pytest.mark.parametrize("window", [(0, 8), (1, 8), (3, 5), (8, 8)])
@pytest.mark.parametrize("kind", BYTES, ids=str)
def test_every_layout_of_bytes(kind: pa.DataType, window: tuple[int, int]) -> None:
    array = texts(kind)
    batch = pa.record_batch({"value": array, "key": array}).slice(window[0], window[1] - window[0])
    columns = Columns.from_arrow(batch)
    assert columns.values() == columns.keys() == VALUES[slice(*window)]
    assert columns.timestamps() == [None] * len(columns)
    assert Columns.from_arrow(array.slice(window[0], window[1] - window[0])).values() == VALUES[slice(*window)]
    assert Columns.from_arrow(pa.table({"value": array})).values() == VALUES


@pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.large_list(PAIR), pa.map_(pa.string(), pa.binary())], ids=str)
def test_headers_as_lists_and_maps(kind: pa.DataType) -> None:
    batch = pa.record_batch({"headers": headers_array(kind), "value": texts(pa.binary())})
    wanted = [tuple(row or ()) for row in HEADERS]
    assert Columns.from_arrow(batch).headers() == wanted
    assert Columns.from_arrow(batch.slice(3, 4)).headers() == wanted[3:7]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1000), ("ms", 1), ("us", 0.001), ("ns", 0.000001)])
def test_timestamps_of_every_unit(unit: str, factor: float) -> None:
    numbers = [0, 1, None, 1_700_000_000_123_456, -1, -1_000_001]
    array = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, "UTC" if unit == "ms" else None))
    if unit == "s":
        array = pa.array([0, 1, None, 1_700_000_000, -1, -5], pa.timestamp("s"))
        numbers = array.cast(pa.int64()).to_pylist()
    divisor = {"us": 1000, "ns": 1_000_000}.get(unit)
    wanted = [None if n is None else n // divisor if divisor else int(n * factor) for n in numbers]
    assert Columns.from_arrow(pa.record_batch({"value": [b""] * 6, "timestamp": array})).timestamps() == wanted
    plain = pa.record_batch({"value": pa.array([b""], pa.binary()), "timestamp": pa.array([123], pa.int64())})
    assert Columns.from_arrow(plain).timestamps() == [123]
    with pytest.raises(Malformed, match="timestamp"):
        Columns.from_arrow(pa.record_batch({"value": [b""], "timestamp": pa.array([2**60], pa.timestamp("s"))}))


def test_partitions_and_chunks() -> None:
    table = pa.table({"value": pa.chunked_array([[b"a"], [], [b"b", None]], pa.binary()), "partition": pa.array([0, 5, -1], pa.int32())})
    columns = Columns.from_arrow(table)
    assert (columns.values(), columns.partitions()) == ([b"a", b"b", None], [0, 5, -1])
    assert Columns.from_arrow(pa.table({"value": [b"a"], "partition": pa.array([7], pa.int64())})).partitions() == [7]
    for bad in (pa.array([None], pa.int32()), pa.array([2**40], pa.int64()), pa.array([-2], pa.int64())):
        with pytest.raises(Malformed, match="partition"):
            Columns.from_arrow(pa.table({"value": [b"a"], "partition": bad}))


def test_what_we_export_comes_back() -> None:
    builder = ColumnsBuilder("offset")
    for n, value in enumerate(VALUES):
        builder.append(value, key=value, headers=HEADERS[n], timestamp=None if n % 3 == 0 else n, position=n)
    columns = builder.finish()
    again = Columns.from_arrow(pa.table(columns))
    assert (again.values(), again.keys(), again.headers(), again.timestamps()) == (
        columns.values(),
        columns.keys(),
        columns.headers(),
        columns.timestamps(),
    )
    assert again.kind == "none"
    assert Columns.from_arrow(columns) is columns


def test_the_source_may_go() -> None:
    array = pa.array([b"x" * 100] * 1000, pa.binary_view())
    columns = Columns.from_arrow(array)
    del array
    gc.collect()
    assert columns.values() == [b"x" * 100] * 1000


def test_columns_that_cannot_be_sent_are_refused() -> None:
    value = pa.array([b"v"], pa.binary())
    for batch, text in (
        (pa.record_batch({"key": value}), "no column 'value'"),
        (pa.record_batch({"value": value, "colour": value}), "colour"),
        (pa.record_batch({"value": pa.array([1])}), "value"),
        (pa.record_batch({"value": value.dictionary_encode()}), "value"),
        (pa.record_batch({"value": value, "timestamp": value}), "timestamp"),
        (pa.record_batch({"value": value, "headers": value}), "headers"),
        (pa.record_batch({"value": value, "headers": pa.array([[1]])}), "headers"),
        (pa.record_batch({"value": value, "partition": value}), "partition"),
        (pa.array([1, 2]), "struct"),
    ):
        with pytest.raises(ValueUnsupported, match=text):
            Columns.from_arrow(batch)
    with pytest.raises(TypeError):
        Columns.from_arrow([b"v"])
    nulls = pa.record_batch({"value": value, "key": pa.nulls(1), "headers": pa.nulls(1), "timestamp": pa.nulls(1)})
    assert Columns.from_arrow(nulls).keys() == [None]


def raw(kind: pa.DataType, length: int, starts: bytes, data: bytes) -> pa.Array:
    """An array whose starts (or views) are changed after pyarrow has looked at them."""
    memory = bytearray(len(starts))
    array = pa.Array.from_buffers(kind, length, [None, pa.py_buffer(memory), pa.py_buffer(data)])
    memory[:] = starts
    return array


def ints(*numbers: int, size: int = 4) -> bytes:
    return b"".join(n.to_bytes(size, "little", signed=True) for n in numbers)


@pytest.mark.parametrize(
    "array",
    [
        raw(pa.binary(), 2, ints(0, 5, 3), b"hello"),
        raw(pa.binary(), 1, ints(-1, 3), b"hello"),
        raw(pa.large_binary(), 1, ints(4, 1, size=8), b"hello"),
        raw(pa.binary_view(), 1, ints(-1, 0, 0, 0), b"hello"),
        raw(pa.binary_view(), 1, ints(13, 0, 1, 0), b"x" * 20),
        raw(pa.binary_view(), 1, ints(13, 0, -1, 0), b"x" * 20),
        raw(pa.binary_view(), 1, ints(13, 0, 0, 8), b"x" * 20),
        raw(pa.binary_view(), 1, ints(13, 0, 0, -1), b"x" * 20),
        raw(pa.binary_view(), 1, ints(2**31 - 1, 0, 0, 2**31 - 1), b"x" * 20),
    ],
)
def test_starts_and_views_that_lie_are_refused(array: pa.Array) -> None:
    with pytest.raises(Malformed, match="value"):
        Columns.from_arrow(array)


@pytest.mark.parametrize("name", ["name", "key"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_header_s_fields_go_by_their_names(name: str, turned: bool) -> None:
    """Whichever comes first in the struct: by place, names and values changed places in silence."""
    fields = [(name, pa.string()), ("value", pa.binary())]
    kind = pa.list_(pa.struct(fields[::-1] if turned else fields))
    table = pa.table({"value": pa.array([b"v"], pa.binary()), "headers": pa.array([[{name: "trace", "value": b"1"}]], kind)})
    assert Columns.from_arrow(table).headers() == [(("trace", b"1"),)]


@pytest.mark.parametrize("names", [("a", "b"), ("name", "b"), ("value", "value")])
def test_a_header_s_fields_of_other_names_are_refused(names: tuple[str, str]) -> None:
    pairs = pa.StructArray.from_arrays([pa.array(["n"]), pa.array([b"v"], pa.binary())], names=list(names))
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    with pytest.raises(ValueUnsupported, match=f"struct<{names[0]}, {names[1]}>"):
        Columns.from_arrow(pa.table({"value": pa.array([b"v"], pa.binary()), "headers": headers}))


@pytest.mark.parametrize("name", ["value", "key", "partition"])
def test_two_columns_of_one_name_are_refused(name: str) -> None:
    column = pa.array([1], pa.int32()) if name == "partition" else pa.array([b"v"], pa.binary())
    columns, names = [pa.array([b"v"], pa.binary()), column, column], ["value", name, name]
    with pytest.raises(ValueUnsupported, match=f"two columns '{name}'"):
        Columns.from_arrow(pa.Table.from_arrays(columns[name == "value" :], names=names[name == "value" :]))


def test_header_names_must_be_utf8() -> None:
    names = raw(pa.string(), 1, ints(0, 1), b"\xff")
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v"], pa.binary())], ["name", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs)
    with pytest.raises(Malformed, match="UTF-8"):
        Columns.from_arrow(pa.RecordBatch.from_arrays([pa.array([b"v"], pa.binary()), headers], ["value", "headers"]))


def test_a_stream_that_fails_is_an_error() -> None:
    def batches() -> object:
        yield pa.record_batch({"value": [b"v"]})
        raise RuntimeError("gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([pa.field("value", pa.binary())]), batches())
    with pytest.raises(Malformed, match="gone"):
        Columns.from_arrow(reader)


HEADED = pa.schema(
    [("key", pa.binary()), ("value", pa.null()), ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])))]
)


@pytest.mark.parametrize("form", [lambda batch: batch, lambda batch: pa.table(batch), lambda batch: batch.to_struct_array()])
def test_a_column_of_the_null_type_is_nulls(form: Any) -> None:
    """What pyarrow makes of an empty list, and of a list of nulls."""
    for rows in (0, 3):
        columns = Columns.from_arrow(form(pa.record_batch({"key": [None] * rows, "value": [None] * rows})))
        assert (columns.keys(), columns.values()) == ([None] * rows, [None] * rows)
    rows_with_headers = {"key": [b"a", b"b"], "value": [None, None], "headers": [[], [("n", b"v")]]}
    keyed = Columns.from_arrow(form(pa.record_batch(rows_with_headers, schema=HEADED)))
    assert (keyed.keys(), keyed.values(), keyed.headers()) == ([b"a", b"b"], [None, None], [(), (("n", b"v"),)])
    with pytest.raises(ValueUnsupported, match="no column 'value'"):
        Columns.from_arrow(form(pa.record_batch({"key": [b"a"]})))
