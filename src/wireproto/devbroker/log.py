"""Stores the partition logs of the dev broker: opaque entries in order, kept for ever, in memory or in a folder.

The Kafka, Pulsar and RocketMQ sides share it. An entry is bytes that the log does not look into (a record batch, a Pulsar entry, stored
messages), with the offset of its first record, how many records it holds and their newest timestamp. It is used in the dev broker's event
loop only.

A log on disk is one file of these, appended as they come; what a crash cut off at the end is dropped when it is read again:

    | int64 base | int64 timestamp | int64 appended | int32 count | int32 size | size bytes |

This module must not know a protocol.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

_HEAD = struct.Struct(">qqqii")


@dataclass(frozen=True, slots=True)
class Entry:
    """One appended piece.

    Attributes:
        base: offset of its first record.
        count: number of records; `base + count` is the offset after it.
        timestamp: its newest record's timestamp, milliseconds since 1970.
        appended: when the broker stored it, milliseconds since 1970.
        data: the bytes, as the protocol stores them.
    """

    base: int
    count: int
    timestamp: int
    appended: int
    data: bytes

    @property
    def end(self) -> int:
        """Return the offset after its last record."""
        return self.base + self.count


class PartitionLog:
    """The log of one partition.

    Attributes:
        start: first offset that is still there.
        end: offset that the next record gets.
        facts: the side's own values for this partition (leader epoch, ledger id …); not written to disk.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.start = 0
        self.end = 0
        self.facts: dict[str, Any] = {}
        self._entries: list[Entry] = []
        self._bases: list[int] = []
        self._watchers: set[Callable[[], None]] = set()
        self._path = path
        self._file = None
        if path is not None:
            self._load(path)
            self._file = path.open("ab", buffering=0)

    def __len__(self) -> int:
        """Return the number of entries (not records)."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def append(self, data: bytes, *, count: int = 1, timestamp: int | None = None, base: int | None = None) -> Entry:
        """Add an entry at the end; `end` is its base beforehand, so that the side can write it into the bytes.

        Args:
            data: the bytes to keep.
            count: number of records, at least 1.
            timestamp: milliseconds since 1970; None: the broker's clock.
            base: a base beyond `end` leaves a gap (compacted logs); None: `end`.
        Raises:
            ValueError: `count` is less than 1, or `base` is before the end.
        """
        now = int(time.time() * 1000)
        base = self.end if base is None else base
        if count < 1 or base < self.end:
            raise ValueError(f"entry of {count} records at {base}, the log ends at {self.end}")
        entry = Entry(base, count, now if timestamp is None else timestamp, now, bytes(data))
        self._add(entry)
        if self._file is not None:
            self._file.write(_HEAD.pack(entry.base, entry.timestamp, entry.appended, entry.count, len(entry.data)) + entry.data)
        self.notify_watchers()
        return entry

    def index(self, offset: int) -> int:
        """Return the index of the first entry that ends after `offset`."""
        at = max(bisect_right(self._bases, offset) - 1, 0)
        return at if at < len(self._entries) and self._entries[at].end > offset else min(at + 1, len(self._entries))

    def entry(self, offset: int) -> Entry | None:
        """Return the entry that holds `offset`, or the next one; None at the end."""
        at = self.index(offset)
        return self._entries[at] if at < len(self._entries) else None

    def read(self, offset: int, max_bytes: int, *, max_entries: int = 1 << 30, stop: int | None = None) -> list[Entry]:
        """Return entries from the one that holds `offset` on: at least one where there is one, then more up to `max_bytes`.

        Args:
            max_entries: number of entries, at most. stop: leave out entries that begin at or after this offset.
        """
        found: list[Entry] = []
        size = 0
        for at in range(self.index(offset), len(self._entries)):
            entry = self._entries[at]
            size += len(entry.data)
            if len(found) >= max_entries or (found and size > max_bytes) or (stop is not None and entry.base >= stop):
                break
            found.append(entry)
        return found

    def at_time(self, timestamp: int, *, appended: bool = False) -> Entry | None:
        """Return the first entry whose newest timestamp is not before `timestamp`; None when all are older.

        Args:
            timestamp: milliseconds since 1970. appended: compare with the time at which the broker stored it.
        """
        for entry in self._entries:
            if (entry.appended if appended else entry.timestamp) >= timestamp:
                return entry
        return None

    def delete_before(self, offset: int) -> None:
        """Drop entries that end at or before `offset`; `start` becomes `offset`."""
        at = self.index(offset)
        del self._entries[:at], self._bases[:at]
        self.start = max(self.start, min(offset, self.end))

    def delete_from(self, offset: int) -> None:
        """Drop entries that reach beyond `offset`; the log then ends before them."""
        at = next((number for number, entry in enumerate(self._entries) if entry.end > offset), len(self._entries))
        del self._entries[at:], self._bases[at:]
        self.end = max(self.start, self._entries[-1].end if self._entries else self.start)
        if self._file is not None and self._path is not None:
            self._file.close()
            kept = (_HEAD.pack(x.base, x.timestamp, x.appended, x.count, len(x.data)) + x.data for x in self._entries)
            self._path.write_bytes(b"".join(kept))
            self._file = self._path.open("ab", buffering=0)

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each append, until the function that this returns is called."""
        self._watchers.add(watcher)
        return lambda: self._watchers.discard(watcher)

    def notify_watchers(self) -> None:
        """Call the watchers although nothing was appended: something else has changed that they depend on."""
        for watcher in list(self._watchers):
            watcher()

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, entry: Entry) -> None:
        if not self._entries and self.start == 0 == self.end:
            self.start = entry.base
        self._entries.append(entry)
        self._bases.append(entry.base)
        self.end = entry.end

    def _load(self, path: Path) -> None:
        if not path.exists():
            return
        data = path.read_bytes()
        at = 0
        while len(data) - at >= _HEAD.size:
            base, timestamp, appended, count, size = _HEAD.unpack_from(data, at)
            begin = at + _HEAD.size
            if size < 0 or count < 1 or begin + size > len(data):
                break
            self._add(Entry(base, count, timestamp, appended, data[begin : begin + size]))
            at = begin + size
        if at < len(data):
            with path.open("r+b") as file:
                file.truncate(at)


