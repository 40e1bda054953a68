"""Leader epochs of a partition: who wrote which part of its log, and where a reader's log parts from ours.

What it is: for each epoch the offset at which it began, as Kafka keeps it beside the log. One node leads everything here, so an epoch
begins only when a test has the partition change hands (`elect`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..log import PartitionLog

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75


def _begins(log: PartitionLog) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = log.facts.setdefault("epochs", [(0, 0)])
    return found


def current(log: PartitionLog) -> int:
    """The epoch of now."""
    return _begins(log)[-1][0]


def elect(log: PartitionLog, end: int) -> None:
    """Another leader takes over, whose log ends at `end`: what we have beyond it is gone."""
    begins, epoch = _begins(log), current(log) + 1
    log.delete_from(end)
    begins[:] = [(old, start) for old, start in begins if start < log.end or not start]
    begins.append((epoch, log.end))


def refuse(log: PartitionLog, asked: int) -> int:
    """The error for a request under this epoch (-1: it does not say), or 0."""
    now = current(log)
    if asked < 0 or asked == now:
        return 0
    return FENCED_LEADER_EPOCH if asked < now else UNKNOWN_LEADER_EPOCH


def diverges(log: PartitionLog, epoch: int, offset: int) -> tuple[int, int] | None:
    """The last epoch in common and where it ends, if a log that was read up to `offset`, at last in `epoch`, parts from ours before."""
    begins = _begins(log)
    later = [start for known, start in begins if known > epoch]
    found = max((known for known, _ in begins if known <= epoch), default=epoch)
    end = later[0] if later else log.end
    return (found, end) if found < epoch or end < offset else None
