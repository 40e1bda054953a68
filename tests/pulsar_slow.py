"""Stored entries by the protobuf runtime, record by record: slow, and written without the core, so that it can judge it.

What it is: the same two jobs as the core's Pulsar codec, in plain Python.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from wireproto._codec import Columns, ColumnsBuilder, crc32c
from wireproto.compression import compress, decompress
from wireproto.errors import ChecksumMismatch, Malformed, ProtocolError, Truncated, ValueUnsupported
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.keys import wire_key

CODECS = {0: "none", 1: "lz4-block", 2: "zlib", 3: "zstd", 4: "snappy-raw"}
NUMBERS = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}
Place = tuple[int, int, int]


@dataclass(slots=True)
class PulsarEntry:
    ledger: int
    entry: int
    redelivery_count: int
    permits: int
    batch_size: int
    publish_time: int
    start: int
    stop: int
    error: ProtocolError | None


def decode_pulsar(
    frames: list[bytes],
    *,
    topic: str,
    partition: int,
    check_crc: bool = True,
    limit: int = 256 << 20,
    after: Place | None = None,
    before: Place | None = None,
) -> tuple[Columns, list[PulsarEntry]]:
    builder = ColumnsBuilder("message_id")
    facts = [_entry(builder, frame, check_crc, limit, after, before) for frame in frames]
    return builder.finish(), facts


def _entry(builder: ColumnsBuilder, frame: bytes, check_crc: bool, limit: int, after: Place | None, before: Place | None) -> PulsarEntry:
    size = int.from_bytes(frame[:4], "big")
    message = api.BaseCommand.FromString(frame[4 : 4 + size]).message
    ident = message.message_id
    ledger, entry = ident.ledgerId, ident.entryId
    found = PulsarEntry(ledger, entry, message.redelivery_count, 1, 0, 0, len(builder), len(builder), None)
    try:
        at = 4 + size
        if frame[at : at + 2] == b"\x0e\x02":
            at += 6 + int.from_bytes(frame[at + 2 : at + 6], "big")
        if frame[at : at + 2] == b"\x0e\x01":
            if check_crc and crc32c(frame[at + 6 :]) != int.from_bytes(frame[at + 2 : at + 6], "big"):
                raise ChecksumMismatch("the entry's CRC32-C is wrong", message="MessageMetadata", offset=at)
            at += 6
        length = int.from_bytes(frame[at : at + 4], "big")
        if at + 4 + length > len(frame):
            raise Truncated("metadata ends beyond the frame", message="MessageMetadata", offset=at)
        meta = api.MessageMetadata.FromString(frame[at + 4 : at + 4 + length])
        found.publish_time = meta.publish_time
        batch = meta.HasField("num_messages_in_batch")
        if batch:
            found.permits = found.batch_size = meta.num_messages_in_batch
        if meta.HasField("marker_type"):
            return found
        payload = frame[at + 4 + length :]
        if meta.compression:
            if meta.uncompressed_size > limit:
                raise Malformed("larger than the limit")
            payload = decompress(CODECS[meta.compression], payload, limit, size=meta.uncompressed_size)
        heads: list[tuple[int, Any, bytes]] = []
        if batch:
            pos = 0
            for index in range(meta.num_messages_in_batch):
                n = int.from_bytes(payload[pos : pos + 4], "big")
                single = api.SingleMessageMetadata.FromString(payload[pos + 4 : pos + 4 + n])
                pos += 4 + n
                heads.append((index, single, payload[pos : pos + single.payload_size]))
                pos += single.payload_size
        else:
            heads.append((-1, meta, payload))
        ack_set = message.ack_set
        for index, head, value in heads:
            place = (ledger, entry, index)
            if ack_set and index >= 0 and not ack_set[index >> 6] >> (index & 63) & 1:
                continue
            if after is not None and (place <= after or (after[2] < 0 and place[:2] <= after[:2])):
                continue
            if before is not None and (place[:2] > before[:2] or (place[:2] == before[:2] and (before[2] < 0 or index >= before[2]))):
                continue
            if index >= 0 and head.compacted_out:
                continue
            key: bytes | None = None
            if head.HasField("partition_key") and not head.null_partition_key:
                key = head.partition_key.encode()
                if head.partition_key_b64_encoded:
                    key = base64.b64decode(key)
            builder.append(
                None if head.null_value else value,
                key=key,
                headers=[(p.key, p.value.encode()) for p in head.properties],
                timestamp=head.event_time or meta.publish_time,
                position=place,
            )
    except ProtocolError as why:
        found.error = why
    found.stop = len(builder)
    return found


class PulsarBatchBuilder:
    def __init__(self, producer_name: str, *, compression: str = "none", batched: bool = True, max_size: int, max_records: int) -> None:
        self._name = producer_name
        self._compression = compression
        self._batched = batched
        self._max = max_size
        self._records: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]] = []
        self.size = 0

    def __len__(self) -> int:
        return len(self._records)

    def append(self, value: bytes | None, key: bytes | None, properties: tuple[tuple[str, bytes], ...], event_time: int) -> bool:
        size = len(value or b"") + len(key or b"") + sum(len(n) + len(v) for n, v in properties)
        if size > self._max:
            raise ValueUnsupported(f"a record of {size} bytes")
        if self._records and (not self._batched or self.size + size > self._max):
            return False
        self.size += size
        self._records.append((value, key, properties, event_time))
        return True

    def finish(self, producer_id: int, sequence_id: int, publish_time: int) -> list[bytes]:
        meta = api.MessageMetadata(producer_name=self._name, sequence_id=sequence_id, publish_time=publish_time)
        send = api.CommandSend(producer_id=producer_id, sequence_id=sequence_id)
        if self._batched:
            n = len(self._records)
            meta.num_messages_in_batch = n
            send.num_messages = n
            send.highest_sequence_id = meta.highest_sequence_id = sequence_id + n - 1
            payload = bytearray()
            for i, record in enumerate(self._records):
                single = api.SingleMessageMetadata(payload_size=len(record[0] or b""), sequence_id=sequence_id + i)
                self._head(single, record)
                raw = single.SerializeToString()
                payload += len(raw).to_bytes(4, "big") + raw + (record[0] or b"")
            data = bytes(payload)
        else:
            (record,) = self._records
            self._head(meta, record)
            data = record[0] or b""
        if self._compression != "none" and data:  # pulsar-client cannot unpack an empty zlib payload
            meta.compression = NUMBERS[self._compression]  # type: ignore[assignment]
            meta.uncompressed_size = len(data)
            data = compress(CODECS[NUMBERS[self._compression]], data)
        command = api.BaseCommand(type=api.BaseCommand.SEND, send=send).SerializeToString()
        head = meta.SerializeToString()
        body = len(head).to_bytes(4, "big") + head + data
        self._records = []
        self.size = 0
        return [len(command).to_bytes(4, "big") + command + b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body]

    @staticmethod
    def _head(
        head: api.SingleMessageMetadata | api.MessageMetadata,
        record: tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int],
    ) -> None:
        value, key, properties, event_time = record
        if key is not None:
            head.partition_key, encoded = wire_key(key)
            if encoded:
                head.partition_key_b64_encoded = True
        for name, text in properties:
            head.properties.add(key=name, value=text.decode())
        if event_time:
            head.event_time = event_time
        if value is None:
            head.null_value = True
