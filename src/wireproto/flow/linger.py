"""Defines linger and delivery timeout, and for how long a batch that cannot be sent keeps accepting records.

An open batch takes records until it can be sent. It fails as a whole, `delivery_timeout` after its first record, so it accepts records for
a share of that time only: each record then has most of the time that it was promised. The sender's lock is held by callers; times are
given.
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
"""An open batch that cannot be sent accepts records for the delivery timeout divided by this."""


@dataclass(frozen=True, slots=True)
class SendTimes:
    """The times of a sender.

    Attributes:
        linger: seconds for which a batch waits for more records. delivery_timeout: seconds after which a batch fails.
        backoff: pauses after failures.
    """

    linger: float
    delivery_timeout: float
    backoff: Policy = BACKOFF


class HeldBackBatches:
    """The queues whose open batch cannot be sent now.

    Args:
        pace: the sender's times.
    """

    def __init__(self, pace: SendTimes) -> None:
        self._stay = max(pace.linger, pace.delivery_timeout / SHARE)
        self._queues: dict[Hashable, PartitionQueue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, queue: PartitionQueue) -> float | None:
        """Note that a queue cannot send now; returns when its open batch accepts no more, or None where the queue was noted before."""
        if queue.open is None or queue.key in self._queues:
            return None
        self._queues[queue.key] = queue
        return float(queue.open.created + self._stay)

    def forget(self, key: Hashable) -> None:
        """Forget a queue, which holds nothing any more."""
        self._queues.pop(key, None)

    def over(self, now: float) -> list[PartitionQueue]:
        """Return, once, the queues whose open batch has to be sealed."""
        over = [queue for queue in self._queues.values() if queue.open is None or now >= queue.open.created + self._stay]
        for queue in over:
            del self._queues[queue.key]
        return [queue for queue in over if queue.open is not None]

    def ends(self) -> float:
        """Return when the first of the open batches accepts no more; infinity where there is none."""
        created = [float(queue.open.created) for queue in self._queues.values() if queue.open is not None]
        return min(created, default=math.inf) + self._stay
