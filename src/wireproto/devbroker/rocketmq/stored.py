r"""Encodes and decodes messages as the broker stores them, and their properties.

stored message, v1
int32 totalSize · int32 magic 0xDAA320A7 · int32 bodyCRC · int32 queueId · int32 flag · int64 queueOffset · int64 commitLogOffset
int32 sysFlag · int64 bornTimestamp · bornHost (4 bytes + int32 port) · int64 storeTimestamp · storeHost (the same)
int32 reconsumeTimes · int64 preparedTransactionOffset · int32 bodyLength · body · int8 topicLength (int16 in v2) · topic
int16 propertiesLength · properties: name \x01 value \x02 …

batch body (code 320), one after the other
int32 size · int32 0 · int32 0 · int32 flag · int32 bodyLength · body · int16 propertiesLength · properties
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..._codec import crc32
from ...errors import Malformed

MAGIC_V1, MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_HEAD = struct.Struct(">iIiiiqqiq4siq4siiqi")
_BATCH = struct.Struct(">iiiii")


@dataclass(slots=True)
class Message:
    """The parts of a message that a send has.

    Attributes:
        born: the producer's time, milliseconds since 1970.
    """

    topic: str
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0


def encode(message: Message, queue_id: int, queue_offset: int, commit_offset: int, stored: int, store_host: tuple[str, int]) -> bytes:
    """Return the stored form.

    Args:
        commit_offset: its offset in the commit log. stored: the broker's time, milliseconds since 1970.
    """
    topic = message.topic.encode()
    long_topic = len(topic) > 127
    size = _HEAD.size + len(message.body) + (2 if long_topic else 1) + len(topic) + 2 + len(message.properties)
    head = _HEAD.pack(
        size,
        MAGIC_V2 if long_topic else MAGIC_V1,
        crc32(message.body) & 0x7FFFFFFF,
        queue_id,
        message.flag,
        queue_offset,
        commit_offset,
        message.sys_flag,
        message.born,
        socket.inet_aton(message.born_host[0]),
        message.born_host[1],
        stored,
        socket.inet_aton(store_host[0]),
        store_host[1],
        message.reconsume_times,
        0,
        len(message.body),
    )
    topic_length = struct.pack(">h" if long_topic else ">b", len(topic))
    return b"".join((head, message.body, topic_length, topic, struct.pack(">h", len(message.properties)), message.properties))


def decode(data: bytes) -> Message:
    """Decode the stored form (our own: hosts are IPv4)."""
    fields = _HEAD.unpack_from(data)
    body_end = _HEAD.size + fields[-1]
    width = 2 if fields[1] == MAGIC_V2 else 1
    topic_end = body_end + width + int.from_bytes(data[body_end : body_end + width], "big")
    return Message(
        topic=data[body_end + width : topic_end].decode(),
        body=data[_HEAD.size : body_end],
        properties=data[topic_end + 2 :],
        flag=fields[4],
        sys_flag=fields[7],
        born=fields[8],
        born_host=(socket.inet_ntoa(fields[9]), fields[10]),
        reconsume_times=fields[14],
    )


def place(data: bytes) -> int:
    """Return a stored message's offset in the commit log."""
    return int(_HEAD.unpack_from(data)[6])


def batch(body: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield flag, body and properties of the messages of a batch body; raises Malformed."""
    at = 0
    while at < len(body):
        if len(body) - at < _BATCH.size + 2:
            raise Malformed("a batch ends inside a message", offset=at, message="SendBatchMessage")
        size, _, _, flag, length = _BATCH.unpack_from(body, at)
        start, stop = at + _BATCH.size, at + size
        if not 0 <= length <= size - _BATCH.size - 2 or stop > len(body):
            raise Malformed("a batch message's lengths do not fit", offset=at, message="SendBatchMessage")
        (width,) = struct.unpack_from(">h", body, start + length)
        if width != stop - start - length - 2:
            raise Malformed("a batch message's properties do not fit", offset=at, message="SendBatchMessage")
        yield flag, body[start : start + length], body[start + length + 2 : stop]
        at = stop


def read_properties(data: bytes) -> dict[str, str]:
    """Decode properties, in order."""
    pairs = (item.partition("\x01") for item in data.decode(errors="surrogateescape").split("\x02") if item)
    return {name: value for name, _, value in pairs}


def write_properties(properties: dict[str, str]) -> bytes:
    """Encode properties."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode(errors="surrogateescape")


def offset_id(host: tuple[str, int], commit_offset: int) -> str:
    """Return the id that names a message by broker and offset in the commit log."""
    return (socket.inet_aton(host[0]) + struct.pack(">iq", host[1], commit_offset)).hex().upper()
