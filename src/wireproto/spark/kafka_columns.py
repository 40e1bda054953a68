"""The columns of ``kafka-wire``: the JVM connector's, in its order, and what a record batch's head says on request.

    default   key value topic partition offset timestamp timestampType
    asked     headers (includeHeaders)
              leaderEpoch producerId producerEpoch sequence batchOffset isTransactional compression magic (extraColumns)

A fact of a batch becomes a column by runs: rows stand in order of offset, and so do batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from .columns import COMMON, Column, LogFormat, plain

if TYPE_CHECKING:
    from ..records import Batch

NO_TIME = -1
WRAP = 1 << 31
Fact = Mapping[str, Any]


def spread(batch: Batch, columns: pa.RecordBatch, value: Callable[[Fact], Any], kind: pa.DataType) -> pa.Array:
    """One value of each record batch, for all of its rows."""
    facts = batch.columns.facts or ()
    rows = columns.num_rows
    values = [value(fact) for fact in facts]
    if not values or values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0] if values else None, kind), rows)
    column = columns.column("offset")
    offsets = memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + rows]
    ends: list[int] = []
    kept: list[Any] = []
    last = 0
    for fact, found in zip(facts, values, strict=True):
        end = bisect_right(offsets, fact["last_offset"], last)
        if end > last:
            ends.append(end)
            kept.append(found)
            last = end
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(kept, kind)))


def fact(name: str, kind: pa.DataType) -> Column:
    """A fact as a column; null for message sets, which have none but codec and magic."""

    def make(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return spread(batch, columns, lambda found: found.get(name), kind)

    return make


def sequence(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """The producer's number of the record; null where the producer was not idempotent."""
    base = spread(batch, columns, lambda found: found.get("base_sequence", -1), pa.int64())
    first = spread(batch, columns, lambda found: found["offset"], pa.int64())
    numbers = pc.bit_wise_and(pc.add(base, pc.subtract(columns.column("offset"), first)), WRAP - 1)
    return pc.if_else(pc.less(base, 0), pa.scalar(None, pa.int64()), numbers)


def timestamp_type(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """0 where the producer stamped the record, 1 where the broker did, -1 where nobody did (the oldest message format)."""

    def kind(found: Fact) -> int:
        return -1 if found["magic"] == 0 else 1 if found["timestamp_type"] == "append" else 0

    return spread(batch, columns, kind, pa.int32())


def timestamp(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """The record's time; -1 ms where it has none, as Java has it."""
    times = columns.column("timestamp")
    return pc.fill_null(times, pa.scalar(NO_TIME, pa.int64()).cast(times.type)) if times.null_count else times


FACTS = {
    "leaderEpoch": ("int", fact("leader_epoch", pa.int32())),
    "producerId": ("bigint", fact("producer_id", pa.int64())),
    "producerEpoch": ("int", fact("producer_epoch", pa.int32())),
    "sequence": ("bigint", sequence),
    "batchOffset": ("bigint", fact("offset", pa.int64())),
    "isTransactional": ("boolean", fact("transactional", pa.bool_())),
    "compression": ("string", fact("codec", pa.string())),
    "magic": ("int", fact("magic", pa.int32())),
}
FORM = LogFormat(
    columns={
        **COMMON,
        "offset": ("bigint", plain("offset")),
        "timestamp": ("timestamp", timestamp),
        "timestampType": ("int", timestamp_type),
        **FACTS,
    },
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    needs={name: {"facts": True} for name in ("timestampType", *FACTS)},
)
