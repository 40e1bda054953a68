"""Keeps the topics: names, ids, configuration, partitions and their replicas."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from .epochs import current
from .nodes import Copies, LiveNodes, placed

if TYPE_CHECKING:
    from ..log import PartitionLog
    from ..side import Side


class Topics:
    """Names, ids and configuration over the store's partition logs.

    Attributes:
        default_partitions: number of partitions of a topic that is created without one.
    """

    def __init__(self, side: Side, cluster: LiveNodes) -> None:
        self._side, self._cluster = side, cluster
        self.default_partitions = 1
        self._facts: dict[str, Any] = side.store.facts.setdefault("topics", {})
        for name in self.names():
            self._place(name)

    def names(self) -> list[str]:
        """Return all topics, oldest first."""
        return self._side.store.topics

    def find(self, name: str, create: bool = False) -> bool:
        """Return whether there is such a topic; it is created where `create` is set and the broker allows it."""
        if not self._side.store.partitions(name) and create and self._side.auto_create and valid_name(name):
            self.create(name, self.default_partitions, {})
        return bool(self._side.store.partitions(name))

    def create(
        self, name: str, partitions: int, config: dict[str, str | None], copies: int = -1, assigned: Sequence[Sequence[int]] = ()
    ) -> None:
        """Create a topic.

        Args:
            copies: replicas of a partition, -1: one on each node. assigned: nodes of the replicas, by partition.
        """
        self._side.store.create(name, partitions)
        self._facts[name] = {"id": uuid.uuid4().hex, "config": config, "copies": copies, "assigned": [list(nodes) for nodes in assigned]}
        self._place(name)

    def grow(self, name: str, partitions: int, assigned: Sequence[Sequence[int]] = ()) -> None:
        """Give a topic more partitions.

        Args:
            partitions: their new number. assigned: nodes of the replicas, by new partition.
        """
        placed_by_hand = self._facts[name].setdefault("assigned", [])
        placed_by_hand += [[]] * (self.count(name) - len(placed_by_hand) if assigned else 0) + [list(nodes) for nodes in assigned]
        self._side.store.create(name, partitions)
        self._place(name)

    def _place(self, name: str) -> None:
        """Choose the replicas of partitions that have none yet. One that was on nodes that are not there any more goes to others."""
        facts, cluster = self._facts.get(name, {}), self._cluster
        numbers = sorted((node.number for node in cluster.nodes.values()), key=lambda number: number not in cluster.live)
        live, gone = numbers[: len(cluster.live)], numbers[len(cluster.live) :]
        copies = facts.get("copies", -1)
        copies = len(numbers) if copies == -1 else min(copies, len(numbers))
        assigned = dict(enumerate(facts.get("assigned", ())))
        for partition, log in self._side.store.partitions(name).items():
            wanted = tuple(number for number in assigned.get(partition, ()) if number in numbers)
            turn = crc32(name.encode()) + partition
            spread = placed(live, turn, min(copies, len(live))) + tuple(gone[: max(0, copies - len(live))])
            log.facts.setdefault("copies", Copies.among(wanted or spread, cluster.live))

    def delete(self, name: str) -> bool:
        """Drop a topic; False when there was none."""
        self._facts.pop(name, None)
        return self._side.store.delete(name)

    def log(self, name: str, partition: int) -> PartitionLog | None:
        """Return a partition's log, or None."""
        return self._side.store.log(name, partition)

    def logs(self, name: str) -> list[PartitionLog]:
        """Return the logs of a topic's partitions."""
        return list(self._side.store.partitions(name).values())

    def copies(self, name: str, partition: int) -> Copies | None:
        """Return the replicas and leader of a partition, or None."""
        log = self.log(name, partition)
        held: Copies | None = None if log is None else log.facts["copies"]
        return held

    def epoch(self, name: str | None, partition: int) -> int:
        """Return a partition's leader epoch, or -1."""
        log = self.log(name or "", partition)
        return -1 if log is None else current(log)

    def count(self, name: str) -> int:
        """Return the number of partitions."""
        return len(self._side.store.partitions(name))

    def id(self, name: str) -> bytes:
        """Return a topic's id; zeros for one that does not exist."""
        return bytes.fromhex(self._facts[name]["id"]) if name in self._facts else bytes(16)

    def by_id(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None."""
        return next((name for name, facts in self._facts.items() if bytes.fromhex(facts["id"]) == topic_id), None)

    def config(self, name: str) -> dict[str, str | None]:
        """Return the configuration that a topic was created with."""
        kept: dict[str, str | None] = self._facts.get(name, {}).get("config", {})
        return kept


def valid_name(name: str) -> bool:
    """Return whether this is a valid topic name in Kafka."""
    return 0 < len(name) <= 249 and name not in (".", "..") and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
