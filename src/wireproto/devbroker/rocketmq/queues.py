"""Queues: topics with their configuration, sends, pulls, offsets of queues."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from ...rocketmq import fastjson
from ...rocketmq import messages as m
from ..log import PartitionLog, wait_for_append
from . import special, stored
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .reply import Request
    from .state import RocketMQState

MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, PULL_NOT_FOUND, PULL_RETRY, PULL_OFFSET_MOVED = 13, 16, 17, 19, 20, 21
SYSTEM_ERROR, NOT_SUPPORTED, INVALID_PARAMETER = 1, 3, 29
READ, WRITE = 4, 2
TEMPLATE = "TBW102"  # the topic whose route a producer asks for before it makes a new topic by sending to it
MAX_BODY = 4 << 20
MAX_PULL, MAX_PULL_BYTES = 32, 256 << 10


def named(topic: str) -> bool:
    """Whether brokers take this as a topic's name."""
    return 0 < len(topic) <= 127 and all(c.isascii() and (c.isalnum() or c in "%|_-") for c in topic)


def invalid(side: RocketMQState, remark: str) -> Reply:
    """A parameter that cannot be: the 4.9 line has no code of its own for that."""
    return refuse(SYSTEM_ERROR if side.groups.old else INVALID_PARAMETER, remark)


