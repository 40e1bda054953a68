"""Nodes of the embedded cluster, and who holds and leads a partition: what the controller of a real one keeps.

What it is: sans-IO state. Each node is a listener over one set of logs, so a copy of a partition is never behind: who is up is in sync,
and whoever stays alone in sync remains so when it goes away, as with KRaft. May assume: node 1 listens as ``main``.
Must not: know topics, groups or connections.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from ...errors import OptionError
from .sessions import Sessions

NODE, NOBODY = 1, -1


@dataclass(slots=True)
class Node:
    """One of them.

    Attributes:
        number: as Metadata tells it.
        listener: where it listens.
        up: the others have not noticed that it is gone.
        sessions: of those who fetch from it.
    """

    number: int
    listener: str
    up: bool = True
    sessions: Sessions = field(default_factory=Sessions)


class Standing(Protocol):
    """Which nodes there are, by listener, and the numbers of those that are up."""

    nodes: dict[str, Node]

    @property
    def live(self) -> list[int]: ...


@dataclass(slots=True)
class Copies:
    """Who holds a partition.

    Attributes:
        nodes: who holds a copy, whom it is led by rather first.
        in_sync: those of them that may lead it.
        leader: the one that does; NOBODY.
    """

    nodes: tuple[int, ...]
    in_sync: list[int]
    leader: int

    @classmethod
    def among(cls, nodes: tuple[int, ...], live: Collection[int]) -> Copies:
        """Those of a new partition."""
        there = [number for number in nodes if number in live]
        return cls(nodes, there or list(nodes[:1]), there[0] if there else NOBODY)

    def lose(self, node: int) -> bool:
        """A node is gone. True: the leader is another one now, or nobody."""
        if node in self.in_sync and len(self.in_sync) > 1:
            self.in_sync.remove(node)
        if self.leader != node:
            return False
        self.leader = next((number for number in self.nodes if number in self.in_sync and number != node), NOBODY)
        return True

    def regain(self, node: int, live: Collection[int]) -> bool:
        """A node is back. True: it leads again, since nobody else could."""
        elected = self.leader == NOBODY and node in self.in_sync
        if elected:
            self.leader = node
        if self.leader != NOBODY:
            self.in_sync += [number for number in self.nodes if number in live and number not in self.in_sync]
        return elected

    def move(self, node: int | None) -> bool:
        """Another one of those in sync leads (None: the next); False: it did already. OptionError where it cannot."""
        if node is None:
            others = [number for number in self.nodes if number in self.in_sync]
            node = others[(others.index(self.leader) + 1) % len(others)] if self.leader in others else NOBODY
        if node not in self.in_sync or self.leader == NOBODY:
            raise OptionError(f"node {node} cannot lead this: {', '.join(map(str, self.in_sync))} are in sync, {self.leader} leads")
        moved, self.leader = self.leader != node, node
        return moved


def named(count: int) -> dict[str, Node]:
    """So many, by the names of their listeners: ``main``, ``node-2`` …"""
    names = ["main", *(f"node-{number}" for number in range(NODE + 1, count + 1))]
    return {name: Node(number, name) for number, name in enumerate(names, NODE)}


def placed(numbers: list[int], turn: int, copies: int) -> tuple[int, ...]:
    """Nodes for a partition: so many in their order, each turn from the next one on."""
    return tuple(numbers[(turn + place) % len(numbers)] for place in range(copies))
