"""Serves the requests about groups: heartbeats, members, committed offsets, queue locks; notifies members when their group changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...rocketmq import fastjson
from ...rocketmq import messages as m
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .reply import Request

SYSTEM_ERROR, TOPIC_NOT_EXIST, QUERY_NOT_FOUND, SUBSCRIPTION_GROUP_NOT_EXIST, CONSUMER_NOT_ONLINE = 1, 17, 22, 26, 206
LOCK_SECONDS = 60.0
NOT_FROM_SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
"""What 4.9 slaves answer; those of 5.5.0 make the change, until their master's settings replace it."""


async def heart_beat(request: Request) -> Reply:
    """Serve code 34: a client's groups."""
    request.broker.groups.beat(request.connection, fastjson.loads(request.body))
    return Reply()


async def unregister(request: Request) -> Reply:
    """Serve code 35: a client leaves a group."""
    if request.header.consumer_group:
        request.broker.groups.known.add(request.header.consumer_group)
        request.broker.groups.leave(request.header.consumer_group, request.header.client_id)
    return Reply()


async def members(request: Request) -> Reply:
    """Serve code 38: the client ids of a group's members."""
    found = request.broker.groups.members.get(request.header.consumer_group)
    if not found:
        return refuse(SYSTEM_ERROR, f"no consumer for this group, {request.header.consumer_group}")
    return Reply(body=fastjson.dumps({"consumerIdList": list(found)}))


async def connections(request: Request) -> Reply:
    """Serve code 203: a group's members and subscriptions."""
    group = request.header.consumer_group
    found = request.broker.groups.members.get(group)
    if not found:
        return refuse(CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    data = request.broker.groups.consumers.get(group, {})
    body = {
        "connectionSet": [{"clientId": name, "clientAddr": where.peer, "language": "OTHER", "version": 0} for name, where in found.items()],
        "consumeFromWhere": data.get("consumeFromWhere", "CONSUME_FROM_FIRST_OFFSET"),
        "consumeType": data.get("consumeType", "CONSUME_PASSIVELY"),
        "messageModel": data.get("messageModel", "CLUSTERING"),
        "subscriptionTable": {item["topic"]: item for item in data.get("subscriptionDataSet", [])},
    }
    return Reply(body=fastjson.dumps(body))


async def all_groups(request: Request) -> Reply:
    """Serve code 201: every group that a consumer named; to a broker of 4.9, groups that only have offsets do not count."""
    names = sorted(request.broker.groups.known)
    table = {name: {"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16} for name in names}
    return Reply(body=fastjson.dumps({"subscriptionGroupTable": table}))


async def create_group(request: Request) -> Reply:
    """Serve code 200: make a group by name, for which commits are accepted from now on; its settings have no effect."""
    if request.broker.slave and request.broker.old:
        return refuse(SYSTEM_ERROR, NOT_FROM_SLAVE)
    request.broker.groups.known.add(str(fastjson.loads(request.body)["groupName"]))
    return Reply()


async def query_offset(request: Request) -> Reply:
    """Serve code 14: a group's offset of a queue."""
    header, groups = request.header, request.broker.groups
    kept = groups.offsets.get(f"{header.topic}@{header.consumer_group}", {}).get(str(header.queue_id), -1)
    if kept < 0 and (groups.old or header.set_zero_if_not_found is not False):
        # 0 where a queue's first message is still in memory, unless the request forbids it, which 4.9 does not know
        log = request.broker.queues.log(header.topic, header.queue_id)
        new_group = log is None or (log.start == 0 and not (groups.old and request.broker.far and log.end))
        kept = 0 if new_group and (groups.old or (log is not None and log.end)) else -1
    if kept < 0:
        return refuse(QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
    return Reply(ext=m.QueryConsumerOffsetResponse(offset=kept).to_ext())


async def all_offsets(request: Request) -> Reply:
    """Serve code 43: all offsets of all groups."""
    table = {key: {int(queue): offset for queue, offset in kept.items()} for key, kept in request.broker.groups.offsets.items()}
    return Reply(body=fastjson.dumps({"offsetTable": table}))


async def update_offset(request: Request) -> Reply:
    """Serve code 15: commit an offset. A slave accepts it, too, until its master's offsets replace it."""
    header, groups = request.header, request.broker.groups
    if not groups.old and header.consumer_group not in groups.known:
        return refuse(SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!")
    if not groups.old and header.topic not in request.broker.queues.topics:
        return refuse(TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
    if (f"{header.topic}@{header.consumer_group}", header.queue_id) in request.broker.groups.resets:
        return Reply(remark="Offset has been previously reset")
    if not groups.has(header.consumer_group, header.topic):  # as real brokers: of concurrent first commits only one is kept
        await asyncio.sleep(0)
        groups.offsets[f"{header.topic}@{header.consumer_group}"] = {}
    groups.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    return Reply()


async def reset_offset(request: Request) -> Reply:
    """Serve code 222: set one queue to an offset, or all of a topic's to a time (-1: to their ends)."""
    header, broker = request.header, request.broker
    if broker.old:
        return _reset_by_members(request)
    if broker.slave:
        return refuse(SYSTEM_ERROR, "Can not reset offset in slave broker")
    settings = broker.queues.topics.get(header.topic)
    if settings is None:
        return refuse(TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
    if header.group not in broker.groups.known:
        return refuse(SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
    alone = header.queue_id is not None and header.queue_id >= 0
    for queue in [header.queue_id] if alone else range(settings["queues"]):
        log = broker.queues.log(header.topic, queue)
        first, end = (log.start, log.end) if log is not None else (0, 0)  # a queue that does not exist counts as empty
        offset = header.offset if alone else None
        if offset is None or offset == -1:
            entry = log.at_time(header.timestamp, appended=True) if log is not None and header.timestamp >= 0 else None
            offset = end if entry is None else entry.base
        elif not first <= offset <= end + 1:
            return refuse(SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{first}-{end}]")
        broker.groups.reset(header.group, header.topic, queue, offset)
    return Reply(body=fastjson.dumps({"offsetTable": {}}))


def _reset_by_members(request: Request) -> Reply:
    """Refuse as 4.9 does, which has the group's members reset themselves; the dev broker does not call them."""
    header, broker = request.header, request.broker
    settings = broker.queues.topics.get(header.topic)
    if settings is None:
        return refuse(SYSTEM_ERROR, f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}")
    kept = broker.groups.offsets.get(f"{header.topic}@{header.group}", {})
    if any(kept.get(str(queue), -1) == -1 for queue in range(settings["queues"])):
        return refuse(SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
    if not broker.groups.members.get(header.group):
        return refuse(CONSUMER_NOT_ONLINE, f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic}")
    return refuse(SYSTEM_ERROR, "the dev broker does not call members of a group back")


async def lock_queues(request: Request) -> Reply:
    """Serve code 41: lock queues for a client."""
    data = fastjson.loads(request.body)
    group, client = data["consumerGroup"], data["clientId"]
    return Reply(body=fastjson.dumps({"lockOKMQSet": [q for q in data.get("mqSet", []) if request.broker.groups.lock(group, client, q)]}))


async def unlock_queues(request: Request) -> Reply:
    """Serve code 42: unlock queues."""
    data = fastjson.loads(request.body)
    for queue in data.get("mqSet", []):
        request.broker.groups.unlock(data["consumerGroup"], data["clientId"], queue)
    return Reply()


async def accept(request: Request) -> Reply:
    """Answer with success, for commands that need no more."""
    return Reply()
