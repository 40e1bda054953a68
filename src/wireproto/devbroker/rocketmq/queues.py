"""Serves the requests about topics and queues: sends, pulls, offsets of queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...rocketmq import fastjson
from ...rocketmq import messages as m
from ..log import PartitionLog, wait_for_append
from . import replica, special, stored
from .groups import NOT_FROM_SLAVE
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .node import Node
    from .reply import Request

MESSAGE_ILLEGAL, NO_PERMISSION, TOPIC_NOT_EXIST, PULL_NOT_FOUND, PULL_RETRY, PULL_OFFSET_MOVED = 13, 16, 17, 19, 20, 21
SYSTEM_ERROR, NOT_SUPPORTED, INVALID_PARAMETER = 1, 3, 29
READ, WRITE = 4, 2
SERVICE_NOT_AVAILABLE, SUBSCRIPTION_NOT_EXIST = 14, 24
NO_SERVICE = "the broker's disk is full, messages are put to the slave, message store has been shut down, etc."
SLAVE_LOOKS = 5.0
"""Seconds after which 4.9's slaves check the pulls that they hold: they get no notification of new messages."""
TEMPLATE = "TBW102"  # the topic whose route a producer asks for before it makes a new topic by sending to it
MAX_BODY = 4 << 20
NEAR, FAR = (32, 256 << 10), (8, 64 << 10)
"""Messages and bytes of a pull's answer at most: from memory, and from the disk."""


def named(topic: str) -> bool:
    """Return whether brokers accept this as a topic's name."""
    return 0 < len(topic) <= 127 and all(c.isascii() and (c.isalnum() or c in "%|_-") for c in topic)


def invalid(broker: Node, remark: str) -> Reply:
    """Make the answer to an invalid parameter, for which the 4.9 line has no code of its own."""
    return refuse(SYSTEM_ERROR if broker.old else INVALID_PARAMETER, remark)


