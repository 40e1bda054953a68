"""Drops repeated entries where the namespace asks for it: what a producer of that name has stored already is not stored again.

    judged by      the producer's name and the first sequence id of what it sends; a stored batch is one unit
    remembered     the last sequence id that a stored entry of the name holds (a batch: its highest)
    a chunk        only a message's last one is judged: all of them have the message's own sequence id
    a repetition   is answered like the first time, with the message id -1:-1
    ids            are signed: one of 2^63 or more lies before all others, and counts as stored

The names and numbers of a topic are read from its entries when it is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...pulsar.frames import signed


@dataclass(frozen=True, slots=True)
class Origin:
    """The producer of an entry.

    Attributes:
        producer: its name. sequence: of the entry's first message. highest: of its last one. partial: a chunk with others to come.
    """

    producer: str
    sequence: int
    highest: int
    partial: bool


def origin_of(metadata: Any) -> Origin:
    """Return the origin that an entry's MessageMetadata names."""
    sequence = signed(metadata.sequence_id)
    highest = max(sequence, signed(metadata.highest_sequence_id))
    partial = metadata.HasField("chunk_id") and metadata.chunk_id != metadata.num_chunks_from_msg - 1
    return Origin(metadata.producer_name, sequence, highest, partial)


class Deduplication:
    """The last sequence ids of one topic."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def last(self, producer: str) -> int:
        """Return the last sequence id stored under a name, -1 when there is none."""
        return self._last.get(producer, -1)

    def repeated(self, origin: Origin) -> bool:
        """Return whether this is stored already."""
        return not origin.partial and origin.sequence <= self.last(origin.producer)

    def stored(self, origin: Origin) -> None:
        """Note a stored entry."""
        if not origin.partial:
            self._last[origin.producer] = max(origin.highest, self.last(origin.producer))
