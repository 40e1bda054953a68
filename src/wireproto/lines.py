"""Reads bytes and keeps a line of each value: its offset, path and meaning, for explanations of messages.

The bytes may be any. The module knows no message and no protocol.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from .errors import Malformed, Truncated


class Line(NamedTuple):
    """One line of an explanation: the bytes from `offset` to `stop` are the field at `path`, and mean `value`."""

    offset: int
    stop: int
    path: str
    value: Any


def base64_of(data: Any) -> str:
    """Encode bytes as base64, their form in JSON."""
    return base64.b64encode(data).decode()


class Bytes:
    """A bounded reader that keeps the lines of an explanation.

    Args:
        data: all bytes; offsets of lines and errors count from its beginning.
        message, version: name and version of the message, for errors.
        at, stop: offsets of the first byte to read and behind the last one; None: the end of `data`.
    """

    def __init__(self, data: bytes, message: str, version: int | None = None, at: int = 0, stop: int | None = None) -> None:
        self.data, self.message, self.version = data, message, version
        self.at, self.stop = at, len(data) if stop is None else stop
        self.lines: list[Line] = []

    def take(self, size: int, path: str = "") -> bytes:
        """Read the next `size` bytes. Raises Truncated or, for a negative size, Malformed."""
        if size < 0:
            raise self.error(Malformed, f"length {size}", path)
        if size > self.stop - self.at:
            raise self.error(Truncated, f"{size} bytes needed, {self.stop - self.at} left", path)
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int, path: str = "", *, signed: bool = True) -> int:
        """Read a big-endian whole number of `size` bytes. Raises Truncated."""
        return int.from_bytes(self.take(size, path), "big", signed=signed)

    def varint(self, path: str = "", bits: int = 32) -> int:
        """Read an unsigned varint of at most `bits` bits (32 or 64). Raises Truncated, Malformed."""
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
        """Add a line for the bytes from `start` to the current offset, and return `value`."""
        self.lines.append(Line(start, self.at, path, value))
        return value

    def error(self, kind: type[Truncated] | type[Malformed], text: str, path: str = "") -> Truncated | Malformed:
        """Make an error at the current offset; its attribute `lines` has the lines so far."""
        return kind(text, message=self.message, version=self.version, path=path or None, offset=self.at, lines=self.lines)