async def send(request: Request) -> Reply:
    """Codes 10, 310 and 320: one message, or a batch to one queue."""
    header, side = request.header, request.side
    queues = side.queues
    topic = header.topic
    if not named(topic):
        return invalid(side, f"the topic name [{topic}] is illegal")
    if topic not in queues.topics:
        if not side.auto_create:
            return refuse(TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queues.create(topic, max(min(header.default_topic_queue_nums, 16), 1))
    settings = queues.topics[topic]
    if header.queue_id >= settings["queues"]:
        return invalid(side, f"request queueId[{header.queue_id}] is illegal, {topic} has {settings['queues']}")
    if len(request.body) > MAX_BODY:
        return refuse(MESSAGE_ILLEGAL, f"a body of {len(request.body)} bytes is above {MAX_BODY}")
    queue = header.queue_id if header.queue_id >= 0 else side.pick(settings["queues"])
    host, _, port = request.connection.peer.rpartition(":")
    common = {
        "topic": topic,
        "sys_flag": header.sys_flag,
        "born": header.born_timestamp,
        "born_host": (host, int(port)),
        "reconsume_times": header.reconsume_times or 0,
    }
    if header.batch:
        messages = [stored.Message(body=body, properties=props, flag=flag, **common) for flag, body, props in stored.batch(request.body)]
    else:
        messages = [stored.Message(body=request.body, properties=(header.properties or "").encode(), flag=header.flag, **common)]
    if not messages:
        return refuse(MESSAGE_ILLEGAL, "an empty batch")
    if settings.get("attributes", {}).get("cleanup.policy") == "COMPACTION":
        if not header.batch and "KEYS" not in stored.read_properties(messages[0].properties):
            return refuse(MESSAGE_ILLEGAL, "Required message key is missing")
        messages = [message for message in messages if "KEYS" in stored.read_properties(message.properties)]
        if not messages:  # as real brokers do: acknowledged, and nobody ever reads it
            return Reply(ext=m.SendMessageResponse(msg_id="", queue_id=queue, queue_offset=0).to_ext())
    if not header.batch:
        properties = stored.read_properties(messages[0].properties)
        if (refused := special.refusal(request, properties)) is not None:
            return refused
        if special.delay(properties):
            return special.append_later(request, queue, messages[0], properties)
    places = [queues.append(queue, message) for message in messages]
    ids = ",".join(stored.offset_id(side.broker_host, place) for _, place in places)
    unique = stored.read_properties(messages[0].properties).get("UNIQ_KEY")
    return Reply(ext=m.SendMessageResponse(msg_id=ids, queue_id=queue, queue_offset=places[0][0], transaction_id=unique).to_ext())


async def pull(request: Request) -> Reply:
    """Code 11: messages from an offset on; held open while there are none and the client allows it."""
    header, side = request.header, request.side
    log = side.queues.log(header.topic, header.queue_id)
    side.groups.known.add(header.consumer_group)
    if header.topic not in side.queues.topics:
        return refuse(TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
    if not side.queues.topics[header.topic]["perm"] & READ:
        return refuse(NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
    if log is None or header.queue_id >= side.queues.topics[header.topic]["queues"]:
        return invalid(side, f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]")
    told = (header.subscription, header.expression_type) if header.sys_flag & 4 else None
    expression, kind = told or side.groups.subscription(header.consumer_group, header.topic)
    if special.wants_sql(kind):
        return refuse(1, special.NO_SQL)
    if header.sys_flag & 1:
        side.groups.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    offset, end = header.queue_offset, partial(side.queues.end, header.topic, header.queue_id, log)
    if log.start <= offset == end() and header.sys_flag & 2:
        limit = min(header.suspend_timeout_millis, 60_000) / 1000
        await wait_for_append([log], lambda: end() > offset, limit)
    code, after, bodies = 0, offset, list[bytes]()
    moved = side.groups.take_reset(header.consumer_group, header.topic, header.queue_id)
    if moved is not None:
        ext = m.PullMessageResponse(suggest_which_broker_id=0, next_begin_offset=moved, min_offset=log.start, max_offset=end()).to_ext()
        return Reply(PULL_OFFSET_MOVED, "OFFSET_RESET", ext)
    if offset < (until := side.queues.removed.get((header.topic, header.queue_id), offset)):
        ext = m.PullMessageResponse(suggest_which_broker_id=0, next_begin_offset=until, min_offset=log.start, max_offset=end()).to_ext()
        return Reply(PULL_RETRY, "MESSAGE_WAS_REMOVING", ext)
    if not log.start <= offset <= end():
        code, after = PULL_OFFSET_MOVED, log.start if offset < log.start else end()
    else:
        wanted, most = special.tags(expression), max(min(header.max_msg_nums, MAX_PULL), 1)
        entries = [entry for entry in log.read(offset, MAX_PULL_BYTES) if entry.end <= end()]
        for entry in entries:  # on to the next queue offset that was not looked at: those with other tags count as read
            if len(bodies) == most:
                break
            if wanted is None or special.tag_of(entry.data) in wanted:
                bodies.append(entry.data)
            after = entry.end
        if not bodies:
            code = PULL_RETRY if entries else PULL_NOT_FOUND
    ext = m.PullMessageResponse(suggest_which_broker_id=0, next_begin_offset=after, min_offset=log.start, max_offset=end()).to_ext()
    return Reply(code, {0: "FOUND", PULL_NOT_FOUND: "no message"}.get(code, "moved"), ext, b"".join(bodies))


async def max_offset(request: Request) -> Reply:
    """Code 30."""
    header = request.header
    return _offset(request, m.GetMaxOffsetResponse, lambda log: request.side.queues.end(header.topic, header.queue_id, log))


async def runtime_info(request: Request) -> Reply:
    """Code 28: how far the log and the queues are."""
    end, behind = request.side.queues.progress()
    return Reply(body=fastjson.dumps({"table": {"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}}))


async def min_offset(request: Request) -> Reply:
    """Code 31."""
    return _offset(request, m.GetMinOffsetResponse, lambda log: log.start)


async def search_offset(request: Request) -> Reply:
    """Code 29, by store time: the first message stored at or after a time; when all are older the end, in the 4.9 line the last one."""

    def find(log: PartitionLog) -> int:
        entry = log.at_time(request.header.timestamp, appended=True)
        return entry.base if entry is not None else max(log.end - request.side.groups.old, log.start)

    return _offset(request, m.SearchOffsetByTimestampResponse, find)


def _offset(request: Request, response: Any, find: Any) -> Reply:
    log = request.side.queues.log(request.header.topic, request.header.queue_id)
    return Reply(ext=response(offset=find(log) if log is not None else 0).to_ext())


async def create_topic(request: Request) -> Reply:
    """Code 17."""
    header = request.header
    if not named(header.topic):
        return invalid(request.side, f"the topic name [{header.topic}] is illegal")
    request.side.queues.create(header.topic, max(header.write_queue_nums, header.read_queue_nums), header.perm, header.attributes)
    return Reply()


async def topic_config(request: Request) -> Reply:
    """Code 351."""
    topic = request.header.topic
    if request.side.groups.old:
        return refuse(NOT_SUPPORTED, "request type 351 not supported")
    settings = request.side.queues.topics.get(topic)
    if settings is None:
        return refuse(TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    counts = {"readQueueNums": settings["queues"], "writeQueueNums": settings["queues"]}
    tree = {"topicName": topic, "perm": settings["perm"], "attributes": settings.get("attributes", {}), **counts}
    return Reply(body=fastjson.dumps(tree))


async def delete_topic(request: Request) -> Reply:
    """Codes 215 and 216."""
    request.side.queues.delete(request.header.topic)
    request.side.groups.forget(request.header.topic)
    return Reply()


async def send_back(request: Request) -> Reply:
    """Code 36: a copy goes to the group's retry topic at once, to its dead letters after too many attempts."""
    header, side = request.header, request.side
    data = side.queues.at(header.offset)
    if data is None:
        return refuse(1, f"look message by offset failed, {header.offset}")
    message = stored.decode(data)
    most = header.max_reconsume_times if header.max_reconsume_times is not None and header.max_reconsume_times >= 0 else 16
    dead = message.reconsume_times >= most or header.delay_level < 0
    topic = f"{'%DLQ%' if dead else '%RETRY%'}{header.group}"
    if topic not in side.queues.topics:
        side.queues.create(topic, 1)
    properties = stored.read_properties(message.properties)
    properties.setdefault("RETRY_TOPIC", message.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", header.origin_msg_id or stored.offset_id(side.broker_host, header.offset))
    message.topic, message.properties = topic, stored.write_properties(properties)
    message.reconsume_times += 1
    side.queues.append(0, message)
    await asyncio.sleep(0)
    return Reply()


async def view_message(request: Request) -> Reply:
    """Code 33."""
    data = request.side.queues.at(request.header.offset)
    return Reply(body=data) if data is not None else refuse(1, "can not find message by the offset")
