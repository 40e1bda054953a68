"""Chooses the active consumer of a failover subscription (AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer of 4.2.4).

    members            those of the best (lowest) priority, sorted by name; of equal names, the one that subscribed first
    of a partition     the one at its number modulo their number
    of another topic   the one whose point on a ring of hashes is the first at or after the topic's; a point that two have is the latter's

So a consumer that joins may become active at once; on the ring, one without a name always does where no other has a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ..._codec import key_hash

POINTS = 100
"""Points of each consumer on the ring."""


class Member(Protocol):
    """A consumer, as far as the choice needs it."""

    name: str
    priority: int


M = TypeVar("M", bound=Member)


def active_of(topic: str, partition: int, members: Sequence[M], ring: bool) -> M:
    """Return the active one of `members`, which are in the order in which they subscribed.

    Args:
        topic: full name. partition: its number, -1 without one. ring: whether partitions use the ring, too.
    """
    best = min(each.priority for each in members)
    first = sorted((each for each in members if each.priority == best), key=lambda each: each.name)
    if partition >= 0 and not ring:
        return first[partition % len(first)]
    points = {_hash(f"{each.name}{number}"): each for each in first for number in range(POINTS)}
    own = _hash(topic)
    return points[min((point for point in points if point >= own), default=min(points))]


def _hash(text: str) -> int:
    return key_hash("murmur3", text.encode())
