"""Writes the common record as a RocketMQ message, and refuses what a broker cannot carry.

    value       body; null is refused                              empty body: accepted by both broker lines
    key         property KEYS: UTF-8, no white space (brokers split KEYS there into several keys)
    headers     properties: UTF-8 text, names unique and not the broker's own, values not empty
    timestamp   bornTimestamp; of a record that shares a command with one of another timestamp: property BORN_TIMESTAMP

Properties travel as ``name \\x01 value \\x02 …``, so neither byte may occur in name or value; all of a message's properties together are
at most 32,767 bytes. ``TAGS`` may be given as a header: brokers carry it unchanged and filter by it. Names that brokers or clients set
themselves are refused, and are left out of the headers of what is read.
Sans-IO.
"""

from __future__ import annotations

import calendar
import os
import struct
import time
from collections.abc import Mapping
from typing import Final

from wireproto._codec import ROCKETMQ_RESERVED, RocketIds
from wireproto.errors import NotBytes, ValueUnsupported
from wireproto.records import Headers

KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
MAX_PROPERTIES = 32_767
BORN_MOST = 36
"""Bytes that a record's property BORN_TIMESTAMP may take."""

RESERVED: Final = ROCKETMQ_RESERVED
"""Property names that belong to brokers and clients (RocketMQ's MessageConst, without TAGS)."""


def check_topic(topic: str) -> None:
    """Raise ValueUnsupported for a name that no broker takes."""
    if not topic or len(topic.encode("utf-8", "surrogatepass")) > 127:
        raise ValueUnsupported(f"a RocketMQ topic name has 1 to 127 bytes, this one {len(topic)}", topic=topic)
    if not all(char.isascii() and (char.isalnum() or char in "%|_-") for char in topic):
        raise ValueUnsupported("a RocketMQ topic name has letters, digits, %, |, _ and - only", topic=topic)


def pairs(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers as ordered pairs, whether they are a mapping or pairs."""
    if not headers:
        return ()
    return tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)


def key_text(key: bytes) -> str:
    """Return a record key as the KEYS property; raises ValueUnsupported where it would not come back the same."""
    text = _text(key, "key")
    if not text:
        raise ValueUnsupported("RocketMQ cannot carry an empty key: give None or at least one byte")
    if text.split() != [text]:  # finds white space anywhere, in one call
        raise ValueUnsupported("RocketMQ splits keys at white space: this key has some")
    return text


def properties(key: bytes | None, headers: Headers, unique_id: str) -> str:
    """Return the properties text of a message.

    Args:
        key, headers: of the common record.
        unique_id: value of UNIQ_KEY, which every message must carry.
    Raises:
        ValueUnsupported: the broker would not bring them back unchanged.
    """
    out = [] if key is None else [f"{KEYS}\x01{key_text(key)}\x02"]
    seen: set[str] = set()
    for name, value in pairs(headers):
        out.append(f"{header_name(name, seen)}\x01{header_value(name, value)}\x02")
    out.append(f"{UNIQ_KEY}\x01{unique_id}\x02WAIT\x01true\x02")
    text = "".join(out)
    if len(text) * 3 > MAX_PROPERTIES and len(text.encode("utf-8")) > MAX_PROPERTIES:
        raise ValueUnsupported(f"key and headers take more than {MAX_PROPERTIES} bytes")
    return text


def header_name(name: str, seen: set[str]) -> str:
    """Check one header's name and note it in `seen`."""
    if not isinstance(name, str) or not name:
        raise ValueUnsupported("a RocketMQ header needs a name of at least one character")
    if name in RESERVED:
        raise ValueUnsupported(f"the header name {name!r} belongs to RocketMQ itself")
    if name in seen:
        raise ValueUnsupported(f"RocketMQ cannot carry the header {name!r} twice")
    if "\x01" in name or "\x02" in name or not _utf8(name):
        raise ValueUnsupported(f"the header name {name!r} has \\x01, \\x02 or a lone surrogate, which RocketMQ cannot carry")
    seen.add(name)
    return name


def header_value(name: str, value: bytes | None) -> str:
    """Check one header's value."""
    if value is None:
        raise ValueUnsupported(f"RocketMQ cannot carry the header {name!r} with a null value")
    text = _text(value, f"header {name!r}")
    if not text:
        raise ValueUnsupported(f"RocketMQ cannot carry the header {name!r} with an empty value")
    return text


def octets(data: object) -> bytes:
    """Return bytes-like data as bytes, or raise NotBytes; `bytes` accepts more: from a number it makes that many zeros."""
    if type(data) is bytes:
        return data
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]
    except TypeError:
        raise NotBytes(f"keys, values and header values are bytes, not {type(data).__name__}") from None


def _text(data: bytes, what: str) -> str:
    try:
        text = octets(data).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueUnsupported(f"RocketMQ carries text only: the {what} is not UTF-8") from None
    if "\x01" in text or "\x02" in text:
        raise ValueUnsupported(f"the {what} has \\x01 or \\x02, which RocketMQ uses as separators")
    return text


def _utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def ids_of_month(now_ms: int) -> tuple[RocketIds, int]:
    """Make the unique ids of this process for this month; returns also when the month ends, in milliseconds since 1970.

    Tools read an id's time from the start of its month, so the next month has ids of its own, of another instance. Four random bytes are
    the address, since addresses are not unique behind NAT and in containers.
    """
    now = time.gmtime(now_ms // 1000)
    begin = calendar.timegm((now.tm_year, now.tm_mon, 1, 0, 0, 0)) * 1000
    end = begin + calendar.monthrange(now.tm_year, now.tm_mon)[1] * 86_400_000
    return unique_ids(os.urandom(4), os.getpid(), int.from_bytes(os.urandom(4), "big"), begin), end


def unique_ids(address: bytes, process: int, instance: int, epoch_ms: int) -> RocketIds:
    """Make the ids of one client.

    Args:
        address: four bytes that distinguish this machine from others. process: number of this process. instance: number of this client.
        epoch_ms: start of the current month, in milliseconds since 1970.
    """
    return RocketIds(struct.pack(">4sHI", address, process & 0xFFFF, instance & 0xFFFFFFFF), epoch_ms)
