"""How far a member of a group is behind the ends of its partitions.

What it is: one question to all leaders; where a partition has none, or a leader does not answer, an error with what the others answered.
Must not: keep anything.
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
    """Offsets between each cursor and its partition's end.

    Args:
        waiting: partitions that had no leader yet to tell where they begin.
    Raises:
        LeaderNotAvailable: of one of these, and of one without a leader now. Any error has what the others lag behind in `known`.
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
