"""What the Kafka side remembers: topics with their partition logs, groups, producers.

    record batch (magic 2), the part of its head that a broker reads or patches
    0   int64  base offset            patched on append
    8   int32  length of what follows
    12  int32  leader epoch           patched on append
    16  int8   magic
    17  uint32 CRC-32C of everything from 21 on
    21  int16  attributes
    23  int32  last offset delta
    35  int64  max timestamp
    43  int64  producer id · int16 epoch · int32 base sequence
    57  int32  record count
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wireproto._codec import crc32c

if TYPE_CHECKING:
    from wireproto.devbroker.kafka.groups import Group

HEAD = 61
NODE = 1
CLUSTER = "wireproto-dev-cluster00"

NONE, CORRUPT_MESSAGE, OUT_OF_ORDER_SEQUENCE, DUPLICATE_SEQUENCE, INVALID_RECORD = 0, 2, 45, 46, 87


@dataclass(slots=True)
class Entry:
    """One stored batch."""

    base: int
    last: int
    max_timestamp: int
    data: bytes


@dataclass(slots=True)
class Partition:
    """A log of batches; offsets are dense."""

    entries: list[Entry] = field(default_factory=list)
    end: int = 0
    sequences: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)  # producer: last five (first, last, base)

    def append(self, records: memoryview) -> tuple[int, int]:
        """Store batches as they came; returns (error code, base offset). A batch sent again gets the offset it has."""
        at = 0
        first = -1
        while at < len(records):
            if len(records) - at < HEAD:
                return CORRUPT_MESSAGE, -1
            (length,) = struct.unpack_from(">i", records, at + 8)
            stop = at + 12 + length
            if length < HEAD - 12 or stop > len(records) or records[at + 16] != 2:
                return CORRUPT_MESSAGE, -1
            if crc32c(records[at + 21 : stop]) != struct.unpack_from(">I", records, at + 17)[0]:
                return CORRUPT_MESSAGE, -1
            error, base = self._append_batch(bytearray(records[at:stop]))
            if error:
                return error, base
            first = base if first < 0 else first
            at = stop
        return (NONE, first) if first >= 0 else (INVALID_RECORD, -1)

    def _append_batch(self, batch: bytearray) -> tuple[int, int]:
        (delta,) = struct.unpack_from(">i", batch, 23)
        (max_timestamp,) = struct.unpack_from(">q", batch, 35)
        producer, epoch, sequence = struct.unpack_from(">qhi", batch, 43)
        if producer >= 0:
            seen = self.sequences.setdefault((producer, epoch), [])
            again = next((base for first, last, base in seen if (first, last) == (sequence, sequence + delta)), None)
            if again is not None:
                return NONE, again
            if sequence != (seen[-1][1] + 1 if seen else 0):
                return OUT_OF_ORDER_SEQUENCE, -1
            seen.append((sequence, sequence + delta, self.end))
            del seen[:-5]
        base = self.end
        struct.pack_into(">q", batch, 0, base)
        struct.pack_into(">i", batch, 12, 0)
        self.end = base + delta + 1
        self.entries.append(Entry(base, self.end - 1, max_timestamp, bytes(batch)))
        return NONE, base

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        """Batches from the one that holds `offset`, at least one if there is any, up to `max_bytes`."""
        index = bisect_left(self.entries, offset, key=lambda entry: entry.last)
        found: list[bytes] = []
        for entry in self.entries[index : index + 10_000]:
            if found and len(entry.data) > max_bytes:
                break
            found.append(entry.data)
            max_bytes -= len(entry.data)
        return found


@dataclass(slots=True)
class Topic:
    """A topic, its id and its partitions."""

    name: str
    partitions: list[Partition]
    config: dict[str, str | None] = field(default_factory=dict)
    id: bytes = field(default_factory=lambda: uuid.uuid4().bytes)


@dataclass(slots=True)
class Broker:
    """Everything; survives a stop and start of the server in the same process."""

    host: str = "127.0.0.1"
    port: int = 0
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    next_producer: int = 1000
    auto_create: bool = True
    default_partitions: int = 1
    appended: list[asyncio.Future[None]] = field(default_factory=list)

    def topic(self, name: str, create: bool = False) -> Topic | None:
        """A topic by name; made on first use where `create` says so."""
        found = self.topics.get(name)
        if found is None and create and self.auto_create and valid_name(name):
            found = self.topics[name] = Topic(name, [Partition() for _ in range(self.default_partitions)])
        return found

    def partition(self, topic: str, number: int) -> Partition | None:
        """A partition, or None."""
        found = self.topics.get(topic)
        return found.partitions[number] if found and 0 <= number < len(found.partitions) else None

    def wake(self) -> None:
        """Something was appended: let waiting fetches look again."""
        for waiter in self.appended:
            if not waiter.done():
                waiter.set_result(None)
        self.appended.clear()

    async def wait_append(self, seconds: float) -> None:
        """Wait until something is appended, or the time is over."""
        waiter = asyncio.get_running_loop().create_future()
        self.appended.append(waiter)
        await asyncio.wait([waiter], timeout=seconds)


def valid_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return 0 < len(name) <= 249 and name not in (".", "..") and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
