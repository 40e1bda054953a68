"""De-duplication, as a broker has it where the namespace asks for it: what a producer of that name has stored already is not stored again.

    judged by      the producer's name and the first sequence id of what it sends; a stored batch is one thing
    remembered     the last sequence id that a stored entry of the name holds (a batch: its highest)
    a chunk        only a message's last one is judged: all of them carry the message's own sequence id
    a repetition   is answered like the first time, with the message id -1:-1
    ids            have a sign: one of 2^63 or more lies before all others, and counts as stored

What it is: one topic's names and numbers, which the entries themselves tell when a topic is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...pulsar.frames import signed


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sent an entry.

    Attributes:
        producer: its name. sequence: of the entry's first message. highest: of its last one. partial: a chunk with others to come.
    """

    producer: str
    sequence: int
    highest: int
    partial: bool


def origin_of(metadata: Any) -> Origin:
    """What an entry's MessageMetadata says."""
    sequence = signed(metadata.sequence_id)
    highest = max(sequence, signed(metadata.highest_sequence_id))
    partial = metadata.HasField("chunk_id") and metadata.chunk_id != metadata.num_chunks_from_msg - 1
    return Origin(metadata.producer_name, sequence, highest, partial)


class Deduplication:
    """One topic's."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def last(self, producer: str) -> int:
        """The last sequence id stored under a name, -1 when there is none."""
        return self._last.get(producer, -1)

    def repeated(self, origin: Origin) -> bool:
        """Whether this is stored already."""
        return not origin.partial and origin.sequence <= self.last(origin.producer)

    def stored(self, origin: Origin) -> None:
        """Remember an entry."""
        if not origin.partial:
            self._last[origin.producer] = max(origin.highest, self.last(origin.producer))
