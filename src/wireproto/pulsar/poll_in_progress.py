"""Frames on their way out of a poll, which a signal may break into.

What it is: how their partition stood before, so that nothing of it counts as handed out. Must not: send anything.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partition_consumer import PartitionConsumer
    from .places import Cursor, Mark


@dataclass(slots=True)
class PollInProgress:
    """Frames on their way out of a poll, and how things stood before: their partition's queue and its length, cursor and permits."""

    part: PartitionConsumer
    queue: deque[bytes]
    length: int
    frames: list[bytes]
    cursor: Cursor
    mark: Mark
    seen: int

    def take_back(self) -> None:
        """Nothing of it was handed out. What its taker has put back by itself is there already."""
        part = self.part
        if part.cursor is self.cursor:
            part.cursor.go_back(self.mark)
        if part.frames is self.queue:  # else it comes again by itself
            part.frames.extendleft(reversed(self.frames[: self.length - len(self.queue)]))
            part.permits.back(self.seen)
