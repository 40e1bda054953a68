"""Groups: who is in them, their offsets, and queues locked for one of them."""

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
    """Who is in which group; a member is gone when its connection is."""

    def __init__(self, store: Store, queues: Queues, push: Callable[[Connection, Any], None]) -> None:
        self._queues = queues
        self._push = push
        self.members: dict[str, dict[str, Connection]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}  # group: its consumer data of the last heartbeat
        self.offsets: dict[str, dict[str, int]] = store.facts.setdefault("offsets", {})  # topic@group: queue: offset
        self.known: set[str] = {key.partition("@")[2] for key in self.offsets}  # groups that made themselves: by a heartbeat or a pull
        self.locks: dict[tuple[str, str, int], tuple[str, float]] = {}
        self.resets: dict[tuple[str, int], int] = {}  # by topic@group and queue: told with the next pull's answer
        self.old = False  # see `side.RocketMQSide.answer_as_old`

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Keep a group's offset."""
        self.offsets.setdefault(f"{topic}@{group}", {})[str(queue)] = offset

    def has(self, group: str, topic: str) -> bool:
        """Whether the group has an offset of any queue of the topic."""
        return f"{topic}@{group}" in self.offsets

    def forget(self, topic: str) -> None:
        """A topic was deleted: with it go resets that nobody was told, and its offsets; in the 4.9 line a group goes on with those when it
        is made again."""
        if not self.old:
            for key in [key for key in self.offsets if key.rpartition("@")[0] == topic]:
                del self.offsets[key]
        self.resets = {place: offset for place, offset in self.resets.items() if place[0].rpartition("@")[0] != topic}

    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Set a group back or forth, as 5.x brokers do by default: nobody is called; no other commit counts until a pull was told."""
        self.commit(group, topic, queue, offset)
        self.resets[f"{topic}@{group}", queue] = offset

    def take_reset(self, group: str, topic: str, queue: int) -> int | None:
        """For a pull: where it must go on instead; told once."""
        return self.resets.pop((f"{topic}@{group}", queue), None)

    def subscription(self, group: str, topic: str) -> tuple[str | None, str | None]:
        """The expression that a group subscribed a topic with, by its last heartbeat, and its type."""
        for item in self.consumers.get(group, {}).get("subscriptionDataSet", []):
            if item.get("topic") == topic:
                return str(item.get("subString")), item.get("expressionType")
        return None, None

    def beat(self, connection: Connection, data: dict[str, Any]) -> None:
        """A heartbeat: the client's groups, their retry topics, and news to the others."""
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
        """A member went."""
        if self.members.get(group, {}).pop(client, None) is not None:
            self.notify(group)

    def lost(self, connection: Connection) -> None:
        """A connection ended: its members went."""
        for group, members in self.members.items():
            for client in [name for name, where in members.items() if where is connection]:
                self.leave(group, client)

    def notify(self, group: str) -> None:
        """Code 40 to every member."""
        for connection in set(self.members.get(group, {}).values()):
            self._push(connection, m.NotifyConsumerIdsChangedRequest(consumer_group=group))

    def lock(self, group: str, client: str, queue: Any) -> bool:
        """A queue for one client of a group alone, for a minute."""
        key = (group, f"{queue['topic']}@{queue['brokerName']}", int(queue["queueId"]))
        owner, until = self.locks.get(key, (client, 0.0))
        if owner != client and until > time.monotonic():
            return False
        self.locks[key] = (client, time.monotonic() + LOCK_SECONDS)
        return True

    def unlock(self, group: str, client: str, queue: Any) -> None:
        """The other way."""
        key = (group, f"{queue['topic']}@{queue['brokerName']}", int(queue["queueId"]))
        if self.locks.get(key, ("", 0.0))[0] == client:
            del self.locks[key]
