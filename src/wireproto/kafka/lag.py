"""Computes how far a member of a group is behind the ends of its partitions.

One request to each leader; where a partition has none, or a leader does not answer, an error with the lags of the others. Keeps nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ..errors import WireprotoError
from ..net.task import Steps
from ..position import TopicPartition
from . import positions

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .fetch import Cursor


def lagging(
    cluster: KafkaCluster, cursors: Mapping[TopicPartition, Cursor], waiting: Collection[TopicPartition], until: float, *, committed: bool
) -> Steps[dict[TopicPartition, int]]:
    """Return the offsets between each cursor and its partition's end.

    Args:
        cursors: what is read, by partition.
        waiting: partitions that have had no leader yet that could say where they begin.
        until: the deadline, a time.monotonic() value.
        committed: whether the end is the last stable offset instead of the high watermark.
    Raises:
        LeaderNotAvailable: of a partition in `waiting`, or of one without a leader now. The broker's error, TimedOut. `known` of any error
            has the lags of the other partitions.
    """
    ends: dict[TopicPartition, int] = {}
    without, asked = set(waiting), dict.fromkeys(cursors, positions.LATEST_TIME)
    problem: WireprotoError | None = None
    try:
        yield from positions.listing(cluster, asked, until, committed=committed, leaderless=without, into=ends)
    except WireprotoError as why:
        problem = why
    lags = {key: max(0, ends[key] - cursor.position) for key, cursor in cursors.items() if key in ends}
    if without and problem is None:
        problem = positions.no_leader(without)
    if problem is not None:
        problem.known = lags
        raise problem
    return lags
