"""Stored entries record by record, to judge the core's codec: slow, and made of nothing that it judges.

What it is: the same job in plain Python by the protobuf runtime, other people's checksum and codecs (crc32c, lz4, zlib, zstandard,
python-snappy) and tuples. Of the package it takes the vendor's schema alone.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import crc32c
import lz4.block
import snappy
import zstandard

from wireproto.pulsar import PulsarApi_pb2 as api

Place = tuple[int, int, int]
Row = tuple[Place, int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
"""Place, timestamp, key, value, headers."""
UNPACK: dict[int, Callable[[bytes, int], bytes]] = {
    0: lambda data, size: data,
    1: lambda data, size: lz4.block.decompress(data, uncompressed_size=size),
    2: lambda data, size: zlib.decompressobj().decompress(data),  # a stream of Java's ends without its end
    3: lambda data, size: zstandard.decompress(data, max_output_size=size),
    4: lambda data, size: snappy.decompress(data),
}


@dataclass(slots=True)
class Facts:
    """What the entry itself says; `error` is why it cannot be read, or None."""

    ledger: int
    entry: int
    redelivery_count: int
    permits: int = 1
    batch_size: int = 0
    publish_time: int = 0
    error: str | None = None


def decode(frame: bytes) -> tuple[list[Row], Facts]:
    """The rows of one MESSAGE frame."""
    size = int.from_bytes(frame[:4], "big")
    message = api.BaseCommand.FromString(frame[4 : 4 + size]).message
    facts = Facts(message.message_id.ledgerId, message.message_id.entryId, message.redelivery_count)
    at = 4 + size
    if frame[at : at + 2] == b"\x0e\x02":
        at += 6 + int.from_bytes(frame[at + 2 : at + 6], "big")
    if frame[at : at + 2] == b"\x0e\x01":
        if crc32c.crc32c(frame[at + 6 :]) != int.from_bytes(frame[at + 2 : at + 6], "big"):
            facts.error = "checksum"
            return [], facts
        at += 6
    length = int.from_bytes(frame[at : at + 4], "big")
    meta = api.MessageMetadata.FromString(frame[at + 4 : at + 4 + length])
    facts.publish_time = meta.publish_time
    if meta.HasField("num_messages_in_batch"):
        facts.permits = facts.batch_size = meta.num_messages_in_batch
        if message.ack_set:
            words = dict(enumerate(message.ack_set))
            facts.permits = sum(words.get(index >> 6, 0) >> (index & 63) & 1 for index in range(facts.batch_size))
    payload = UNPACK[meta.compression](frame[at + 4 + length :], meta.uncompressed_size)
    if meta.compression:
        assert len(payload) == meta.uncompressed_size
    rows = []
    for index, head, value in _messages(meta, payload):
        if index >= 0 and message.ack_set and not message.ack_set[index >> 6] >> (index & 63) & 1:
            continue
        place = (facts.ledger, facts.entry, index)
        headers = tuple((each.key, each.value.encode()) for each in head.properties)
        rows.append((place, head.event_time or meta.publish_time, _key(head), None if head.null_value else value, headers))
    return rows, facts


def _messages(meta: Any, payload: bytes) -> list[tuple[int, Any, bytes]]:
    """(index, its own metadata, value) of each; index -1 outside a batch."""
    if not meta.HasField("num_messages_in_batch"):
        return [(-1, meta, payload)]
    found = []
    for index in range(meta.num_messages_in_batch):
        size = int.from_bytes(payload[:4], "big")
        single = api.SingleMessageMetadata.FromString(payload[4 : 4 + size])
        payload = payload[4 + size :]
        found.append((index, single, payload[: single.payload_size]))
        payload = payload[single.payload_size :]
    assert not payload
    return found


def _key(head: Any) -> bytes | None:
    if not head.HasField("partition_key") or head.null_partition_key:
        return None
    return base64.b64decode(head.partition_key) if head.partition_key_b64_encoded else head.partition_key.encode()
