"""Computes which queues a member of a group reads; each member does so for itself, from the same two sorted lists.

This is the averaging strategy of RocketMQ's Java client, number for number, so that our members and Java's share a group without
overlap. A queue is (topic, broker name, queue id); both lists are sorted before use, as Java sorts them.

    8 queues, 3 members:   a: 0 1 2   b: 3 4 5   c: 6 7

Sans-IO, pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def java_order(text: str) -> bytes:
    """Return a sort key that orders text as Java's ``String.compareTo`` does (UTF-16 units)."""
    return text.encode("utf-16-be", "surrogatepass")


def average(members: Sequence[str], member: str, queues: Sequence[Item]) -> Sequence[Item]:
    """Return the consecutive share of `queues` (already in Java's order) that `member` reads.

    Args:
        members: client ids of the group, in any order. member: client id; one that is not among `members` gets no queue.
        queues: every readable queue of one topic, sorted by broker name and queue id.
    """
    ordered = sorted(set(members), key=java_order)
    if member not in ordered or not queues:
        return ()
    index, count = ordered.index(member), len(ordered)
    each, more = divmod(len(queues), count)
    start = index * each + min(index, more)
    return queues[start : start + each + (index < more)]