async def wait_for_append(logs: list[PartitionLog], enough: Callable[[], bool], seconds: float) -> bool:
    """Wait until `enough()` holds, checking again after each append to one of `logs`; False when `seconds` ran out first."""
    if enough():
        return True
    grown = asyncio.Event()
    ends = [log.watch(grown.set) for log in logs]
    deadline = time.monotonic() + seconds
    try:
        while (left := deadline - time.monotonic()) > 0:
            grown.clear()
            try:
                await asyncio.wait_for(grown.wait(), left)
            except TimeoutError:
                break
            if enough():
                return True
    finally:
        for end in ends:
            end()
    return enough()


class Store:
    """Every log of one protocol, by topic and partition, and a dictionary of small facts (offsets, configuration).

    Attributes:
        facts: JSON values only; written to the folder by `save`.
        folder: None keeps everything in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.facts: dict[str, Any] = {}
        self._topics: dict[str, dict[int, PartitionLog]] = {}
        self._beside: list[Store] = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            facts = folder / "facts.json"
            if facts.exists():
                self.facts = json.loads(facts.read_text(encoding="utf-8"))
            for path in sorted(folder.glob("*/*.log")):
                self._topics.setdefault(unquote(path.parent.name), {})[int(path.stem)] = PartitionLog(path)

    @property
    def topics(self) -> list[str]:
        """Return the names of the topics, in order of creation."""
        return list(self._topics)

    def partitions(self, topic: str) -> dict[int, PartitionLog]:
        """Return a topic's logs by partition; empty when there is no such topic."""
        return self._topics.get(topic, {})

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return one partition's log, or None."""
        return self._topics.get(topic, {}).get(partition)

    def create(self, topic: str, partitions: int = 1, *, first: int = 0) -> dict[int, PartitionLog]:
        """Make partitions `first` … `first + partitions - 1` where they are missing; returns all of the topic."""
        logs = self._topics.setdefault(topic, {})
        for partition in range(first, first + partitions):
            if partition not in logs:
                path = None
                if self.folder is not None:
                    path = self.folder / quote(topic, safe="") / f"{partition}.log"
                    path.parent.mkdir(parents=True, exist_ok=True)
                logs[partition] = PartitionLog(path)
        return logs

    def delete(self, topic: str) -> bool:
        """Delete a topic and its files; False when there was none."""
        logs = self._topics.pop(topic, None)
        if logs is None:
            return False
        for log in logs.values():
            log.close()
            if log._path is not None:
                log._path.unlink(missing_ok=True)
        return True

    def beside(self, name: str) -> Store:
        """Make another store, of a replica: in a folder of that name inside this one's, and saved and closed with it."""
        made = Store(None if self.folder is None else self.folder / name)
        self._beside.append(made)
        return made

    def save(self) -> None:
        """Write the facts to the folder, if there is one."""
        for other in self._beside:
            other.save()
        if self.folder is not None:
            new = self.folder / "facts.json.new"
            new.write_text(json.dumps(self.facts), encoding="utf-8")
            new.replace(self.folder / "facts.json")

    def close(self) -> None:
        """Save, and close every file."""
        self.save()
        for other in self._beside:
            other.close()
        for logs in self._topics.values():
            for log in logs.values():
                log.close()
