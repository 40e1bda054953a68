"""Groups: heartbeats, members, committed offsets, queue locks; tells members when their group changed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...rocketmq import fastjson
from ...rocketmq import messages as m
from .reply import Reply, refuse

if TYPE_CHECKING:
    from ..server import Connection
    from .reply import Request
    from .side import RocketMQSide

SYSTEM_ERROR, QUERY_NOT_FOUND, CONSUMER_NOT_ONLINE = 1, 22, 206
LOCK_SECONDS = 60.0


class Groups:
    """Who is in which group; a member is gone when its connection is."""

    def __init__(self, side: RocketMQSide) -> None:
        self._side = side
        self.members: dict[str, dict[str, Connection]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}  # group: its consumer data of the last heartbeat
        self.offsets: dict[str, dict[str, int]] = side.store.facts.setdefault("offsets", {})  # topic@group: queue: offset
        self.locks: dict[tuple[str, str, int], tuple[str, float]] = {}
        self.resets: dict[tuple[str, int], int] = {}  # by topic@group and queue: told with the next pull's answer
        self.old = False  # see `RocketMQSide.answer_as_old`

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Keep a group's offset."""
        self.offsets.setdefault(f"{topic}@{group}", {})[str(queue)] = offset

    def reset(self, group: str, topic: str, queue: int, offset: int) -> None:
        """Set a group back or forth, as 5.x brokers do by default: nobody is called; no other commit counts until a pull was told."""
        self.commit(group, topic, queue, offset)
        self.resets[f"{topic}@{group}", queue] = offset

    def take_reset(self, group: str, topic: str, queue: int) -> int | None:
        """For a pull: where it must go on instead; told once."""
        return self.resets.pop((f"{topic}@{group}", queue), None)

    def subscription(self, group: str, topic: str) -> str | None:
        """The expression that a group subscribed a topic with, by its last heartbeat."""
        for item in self.consumers.get(group, {}).get("subscriptionDataSet", []):
            if item.get("topic") == topic:
                return str(item.get("subString"))
        return None

    def beat(self, connection: Connection, data: dict[str, Any]) -> None:
        """A heartbeat: the client's groups, their retry topics, and news to the others."""
        client = str(data.get("clientID"))
        for item in data.get("consumerDataSet") or []:
            group = str(item.get("groupName"))
            retry = f"%RETRY%{group}"
            if retry not in self._side.queues.topics:
                self._side.queues.create(retry, 1)
            self.consumers[group] = item
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
            self._side.push(connection, m.NotifyConsumerIdsChangedRequest(consumer_group=group))

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


async def heart_beat(request: Request) -> Reply:
    """Code 34."""
    request.side.groups.beat(request.connection, fastjson.loads(request.body))
    return Reply()


async def unregister(request: Request) -> Reply:
    """Code 35."""
    if request.header.consumer_group:
        request.side.groups.leave(request.header.consumer_group, request.header.client_id)
    return Reply()


async def members(request: Request) -> Reply:
    """Code 38."""
    found = request.side.groups.members.get(request.header.consumer_group)
    if not found:
        return refuse(SYSTEM_ERROR, f"no consumer for this group, {request.header.consumer_group}")
    return Reply(body=fastjson.dumps({"consumerIdList": list(found)}))


async def connections(request: Request) -> Reply:
    """Code 203."""
    group = request.header.consumer_group
    found = request.side.groups.members.get(group)
    if not found:
        return refuse(CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    data = request.side.groups.consumers.get(group, {})
    body = {
        "connectionSet": [
            {"clientId": name, "clientAddr": where.peer, "language": "OTHER", "version": 0} for name, where in found.items()
        ],
        "consumeFromWhere": data.get("consumeFromWhere", "CONSUME_FROM_FIRST_OFFSET"),
        "consumeType": data.get("consumeType", "CONSUME_PASSIVELY"),
        "messageModel": data.get("messageModel", "CLUSTERING"),
        "subscriptionTable": {item["topic"]: item for item in data.get("subscriptionDataSet", [])},
    }
    return Reply(body=fastjson.dumps(body))


async def all_groups(request: Request) -> Reply:
    """Code 201: every group that a consumer named or that has offsets."""
    names = {*request.side.groups.consumers, *(key.partition("@")[2] for key in request.side.groups.offsets)}
    table = {name: {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16} for name in sorted(names)}
    return Reply(body=fastjson.dumps({"subscriptionGroupTable": table}))


async def query_offset(request: Request) -> Reply:
    """Code 14."""
    header = request.header
    kept = request.side.groups.offsets.get(f"{header.topic}@{header.consumer_group}", {}).get(str(header.queue_id))
    if kept is None and request.side.groups.old:
        log = request.side.queues.log(header.topic, header.queue_id)
        kept = 0 if log is not None and log.start == 0 else None
    if kept is None:
        return refuse(QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    return Reply(ext=m.QueryConsumerOffsetResponse(offset=kept).to_ext())


async def all_offsets(request: Request) -> Reply:
    """Code 43."""
    table = {key: {int(queue): offset for queue, offset in kept.items()} for key, kept in request.side.groups.offsets.items()}
    return Reply(body=fastjson.dumps({"offsetTable": table}))


async def update_offset(request: Request) -> Reply:
    """Code 15."""
    header = request.header
    if (f"{header.topic}@{header.consumer_group}", header.queue_id) in request.side.groups.resets:
        return Reply(remark="Offset has been previously reset")
    request.side.groups.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    return Reply()


async def reset_offset(request: Request) -> Reply:
    """Code 222: one queue to an offset, or all of a topic's to a time (-1: to their ends)."""
    header, side = request.header, request.side
    settings = side.queues.topics.get(header.topic)
    if settings is None:
        return refuse(SYSTEM_ERROR, f"topic {header.topic} not exist")
    one = header.queue_id is not None and header.queue_id >= 0 and header.offset is not None
    for queue in [header.queue_id] if one else range(settings["queues"]):
        log = side.queues.log(header.topic, queue)
        if log is None:
            return refuse(SYSTEM_ERROR, f"no queue {queue}")
        offset = header.offset if one else log.end
        if not one and header.timestamp >= 0:
            entry = log.at_time(header.timestamp, appended=True)
            offset = log.end if entry is None else entry.base
        side.groups.reset(header.group, header.topic, queue, offset)
    return Reply(body=fastjson.dumps({"offsetTable": {}}))


async def lock_queues(request: Request) -> Reply:
    """Code 41."""
    data = fastjson.loads(request.body)
    group, client = data["consumerGroup"], data["clientId"]
    return Reply(body=fastjson.dumps({"lockOKMQSet": [q for q in data.get("mqSet", []) if request.side.groups.lock(group, client, q)]}))


async def unlock_queues(request: Request) -> Reply:
    """Code 42."""
    data = fastjson.loads(request.body)
    for queue in data.get("mqSet", []):
        request.side.groups.unlock(data["consumerGroup"], data["clientId"], queue)
    return Reply()


async def accept(request: Request) -> Reply:
    """Code 46 and others that need no more than a yes."""
    return Reply()
