"""Reads and writes the two kinds of message id: where a message is stored, and the id that its sender gave it.

    offset id   hex of: address (4 or 16) · int32 port · int64 commit log offset                        32 or 56 digits, upper case
    unique id   hex of: address (4 or 16) · int16 process · int32 instance · int32 ms of the month · int16 counter    32 or 56 digits

They look alike and are distinguished by where they come from: a send's reply, `Delivery` and code 33 have offset ids, property UNIQ_KEY is
a unique id. Sans-IO, pure.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Self

from wireproto.errors import Malformed, ValueUnsupported

_TAIL = struct.Struct(">iq")
_UNIQUE_TAIL = struct.Struct(">HIIH")


@dataclass(frozen=True, slots=True)
class OffsetId:
    """Names the broker that stored a message, and the message's offset in its commit log.

    Attributes:
        host: address of the broker, v4 or v6, as text.
        port: of the broker.
        offset: in the commit log, which code 33 asks for.
    """

    host: str
    port: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one; raises Malformed."""
        data = _hex(text)
        port, offset = _TAIL.unpack(data[-12:])
        return cls(str(ipaddress.ip_address(data[:-12])), port, offset)

    def __str__(self) -> str:
        try:
            return (ipaddress.ip_address(self.host).packed + _TAIL.pack(self.port, self.offset)).hex().upper()
        except (ValueError, struct.error):
            raise ValueUnsupported(f"no offset id has {self.host!r}, {self.port!r} and {self.offset!r}") from None


@dataclass(frozen=True, slots=True)
class UniqueId:
    """Holds the parts of a unique id; clients other than ours choose them in other ways.

    Attributes:
        address: 4 or 16 bytes that distinguish machines. process, instance: numbers of the sender.
        millis: milliseconds since the month began. counter: number of the id among the sender's.
    """

    address: bytes
    process: int
    instance: int
    millis: int
    counter: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one; raises Malformed."""
        data = _hex(text)
        return cls(data[:-12], *_UNIQUE_TAIL.unpack(data[-12:]))

    def __str__(self) -> str:
        return (self.address + _UNIQUE_TAIL.pack(self.process, self.instance, self.millis, self.counter)).hex().upper()


def _hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(text) != 2 * len(data) or len(data) not in (16, 28):
        raise Malformed(f"{text[:80]!r} is no message id: 32 or 56 hex digits expected")
    return data
