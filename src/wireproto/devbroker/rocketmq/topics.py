"""Topics, their queues, and the messages in them."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from . import stored

if TYPE_CHECKING:
    from ..log import PartitionLog
    from ..side import Side

READ, WRITE = 4, 2


def broker_host(side: Side) -> tuple[str, int]:
    """Where the broker listens; part of message ids."""
    host, _, port = side.address("broker").rpartition(":")
    return host, int(port)


class Queues:
    """Topics and the messages in them.

    Attributes:
        topics: name to {"queues", "perm"}; kept with the store.
        removed: up to where a queue's records are deleted while somebody reads them, by topic and queue.
        held: where each queue seems to end while `hold` is in force: real brokers acknowledge before their queues show a message.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self.topics: dict[str, dict[str, Any]] = side.store.facts.setdefault("topics", {})
        self._commit = self._shown = 0
        self.held: dict[tuple[str, int], int] | None = None
        self.removed: dict[tuple[str, int], int] = {}
        self._places: list[tuple[int, str, int, int]] = []  # commit-log offset, topic, queue, queue offset
        for topic in side.store.topics:
            for queue, log in side.store.partitions(topic).items():
                for entry in log:
                    self._place(topic, queue, entry.base, len(entry.data))

    def _place(self, topic: str, queue: int, offset: int, size: int) -> int:
        at = self._commit
        self._places.append((at, topic, queue, offset))
        self._commit += size
        return at

    def create(self, topic: str, queues: int, perm: int = READ | WRITE, attributes: str | None = None) -> None:
        """Make a topic or change it; queues are only ever added to the store.

        Args:
            attributes: ``+name=value,…``; they stay what they are when the topic is changed.
        """
        pairs = [item.removeprefix("+").partition("=") for item in (attributes or "").split(",") if item]
        kept = {name: value for name, _, value in pairs} or self.topics.get(topic, {}).get("attributes", {})
        self.topics[topic] = {"queues": queues, "perm": perm, "attributes": kept}
        self._side.store.create(topic, queues)

    def delete(self, topic: str) -> None:
        """Forget a topic and its messages."""
        self.topics.pop(topic, None)
        self._side.store.delete(topic)

    def log(self, topic: str, queue: int) -> PartitionLog | None:
        """A queue's log, or None."""
        return self._side.store.log(topic, queue) if topic in self.topics else None

    def append(self, queue: int, message: stored.Message) -> tuple[int, int]:
        """Store one message; returns its queue offset and its place in the commit log."""
        log = self._side.store.log(message.topic, queue)
        assert log is not None, "checked by the caller"
        now = int(time.time() * 1000)
        size = len(message.body) + len(message.properties) + len(message.topic) + 96
        offset, place = log.end, self._place(message.topic, queue, log.end, size)
        log.append(stored.encode(message, queue, offset, place, now, broker_host(self._side)), timestamp=now)
        return offset, place

    def hold(self) -> None:
        """From now on queues do not show what is stored, though it is acknowledged, until `show`."""
        self._shown = self._commit
        self.held = {(topic, queue): log.end for topic in self.topics for queue, log in self._side.store.partitions(topic).items()}

    def show(self) -> None:
        """Show everything."""
        self.held = None

    def end(self, topic: str, queue: int, log: PartitionLog) -> int:
        """Where a queue ends for those who ask."""
        return log.end if self.held is None else self.held.get((topic, queue), log.start)

    def progress(self) -> tuple[int, int]:
        """Bytes of the log, and how many of them the queues do not show yet."""
        return self._commit, 0 if self.held is None else self._commit - self._shown

    def at(self, commit_offset: int) -> bytes | None:
        """The stored message at a place in the commit log."""
        index = bisect_right(self._places, (commit_offset, "\U0010ffff", 0, 0)) - 1
        if index < 0 or self._places[index][0] != commit_offset:
            return None
        _, topic, queue, offset = self._places[index]
        log = self.log(topic, queue)
        entry = log.entry(offset) if log is not None else None
        return entry.data if entry is not None else None
