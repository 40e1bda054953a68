"""Defines how a queue lies in the tree: the layout of kazoo's LockingQueue, so that both kinds of programs can share one queue.

    /jobs/entries/entry-100-0000000042     a message: the data; 100 is its priority (000 first), 42 the server's counter
    /jobs/taken/entry-100-0000000042       ephemeral: a worker has claimed it; goes with the worker's session

Pure functions over names. The position of a message is its counter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import OptionError
from ..flow.resolve import Resolver
from ..position import EARLIEST, LATEST, AtTime, LogOffset, Where
from .messages import Stat
from .paths import check

_NAME = re.compile(r"entry-(\d{3})-(\d{10}|-\d{9,10})")
ENTRIES, TAKEN = "entries", "taken"


class Entry(NamedTuple):
    """One message's name: `sequence` is the server's counter, taken as unsigned so that it continues to grow after 2^31 - 1."""

    sequence: int
    priority: int
    name: str


def queue_path(topic: str) -> str:
    """Return the path of the queue's node: ``jobs`` and ``/jobs`` are the same. Raises ValueUnsupported."""
    return check(topic if topic.startswith("/") else f"/{topic}")


def entry_prefix(priority: int) -> str:
    """Return what a message's name begins with; the server appends its counter. Raises OptionError."""
    if not 0 <= priority <= 999:
        raise OptionError(f"priority {priority} is not between 0 and 999")
    return f"entry-{priority:03d}-"


def parse(name: str) -> Entry | None:
    """Read a name; returns None for a node that is no message."""
    found = _NAME.fullmatch(name)
    return Entry(int(found[2]) & 0xFFFFFFFF, int(found[1]), name) if found else None


def by_sequence(names: Iterable[str]) -> list[Entry]:
    """Sort messages in order of arrival: how a Reader reads them."""
    return sorted(entry for entry in map(parse, names) if entry is not None)


def by_priority(names: Iterable[str]) -> list[Entry]:
    """Sort messages as workers take them: lowest priority number first, then in order of arrival."""
    found = (entry for entry in map(parse, names) if entry is not None)
    return sorted(found, key=lambda entry: (entry.priority, entry.sequence))


def next_sequence(stat: Stat) -> int:
    """Return the counter of the next message: the server counts creations, and its cversion is creations plus deletions."""
    return ((stat.cversion & 0xFFFFFFFF) + stat.num_children) // 2


def position(topic: str, sequence: int) -> LogOffset:
    """Return a message's position."""
    return LogOffset(topic, 0, sequence)


PLACES = Resolver(LogOffset)


def resolve(where: Where, topic: str, end: int, what: str = "start") -> int | AtTime:
    """Resolve EARLIEST, LATEST or a position to a counter; AtTime is returned as it is.

    Args:
        where: as a user gave it. topic: the queue's path. end: counter of the next message. what: named in errors: start, stop, seek.

    Raises:
        OptionError: `where` is no position of this queue.
    """
    request = PLACES.requests(where, [(topic, 0)], what).get((topic, 0), EARLIEST)
    if isinstance(request, AtTime):
        return request
    if isinstance(request, LogOffset):
        return request.offset
    return end if request == LATEST else 0
