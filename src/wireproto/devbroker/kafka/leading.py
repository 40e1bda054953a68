"""Whether a node may answer for a partition, and who may instead.

What it is: the checks of a real broker, in their order: is there such a partition, is a copy of it here, is the epoch that the client
believes in the one of now, does this node lead. Must not: read logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import epochs

if TYPE_CHECKING:
    from .context import Context

UNKNOWN_TOPIC, NOT_LEADER = 3, 6


def refuse(context: Context, topic: str, partition: int, epoch: int = -1, *, any_copy: bool = False) -> int:
    """The error of a request about a partition at the node that was asked, or 0.

    Args:
        epoch: that the client believes in; -1: it does not say.
        any_copy: who holds a copy may answer, as a Fetch that names its rack (KIP-392), or a debugging ListOffsets.
    """
    topics, node = context.side.topics, context.node.number
    log, copies = topics.log(topic, partition), topics.copies(topic, partition)
    if log is None or copies is None:
        return UNKNOWN_TOPIC
    if node not in copies.nodes:
        return NOT_LEADER
    return epochs.refuse(log, epoch) or (0 if any_copy or copies.leader == node else NOT_LEADER)


def leader_of(context: Context, topic: str, partition: int) -> tuple[int, int]:
    """Who leads instead, and since which epoch."""
    copies = context.side.topics.copies(topic, partition)
    return (-1, -1) if copies is None else (copies.leader, context.side.topics.epoch(topic, partition))
