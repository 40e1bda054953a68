"""Makes a log's columns in Spark's types, and Arrow batches of the size that crosses to the JVM fastest.

`LogFormat` names a format's columns; `Maker` turns batches of a reader into Arrow batches of the requested schema. Only the requested
columns are made. No record becomes a Python object.

Batches must export Arrow columns under the names of the core. This module must not know a protocol, open a connection, or import Arrow's
functions (`pyarrow.compute`) before a column needs them: each process of Spark's that only plans would start a tenth of a second later.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import OptionError, ValueUnsupported

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..position import Position
    from ..records import Batch

ROWS, BYTES = 20_000, 2 << 20  # rows, bytes: a batch of about 2 MB crosses to the JVM fastest
LARGEST = 16 << 20  # bytes; above this, memory traffic halves the rate

Column = Callable[["Batch", pa.RecordBatch], pa.Array]


@dataclass(frozen=True)
class LogFormat:
    """The columns of one format.

    Attributes:
        columns: Spark type as text and the function that makes it, by column.
        default: the columns of a schema that the user did not give, in order.
        sources: the core's columns that a column is made of, where that is not the one of the same name.
        position: a core column that is always cheap; it is decoded when no other is wanted.
    """

    columns: Mapping[str, tuple[str, Column]]
    default: tuple[str, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    position: str = "offset"

    def ddl(self, extra: Iterable[str] = ()) -> str:
        """Return the schema as DDL, default columns first, then those of `extra`.

        Raises:
            OptionError: `extra` names a column that the format does not have.
        """
        names = list(dict.fromkeys((*self.default, *extra)))
        for name in names:
            if name not in self.columns:
                raise OptionError(f"there is no column {name!r}; extraColumns takes {', '.join(self.extra())}")
        return ", ".join(f"`{name}` {self.columns[name][0]}" for name in names)

    def extra(self) -> list[str]:
        """Return the names of the columns that are read on request only."""
        return [name for name in self.columns if name not in self.default]

    def check(self, schema: StructType) -> None:
        """Raise OptionError for a schema with columns or types that the format does not have."""
        for column in schema.fields:
            if column.name not in self.columns:
                raise OptionError(f"the schema names a column {column.name!r}; this format has {', '.join(self.columns)}")
            kind = self.columns[column.name][0]
            found, wanted = column.dataType.simpleString(), kind.replace(": ", ":").replace(", ", ",")
            if found != wanted:
                raise OptionError(f"the schema has {column.name} as {found}; it is {kind}")

    def core(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the core's columns that these columns are made of: what has to be decoded."""
        return tuple(sorted({source for name in names for source in self.sources.get(name, (name,))})) or (self.position,)


