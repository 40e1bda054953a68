"""How ranges are cut into tasks, and how much of what is there a micro-batch takes: plain sums, without Spark or a broker.

What it is: for logs whose positions are numbers. Sizes are rows by subtraction, so compacted and aborted rows count, as the JVM's Kafka
connector counts them; its proportions are kept to the last row, so that both cut the same micro-batches.
Must not: know a protocol, a clock or a connection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..position import TopicPartition

Offsets = Mapping[TopicPartition, int]
Cut = tuple[TopicPartition, int, int]


def split(ranges: Sequence[Cut], least: int | None, most: int | None) -> list[Cut]:
    """Ranges (partition, start, stop) cut into at least about `least` tasks of at most `most` rows; empty ones are dropped."""
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
    """How many of `parts` tasks a range of this size is worth."""
    return max(math.floor(size / total * parts + 0.5), 1) if total else 1


def divide(cut: Cut, parts: int) -> list[Cut]:
    """One range in `parts` of about the same size."""
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
    """Ends so that no more than about `limit` is taken, each partition in proportion to what waits there.

    Args:
        limit: rows; bytes when weights are given.
        start: where each partition goes on. latest: where it ends now.
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
