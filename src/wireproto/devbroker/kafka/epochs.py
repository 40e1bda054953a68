"""Keeps the leader epochs of a partition, and finds where a reader's log diverges from the partition's.

It has the offset at which each epoch began, as Kafka keeps it beside the log. An epoch begins when the partition gets another leader:
without a loss (`begin`), or one that lacks records (`elect`).
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
    """Return the current epoch."""
    return _begins(log)[-1][0]


def begin(log: PartitionLog) -> None:
    """Begin an epoch: the partition gets another leader, or none. Earlier epochs without a record are dropped."""
    begins, epoch = _begins(log), current(log) + 1
    begins[:] = [(old, start) for old, start in begins if start < log.end]
    begins.append((epoch, log.end))


def elect(log: PartitionLog, end: int) -> None:
    """Begin an epoch under a leader whose log ends at `end`: records beyond that are dropped."""
    log.delete_from(end)
    log.facts.pop("ends", None)  # of transactions: read from the log again
    begin(log)


def end_of(log: PartitionLog, epoch: int) -> tuple[int, int]:
    """Return the last epoch up to this one that has records, and its end, as in OffsetForLeaderEpoch; (-1, -1) for a future one."""
    begins = _begins(log)
    if epoch < 0 or epoch > begins[-1][0]:
        return -1, -1
    if epoch == begins[-1][0]:
        return epoch, log.end
    found = max((known for known, _ in begins if known <= epoch), default=epoch)
    return found, next(start for known, start in begins if known > epoch)


def refuse(log: PartitionLog, asked: int) -> int:
    """Return the error of a request that names this epoch (-1: it names none), or 0."""
    now = current(log)
    if asked < 0 or asked == now:
        return 0
    return FENCED_LEADER_EPOCH if asked < now else UNKNOWN_LEADER_EPOCH


def diverges(log: PartitionLog, epoch: int, offset: int) -> tuple[int, int] | None:
    """Return (epoch, end offset) of the last epoch in common, or None where the reader's log agrees with the partition's.

    Args:
        epoch: of the last record that was read. offset: where reading continues.
    """
    begins = _begins(log)
    later = [start for known, start in begins if known > epoch]
    found = max((known for known, _ in begins if known <= epoch), default=epoch)
    end = later[0] if later else log.end
    return (found, end) if found < epoch or end < offset else None
