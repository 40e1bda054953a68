"""Defines the columns of ``kafka-wire``: the JVM connector's, in its order, and on request the fields of a record batch's header.

default      key value topic partition offset timestamp timestampType
on request   headers (includeHeaders) · leaderEpoch producerId producerEpoch sequence isTransactional (extraColumns)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .columns import COMMON, NOTHING, LogFormat, one, plain

if TYPE_CHECKING:
    from ..records import Batch

NO_TIME = -1


def timestamp(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """Return the records' times; -1 ms where a record has none, as Java has it."""
    times = columns.column("timestamp")
    return times.fill_null(one(NO_TIME, pa.int64()).cast(times.type)) if times.null_count else times


FACTS = {
    "timestampType": ("int", "timestamp_type"),  # 0: the producer's time, 1: the broker's, -1: none
    "leaderEpoch": ("int", "leader_epoch"),
    "producerId": ("bigint", "producer_id"),
    "producerEpoch": ("int", "producer_epoch"),
    "sequence": ("int", "sequence"),
    "isTransactional": ("boolean", "transactional"),
}
FORM = LogFormat(
    columns={
        **COMMON,
        "offset": ("bigint", plain("offset")),
        "timestamp": ("timestamp", timestamp),
        **{name: (kind, plain(source)) for name, (kind, source) in FACTS.items()},
    },
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    sources={**NOTHING, **{name: (source,) for name, (_, source) in FACTS.items()}},
)
