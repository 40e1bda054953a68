"""Keeps the nodes of the embedded cluster, and the replicas and leader of a partition, as a real cluster's controller does.

This is sans-IO state. All nodes are listeners over one set of logs, so a replica is never behind: nodes that are up are in sync, and the
last one in sync remains so when it goes away, as with KRaft. Node 1's listener is ``main``. This module knows no topics, groups or
connections.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import OptionError
from .sessions import Sessions

NODE, NO_LEADER = 1, -1


@dataclass(slots=True)
class Node:
    """One node.

    Attributes:
        number: its id in Metadata.
        listener: name of its listener.
        up: False once the others have noticed that it is gone.
        sessions: fetch sessions of its clients.
    """

    number: int
    listener: str
    up: bool = True
    sessions: Sessions = field(default_factory=Sessions)


class LiveNodes(Protocol):
    """The nodes by listener, and the numbers of those that are up."""

    nodes: dict[str, Node]

    @property
    def live(self) -> list[int]:
        """Return the numbers of the nodes that are up."""


@dataclass(slots=True)
class Copies:
    """The replicas of a partition.

    Attributes:
        nodes: nodes with a replica, the preferred leader first.
        in_sync: those of them that may lead it.
        leader: the one that does, or NO_LEADER.
    """

    nodes: tuple[int, ...]
    in_sync: list[int]
    leader: int

    @classmethod
    def among(cls, nodes: tuple[int, ...], live: Collection[int]) -> Copies:
        """Make the replicas of a new partition."""
        there = [number for number in nodes if number in live]
        return cls(nodes, there or list(nodes[:1]), there[0] if there else NO_LEADER)

    def lose(self, node: int) -> bool:
        """Take a node as gone; returns whether the leader changed."""
        if node in self.in_sync and len(self.in_sync) > 1:
            self.in_sync.remove(node)
        if self.leader != node:
            return False
        self.leader = next((number for number in self.nodes if number in self.in_sync and number != node), NO_LEADER)
        return True

    def elect_again(self, node: int, live: Collection[int]) -> bool:
        """Take a node as back; returns whether it leads again, because no other node could."""
        elected = self.leader == NO_LEADER and node in self.in_sync
        if elected:
            self.leader = node
        if self.leader != NO_LEADER:
            self.in_sync += [number for number in self.nodes if number in live and number not in self.in_sync]
        return elected

    def move(self, node: int | None) -> bool:
        """Make another node in sync the leader (None: the next one); returns whether it changed.

        Raises:
            OptionError: the node is not in sync, or the partition has no leader.
        """
        if node is None:
            others = [number for number in self.nodes if number in self.in_sync]
            node = others[(others.index(self.leader) + 1) % len(others)] if self.leader in others else NO_LEADER
        if node not in self.in_sync or self.leader == NO_LEADER:
            raise OptionError(f"node {node} cannot lead this: {', '.join(map(str, self.in_sync))} are in sync, {self.leader} leads")
        moved, self.leader = self.leader != node, node
        return moved


def named(count: int) -> dict[str, Node]:
    """Make this many nodes; their listeners are ``main``, ``node-2``, ``node-3`` and so on."""
    names = ["main", *(f"node-{number}" for number in range(NODE + 1, count + 1))]
    return {name: Node(number, name) for number, name in enumerate(names, NODE)}


def placed(numbers: list[int], turn: int, copies: int) -> tuple[int, ...]:
    """Return `copies` nodes for a partition, in order, beginning with number `turn`."""
    return tuple(numbers[(turn + place) % len(numbers)] for place in range(copies))
