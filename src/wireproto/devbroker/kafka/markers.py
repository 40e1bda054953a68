"""Keeps the transactions of a partition: the open ones, the aborted ones, and the markers that end them.

This is sans-IO state over a log, read from its batches where it is not known yet, so that it outlives the broker. The last stable offset is
where the oldest open transaction began; readers of committed records get no further, and a list of the aborted ones in what they get.

marker: a record batch of one record, attributes transactional | control, base sequence -1
    key    int16 version 0 · int16 type: 0 abort, 1 commit
    value  int16 version 0 · int32 coordinator epoch

This module knows no coordinators.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..._codec import crc32c
from .batches import HEAD, TRANSACTIONAL, Written, producers_of
from .epochs import current

if TYPE_CHECKING:
    from ..log import Entry, PartitionLog

CONTROL = 0x20
ABORT, COMMIT = 0, 1
_KEY_AT = HEAD + 5  # after the record's length, attributes, two deltas and the key's length, a byte each


@dataclass(slots=True)
class Ends:
    """The transactions of one partition.

    Attributes:
        open: first offset of each open transaction, by producer id.
        aborted: (producer id, first offset, offset of the marker), as they ended.
        upto: the offset up to which the log was read.
    """

    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    upto: int = 0


def ends_of(log: PartitionLog) -> Ends:
    """Return the transactions up to the log's end."""
    ends: Ends = log.facts.setdefault("ends", Ends())
    if ends.upto < log.end:
        for entry in log.read(ends.upto, 1 << 62):
            _take_in(ends, entry)
        ends.upto = log.end
    return ends


def _take_in(ends: Ends, entry: Entry) -> None:
    (attributes,) = struct.unpack_from(">h", entry.data, 21)
    (producer,) = struct.unpack_from(">q", entry.data, 43)
    if not attributes & TRANSACTIONAL or producer < 0:
        return
    if not attributes & CONTROL:
        ends.open.setdefault(producer, entry.base)
        return
    first = ends.open.pop(producer, None)
    (kind,) = struct.unpack_from(">h", entry.data, _KEY_AT + 2)
    if kind == ABORT and first is not None:
        ends.aborted.append((producer, first, entry.base))


def last_stable(log: PartitionLog) -> int:
    """Return the last stable offset, where readers of committed records stop."""
    return min(ends_of(log).open.values(), default=log.end)


def aborted_within(log: PartitionLog, start: int, stop: int) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of the aborted transactions that overlap these offsets."""
    return [(producer, first) for producer, first, marker in ends_of(log).aborted if marker >= start and first < stop]


def write(log: PartitionLog, producer: int, epoch: int, kind: int) -> None:
    """Write a marker, which ends what this producer has open here; the marker's epoch is the producer's from now on."""
    ends_of(log)
    now = int(time.time() * 1000)
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    record = b"\x00\x00\x00\x08" + key + b"\x0c" + value + b"\x00"
    body = struct.pack(">hiqqqhii", TRANSACTIONAL | CONTROL, 0, now, now, producer, epoch, -1, 1) + bytes([len(record) * 2]) + record
    batch = struct.pack(">qiibI", log.end, len(body) + 9, current(log), 2, crc32c(body)) + body
    known = producers_of(log).get(producer)
    if known is None or known.epoch != epoch:
        known = producers_of(log)[producer] = Written(epoch, 0)
    known.at, known.coordinator = now, 0
    log.append(batch, count=1, timestamp=now)
