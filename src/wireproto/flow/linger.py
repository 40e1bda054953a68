"""How long batches wait, and open ones that could not leave when they would have take more records.

What it is: `SendTimes`, and the sender's note of such batches. An open batch takes records until it can go out; it is given up as a whole,
`delivery_timeout` after its first one, so it takes them for a share of that only: each has most of the time that it was promised.
May assume: the sender's lock. Must not: know a clock, or seal a batch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wireproto.net.retry import Policy

if TYPE_CHECKING:
    from .queue import PartitionQueue

BACKOFF = Policy(first=0.1, ceiling=1.0)
SHARE = 8
"""An open batch that cannot leave takes records for this share of the delivery timeout."""


@dataclass(frozen=True, slots=True)
class SendTimes:
    """Times in seconds: how long a batch waits for more records, and how long it may take; the pauses after failures."""

    linger: float
    delivery_timeout: float
    backoff: Policy = BACKOFF


class HeldBackBatches:
    """Args: the sender's pace."""

    def __init__(self, pace: SendTimes) -> None:
        self._stay = max(pace.linger, pace.delivery_timeout / SHARE)
        self._queues: dict[Hashable, PartitionQueue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: PartitionQueue) -> float | None:
        """It cannot leave now: when its open batch takes no more, where that was not known."""
        if queue.open is None or queue.key in self._queues:
            return None
        self._queues[queue.key] = queue
        return float(queue.open.created + self._stay)

    def forget(self, key: Hashable) -> None:
        """It holds nothing any more."""
        self._queues.pop(key, None)

    def over(self, now: float) -> list[PartitionQueue]:
        """Queues whose open batch is to be sealed, forgotten."""
        over = [queue for queue in self._queues.values() if queue.open is None or now >= queue.open.created + self._stay]
        for queue in over:
            del self._queues[queue.key]
        return [queue for queue in over if queue.open is not None]

    def ends(self) -> float:
        """When the first of them takes no more; infinity where there is none."""
        created = [float(queue.open.created) for queue in self._queues.values() if queue.open is not None]
        return min(created, default=math.inf) + self._stay
