"""Manages queues as topics (the Admin role over the queue's layout).

A topic is a node with ``entries`` and ``taken`` below it, and has one partition. There are no groups: requests about them raise
RoleUnsupported.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from .. import arguments
from ..deadlines import deadline_after
from ..errors import OptionError, RoleUnsupported
from ..net.closing import Closing
from ..net.task import Steps, operation, steps
from ..position import LATEST, AtTime, Position, TopicPartition, Where
from ..records import GroupInfo, PartitionInfo, TopicInfo
from .codes import NodeExists
from .errors import ConnectionLoss, Doubt
from .layout import ENTRIES, TAKEN, by_sequence, next_sequence, position, queue_path, resolve
from .multi import Create
from .operations import access
from .paths import join, parents
from .reader import first_since

if TYPE_CHECKING:
    from .call import Call
    from .messages import ACL, Stat
    from .tree import Tree


class QueueAdmin(Closing):
    """Manages the queues of one ensemble, below the chroot. Thread-safe.

    Every call raises ZooKeeper's own errors (`wireproto.zookeeper.codes`), and what `wireproto.zookeeper.tree` lists.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._tasks = tree.tasks

    @operation
    def list_topics(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """Return the paths of the queues directly below the chroot, sorted.

        Args:
            timeout: seconds for all requests of the call.

        Raises:
            NoAuth: a node may not be listed. TimedOut, SessionExpired, Closed: see `wireproto.zookeeper.tree`.
        """
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
        """Describe a queue; the partition's details are messages waiting, messages taken, and the next counter.

        Args:
            topic: the queue's path below the chroot. timeout: seconds for all requests of the call.

        Raises:
            NoNode: there is no such queue. NoAuth: it may not be listed. TimedOut, SessionExpired, Closed: see `wireproto.zookeeper.tree`.
        """
        arguments.text("topic", topic)
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
        """Create the queue's three nodes, and missing nodes above them.

        Args:
            topic: the queue's path below the chroot. partitions: 1. config: empty or None.
            acl: access list of the nodes; None: the client's default. timeout: seconds for all requests of the call.

        Raises:
            NodeExists: there is such a queue. NoAuth: a node may not be created. OptionError: several partitions, or a configuration.
            TimedOut: `doubtful` when a part of it may have been done. SessionExpired, Closed: see `wireproto.zookeeper.tree`.
        """
        arguments.text("topic", topic)
        if arguments.number("partitions", partitions, -arguments.MOST) != 1:
            raise OptionError(f"partitions: a ZooKeeper queue has one partition, not {partitions}")
        config = arguments.settings(config)
        if config:
            raise OptionError(f"a ZooKeeper queue has no configuration: {', '.join(sorted(config))}")
        given = None if acl is None else access(acl)
        with Doubt() as doubt:
            yield from self._creating(queue_path(topic), given, deadline_after(timeout), doubt)

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
            except ConnectionLoss as why:  # the repeated request shows whether it was created before the connection was lost
                doubt.lost(why)
                uncertain = True
                continue
            except NodeExists:
                if not uncertain:
                    raise
                catch_up = steps(self._tree.catch_up)  # this server may be behind the one that created it
                yield from catch_up(path, timeout=deadline - time.monotonic())
                if (yield from exists(join(path, TAKEN), timeout=deadline - time.monotonic())) is None:
                    raise
            return

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete the queue with its messages.

        Args:
            topic: the queue's path below the chroot. timeout: seconds for all requests of the call.

        Raises:
            NoNode: there is no such queue. NoAuth: a part of it may not be listed or deleted.
            TimedOut: `doubtful` when a part of it may have been deleted. SessionExpired, Closed: see `wireproto.zookeeper.tree`.
        """
        arguments.text("topic", topic)
        yield from steps(self._tree.delete)(queue_path(topic), recursive=True, timeout=timeout)

    @operation
    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Steps[dict[TopicPartition, Position]]:
        """Return the position of EARLIEST (the first message in the queue), LATEST (the next counter) or AtTime.

        Args:
            topic: the queue's path below the chroot. at: EARLIEST, LATEST, AtTime or a position.
            partitions: None, or numbers: the only partition is 0; without it the result is empty. timeout: seconds for all requests of the
                call.

        Raises:
            NoNode: there is no such queue. OptionError: `at` is no position of this queue.
            TimedOut, SessionExpired, Closed: see `wireproto.zookeeper.tree`.
        """
        arguments.text("topic", topic)
        if isinstance(at, Mapping):
            arguments.by_partition("at", at)
        arguments.numbers("partitions", partitions)
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
        """Raise RoleUnsupported: a queue has no groups.

        Args:
            timeout: seconds; not used.

        Raises:
            RoleUnsupported: always.
        """
        self._no_groups()

    @operation
    def describe_group(self, group: str, *, timeout: float = 30.0) -> Steps[GroupInfo]:
        """Raise RoleUnsupported: a queue has no groups.

        Args:
            group: not used. timeout: seconds; not used.

        Raises:
            RoleUnsupported: always.
        """
        self._no_groups()

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, Position]]:
        """Raise RoleUnsupported: a queue has no groups.

        Args:
            group, topic: not used. timeout: seconds; not used.

        Raises:
            RoleUnsupported: always.
        """
        self._no_groups()

    @operation
    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[frozenset[TopicPartition]]:
        """Raise RoleUnsupported: a queue has no groups.

        Args:
            group, places: not used. timeout: seconds; not used.

        Raises:
            RoleUnsupported: always.
        """
        self._no_groups()

    def _no_groups(self) -> NoReturn:
        raise RoleUnsupported("ZooKeeper has no groups: all workers of a queue share it", nearest="queue")

    def close(self, timeout: float = 30.0) -> None:
        """Do nothing: the session belongs to the client.

        Args:
            timeout: seconds; not used.

        Raises:
            nothing: it does not wait.
        """
