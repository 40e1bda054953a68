"""The lines of an explanation: what some bytes are written at, and mean; and a reader that keeps them.

May assume nothing of the bytes. Must not: know a message or a protocol.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from .errors import Malformed, Truncated


class Line(NamedTuple):
    """One line of an explanation: the bytes from `offset` to `stop` are what is written at `path`, and mean `value`."""

    offset: int
    stop: int
    path: str
    value: Any


def base64_of(data: Any) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(data).decode()


class Bytes:
    """A bounded reader that keeps the lines of an explanation.

    Args:
        data: all bytes; offsets of lines and errors count from its beginning.
        message: for errors.
    """

    def __init__(self, data: bytes, message: str, version: int | None = None, at: int = 0, stop: int | None = None) -> None:
        self.data, self.message, self.version = data, message, version
        self.at, self.stop = at, len(data) if stop is None else stop
        self.lines: list[Line] = []

    def take(self, size: int, path: str = "") -> bytes:
        """The next `size` bytes; raises Truncated or, for a negative size, Malformed."""
        if size < 0:
            raise self.error(Malformed, f"length {size}", path)
        if size > self.stop - self.at:
            raise self.error(Truncated, f"{size} bytes needed, {self.stop - self.at} left", path)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int, path: str = "", *, signed: bool = True) -> int:
        """A big-endian whole number."""
        return int.from_bytes(self.take(size, path), "big", signed=signed)

    def varint(self, path: str = "", bits: int = 32) -> int:
        """An unsigned varint."""
        value = shift = 0
        while True:
            byte = self.take(1, path)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >> bits:
                    raise self.error(Malformed, f"varint of more than {bits} bits", path)
                return value
            if shift >= (35 if bits == 32 else 70):
                raise self.error(Malformed, "a varint that does not end", path)

    def note(self, start: int, path: str, value: Any) -> Any:
        """Keep a line from `start` to here, and give the value back."""
        self.lines.append(Line(start, self.at, path, value))
        return value

    def error(self, kind: type[Truncated] | type[Malformed], text: str, path: str = "") -> Truncated | Malformed:
        """An error at this place; `lines` is what was read so far."""
        return kind(text, message=self.message, version=self.version, path=path or None, offset=self.at, lines=self.lines)
