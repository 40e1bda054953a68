"""Answers the requests that brokers send to a member of a consumer group.

    40   members came or went              one way    the share is computed again
    220  reset to these offsets            one way    kept for the owner, which seeks and commits them at its next step
    221  offsets of the member             reply      messageQueueTable: queue to the next offset
    307  state of the member               reply      ConsumerRunningInfo: what is read, from where, since when
    309  consume this message now          reply      code 1: records are returned by poll, none can be given to the program out of turn
    anything else                          reply      code 3

The bodies have queues as keys, as fastjson writes them. Sans-IO: a command in, a command or None out; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from wireproto.errors import Malformed

from . import fastjson, remoting
from .bodies import SubscriptionData
from .fastjson import ObjectKey
from .messages import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusFromClientRequest,
    NotifyConsumerIdsChangedRequest,
    ResetConsumerClientOffsetRequest,
)

if TYPE_CHECKING:
    from .route import Queue

ReadPositions = Mapping[tuple[str, int], tuple["Queue", int]]
"""By (topic, partition): the queue, and the next offset to deliver."""
Resets = dict[tuple[str, str, int], int]
"""By (topic, broker, queue id): the offset to continue at."""


class MemberState(Protocol):
    """Is the part of a member that the answers are made of."""

    group: str
    started: float
    """Seconds since 1970."""

    def read_positions(self) -> ReadPositions:
        """Return the queues that are read, and their next offsets."""
        ...

    def subscriptions(self) -> Sequence[SubscriptionData]:
        """Return what the member's heartbeats say that it reads."""
        ...

    def name_servers(self) -> Sequence[str]:
        """Return the addresses of the client's name servers."""
        ...

    def members_changed(self) -> None:
        """Note that a member came or went."""
        ...

    def reset(self, offsets: Resets) -> None:
        """Note offsets to which an administrator has set the group."""
        ...


def answer(command: remoting.Command, asked: MemberState) -> remoting.Command | None:
    """Return the reply, or None where there is none to send; raises Malformed for a request that cannot be decoded."""
    ext = command.ext
    if command.code == NotifyConsumerIdsChangedRequest.CODE:
        if ext.get("consumerGroup") == asked.group:
            asked.members_changed()
        return None
    if command.code == ResetConsumerClientOffsetRequest.CODE:
        if ext.get("group") == asked.group:
            asked.reset(_offsets(bytes(command.body)))
        return None
    if command.is_one_way:
        return None
    if command.code == GetConsumerStatusFromClientRequest.CODE:
        return _reply(command, {"messageQueueTable": _positions(asked.read_positions(), ext.get("topic"))})
    if command.code == GetConsumerRunningInfoRequest.CODE:
        return _reply(command, _running(asked))
    if command.code == ConsumeMessageDirectlyRequest.CODE:
        return refusal(command, 1, "this consumer hands records out by poll: none can be given to it out of turn")
    return refusal(command, 3, f"request type {command.code} not supported")


def _reply(command: remoting.Command, body: Mapping[Any, Any]) -> remoting.Command:
    reply = refusal(command, 0, None)
    reply.body = fastjson.dumps(body)
    return reply


def refusal(command: remoting.Command, code: int, remark: str | None) -> remoting.Command:
    """Make a reply without a body."""
    return remoting.Command(
        code, command.opaque, flag=remoting.RESPONSE, remark=remark, version=remoting.VERSION, serializer=command.serializer
    )


def _queue_key(topic: str, queue: Queue) -> ObjectKey:
    return ObjectKey({"brokerName": queue.broker, "queueId": queue.queue_id, "topic": topic})


def _positions(read_positions: ReadPositions, topic: str | None) -> dict[Any, int]:
    return {_queue_key(key[0], queue): offset for key, (queue, offset) in read_positions.items() if topic in (None, "", key[0])}


def _running(asked: MemberState) -> dict[str, Any]:
    queues = {
        _queue_key(key[0], queue): {"commitOffset": offset, "droped": False, "locked": False}
        for key, (queue, offset) in asked.read_positions().items()
    }
    properties = {
        "PROP_CLIENT_VERSION": "wireproto",
        "PROP_CONSUME_ORDERLY": "false",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMER_START_TIMESTAMP": str(int(asked.started * 1000)),
        "PROP_NAMESERVER_ADDR": ";".join(asked.name_servers()) + ";",
        "PROP_THREADPOOL_CORE_SIZE": "0",
    }
    subscriptions = [subscription.tree() for subscription in asked.subscriptions()]
    return {"mqTable": queues, "properties": properties, "statusTable": {}, "subscriptionSet": subscriptions}


def _offsets(body: bytes) -> Resets:
    """Read the body of 220: a table with queues as keys, or (for clients that say they are C++) a list."""
    tree = fastjson.loads(body)
    table = tree.get("offsetTable") if isinstance(tree, Mapping) else tree
    pairs: list[tuple[Any, Any]] = []
    if isinstance(table, Mapping):
        pairs = list(table.items())
    elif isinstance(table, list):
        pairs = [(item, item.get("offset") if isinstance(item, Mapping) else None) for item in table]
    found: Resets = {}
    for queue, offset in pairs:
        topic, broker, queue_id = [queue.get(name) if isinstance(queue, Mapping) else None for name in ("topic", "brokerName", "queueId")]
        if not isinstance(topic, str) or not isinstance(broker, str) or type(queue_id) is not int or type(offset) is not int:
            raise Malformed("a table of queues and offsets expected", message="ResetConsumerClientOffsetRequest", path="offsetTable")
        found[topic, broker, queue_id] = offset
    return found
