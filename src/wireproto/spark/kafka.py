"""The format ``kafka-wire``: columns, order and option names of the JVM's Kafka connector.

Options: ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``;
``kafka.*`` goes to the client.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from .log import COMMON, LogFormat, LogSource, plain

if TYPE_CHECKING:
    from ..records import Batch

OFFSET_FORM = LogFormat(
    columns={**COMMON, "offset": ("bigint", plain("offset"))},
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
)
CREATE_TIME, APPEND_TIME = 0, 1


def timestamp_type(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """0 where the producer stamped the record, 1 where the broker did; a fact of each record batch."""
    offset = columns.column("offset")
    found = pa.repeat(pa.scalar(CREATE_TIME, pa.int32()), columns.num_rows)
    for fact in batch.columns.facts:
        if fact["timestamp_type"] == "append":
            inside = pc.and_(pc.greater_equal(offset, fact["offset"]), pc.less_equal(offset, fact["last_offset"]))
            found = pc.if_else(inside, pa.scalar(APPEND_TIME, pa.int32()), found)
    return found


FORM = replace(
    OFFSET_FORM,
    columns={**OFFSET_FORM.columns, "timestampType": ("int", timestamp_type)},
    needs={"timestampType": {"facts": True}},
)


class KafkaWire(LogSource):
    """Reads Kafka topics as Arrow, one task per partition."""

    protocol = "kafka"
    servers = "kafka.bootstrap.servers"
    topic = "subscribe"
    form = FORM
