"""Computes how far a member of a group is behind the ends of its partitions.

One request to each leader; where a partition has none, or a leader does not answer, an error with the lags of the others. Keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import WireprotoError
from ..net.task import NEVER, Steps, fresh
from ..position import TopicPartition
from . import positions
from .codes import LeaderNotAvailable

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .fetch import Cursor


def lagging(
    cluster: KafkaCluster,
    cursors: Mapping[TopicPartition, Cursor],
    waiting: Mapping[TopicPartition, WireprotoError],
    until: float,
    *,
    committed: bool,
) -> Steps[dict[TopicPartition, int]]:
    """Return the offsets between each cursor and its partition's end.

    Args:
        cursors: what is read, by partition.
        waiting: partitions whose leader has not told yet where they begin, and why.
        until: the deadline, a time.monotonic() value.
        committed: whether the end is the last stable offset instead of the high watermark.
    Raises:
        LeaderNotAvailable: of a partition without a leader, now or in `waiting`. The broker's error, TimedOut. `known` of any error has
            the lags of the other partitions.
    """
    ends: dict[TopicPartition, int] = {}
    later, asked = dict(waiting), dict.fromkeys(cursors, positions.LATEST_TIME)
    problem: WireprotoError | None = None
    try:
        yield from positions.listing(cluster, asked, until, committed=committed, later=later, patience=NEVER, into=ends)
    except WireprotoError as why:
        problem = why
    lags = {key: max(0, ends[key] - cursor.position) for key, cursor in cursors.items() if key in ends}
    if later and problem is None:
        without = [key for key, why in later.items() if isinstance(why, LeaderNotAvailable)]
        problem = positions.no_leader(without) if without else fresh(next(iter(later.values())))
    if problem is not None:
        problem.known = lags
        raise problem
    return lags
