"""Appends record batches: checked as a broker checks them, stored as they came.

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

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..._codec import crc32c
from .epochs import current

if TYPE_CHECKING:
    from ..log import PartitionLog

HEAD = 61
KEPT = 5  # number of a producer's last batches whose repetition is recognised, as in Kafka
TRANSACTIONAL = 0x10
NONE, CORRUPT_MESSAGE, OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_RECORD = 0, 2, 45, 47, 87


@dataclass(slots=True)
class Written:
    """What a partition knows of one producer id.

    Attributes:
        epoch: the producer's. expected: the sequence that must come next. recent: (sequence, base offset) of its last batches.
        at: timestamp of what it wrote last, milliseconds since 1970.
        coordinator: epoch of the coordinator that ended a transaction of it, or -1.
    """

    epoch: int
    expected: int
    recent: list[tuple[int, int]] = field(default_factory=list)
    at: int = -1
    coordinator: int = -1

    @property
    def last(self) -> int:
        """Return the last sequence under this epoch, or -1."""
        return (self.expected - 1) & 0x7FFFFFFF if self.recent else -1

    def refuse(self, epoch: int, sequence: int) -> int:
        """Return the error for a batch that is no repetition, or 0. A new epoch begins at sequence 0, and an older one is refused."""
        if epoch < self.epoch:
            return INVALID_PRODUCER_EPOCH
        return NONE if sequence == (self.expected if epoch == self.epoch else 0) else OUT_OF_ORDER_SEQUENCE


Admit = Callable[[int, int, int | None], int]
"""Returns the error of a batch of a transaction, or 0, for (producer id, epoch, the batch's sequence if the producer is unknown here)."""


def producers_of(log: PartitionLog) -> dict[int, Written]:
    """Return what a partition knows of producers, by producer id."""
    found: dict[int, Written] = log.facts.setdefault("producers", {})
    return found


def append(log: PartitionLog, records: memoryview, admit: Admit) -> tuple[int, int]:
    """Store the batches of a produce request; returns (error code, base offset). A repeated batch gets the offset that it has.

    Args:
        admit: called for each batch of a transaction.
    """
    at = 0
    first = -1
    while at < len(records):
        stop = _end(records, at)
        if stop < 0:
            return CORRUPT_MESSAGE, -1
        error, base = _append_batch(log, bytearray(records[at:stop]), admit)
        if error:
            return error, -1
        first = base if first < 0 else first
        at = stop
    return (NONE, first) if first >= 0 else (INVALID_RECORD, -1)


def _end(records: memoryview, at: int) -> int:
    """Return where the batch at `at` ends, or -1 when it is cut, of another magic or damaged."""
    if len(records) - at < HEAD:
        return -1
    (length,) = struct.unpack_from(">i", records, at + 8)
    stop = at + 12 + length
    if length < HEAD - 12 or stop > len(records) or records[at + 16] != 2:
        return -1
    (crc,) = struct.unpack_from(">I", records, at + 17)
    return stop if crc32c(records[at + 21 : stop]) == crc else -1


def _append_batch(log: PartitionLog, batch: bytearray, admit: Admit) -> tuple[int, int]:
    (attributes,) = struct.unpack_from(">h", batch, 21)
    (delta,) = struct.unpack_from(">i", batch, 23)
    (timestamp,) = struct.unpack_from(">q", batch, 35)
    producer, epoch, sequence = struct.unpack_from(">qhi", batch, 43)
    if delta < 0:
        return INVALID_RECORD, -1
    if producer >= 0:
        producers = producers_of(log)
        known = producers.get(producer)
        if attributes & TRANSACTIONAL:
            error = admit(producer, epoch, sequence if known is None else None)
            if error:
                return error, -1
        if known is not None:
            again = next((base for first, base in known.recent if (epoch, first) == (known.epoch, sequence)), None)
            if again is not None:
                return NONE, again
            error = known.refuse(epoch, sequence)
            if error:
                return error, -1
        if known is None or known.epoch != epoch:  # of a producer that is not known Kafka accepts any sequence
            known = producers[producer] = Written(epoch, sequence, coordinator=-1 if known is None else known.coordinator)
        known.expected = (sequence + delta + 1) & 0x7FFFFFFF
        known.recent.append((sequence, log.end))
        del known.recent[:-KEPT]
        known.at = timestamp
    struct.pack_into(">q", batch, 0, log.end)
    struct.pack_into(">i", batch, 12, current(log))
    return NONE, log.append(bytes(batch), count=delta + 1, timestamp=timestamp).base
