"""Refuses records without a key in a compacted topic, where the cleaner could not distinguish them.

It stores nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._codec import decode_kafka
from ...errors import WireprotoError
from ...kafka import messages as m
from .batches import INVALID_RECORD

if TYPE_CHECKING:
    from .catalogue import Topics

SHOWN = 3  # number of errors in the message of a refusal, as in Kafka (LogValidator, ProduceResponse v8 on; KIP-467)


def refusal(topics: Topics, topic: str, partition: int, records: bytes | memoryview | None) -> m.PartitionProduceResponse | None:
    """Return Kafka's answer to batches with records without a key, of which nothing is stored; None where all have one.

    Batches that cannot be decoded are left to `append`.
    """
    if "compact" not in (topics.config(topic).get("cleanup.policy") or "").split(","):
        return None
    try:
        columns, _ = decode_kafka(records, topic=topic, partition=partition, fetch_offset=0, columns=("key",))
    except WireprotoError:
        return None
    text = f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"
    keyless = [number for number, key in enumerate(columns.keys()) if key is None]
    if not keyless:
        return None
    shown = ", ".join(f"RecordError(batchIndex={number}, message='{text}')" for number in keyless[:SHOWN])
    return m.PartitionProduceResponse(
        index=partition,
        error_code=INVALID_RECORD,
        base_offset=-1,
        record_errors=tuple(m.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text) for number in keyless),
        error_message=f"One or more records have been rejected due to {len(keyless)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
    )
