"""Keeps topics, their queues, and the messages in them; a slave's are copies of its master's."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from . import stored

if TYPE_CHECKING:
    from ..log import Entry, PartitionLog, Store

READ, WRITE = 4, 2


class Home(Protocol):
    """The broker that has the queues: `node.Node`."""

    store: Store
    replicas: list[Any]

    @property
    def slave(self) -> bool:
        """Return whether it is a slave."""

    @property
    def broker_host(self) -> tuple[str, int]:
        """Return host and port, which are part of message ids."""

    def touch(self, topic: str | None) -> None:
        """Note that a topic was made or changed, or (None) that one was deleted."""


class Queues:
    """Topics and the messages in them.

    Attributes:
        topics: name to {"queues", "perm"}; kept with the store.
        removed: offset below which a queue's messages are being deleted while they are read, by topic and queue.
        held: where each queue seems to end while `hold` is in force: real brokers acknowledge before their queues show a message.
    """

    def __init__(self, node: Home) -> None:
        self._node = node
        self.topics: dict[str, dict[str, Any]] = node.store.facts.setdefault("topics", {})
        self._commit = self._shown = 0
        self.held: dict[tuple[str, int], int] | None = None
        self.removed: dict[tuple[str, int], int] = {}
        self._places: list[tuple[int, str, int, int]] = []  # commit-log offset, topic, queue, queue offset
        self._load()

    def _load(self) -> None:
        """Rebuild the commit log's index from the stored messages."""
        found: list[tuple[tuple[int, str, int, int], int]] = []
        for topic in self._node.store.topics:
            for queue, log in self._node.store.partitions(topic).items():
                found += [((stored.place(entry.data), topic, queue, entry.base), len(entry.data)) for entry in log]
        for place, size in sorted(found):
            self._keep(place, size)

    def _keep(self, place: tuple[int, str, int, int], size: int) -> None:
        self._places.append(place)
        self._commit = place[0] + size

    def create(self, topic: str, queues: int, perm: int = READ | WRITE, attributes: str | None = None) -> None:
        """Create a topic or change it; queues are only ever added to the store.

        Args:
            perm: READ, WRITE or both. attributes: ``+name=value,…``; without them, those of the topic stay when it is changed.
        """
        pairs = [item.removeprefix("+").partition("=") for item in (attributes or "").split(",") if item]
        kept = {name: value for name, _, value in pairs} or self.topics.get(topic, {}).get("attributes", {})
        self.topics[topic] = {"queues": queues, "perm": perm, "attributes": kept}
        self._node.store.create(topic, queues)
        self._node.touch(topic)

    def delete(self, topic: str) -> None:
        """Delete a topic and its messages."""
        if self.topics.pop(topic, None) is not None:
            self._node.touch(None)
        self._node.store.delete(topic)

    def log(self, topic: str, queue: int) -> PartitionLog | None:
        """Return a queue's log, or None. A slave shows what it has, even before it knows the topic or after it is deleted."""
        return self._node.store.log(topic, queue) if topic in self.topics or self._node.slave else None

    def logs(self, topic: str) -> dict[int, PartitionLog]:
        """Return all logs of a topic, by queue."""
        return self._node.store.partitions(topic) if topic in self.topics or self._node.slave else {}

    def append(self, queue: int, message: stored.Message) -> tuple[int, int]:
        """Store one message; returns its queue offset and its offset in the commit log."""
        log = self._node.store.log(message.topic, queue)
        assert log is not None, "checked by the caller"
        now = int(time.time() * 1000)
        offset, place = log.end, self._commit
        data = stored.encode(message, queue, offset, place, now, self._node.broker_host)
        self._keep((place, message.topic, queue, offset), len(data))
        log.append(data, timestamp=now)
        for replica in self._node.replicas:
            replica.wake()
        return offset, place

    @property
    def written(self) -> int:
        """Return the end of the commit log."""
        return self._commit

    def since(self, commit_offset: int) -> Iterator[tuple[int, str, int, int, Entry]]:
        """Yield what is stored from an offset of the commit log on, and still there: that offset, topic, queue, queue offset, entry."""
        for place, topic, queue, offset in self._places[bisect_left(self._places, (commit_offset, "", 0, 0)) :]:
            log = self._node.store.log(topic, queue)
            entry = log.entry(offset) if log is not None else None
            if entry is not None and stored.place(entry.data) == place:
                yield place, topic, queue, offset, entry

    def copy(self, place: int, topic: str, queue: int, offset: int, entry: Entry) -> None:
        """Store a message of the master's. One before the end of its queue here is not shown: the topic was made again there."""
        log = self._node.store.create(topic, 1, first=queue)[queue]
        self._keep((place, topic, queue, offset), len(entry.data))
        if offset >= log.end:
            log.append(entry.data, timestamp=entry.timestamp, base=offset)

    def hold(self) -> None:
        """Do not show in the queues what is stored from now on, though it is acknowledged, until `show`."""
        self._shown = self._commit
        self.held = {(topic, queue): log.end for topic in self.topics for queue, log in self._node.store.partitions(topic).items()}

    def show(self) -> None:
        """Show everything."""
        self.held = None

    def end(self, topic: str, queue: int, log: PartitionLog) -> int:
        """Return where a queue ends, as clients see it."""
        return log.end if self.held is None else self.held.get((topic, queue), log.start)

    def progress(self) -> tuple[int, int]:
        """Return the bytes of the log, and how many of them the queues do not show yet."""
        return self._commit, 0 if self.held is None else self._commit - self._shown

    def at(self, commit_offset: int) -> bytes | None:
        """Return the stored message at an offset of the commit log, or None."""
        index = bisect_right(self._places, (commit_offset, "\U0010ffff", 0, 0)) - 1
        if index < 0 or self._places[index][0] != commit_offset:
            return None
        _, topic, queue, offset = self._places[index]
        log = self.log(topic, queue)
        entry = log.entry(offset) if log is not None else None
        return entry.data if entry is not None else None
