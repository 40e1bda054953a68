"""Keeps the groups: their members, their offsets, and queues locked for one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...rocketmq import messages as m

if TYPE_CHECKING:
    from ..log import Store
    from ..server import Connection
    from .topics import Queues

LOCK_SECONDS = 60.0


class Groups:
    """All groups; a member is removed when its connection ends.

    Attributes:
        members: connections by group and client id. consumers: consumer data of the last heartbeat, by group.
        offsets: by ``topic@group`` and queue. known: groups that exist: by a heartbeat, a pull, or code 200.
        locks: client and time of expiry, by group, ``topic@broker`` and queue.
        resets: offsets that the next pull's answer has, by ``topic@group`` and queue.
        old: see `side.RocketMQSide.answer_as_old`.
    """

    def __init__(self, store: Store, queues: Queues, push: Callable[[Connection, Any], None]) -> None:
        self._queues = queues
        self._push = push
        self.members: dict[str, dict[str, Connection]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}  # by group
        self.offsets: dict[str, dict[str, int]] = store.facts.setdefault("offsets", {})  # by topic@group and queue
        self.known: set[str] = {key.partition("@")[2] for key in self.offsets}  # with those that have offsets
        self.locks: dict[tuple[str, str, int], tuple[str, float]] = {}
        self.resets: dict[tuple[str, int], int] = {}  # by topic@group and queue
        self.old = False  # see `side.RocketMQSide.answer_as_old`

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Store a group's offset."""
        self.offsets.setdefault(f"{topic}@{group}", {})[str(queue)] = offset

    def has(self, group: str, topic: str) -> bool:
        """Return whether the group has an offset of any queue of the topic."""
        return f"{topic}@{group}" in self.offsets

    def forget(self, topic: str) -> None:
        """Drop resets and offsets of a deleted topic.

        In the 4.9 line offsets stay, and a group continues with them when the topic is made again.
        """
        if not self.old:
            for key in [key for key in self.offsets if key.rpartition("@")[0] == topic]:
                del self.offsets[key]
        self.resets = {place: offset for place, offset in self.resets.items() if place[0].rpartition("@")[0] != topic}

    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Set a group's offset, as 5.x brokers do by default.

        No member is called, and commits are ignored until a pull has got the offset.
        """
        self.commit(group, topic, queue, offset)
        self.resets[f"{topic}@{group}", queue] = offset

    def take_reset(self, group: str, topic: str, queue: int) -> int | None:
        """Return the offset at which a pull must continue instead, once; None: there is none."""
        return self.resets.pop((f"{topic}@{group}", queue), None)

    def subscription(self, group: str, topic: str) -> tuple[str | None, str | None]:
        """Return the expression with which a group subscribed a topic, by its last heartbeat, and its type."""
        for item in self.consumers.get(group, {}).get("subscriptionDataSet", []):
            if item.get("topic") == topic:
                return str(item.get("subString")), item.get("expressionType")
        return None, None

    def beat(self, connection: Connection, data: dict[str, Any]) -> None:
        """Apply a heartbeat: add the client to its groups, make their retry topics, and notify the other members."""
        client = str(data.get("clientID"))
        for item in data.get("consumerDataSet") or []:
            group = str(item.get("groupName"))
            retry = f"%RETRY%{group}"
            if retry not in self._queues.topics:
                self._queues.create(retry, 1)
            self.consumers[group] = item
            self.known.add(group)
            members = self.members.setdefault(group, {})
            if members.get(client) is not connection:
                members[client] = connection
                self.notify(group)

    def leave(self, group: str, client: str) -> None:
        """Remove a member."""
        if self.members.get(group, {}).pop(client, None) is not None:
            self.notify(group)

    def lost(self, connection: Connection) -> None:
        """Remove the members of a connection that ended."""
        for group, members in self.members.items():
            for client in [name for name, where in members.items() if where is connection]:
                self.leave(group, client)

    def notify(self, group: str) -> None:
        """Send code 40 to every member."""
        for connection in set(self.members.get(group, {}).values()):
            self._push(connection, m.NotifyConsumerIdsChangedRequest(consumer_group=group))

    def lock(self, group: str, client: str, queue: Any) -> bool:
        """Lock a queue for one client of a group, for a minute; returns whether it has the lock."""
        key = (group, f"{queue['topic']}@{queue['brokerName']}", int(queue["queueId"]))
        owner, until = self.locks.get(key, (client, 0.0))
        if owner != client and until > time.monotonic():
            return False
        self.locks[key] = (client, time.monotonic() + LOCK_SECONDS)
        return True

    def unlock(self, group: str, client: str, queue: Any) -> None:
        """Unlock a queue that the client has locked."""
        key = (group, f"{queue['topic']}@{queue['brokerName']}", int(queue["queueId"]))
        if self.locks.get(key, ("", 0.0))[0] == client:
            del self.locks[key]
