"""Reads what a broker needs of a stored entry.

    stored entry   [0x0e01 u16 · crc32c u32] · u32 metadata size · MessageMetadata · payload

The checksum covers metadata size, metadata and payload.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from ..._codec import crc32c, key_hash
from ...errors import ChecksumMismatch, Malformed, Truncated
from ...pulsar import PulsarApi_pb2 as api
from .dedup import Origin, origin_of

MAGIC = b"\x0e\x01"


class Unserved(Exception):
    """The entry needs a feature that this broker does not have."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a broker reads of an entry's metadata.

    Attributes:
        batch: number of messages, 0 when it is not a batch.
        publish_time: milliseconds since 1970.
        sticky: hash of the key that decides its consumer in a key-shared subscription, 31 bits.
        origin: its producer and sequence ids.
    """

    batch: int
    publish_time: int
    sticky: int
    origin: Origin

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return self.batch or 1


def facts_of(entry: bytes, check: bool = False) -> Facts:
    """Read a stored entry.

    Args:
        check: verify its checksum, and that this broker can serve it.
    Raises:
        Truncated, Malformed: its bytes are wrong. ChecksumMismatch, Unserved: with `check`.
    """
    at = 0
    if entry[:2] == MAGIC:
        if check and crc32c(memoryview(entry)[6:]) != int.from_bytes(entry[2:6], "big"):
            raise ChecksumMismatch("the entry's CRC-32C is wrong", message="SEND", offset=2)
        at = 6
    size = int.from_bytes(entry[at : at + 4], "big")
    if len(entry) < at + 4 + size:
        raise Truncated("the entry ends inside its metadata", message="MessageMetadata", offset=at)
    try:
        metadata = api.MessageMetadata.FromString(entry[at + 4 : at + 4 + size])
    except (DecodeError, UnicodeDecodeError) as why:
        raise Malformed("the metadata is not protobuf", message="MessageMetadata", offset=at + 4) from why
    if check and metadata.HasField("deliver_at_time"):
        raise Unserved("the dev broker does not deliver later")
    batch = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0
    return Facts(batch, metadata.publish_time, _sticky(metadata), origin_of(metadata))


def _sticky(metadata: Any) -> int:
    """Hash the key that Commands.resolveStickyKey finds."""
    if metadata.HasField("ordering_key"):
        key = metadata.ordering_key
    elif metadata.HasField("partition_key"):
        key = metadata.partition_key.encode()
        if metadata.partition_key_b64_encoded:
            key = base64.b64decode(key)
    else:
        key = f"{metadata.producer_name}-{metadata.sequence_id}".encode()
    return key_hash("murmur3", key)
