"""A group's offsets at the brokers: read (14) and written (15), with a reply.

Trap: a broker that has no offset of a group answers 0 with success while the queue still starts at 0. 5.x can be told not to; with a 4.9
broker the table of all offsets (43) tells a committed 0 from none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wireproto.errors import Unanswered, WireprotoError

from . import fastjson
from .acl import FIRST_5X
from .bodies import ConsumerIds
from .codes import QueryNotFound, ServerError, SystemBusy
from .messages import (
    GetAllConsumerOffsetRequest,
    GetConsumerListByGroupRequest,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from .remoting import NoMaster

if TYPE_CHECKING:
    from .cluster import RocketCluster
    from .route import Queue


class GroupOffsets:
    """Committed offsets of one group."""

    def __init__(self, cluster: RocketCluster, group: str) -> None:
        self._cluster, self._group = cluster, group

    def address(self, topic: str, queue: Queue, deadline: float) -> str:
        """Where the queue's master is now."""
        current = self._cluster.route(topic, deadline).find(*queue.home)
        address = current.address if current is not None else queue.address
        if address is None:
            self._cluster.routes.stale(topic)
            raise NoMaster(f"broker {queue.broker} has no master now", topic=topic, partition=queue.partition)
        return address

    def committed(self, topic: str, queue: Queue, deadline: float) -> int | None:
        """Where the group resumes in a queue, or None when it never committed there."""
        message = QueryConsumerOffsetRequest(consumer_group=self._group, topic=topic, queue_id=queue.queue_id, set_zero_if_not_found=False)

        def attempt() -> int | None:
            address = self.address(topic, queue, deadline)
            try:
                offset = int(self._cluster.invoke(address, message, deadline=deadline, again=True).message.offset)
            except QueryNotFound:
                return None
            if offset > 0:
                return offset
            version = self._cluster.connection(address, deadline).context
            if offset == 0 and (version or 0) < FIRST_5X and not self._listed(address, topic, queue, deadline):
                return None
            return offset if offset >= 0 else None

        return self._cluster.retry(attempt, deadline, refresh=lambda _: self._cluster.routes.stale(topic))

    def _listed(self, address: str, topic: str, queue: Queue, deadline: float) -> bool:
        tree = fastjson.loads(self._cluster.invoke(address, GetAllConsumerOffsetRequest(), deadline=deadline).body)
        table = tree.get("offsetTable") if isinstance(tree, dict) else None
        offsets = table.get(f"{topic}@{self._group}") if isinstance(table, dict) else None
        return isinstance(offsets, dict) and str(queue.queue_id) in offsets

    def commit(self, topic: str, queue: Queue, offset: int, deadline: float, purpose: str = "main") -> None:
        """Set where the group resumes; returns when the broker has said so."""
        message = UpdateConsumerOffsetRequest(consumer_group=self._group, topic=topic, queue_id=queue.queue_id, commit_offset=offset)

        def attempt() -> None:
            self._cluster.invoke(self.address(topic, queue, deadline), message, deadline=deadline, purpose=purpose, again=True)

        try:
            self._cluster.retry(attempt, deadline, refresh=lambda _: self._cluster.routes.stale(topic))
        except WireprotoError as error:
            raise error.with_context(topic=topic, partition=queue.partition) from None

    def members(self, address: str, deadline: float, purpose: str = "main") -> tuple[str, ...]:
        """Client ids of the group's members as this broker knows them; nobody when it does not know the group."""
        message = GetConsumerListByGroupRequest(consumer_group=self._group)
        try:
            return ConsumerIds.decode(self._cluster.invoke(address, message, deadline=deadline, purpose=purpose).body).members
        except ServerError:
            return ()
        except SystemBusy as busy:  # as if it were silent: who shares queues asks the next one, or later
            raise Unanswered("the broker sheds load", peer=address) from busy
