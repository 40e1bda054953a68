"""What `wireproto.wire` needs of one message: bytes to plain JSON values, back, and byte by byte.

What it is: the `Form` that each protocol's ``forms`` module lists by name, and `SchemaForm`, the form of every message of the schema.
May assume: the message registry. Must not: know a protocol's meaning, do I/O.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from ._codec import Framer, Message, message_spec
from .errors import FrameTooLarge, Malformed, Truncated, UnsupportedVersion
from .message import from_json, message_class, to_json


class Line(NamedTuple):
    """One line of an explanation: the bytes from `offset` to `stop` are what is written at `path`, and mean `value`."""

    offset: int
    stop: int
    path: str
    value: Any


class Form(Protocol):
    """One message that can be taken apart and put together."""

    versions: tuple[int, int]
    """First and last version."""

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """The fields; raises ProtocolError."""

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """The bytes; raises ValueUnsupported or Malformed."""

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Every byte of it, in order; ends early with a ProtocolError's attribute `lines` holding what was read before."""


class SchemaForm:
    """A message of the schema, coded by its plan."""

    def __init__(self, cls: type[Message]) -> None:
        self.cls = cls
        self.versions: tuple[int, int] = (getattr(cls, "MIN_VERSION", 0), getattr(cls, "MAX_VERSION", 0))

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        return to_json(self.cls.decode(data, version), version)

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        self._check(version)
        return from_json(self.cls, fields, version).encode(version)

    def explain(self, version: int, data: bytes) -> list[Line]:
        from .explain import explain

        self._check(version)
        return explain(self.cls, version, data)[1]

    def _check(self, version: int) -> None:
        _, first, last, _, _ = message_spec(self.cls)
        if not first <= version <= last:
            raise UnsupportedVersion(f"there are versions {first} to {last}", message=self.cls.__name__, version=version)


class LazyForm(SchemaForm):
    """The same of a class that is looked up when the form is first used."""

    def __init__(self, protocol: str, name: str, versions: tuple[int, int]) -> None:
        self.protocol, self.name, self.versions = protocol, name, versions

    @cached_property
    def cls(self) -> type[Message]:  # type: ignore[override]
        return message_class(self.protocol, self.name)


# ---- what several forms need ------------------------------------------------------------------------------------------------------


def base64_of(data: Any) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(data).decode()


def bytes_of(value: Any, path: str, message: str) -> bytes:
    """The inverse; raises Malformed."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Malformed("base64 expected", message=message, path=path) from None


def whole_frame(data: bytes, message: str) -> bytes:
    """What follows a frame's 4-byte length.

    Raises:
        Truncated: it is not all there.
        FrameTooLarge: the length is negative.
        Malformed: bytes behind it.
    """
    framer = Framer(2**31 - 1)
    framer.feed(data)
    try:
        frame = framer.next()
    except FrameTooLarge as error:
        raise error.with_context(message=message) from None
    if frame is None:
        announced = f" of a frame of {int.from_bytes(data[:4], 'big')}" if len(data) >= 4 else ""
        raise Truncated(f"{max(len(data) - 4, 0)} bytes{announced}", message=message, offset=len(data))
    if framer.pending:
        raise Malformed(f"{framer.pending} bytes left over", message=message, offset=len(data) - framer.pending)
    return frame


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
