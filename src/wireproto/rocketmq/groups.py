"""Reads (14) and writes (15) a consumer group's offsets at the brokers, and reads the group's members (38).

Trap: a broker that has no offset of a group answers 0 with success while the queue still starts at 0. A request field turns that off on
5.x; with a 4.9 broker the table of all offsets (43) distinguishes a committed 0 from none.
Trap: of a group's first commits of a topic that a broker gets at the same time it may keep only one, and acknowledge all
(ConsumerOffsetManager creates the topic's table for each, and puts it where there was none; 4.9.7 and 5.5.0). Java's clients do not notice,
since they commit everything again each 5 s. So where no offset is known to be there, the first commit is sent alone, and counts when it has
been read back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wireproto.errors import TimedOut, Unanswered, WireprotoError

from . import fastjson
from .acl import FIRST_5X
from .bodies import ConsumerIds
from .codes import QueryNotFound, ServerError, ServiceNotAvailable, SystemBusy
from .errors import NoMaster
from .messages import (
    GetAllConsumerOffsetRequest,
    GetConsumerListByGroupRequest,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import RocketCluster
    from .route import Queue


SETTLING = 0.05
"""Seconds in which a broker has stored the first commits that members sent it at the same moment."""


class GroupOffsets:
    """Reads and writes the committed offsets of one group. Its methods are steps; `until` is a `time.monotonic()` value."""

    def __init__(self, cluster: RocketCluster, group: str) -> None:
        self._cluster, self._group = cluster, group
        self._begun: set[tuple[str, str]] = set()  # (topic, broker) with an offset of the group, where a commit is kept

    def address(self, topic: str, queue: Queue, until: float) -> Steps[str]:
        """Return the address of the queue's master now. Raises NoMaster where it has none."""
        current = (yield from self._cluster.routing(topic, until)).find(*queue.home)
        address = current.address if current is not None else queue.address
        if address is None:
            self._cluster.routes.stale(topic)
            raise NoMaster(f"broker {queue.broker} has no master now", topic=topic, partition=queue.partition)
        return address

    def committed(self, topic: str, queue: Queue, until: float) -> Steps[int | None]:
        """Return the committed offset of the group in a queue, or None when it never committed there."""
        offset = yield from self._committed(topic, queue, until)
        if offset is None:
            self._begun.discard((topic, queue.broker))
        else:
            self._begun.add((topic, queue.broker))
        return offset

    def _committed(self, topic: str, queue: Queue, until: float) -> Steps[int | None]:
        message = QueryConsumerOffsetRequest(consumer_group=self._group, topic=topic, queue_id=queue.queue_id, set_zero_if_not_found=False)

        def attempt() -> Steps[int | None]:
            address = yield from self.address(topic, queue, until)
            try:
                offset = int((yield from self._cluster.invoking(address, message, until=until, again=True)).message.offset)
            except QueryNotFound:
                return None
            if offset > 0:
                return offset
            version = (yield from self._cluster.connecting(address, until)).context
            if offset == 0 and (version or 0) < FIRST_5X and not (yield from self._listed(address, topic, queue, until)):
                return None
            return offset if offset >= 0 else None

        return self._cluster.retrying(attempt, until, lambda _: self._cluster.routes.stale(topic))

    def _listed(self, address: str, topic: str, queue: Queue, until: float) -> Steps[bool]:
        """Return whether the broker's table has an offset of this queue.

        The table is that of all groups, perhaps megabytes: concurrent calls share one request, and only the group's own part is parsed.
        """
        task = self._cluster.tasks.shared(("offset table", address), lambda: self._table(address), f"the offsets at {address}")
        if not (yield task, until):
            raise TimedOut("the broker has not sent the offsets of all groups (consumerOffset.json) in time", peer=address)
        table, name = task.result(), f'"{topic}@{self._group}":'.encode()
        begin = table.find(name)
        if begin < 0:
            return False
        offsets = fastjson.loads(table[begin + len(name) : table.find(b"}", begin) + 1])
        return isinstance(offsets, dict) and str(queue.queue_id) in offsets

    def _table(self, address: str) -> Steps[bytes]:
        until = self._cluster.deadline(self._cluster.options.request_timeout)
        return (yield from self._cluster.invoking(address, GetAllConsumerOffsetRequest(), until=until)).body

    def commit(self, topic: str, queue: Queue, offset: int, until: float) -> Steps[None]:
        """Commit an offset; returns when the broker has acknowledged it."""
        mine = object()
        while (topic, queue.broker) not in self._begun:
            name = ("first commit", self._group, topic, queue.broker)
            task = self._cluster.tasks.shared(name, lambda: self._first(mine, topic, queue, offset, until), f"the first commit to {topic}")
            if not (yield task, until):
                raise TimedOut(
                    "the group's first commit in this queue is in flight, and not answered in time",
                    peer=queue.address or "",
                    topic=topic,
                    partition=queue.partition,
                )
            owner, problem = task.result()
            if owner is mine:
                if problem is not None:
                    raise problem
                return
        yield from self._commit(topic, queue, offset, until)

    def _first(self, owner: object, topic: str, queue: Queue, offset: int, until: float) -> Steps[tuple[object, WireprotoError | None]]:
        """Commit where there is perhaps no offset yet, until it can be read back; returns `owner`, and the error, if any."""
        try:
            while True:
                yield from self._commit(topic, queue, offset, until)
                settled = time.monotonic() + SETTLING
                if settled >= until:  # acknowledged; the next commit looks whether it stayed
                    return owner, None
                yield settled
                if (yield from self.committed(topic, queue, until)) is not None:
                    return owner, None
        except WireprotoError as problem:
            return owner, problem

    def _commit(self, topic: str, queue: Queue, offset: int, until: float) -> Steps[None]:
        message = UpdateConsumerOffsetRequest(consumer_group=self._group, topic=topic, queue_id=queue.queue_id, commit_offset=offset)

        def attempt() -> Steps[None]:
            address = yield from self.address(topic, queue, until)
            yield from self._cluster.invoking(address, message, until=until, again=True)

        try:
            yield from self._cluster.retrying(attempt, until, lambda _: self._cluster.routes.stale(topic))
        except WireprotoError as error:
            raise error.with_context(topic=topic, partition=queue.partition) from None

    def members(self, address: str, until: float, purpose: str = "main") -> Steps[tuple[str, ...]]:
        """Return the client ids of the group's members as this broker knows them; none when it does not know the group.

        Raises:
            Unanswered: the broker is busy now, which callers handle like a broker that does not answer. TransportError, BrokerError.
        """
        message = GetConsumerListByGroupRequest(consumer_group=self._group)
        try:
            return ConsumerIds.decode((yield from self._cluster.invoking(address, message, until=until, purpose=purpose)).body).members
        except ServerError:
            return ()
        except (SystemBusy, ServiceNotAvailable) as why:  # as if it did not answer: a rebalance asks the next broker, or asks later
            raise Unanswered("the broker refuses requests for the moment", peer=address) from why
