"""Columns as other people's Arrow consumers take them: pyarrow, polars, duckdb, pandas, nanoarrow, without help from each other."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder

from wireproto._codec import Columns, decode_kafka

STAMP = 1_700_000_000_000
VALUES: dict[str, list[bytes | None]] = {
    "short": [b"value %d" % n if n % 5 else None if n % 2 else b"" for n in range(40)],
    "views": [bytes([n]) * (n * 60) if n % 5 else None if n % 2 else b"" for n in range(40)],
    "none": [],
}


@pytest.fixture(params=VALUES)
def values(request: pytest.FixtureRequest) -> list[bytes | None]:
    return VALUES[request.param]


def columns_of(values: list[bytes | None]) -> Columns:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for n, value in enumerate(values):
        builder.append(n, STAMP + n, b"key" if n % 3 else None, value, [("h", b"x")] if n % 4 == 0 else [])
    return decode_kafka(bytes(builder.build()) if values else b"", topic="t", partition=0, fetch_offset=0)[0]


def with_pyarrow(columns: Columns) -> list[bytes | None]:
    pa = importlib.import_module("pyarrow")
    table = pa.table(columns)
    table.validate(full=True)
    assert table.column("timestamp").type == pa.timestamp("ms", "UTC")
    return list(table.column("value").to_pylist())


def with_polars(columns: Columns) -> list[bytes | None]:
    frame = importlib.import_module("polars").DataFrame(columns)
    assert frame.columns == list(columns.columns)
    assert frame["headers"].to_list() == [[{"name": name, "value": value} for name, value in row] for row in columns.headers()]
    return list(frame["value"].to_list())


def with_duckdb(columns: Columns) -> list[bytes | None]:
    found = (
        importlib.import_module("duckdb")
        .connect()
        .execute('select value, "offset", len(headers) from columns order by "offset"')
        .fetchall()
    )
    assert [row[1:] for row in found] == [(n, len(headers)) for n, headers in enumerate(columns.headers())]
    return [row[0] for row in found]


def with_pandas(columns: Columns) -> list[bytes | None]:
    pd = importlib.import_module("pandas")
    if hasattr(pd.DataFrame, "from_arrow"):
        frame = pd.DataFrame.from_arrow(columns)
    else:  # before pandas 3, which Spark does not take yet, the way goes through pyarrow
        frame = importlib.import_module("pyarrow").table(columns).to_pandas(types_mapper=pd.ArrowDtype)
    assert list(frame["offset"]) == columns.positions()
    return [value if isinstance(value, bytes) else None for value in frame["value"]]


def with_nanoarrow(columns: Columns) -> list[bytes | None]:
    array = importlib.import_module("nanoarrow").Array(columns)
    assert array.schema.field(0).name == "offset"
    return [row["value"] for row in array.to_pylist()]


@pytest.mark.parametrize("consume", [with_pyarrow, with_polars, with_duckdb, with_pandas, with_nanoarrow])
def test_consumer_reads_the_rows(consume: Callable[[Columns], list[bytes | None]], values: list[bytes | None]) -> None:
    columns = columns_of(values)
    assert consume(columns) == values
    assert consume(columns) == values, "an export may be repeated"
    assert consume(columns[7:30]) == values[7:30] if consume is not with_duckdb else True


@pytest.mark.parametrize("producer", ["pyarrow", "polars", "pandas", "nanoarrow", "duckdb"])
def test_rows_of_a_producer_are_taken(producer: str) -> None:
    values: list[Any] = [b"one", None, b"", b"three and more bytes than fit a view"]
    module: Any = importlib.import_module(producer)
    source: Any
    if producer == "pyarrow":
        source = module.table({"value": module.array(values, module.binary())})
    elif producer == "polars":
        source = module.DataFrame({"value": values}, schema={"value": module.Binary})
    elif producer == "pandas":
        pa = importlib.import_module("pyarrow")
        source = module.DataFrame({"value": module.array(values, dtype=module.ArrowDtype(pa.binary()))})
    elif producer == "nanoarrow":
        source = module.Array(values, module.binary())
    else:
        source = module.sql("select unnest(['one'::blob, null, ''::blob, 'three and more bytes than fit a view'::blob]) as value")
    assert Columns.from_arrow(source).values() == values
