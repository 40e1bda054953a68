"""Keeps the state of a partition before a poll took frames out of it, to undo that when a signal handler breaks in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .partition_consumer import PartitionConsumer
    from .places import Cursor, Mark


@dataclass(slots=True)
class PollInProgress:
    """Frames on their way out of a poll, and the state before it.

    Attributes:
        part: their partition.
        queue: its queue of frames. length: of that queue before.
        frames: what was taken.
        cursor: of the partition. mark: what `Cursor.mark` returned before.
        seen: what `Permits.seen` was before.
    """

    part: PartitionConsumer
    queue: deque[bytes]
    length: int
    frames: list[bytes]
    cursor: Cursor
    mark: Mark
    seen: int

    def take_back(self) -> None:
        """Undo the poll, since the user received nothing of it. Frames that the role has put back itself are in the queue already."""
        part = self.part
        if part.cursor is self.cursor:
            part.cursor.go_back(self.mark)
        if part.frames is self.queue:  # else the consumer was lost, and its messages are redelivered
            part.frames.extendleft(reversed(self.frames[: self.length - len(self.queue)]))
            part.permits.back(self.seen)
