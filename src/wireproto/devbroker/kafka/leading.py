"""Checks whether a node may answer for a partition, and finds the one that may.

The checks are a real broker's, in their order: the partition exists, this node has a replica, the epoch that the client names is the
current one, this node leads. This module does not read logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import epochs

if TYPE_CHECKING:
    from .context import Context

UNKNOWN_TOPIC, NOT_LEADER = 3, 6


def refuse(context: Context, topic: str, partition: int, epoch: int = -1, *, any_copy: bool = False) -> int:
    """Return the error of a request about a partition at the node that received it, or 0.

    Args:
        epoch: the leader epoch that the client names; -1: none.
        any_copy: a node with any replica may answer, as for a Fetch with a rack (KIP-392), or a debugging ListOffsets.
    """
    topics, node = context.side.topics, context.node.number
    log, copies = topics.log(topic, partition), topics.copies(topic, partition)
    if log is None or copies is None:
        return UNKNOWN_TOPIC
    if node not in copies.nodes:
        return NOT_LEADER
    return epochs.refuse(log, epoch) or (0 if any_copy or copies.leader == node else NOT_LEADER)


def leader_of(context: Context, topic: str, partition: int) -> tuple[int, int]:
    """Return the number of the partition's leader, and its epoch."""
    copies = context.side.topics.copies(topic, partition)
    return (-1, -1) if copies is None else (copies.leader, context.side.topics.epoch(topic, partition))
