"""Converts one message between bytes and plain JSON values, and explains its bytes, for `wireproto.wire`.

Each protocol's ``forms`` module lists its messages' `Form`s by name. `SchemaForm` is the form of every message of the schema. The module
does no I/O.
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
    """Decodes and encodes one message."""

    versions: tuple[int, int]
    """First and last version."""

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Decode a whole message; returns its fields. Raises ProtocolError."""

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode a message; returns its bytes. Raises ValueUnsupported, Malformed."""

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Explain every byte, in order. Raises ProtocolError, whose attribute `lines` has the lines of the values before."""


class SchemaForm:
    """The form of a message of the schema, which the core's compiled plan decodes and encodes.

    Attributes:
        cls: the message's class. versions: first and last version.
    """

    def __init__(self, cls: type[Message]) -> None:
        self.cls = cls
        self.versions: tuple[int, int] = (getattr(cls, "MIN_VERSION", 0), getattr(cls, "MAX_VERSION", 0))

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Decode a whole message; see `Form.decode`."""
        return to_json(self.cls.decode(data, version), version)

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode a message; see `Form.encode`. Raises UnsupportedVersion, too."""
        self._check(version)
        return from_json(self.cls, fields, version).encode(version)

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Explain every byte; see `Form.explain`. Raises UnsupportedVersion, too."""
        from .explain import explain

        self._check(version)
        return explain(self.cls, version, data)[1]

    def _check(self, version: int) -> None:
        _, first, last, _, _ = message_spec(self.cls)
        if not first <= version <= last:
            raise UnsupportedVersion(f"there are versions {first} to {last}", message=self.cls.__name__, version=version)


class LazyForm(SchemaForm):
    """The form of a message of the schema, whose class is looked up at the first use."""

    def __init__(self, protocol: str, name: str, versions: tuple[int, int]) -> None:
        self.protocol, self.name, self.versions = protocol, name, versions

    @cached_property
    def cls(self) -> type[Message]:  # type: ignore[override]
        """The message's class."""
        return message_class(self.protocol, self.name)


# ---- shared by several forms -------------------------------------------------------------------------------------------------------


def bytes_of(value: Any, path: str, message: str) -> bytes:
    """Decode base64, as `lines.base64_of` writes it. Raises Malformed, with `path` and `message`."""
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Malformed("base64 expected", message=message, path=path) from None


def whole_frame(data: bytes, message: str) -> bytes:
    """Return the bytes after a frame's 4-byte length.

    Args:
        data: one frame with its length. message: the name for errors.

    Raises:
        Truncated: the frame is not complete.
        FrameTooLarge: the length is negative.
        Malformed: bytes follow the frame.
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
