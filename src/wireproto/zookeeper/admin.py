"""QueueAdmin: queues as topics.

What it is: the Admin role over the queue's layout: a topic is a node with ``entries`` and ``taken`` below it, and has one partition. Groups
do not exist here: asking for them raises RoleUnsupported.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ..deadlines import deadline_after
from ..errors import RoleUnsupported, UsageError
from ..net.closing import Closing
from ..net.task import Steps, operation, steps
from ..position import LATEST, AtTime, Position, TopicPartition, Where
from ..records import GroupInfo, PartitionInfo, TopicInfo
from .codes import NodeExists
from .errors import ConnectionLoss, Doubt
from .layout import ENTRIES, TAKEN, by_sequence, next_sequence, position, queue_path, resolve
from .multi import Create
from .paths import join, parents
from .reader import first_since

if TYPE_CHECKING:
    from .call import Call
    from .messages import ACL, Stat
    from .tree import Tree


class QueueAdmin(Closing):
    """Queues of one ensemble, below the chroot. Thread-safe."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._tasks = tree.tasks

    @operation
    def list_topics(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """Paths of the queues directly below the chroot."""
        deadline = deadline_after(timeout)
        names, _ = yield from steps(self._tree.children)("/", timeout=timeout)

        calls: list[tuple[str, list[Call[Stat | None]]]] = []
        for name in names:
            asked = []
            for part in (ENTRIES, TAKEN):
                look = steps(self._tree.exists_async)(f"/{name}/{part}", timeout=max(deadline - time.monotonic(), 0.0))
                asked.append((yield from look).unordered())
            calls.append((name, asked))
        found = []
        for name, asked in calls:
            parts = []
            for call in asked:
                parts += [(yield from call.getting(deadline))]
            if None not in parts:
                found.append(f"/{name}")
        return sorted(found)

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Details of the partition: messages waiting, messages in work, the next counter. Raises NoNode."""
        deadline = deadline_after(timeout)
        path = queue_path(topic)
        names, stat = yield from steps(self._tree.children)(join(path, ENTRIES), timeout=timeout)
        taken, _ = yield from steps(self._tree.children)(join(path, TAKEN), timeout=deadline - time.monotonic())
        details = {"messages": len(by_sequence(names)), "taken": len(taken), "next": next_sequence(stat)}
        return TopicInfo(topic, (PartitionInfo(0, None, details),), {"path": path, "created": stat.ctime})

    @operation
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        acl: Sequence[ACL] | None = None,
        timeout: float = 30.0,
    ) -> Steps[None]:
        """Make the queue's three nodes, with this access list (None: the client's default), and those above them. Raises NodeExists."""
        if partitions != 1:
            raise UsageError(f"a ZooKeeper queue has one partition, not {partitions}")
        if config:
            raise UsageError(f"a ZooKeeper queue has no configuration: {', '.join(sorted(config))}")
        with Doubt() as doubt:
            yield from self._creating(queue_path(topic), acl, deadline_after(timeout), doubt)

    def _creating(self, path: str, acl: Sequence[ACL] | None, deadline: float, doubt: Doubt) -> Steps[None]:
        for above in parents(path):
            made = yield from steps(self._tree.ensure)(above, acl=acl, timeout=deadline - time.monotonic())
            doubt.there = doubt.there or made
        exists = steps(self._tree.exists)
        bare = (yield from exists(path, timeout=deadline - time.monotonic())) is not None
        if bare and (yield from exists(join(path, ENTRIES), timeout=deadline - time.monotonic())) is not None:
            raise NodeExists(path, node=path)
        nodes = [Create(join(path, part), acl=acl) for part in (ENTRIES, TAKEN)]
        uncertain = False
        while True:
            try:
                yield from steps(self._tree.multi)(nodes if bare else [Create(path, acl=acl), *nodes], timeout=deadline - time.monotonic())
            except ConnectionLoss:  # whether it was made before the connection was lost, asking again tells
                uncertain = doubt.there = True
                continue
            except NodeExists:
                if not uncertain:
                    raise
                catch_up = steps(self._tree.catch_up)  # this server may be behind the one that made it
                yield from catch_up(path, timeout=deadline - time.monotonic())
                if (yield from exists(join(path, TAKEN), timeout=deadline - time.monotonic())) is None:
                    raise
            return

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete the queue with its messages. Raises NoNode, and NoAuth where a part of it may not be listed or deleted."""
        yield from steps(self._tree.delete)(queue_path(topic), recursive=True, timeout=timeout)

    @operation
    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Steps[dict[TopicPartition, Position]]:
        """Where EARLIEST (the first message that is there), LATEST (the next counter) or AtTime lies. There is one partition, 0."""
        deadline = deadline_after(timeout)
        entries = join(queue_path(topic), ENTRIES)
        yield from steps(self._tree.catch_up)(entries, timeout=timeout)
        names, stat = yield from steps(self._tree.children)(entries, timeout=deadline - time.monotonic())
        found, end = by_sequence(names), next_sequence(stat)
        where = resolve(at, topic, end, "at")
        if isinstance(where, AtTime):
            where = yield from first_since(self._tree, entries, found, where, end, deadline)
        elif where == 0:
            where = found[0].sequence if found else end
        return {(topic, 0): position(topic, where)} if partitions is None or 0 in partitions else {}

    @operation
    def list_groups(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        self._no_groups()

    @operation
    def describe_group(self, group: str, *, timeout: float = 30.0) -> Steps[GroupInfo]:
        self._no_groups()

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, Position]]:
        self._no_groups()

    @operation
    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[frozenset[TopicPartition]]:
        self._no_groups()

    def _no_groups(self) -> NoReturn:
        raise RoleUnsupported("ZooKeeper has no groups: all workers of a queue share it", nearest="queue")

    def close(self, timeout: float = 30.0) -> None:
        """Nothing: the session belongs to the client."""
