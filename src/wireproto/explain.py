"""Decodes messages of the schema field by field, in plain Python, and explains their bytes.

It is for reading captures, and a second decoder beside the core's: it shares only the schema's lines (`Message.FIELDS`) with the core's
compiled plans. It is slow. The bytes may be any.

    field         kafka                                                            jute
    string        int16 n · text; flexible: uvarint n + 1; null -1 or 0             int32 n · text; null -1
    bytes, array  int32 n; flexible: uvarint n + 1; null -1 or 0                    int32 n; null -1
    struct        fields, then in flexible versions its tagged fields; nullable: int8 -1 or 1 before it (tagged: 0 or 1)
    tagged        uvarint count · { uvarint tag · uvarint size · field }*
"""

from __future__ import annotations

import base64
import importlib
import math
import struct
from typing import Any

from ._codec import Message, message_spec
from .errors import Malformed
from .lines import Bytes, Line, base64_of
from .message import Field, fields_of

_SIZES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4}


def explain(cls: type[Message], version: int, data: bytes) -> tuple[dict[str, Any], list[Line]]:
    """Decode a whole message; returns it as `wireproto.message.to_json` does, and a line for each value.

    Args:
        cls: the message's class. version: its version. data: the message's bytes.

    Raises:
        Truncated, Malformed: as the core's decoder; the error's attribute `lines` has the lines of the values before.
    """
    source = Bytes(data, cls.__name__, version)
    fields = walk(cls, version, source, "")
    if source.at != source.stop:
        raise source.error(Malformed, f"{source.stop - source.at} bytes left over")
    return fields, source.lines


def walk(cls: type[Message], version: int, source: Bytes, path: str) -> dict[str, Any]:
    """Decode the message at the source's offset, which other bytes may follow; returns it as `to_json` does. Raises as `explain`."""
    return _Walker(cls, version, source).struct(cls, path)


class _Walker:
    """Decodes values of one version, in the dialect of a message class (Kafka's or jute)."""

    def __init__(self, cls: type[Message], version: int, source: Bytes) -> None:
        dialect, _, _, flexible, _ = message_spec(cls)
        self.source = source
        self.version = version
        self.jute = dialect == "zookeeper"
        self.flexible = 0 <= flexible <= version

    def struct(self, cls: type[Message], path: str) -> dict[str, Any]:
        """Read a struct's fields, and its tagged fields where the version has them."""
        shown: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in fields_of(cls):
            if not _within(self.version, field.versions):
                continue
            if _within(self.version, field.tag_versions):
                tagged[field.tag] = field
            else:
                shown[field.vendor] = self.field(cls, field, _join(path, field.vendor))
        if self.flexible:
            self.tags(cls, tagged, shown, path)
        return shown

    def tags(self, cls: type[Message], tagged: dict[int, Field], shown: dict[str, Any], path: str) -> None:
        """Read tagged fields into `shown`; those that the schema does not know under ``unknownTags``."""
        source, start = self.source, self.source.at
        where = _join(path, "tags")
        count = source.note(start, where, source.varint(where))
        unknown = []
        seen: set[int] = set()
        for _ in range(count):
            start = source.at
            tag = source.varint(where)
            if tag in seen:
                raise source.error(Malformed, f"tag {tag} twice", where)
            seen.add(tag)
            size = source.varint(where)
            source.note(start, where, f"tag {tag}, {size} bytes")
            stop = source.at + size
            if tag in tagged:
                field = tagged[tag]
                shown[field.vendor] = self.field(cls, field, _join(path, field.vendor))
                if source.at != stop:
                    raise source.error(Malformed, f"tag {tag} is not {size} bytes long", where)
            else:
                start = source.at
                data = source.note(start, _join(path, "unknownTags"), base64_of(source.take(size, where)))
                unknown.append({"tag": tag, "data": data})
        if unknown:
            shown["unknownTags"] = sorted(unknown, key=lambda item: int(item["tag"]))

    def field(self, cls: type[Message], field: Field, path: str) -> Any:
        """Read one field."""
        nullable = _within(self.version, field.nullable)
        tagged = self.flexible and _within(self.version, field.tag_versions)
        return self.value(cls, field.type, path, self.flexible and not field.inflexible, nullable, tagged)

    def value(self, cls: type[Message], kind: str, path: str, compact: bool, nullable: bool, tagged: bool = False) -> Any:
        """Read a value of any type: an array, text, bytes, a scalar or a struct."""
        source, start = self.source, self.source.at
        if kind.startswith("["):
            count = self.length(path, compact, wide=True)
            source.note(start, path, None if count is None else f"{count} items")
            if count is None:
                self.null(nullable, path)
                return None
            return [self.value(cls, kind[1:-1], f"{path}[{index}]", compact, False) for index in range(count)]
        if kind in ("string", "bytes", "blob", "records"):
            size = self.length(path, compact, wide=kind != "string")
            if size is None:
                self.null(nullable, path)
                return source.note(start, path, None)
            data = source.take(size, path)
            if kind != "string":
                return source.note(start, path, base64_of(data))
            return source.note(start, path, self.text(data, path))
        if kind == "bool" or kind in _SIZES or kind in ("varint", "varlong", "uvarint", "uuid", "float64"):
            return source.note(start, path, self.scalar(kind, path))
        child = getattr(importlib.import_module(cls.__module__), kind)
        if nullable and not self.jute:
            there = source.varint(path) > 0 if tagged else source.number(1, path) >= 0
            if source.note(start, path, "present" if there else "null") == "null":
                return None
        return self.struct(child, path)

    def null(self, nullable: bool, path: str) -> None:
        """Raise Malformed for a null where the version has none."""
        if not nullable and not self.jute:
            raise self.source.error(Malformed, "null where this version has none", path)

    def scalar(self, kind: str, path: str) -> Any:
        """Read a value of a type that has no length."""
        source = self.source
        if kind == "bool":
            return source.number(1, path) != 0
        if kind in _SIZES:
            return source.number(_SIZES[kind], path, signed=kind.startswith("i"))
        if kind == "uuid":
            return base64.urlsafe_b64encode(source.take(16, path)).decode().rstrip("=")
        if kind == "float64":
            number = struct.unpack(">d", source.take(8, path))[0]
            return number if math.isfinite(number) else "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        number = source.varint(path, 64 if kind == "varlong" else 32)
        return number if kind == "uvarint" else (number >> 1) ^ -(number & 1)

    def length(self, path: str, compact: bool, *, wide: bool) -> int | None:
        """Read a length or count; None is null."""
        size = self.source.varint(path) - 1 if compact else self.source.number(4 if wide or self.jute else 2, path)
        if size < -1:
            raise self.source.error(Malformed, f"length {size}", path)
        return None if size == -1 else size

    def text(self, data: bytes, path: str) -> str:
        """Decode UTF-8 in which surrogates may be encoded, too; a pair of them is one character. Raises Malformed."""
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self.source.error(Malformed, f"text of {len(data)} bytes is not UTF-8", path) from None
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")  # a pair is one character


def _within(version: int, span: tuple[int, int]) -> bool:
    return span[0] <= version <= span[1]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