async def send(request: Request) -> Reply:
    """Serve codes 10, 310 and 320: one message, or a batch to one queue."""
    header, broker = request.header, request.broker
    queues = broker.queues
    topic = header.topic
    if not named(topic):
        return invalid(broker, f"the topic name [{topic}] is illegal")
    if topic not in queues.topics:
        retry = topic.startswith("%RETRY%")
        if not (broker.auto_create or retry) or broker.slave:
            return refuse(TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queues.create(topic, 1 if retry else max(min(header.default_topic_queue_nums, 16), 1))
    settings = queues.topics[topic]
    if header.queue_id >= settings["queues"]:
        return invalid(broker, f"request queueId[{header.queue_id}] is illegal, {topic} has {settings['queues']}")
    if broker.slave:
        return refuse(SERVICE_NOT_AVAILABLE, f"service not available now. It may be caused by one of the following reasons: {NO_SERVICE}")
    if len(request.body) > MAX_BODY:
        return refuse(MESSAGE_ILLEGAL, f"a body of {len(request.body)} bytes is above {MAX_BODY}")
    queue = header.queue_id if header.queue_id >= 0 else broker.pick(settings["queues"])
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
    if header.batch and topic.startswith("%RETRY%"):
        return refuse(MESSAGE_ILLEGAL, "batch request does not support retry group")
    if settings.get("attributes", {}).get("cleanup.policy") == "COMPACTION":
        if not header.batch and "KEYS" not in stored.read_properties(messages[0].properties):
            return refuse(MESSAGE_ILLEGAL, "Required message key is missing")
        messages = [message for message in messages if "KEYS" in stored.read_properties(message.properties)]
        if not messages:  # as in real brokers: acknowledged, and never readable
            return Reply(ext=m.SendMessageResponse(msg_id="", queue_id=queue, queue_offset=0).to_ext())
    if not header.batch:
        properties = stored.read_properties(messages[0].properties)
        if (refused := special.refusal(request, properties)) is not None:
            return refused
        if special.delay(properties):
            return special.append_later(request, queue, messages[0], properties)
    places = [queues.append(queue, message) for message in messages]
    ids = ",".join(stored.offset_id(broker.broker_host, place) for _, place in places)
    first = stored.read_properties(messages[0].properties)
    code = await replica.stored_at(broker, waits=first.get("WAIT") != "false")
    unique = None if broker.old else first.get("UNIQ_KEY")
    ext = m.SendMessageResponse(msg_id=ids, queue_id=queue, queue_offset=places[0][0], transaction_id=unique)
    return Reply(code, ext=ext.to_ext())


async def pull(request: Request) -> Reply:
    """Serve code 11: messages from an offset on; held while there are none and the client allows it."""
    header, broker = request.header, request.broker
    log = broker.queues.log(header.topic, header.queue_id)
    broker.groups.known.add(header.consumer_group)
    if header.topic not in broker.queues.topics:
        return refuse(TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
    if not broker.queues.topics[header.topic]["perm"] & READ:
        return refuse(NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
    if log is None or header.queue_id >= broker.queues.topics[header.topic]["queues"]:
        return invalid(broker, f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]")
    own = (header.subscription, header.expression_type) if header.sys_flag & 4 else None
    if own is None and not broker.groups.members.get(header.consumer_group):
        return refuse(SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    expression, kind = own or broker.groups.subscription(header.consumer_group, header.topic)
    if own is None and expression is None:
        return refuse(SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if special.wants_sql(kind):
        return refuse(1, special.NO_SQL)
    if header.sys_flag & 1 and not (broker.slave and broker.old):
        broker.groups.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    broker.pulled = True
    offset, end = header.queue_offset, partial(broker.queues.end, header.topic, header.queue_id, log)
    if log.start <= offset == end() and header.sys_flag & 2:
        await _hold(broker, log, lambda: end() > offset, min(header.suspend_timeout_millis, 60_000) / 1000)
    moved = broker.groups.take_reset(header.consumer_group, header.topic, header.queue_id)
    if moved is not None:
        return _pulled(broker, log, end(), PULL_OFFSET_MOVED, moved, "OFFSET_RESET")
    if offset < (until := broker.queues.removed.get((header.topic, header.queue_id), offset)):
        return _pulled(broker, log, end(), PULL_RETRY, until, "MESSAGE_WAS_REMOVING")
    if not log.start <= offset <= end():
        if broker.slave:  # a slave corrects no offset, since it may be behind
            return _pulled(broker, log, end(), PULL_RETRY, offset, "moved")
        return _pulled(broker, log, end(), PULL_OFFSET_MOVED, log.start if offset < log.start else end(), "moved")
    count, size = FAR if broker.far else NEAR
    wanted, most = special.tags(expression), max(min(header.max_msg_nums, count), 1)
    entries = [entry for entry in log.read(offset, size) if entry.end <= end()]
    bodies, after = list[bytes](), offset
    for entry in entries:  # `after` becomes the next offset that was not checked: messages with other tags count as read
        if len(bodies) == most:
            break
        if wanted is None or special.tag_of(entry.data) in wanted:
            bodies.append(entry.data)
        after = entry.end
    if not entries:
        return _pulled(broker, log, end(), PULL_NOT_FOUND, after, "no message")
    found = (0, "FOUND") if bodies else (PULL_RETRY, "NO_MATCHED_MESSAGE")
    return _pulled(broker, log, end(), found[0], after, found[1], b"".join(bodies), suggested=broker.suggested())


def _pulled(
    broker: Node, log: PartitionLog, end: int, code: int, after: int, remark: str, body: bytes = b"", *, suggested: int = 0
) -> Reply:
    ext = m.PullMessageResponse(suggest_which_broker_id=suggested, next_begin_offset=after, min_offset=log.start, max_offset=end)
    return Reply(code, remark, ext.to_ext(), body)


async def _hold(broker: Node, log: PartitionLog, enough: Callable[[], bool], seconds: float) -> None:
    if not (broker.slave and broker.old):
        await wait_for_append([log], enough, seconds)
        return
    until = time.monotonic() + seconds
    while not enough() and (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, SLAVE_LOOKS))


async def max_offset(request: Request) -> Reply:
    """Serve code 30: the end of a queue."""
    header = request.header
    return _offset(request, m.GetMaxOffsetResponse, lambda log: request.broker.queues.end(header.topic, header.queue_id, log))


async def runtime_info(request: Request) -> Reply:
    """Serve code 28: the ends of the log and of what the queues show."""
    end, behind = request.broker.queues.progress()
    return Reply(body=fastjson.dumps({"table": {"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}}))


async def ha_status(request: Request) -> Reply:
    """Serve code 907: where the log ends."""
    broker = request.broker
    if broker.old:
        return refuse(NOT_SUPPORTED, "request type 907 not supported")
    return Reply(body=fastjson.dumps({"master": not broker.slave, "masterCommitLogMaxOffset": broker.queues.written}))


async def queue_entries(request: Request) -> Reply:
    """Serve code 321: entries of a queue."""
    header, queues = request.header, request.broker.queues
    log = queues.log(header.topic, header.queue_id)
    end = 0 if log is None else queues.end(header.topic, header.queue_id, log)
    if log is None or not log.start <= header.index < end:
        return refuse(SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!" if not end else f"Index {header.index} is not exist!")
    entries = [log.entry(offset) for offset in range(header.index, min(header.index + header.count, end))]
    data = [{"physicOffset": stored.place(entry.data), "physicSize": len(entry.data)} for entry in entries if entry is not None]
    return Reply(body=fastjson.dumps({"minQueueIndex": log.start, "maxQueueIndex": end, "queueData": data}))


async def min_offset(request: Request) -> Reply:
    """Serve code 31: the start of a queue."""
    return _offset(request, m.GetMinOffsetResponse, lambda log: log.start)


async def search_offset(request: Request) -> Reply:
    """Serve code 29, by store time: the first message stored at or after a time.

    When all are older that is the end; in the 4.9 line the last one.
    """

    def find(log: PartitionLog) -> int:
        entry = log.at_time(request.header.timestamp, appended=True)
        return entry.base if entry is not None else max(log.end - request.broker.old, log.start)

    return _offset(request, m.SearchOffsetByTimestampResponse, find)


def _offset(request: Request, response: Any, find: Any) -> Reply:
    log = request.broker.queues.log(request.header.topic, request.header.queue_id)
    return Reply(ext=response(offset=find(log) if log is not None else 0).to_ext())


async def create_topic(request: Request) -> Reply:
    """Serve code 17: create or change a topic."""
    header = request.header
    if request.broker.slave and request.broker.old:
        return refuse(SYSTEM_ERROR, NOT_FROM_SLAVE)
    if not named(header.topic):
        return invalid(request.broker, f"the topic name [{header.topic}] is illegal")
    request.broker.queues.create(header.topic, max(header.write_queue_nums, header.read_queue_nums), header.perm, header.attributes)
    return Reply()


async def topic_config(request: Request) -> Reply:
    """Serve code 351: a topic's settings."""
    topic = request.header.topic
    if request.broker.old:
        return refuse(NOT_SUPPORTED, "request type 351 not supported")
    settings = request.broker.queues.topics.get(topic)
    if settings is None:
        return refuse(TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    counts = {"readQueueNums": settings["queues"], "writeQueueNums": settings["queues"]}
    tree = {"topicName": topic, "perm": settings["perm"], "attributes": settings.get("attributes", {}), **counts}
    return Reply(body=fastjson.dumps(tree))


async def delete_topic(request: Request) -> Reply:
    """Serve code 215: delete a topic; name servers still have it."""
    if request.broker.slave and request.broker.old:
        return refuse(SYSTEM_ERROR, NOT_FROM_SLAVE)
    request.broker.queues.delete(request.header.topic)
    request.broker.groups.forget(request.header.topic)
    return Reply()


async def send_back(request: Request) -> Reply:
    """Serve code 36: copy a message to the group's retry topic at once, or to its dead letters after too many attempts."""
    header, broker = request.header, request.broker
    broker.groups.known.add(header.group)
    data = broker.queues.at(header.offset)
    if data is None:
        return refuse(1, f"look message by offset failed, {header.offset}")
    if broker.slave:
        return refuse(SYSTEM_ERROR, "SERVICE_NOT_AVAILABLE")
    message = stored.decode(data)
    most = header.max_reconsume_times if header.max_reconsume_times is not None and header.max_reconsume_times >= 0 else 16
    dead = message.reconsume_times >= most or header.delay_level < 0
    topic = f"{'%DLQ%' if dead else '%RETRY%'}{header.group}"
    if topic not in broker.queues.topics:
        broker.queues.create(topic, 1)
    properties = stored.read_properties(message.properties)
    properties.setdefault("RETRY_TOPIC", message.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", header.origin_msg_id or stored.offset_id(broker.broker_host, header.offset))
    message.topic, message.properties = topic, stored.write_properties(properties)
    message.reconsume_times += 1
    broker.queues.append(0, message)
    await asyncio.sleep(0)
    return Reply()


async def view_message(request: Request) -> Reply:
    """Serve code 33: a message by its offset in the commit log."""
    data = request.broker.queues.at(request.header.offset)
    return Reply(body=data) if data is not None else refuse(1, "can not find message by the offset")


async def no_topics(_request: Request) -> Reply:
    """Serve code 305: there are no system topics."""
    return Reply(body=fastjson.dumps({"topicList": []}))
