"""Cuts ranges into tasks, and limits how much a micro-batch takes: plain arithmetic, without Spark or a broker.

It is for logs whose positions are numbers. Sizes are rows by subtraction, so compacted and aborted rows count, as the JVM's Kafka connector
counts them. Its proportions are kept to the last row, so that both plan the same micro-batches. This module must not know a protocol, a
clock or a connection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..position import TopicPartition

Offsets = Mapping[TopicPartition, int]
Cut = tuple[TopicPartition, int, int]


def split(ranges: Sequence[Cut], least: int | None, most: int | None) -> list[Cut]:
    """Cut ranges into at least about `least` tasks of at most `most` rows; empty ranges are dropped.

    Args:
        ranges: (partition, start, stop). least: number of tasks; None: one for each range. most: rows of a task; None: any number.
    """
    kept = [(key, start, stop) for key, start, stop in ranges if start < stop]
    if most is not None:
        kept = [piece for cut in kept for piece in divide(cut, math.ceil((cut[2] - cut[1]) / most))]
    if least is None or len(kept) >= least:
        return kept
    total = sum(stop - start for _, start, stop in kept)
    small = [cut for cut in kept if shares(cut[2] - cut[1], total, least) == 1]
    rest = total - sum(stop - start for _, start, stop in small)
    left = max(least - len(small), 1)
    return [piece for cut in kept for piece in ([cut] if cut in small else divide(cut, shares(cut[2] - cut[1], rest, left)))]


def shares(size: int, total: int, parts: int) -> int:
    """Return how many of `parts` tasks a range of `size` rows gets, of `total` rows; at least one."""
    return max(math.floor(size / total * parts + 0.5), 1) if total else 1


def divide(cut: Cut, parts: int) -> list[Cut]:
    """Cut one range into `parts` of about the same size."""
    key, start, stop = cut
    found: list[Cut] = []
    for left in range(parts, 0, -1):
        step = (stop - start) // left
        if step:
            found.append((key, start, start + step))
        start += step
    return found


def limited(
    limit: float, start: Offsets, latest: Offsets, weights: Mapping[TopicPartition, float] | None = None
) -> dict[TopicPartition, int]:
    """Return ends such that about `limit` is taken at most, from each partition in proportion to what waits there.

    Args:
        limit: rows; bytes when weights are given.
        start: where each partition continues. latest: where it ends now.
        weights: bytes of a row, by partition.
    """
    weigh = weights or {}
    waiting = {key: (end - start[key]) * weigh.get(key, 1.0) for key, end in latest.items() if end > start[key]}
    total = sum(waiting.values())
    ends = dict(latest)
    if total < 1:
        return ends
    for key, size in waiting.items():
        share = limit * (size / total) / weigh.get(key, 1.0)
        rows = math.ceil(share) if share < 1 else math.floor(share)  # a small partition is not starved
        ends[key] = min(latest[key], start[key] + rows)
    return ends
