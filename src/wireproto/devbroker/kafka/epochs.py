"""Leader epochs of a partition: who wrote which part of its log, and where a reader's log parts from ours.

What it is: for each epoch the offset at which it began, as Kafka keeps it beside the log. An epoch begins when the partition changes hands:
without a loss (`begin`), or to a leader that lacks records (`elect`).
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


def begin(log: PartitionLog) -> None:
    """Another leader takes over, or nobody does. Of epochs without a record the last one is remembered alone."""
    begins, epoch = _begins(log), current(log) + 1
    begins[:] = [(old, start) for old, start in begins if start < log.end]
    begins.append((epoch, log.end))


def elect(log: PartitionLog, end: int) -> None:
    """Another leader takes over, whose log ends at `end`: what we have beyond it is gone."""
    log.delete_from(end)
    log.facts.pop("ends", None)  # of transactions: read from the log again
    begin(log)


def end_of(log: PartitionLog, epoch: int) -> tuple[int, int]:
    """The last epoch up to this one that has records, and where it ends, as OffsetForLeaderEpoch answers it; -1, -1 for one to come."""
    begins = _begins(log)
    if epoch < 0 or epoch > begins[-1][0]:
        return -1, -1
    if epoch == begins[-1][0]:
        return epoch, log.end
    found = max((known for known, _ in begins if known <= epoch), default=epoch)
    return found, next(start for known, start in begins if known > epoch)


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
