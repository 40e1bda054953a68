"""The topics that there are: names, ids, configuration, partitions."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from .epochs import current

if TYPE_CHECKING:
    from ..log import PartitionLog
    from ..side import Side

NODE = 1


class Topics:
    """Names, ids and configuration over the store's partition logs.

    Attributes:
        default_partitions: how many a topic gets where nobody says.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self.default_partitions = 1
        self._facts: dict[str, Any] = side.store.facts.setdefault("topics", {})

    def names(self) -> list[str]:
        """All topics, oldest first."""
        return self._side.store.topics

    def find(self, name: str, create: bool = False) -> bool:
        """Whether there is such a topic; it is made where `create` says so and the broker allows it."""
        if not self._side.store.partitions(name) and create and self._side.auto_create and valid_name(name):
            self.create(name, self.default_partitions, {})
        return bool(self._side.store.partitions(name))

    def create(self, name: str, partitions: int, config: dict[str, str | None]) -> None:
        """Make a topic."""
        self._side.store.create(name, partitions)
        self._facts[name] = {"id": uuid.uuid4().hex, "config": config}

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._side.store.create(name, partitions)

    def delete(self, name: str) -> bool:
        """Drop a topic; False when there was none."""
        self._facts.pop(name, None)
        return self._side.store.delete(name)

    def log(self, name: str, partition: int) -> PartitionLog | None:
        """A partition's log."""
        return self._side.store.log(name, partition)

    def epoch(self, name: str | None, partition: int) -> int:
        """A partition's leader epoch."""
        log = self.log(name or "", partition)
        return -1 if log is None else current(log)

    def count(self, name: str) -> int:
        """How many partitions."""
        return len(self._side.store.partitions(name))

    def id(self, name: str) -> bytes:
        """A topic's id; zeros for one that does not exist."""
        return bytes.fromhex(self._facts[name]["id"]) if name in self._facts else bytes(16)

    def by_id(self, topic_id: bytes) -> str | None:
        """The name behind an id."""
        return next((name for name, facts in self._facts.items() if bytes.fromhex(facts["id"]) == topic_id), None)

    def config(self, name: str) -> dict[str, str | None]:
        """What a topic was created with."""
        kept: dict[str, str | None] = self._facts.get(name, {}).get("config", {})
        return kept


def valid_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return 0 < len(name) <= 249 and name not in (".", "..") and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)