class Maker:
    """Turns batches of a reader into Arrow batches of one schema; it is pickled to the workers."""

    def __init__(self, form: LogFormat, schema: StructType) -> None:
        self.names = tuple(schema.fieldNames())
        self.form = form
        self.arrow = arrow_schema(schema)

    def batch(self, batch: Batch) -> pa.RecordBatch:
        """Make the requested columns of one batch, in Spark's types."""
        columns = pa.record_batch(batch)
        if not self.names:
            return pa.record_batch([pa.nulls(columns.num_rows)], names=["nothing"]).select([])
        arrays = [self.form.columns[name][1](batch, columns) for name in self.names]
        return pa.RecordBatch.from_arrays(
            [array if array.type == kind.type else fitted(array, kind.type, batch) for array, kind in zip(arrays, self.arrow, strict=True)],
            schema=self.arrow,
        )

    def stream(self, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the schema, joined or cut to a good size; see `gather`."""
        return gather(self.batch(batch) for batch in batches)


def fitted(array: pa.Array, kind: pa.DataType, batch: Batch) -> pa.Array:
    """Cast a column to Spark's type.

    Raises:
        ValueUnsupported: a time is out of the range of Spark's 64-bit microseconds (milliseconds reach a thousand times as far).
    """
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        if not (pa.types.is_timestamp(array.type) and pa.types.is_timestamp(kind)):
            raise
        cut = array.cast(kind, safe=False).cast(array.type, safe=False)
        import pyarrow.compute as pc

        row = pc.index(pc.not_equal(cut, array), True).as_py()
        raise ValueUnsupported(
            f"its timestamp, {array[row].cast(pa.int64())} ms, lies beyond Spark's: read without the column timestamp, the others named by "
            f".schema (it is among those before {next(iter(batch.next_positions.values()))})",
            topic=batch.topic,
            partition=batch.partition,
            position=place(batch, row),
        ) from None


def place(batch: Batch, row: int) -> Position | None:
    """Return the position of a row, or None when the columns that tell it were not decoded."""
    (record,) = batch.columns[row : row + 1].records(batch.topic, batch.partition)
    try:
        return record.position
    except ValueUnsupported:
        return None


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return Spark's schema as the Arrow schema that workers must yield; timestamps are UTC, whatever the session shows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC") if "timezone" in signature(to_arrow_schema).parameters else to_arrow_schema(schema)


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until about 2 MB or 20,000 rows, the size that crosses to the JVM fastest, and cut those above 16 MB."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.nbytes > LARGEST and batch.num_rows > 1:
            if held:
                yield whole(held)
                held, rows, size = [], 0, 0
            step = max(1, batch.num_rows * BYTES // batch.nbytes)
            yield from (batch.slice(start, step) for start in range(0, batch.num_rows, step))
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield whole(held)
            held, rows, size = [], 0, 0
    if held:
        yield whole(held)


def whole(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join several batches into one."""
    return held[0] if len(held) == 1 else pa.concat_batches(held)


def plain(name: str) -> Column:
    """Make a column function that returns the core's column of that name."""

    def take(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return columns.column(name)

    return take


def constant(value: Callable[[Batch], Any], kind: pa.DataType) -> Column:
    """Make a column function that repeats one value for the whole batch.

    Args:
        value: called with the batch. kind: the column's Arrow type.
    """

    def fill(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return pa.repeat(one(value(batch), kind), columns.num_rows)

    return fill


def one(value: str | int, kind: pa.DataType) -> pa.Scalar:
    """Make an Arrow scalar, as `pa.scalar` does.

    `pa.scalar` imports pandas where that is installed, which takes half a second in each Python process that Spark starts for a read.
    """
    if isinstance(value, str):
        data = value.encode()
        parts = [struct.pack("=ii", 0, len(data)), data]
    else:
        parts = [value.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)]
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, parts)])[0]


ZERO = one(0, pa.int32())


def headers(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """Make the headers column with the JVM connector's field names; null where a record has no headers."""
    import pyarrow.compute as pc

    lists = columns.column("headers")
    pairs = lists.flatten()
    renamed = pa.StructArray.from_arrays(pairs.flatten(), names=["key", "value"])
    lengths = lists.value_lengths()
    every = pa.ListArray.from_arrays(offsets_of(lengths), renamed)
    return pc.if_else(pc.greater(lengths, ZERO), every, pa.nulls(1, every.type)[0])


def offsets_of(lengths: pa.Array) -> pa.Array:
    """Return the list offsets that belong to these list lengths."""
    import pyarrow.compute as pc

    sums = pc.cumulative_sum(lengths.fill_null(ZERO)).cast(pa.int32())
    return pa.concat_arrays([pa.repeat(ZERO, 1), sums])


NOTHING: dict[str, tuple[str, ...]] = {"topic": (), "partition": (), "timestampType": ()}  # sources of columns that need none
COMMON: dict[str, tuple[str, Column]] = {
    "key": ("binary", plain("key")),
    "value": ("binary", plain("value")),
    "topic": ("string", constant(lambda batch: batch.topic, pa.string())),
    "partition": ("int", constant(lambda batch: batch.partition, pa.int32())),
    "timestamp": ("timestamp", plain("timestamp")),
    "timestampType": ("int", constant(lambda batch: 0, pa.int32())),
    "headers": ("array<struct<key: string, value: binary>>", headers),
}
