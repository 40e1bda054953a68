"""What `wireproto.wire` needs of one message: bytes to plain JSON values, back, and byte by byte.

What it is: the `Form` that each protocol's ``forms`` module lists by name, and `SchemaForm`, the form of every message of the schema.
May assume: the message registry. Must not: know a protocol's meaning, do I/O.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from ._codec import Framer, Message, message_spec
from .errors import FrameTooLarge, Malformed, Truncated, UnsupportedVersion
from .lines import Line
from .message import from_json, message_class, to_json


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
