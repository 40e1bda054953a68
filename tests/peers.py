"""Other people's codecs, imported without the warnings they cause."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.codec as kafka_codec
    import kafka.record as kafka_record

__all__ = ["kafka_codec", "kafka_record"]


def kafka_batch(
    library: str,
    magic: int,
    codec: int,
    rows: list[tuple],
    *,
    base: int = 0,
    transactional: bool = False,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch (or message set) of (offset delta, timestamp, key, value, headers) rows, as another library writes it.

    Args:
        library: "kafka-python" or "aiokafka".
        magic: 0, 1 or 2.
        codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
        base: offset of delta 0. The builders start at 0: the broker's rewriting of offsets is done here.
    """
    if library == "kafka-python" or (magic == 0 and codec == 3):  # aiokafka writes no lz4 into v0
        from kafka.record.default_records import DefaultRecordBatchBuilder
        from kafka.record.legacy_records import LegacyRecordBatchBuilder
    else:
        from aiokafka.record.default_records import DefaultRecordBatchBuilder
        from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
    if magic == 2:
        builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, epoch, sequence, 1 << 24)
        for delta, timestamp, key, value, headers in rows:
            builder.append(delta, timestamp, key, value, list(headers))
    else:
        builder = LegacyRecordBatchBuilder(magic, codec, 1 << 24)
        for delta, timestamp, key, value, _ in rows:
            builder.append(delta + (base if magic == 0 and codec else 0), timestamp, key, value, [])
    data = bytearray(builder.build())
    at = 0
    while at < len(data):
        offset = int.from_bytes(data[at : at + 8], "big")
        if magic == 1 and codec:
            offset = rows[-1][0]  # the broker gives a wrapper its last record's offset
        if magic == 0 and codec:
            offset = rows[-1][0] + base
        else:
            offset += base
        data[at : at + 8] = offset.to_bytes(8, "big")
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return bytes(data)
