"""Serves what goes beyond a plain send or pull: as real brokers do, or refused as by brokers that have it turned off.

    DELAY=n                 shown when the time of level n is over, 18 at most; in memory until then. The answer's
                            offset is one of a system topic
    TIMER_*                 refused, as without timerWheelEnable; to 4.9 they are ordinary properties
    half messages           refused, as with rejectTransactionMessage
    SQL92                   refused, as without enablePropertyFilter, which is the brokers' default
    tags                    by hash code, as brokers do: the client compares the texts
    queries by key (12)     by any of KEYS, or by UNIQ_KEY; the whole topic is searched; real
                            brokers find messages of a deleted topic, too, until their log is deleted

This module sends nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..._codec import java_hash
from ...rocketmq import fastjson
from ...rocketmq import messages as m
from . import stored
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .reply import Request

SYSTEM_ERROR, NO_PERMISSION, QUERY_NOT_FOUND = 1, 16, 22
PREPARED, KIND = 4, 12
"""Bits of sysFlag: the value of a half message, and the mask."""
LEVELS = (1, 5, 10, 30, *(minutes * 60 for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
"""Seconds of the delay levels, from 1 on: the brokers' default."""
NO_SQL = "The broker does not support consumer to filter message by SQL92"


def refusal(request: Request, properties: dict[str, str]) -> Reply | None:
    """Return the answer to a single message that a plain broker refuses; None: it is accepted."""
    if properties.get("TRAN_MSG") == "true" or request.header.sys_flag & KIND == PREPARED:
        return refuse(NO_PERMISSION, "the broker[dev] sending transaction message is forbidden")
    timed = [name for name in properties if name.startswith("TIMER_") and name != "TIMER_ENQUEUE_MS"]
    if timed and not request.broker.old:
        return refuse(SYSTEM_ERROR, f"accurate timer message is not enabled, timerWheelEnable is false ({timed[0]})")
    return None


def delay(properties: dict[str, str]) -> float:
    """Return the seconds after which a message is to be shown."""
    text = properties.get("DELAY", "0")
    level = int(text) if text.isdecimal() else 0
    return float(LEVELS[min(level, len(LEVELS)) - 1]) if level else 0.0


def append_later(request: Request, queue: int, message: stored.Message, properties: dict[str, str]) -> Reply:
    """Store the message when its delay is over."""
    queues, seconds = request.broker.queues, delay(properties)
    message.properties = stored.write_properties({name: value for name, value in properties.items() if name != "DELAY"})

    def show() -> None:
        if message.topic in queues.topics:
            queues.append(queue, message)

    asyncio.get_running_loop().call_later(seconds, show)
    ext = m.SendMessageResponse(msg_id="", queue_id=queue, queue_offset=0, transaction_id=properties.get("UNIQ_KEY"))
    return Reply(ext=ext.to_ext())


def wants_sql(kind: str | None) -> bool:
    """Return whether a subscription's expression type is SQL92."""
    return (kind or "").upper() == "SQL92"


async def check_client_config(request: Request) -> Reply:
    """Serve code 46: refuse SQL92."""
    data: Any = fastjson.loads(request.body) if request.body else {}
    subscription = data.get("subscriptionData") if isinstance(data, dict) else None
    kind = subscription.get("expressionType") if isinstance(subscription, dict) else None
    return refuse(SYSTEM_ERROR, NO_SQL) if wants_sql(kind) else Reply()


def tags(expression: str | None) -> set[int] | None:
    """Return hash codes of the tags that a subscription wants; None: all."""
    if expression is None or expression.strip() in ("*", ""):
        return None
    return {java_hash(tag.strip().encode()) for tag in expression.split("||")}


def tag_of(data: bytes) -> int | None:
    """Return the hash code of a stored message's tag."""
    tag = stored.read_properties(stored.decode(data).properties).get("TAGS")
    return None if tag is None else java_hash(tag.encode())


async def query_message(request: Request) -> Reply:
    """Serve code 12: messages by key."""
    header, broker = request.header, request.broker
    unique = header.unique_key_query == "true"
    found: list[tuple[int, bytes]] = []
    for log in broker.queues.logs(header.topic).values():
        for entry in log:
            properties = stored.read_properties(stored.decode(entry.data).properties)
            keys = [properties.get("UNIQ_KEY")] if unique else properties.get("KEYS", "").split()
            if header.key in keys and header.begin_timestamp <= entry.appended <= header.end_timestamp:
                found.append((entry.appended, entry.data))
    if not found:
        return refuse(QUERY_NOT_FOUND, "can not find message, maybe time range not correct")
    found.sort(key=lambda item: item[0], reverse=True)
    ext = m.QueryMessageResponse(index_last_update_timestamp=found[0][0], index_last_update_phyoffset=broker.queues.progress()[0])
    return Reply(ext=ext.to_ext(), body=b"".join(data for _, data in found[: min(header.max_num, 32)]))
