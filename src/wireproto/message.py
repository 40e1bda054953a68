"""Lists the fields of messages, converts messages to JSON values and back, and finds their classes by protocol and name.

The classes are those of each protocol's generated `messages` module. The module reads and writes no bytes of the wire.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from .errors import Malformed, UnknownMessage
from .protocols import every, known

if TYPE_CHECKING:
    from ._codec import Message

M = TypeVar("M", bound="Message")
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "varint", "varlong", "uvarint"})
_BYTES = frozenset({"bytes", "blob", "records"})


class Field(NamedTuple):
    """One line of the schema; a field whose type changes with the version has several.

    Ranges of versions are inclusive pairs; an empty one is (1, 0).

    Attributes:
        name, type: of the Python attribute, and the schema's type.
        versions: those that have the field. nullable: those in which it may be null.
        default: its default; Ellipsis: that of the type.
        vendor: the vendor's name for it. former: the vendor's older name, or empty.
        ignorable, key, inflexible, secret: flags of the schema.
        tag: its number as a tagged field; -1: not tagged. tag_versions: those in which it is tagged.
    """

    name: str
    type: str
    versions: tuple[int, int]
    nullable: tuple[int, int]
    default: Any
    vendor: str
    ignorable: bool
    key: bool
    inflexible: bool
    secret: bool
    tag: int
    tag_versions: tuple[int, int]
    former: str = ""


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """Return the schema's lines of one class, in wire order."""
    from ._codec import message_spec

    made = []
    for name, kind, since, until, null_since, null_until, default, vendor, flags, tag, tag_since, tag_until in message_spec(cls)[4]:
        ignorable, key, inflexible, secret = (bool(flags & bit) for bit in (1, 2, 4, 8))
        span = (tag_since, tag_until if tag_until >= 0 else 32767) if tag >= 0 else (1, 0)
        versions, nullable = (since, until), (null_since, null_until)
        vendor, _, former = vendor.partition(" ")
        vendor = vendor or camel(name)
        made.append(Field(name, kind, versions, nullable, default, vendor, ignorable, key, inflexible, secret, tag, span, former))
    return tuple(made)


def camel(name: str) -> str:
    """Return the vendor's spelling by rule: `topicId` for `topic_id`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def messages(protocol: str) -> dict[str, type[Message]]:
    """Return every message class of a protocol by name, structs within messages included. Raises UnknownMessage."""
    module = _module(protocol)
    return {name: getattr(module, name) for name in module.__all__}


def _module(protocol: str) -> ModuleType:
    found = known(protocol)
    if found is None or found.messages is None:
        raise UnknownMessage(f"no schema of messages for {protocol!r}; there is one for {', '.join(protocols())}")
    return importlib.import_module(found.messages)


def protocols() -> tuple[str, ...]:
    """Return the protocols whose messages come from the schema (Pulsar's commands use the protobuf runtime)."""
    return tuple(found.name for found in every() if found.messages is not None)


def message_class(protocol: str, name: str) -> type[Message]:
    """Return a message's class.

    Raises:
        UnknownMessage: there is none of that name; the text has the nearest names.
    """
    module = _module(protocol)
    if name in module.__all__:
        return cast("type[Message]", getattr(module, name))
    import difflib

    near = difflib.get_close_matches(name, module.__all__, 3)
    raise UnknownMessage(f"no {protocol} message {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""), message=name)


def to_json(message: Message, version: int = 0) -> dict[str, Any]:
    """Convert a message to plain JSON values under the vendor's field names, for one version.

    Whole numbers of any size are numbers; bytes, blobs and records are base64; a Kafka uuid is its 22 characters; NaN and infinities are
    their names as text. A field that the version does not have is left out, and so is a tagged one with its default. Tags that the schema
    does not know are under ``unknownTags``.
    """
    shown: dict[str, Any] = {}
    empty = None
    for field in _fields(type(message)):
        if not _within(version, field.versions):
            continue
        value = getattr(message, field.name)
        if _within(version, field.tag_versions):
            empty = empty or type(message)()
            if value == getattr(empty, field.name):
                continue
        shown[field.vendor] = _json_value(field.type, value, version)
    if tags := getattr(message, "unknown_tags", ()):
        shown["unknownTags"] = [{"tag": tag, "data": base64.b64encode(data).decode()} for tag, data in tags]
    return shown


def from_json(cls: type[M], obj: Any, version: int = 0) -> M:
    """Make a message from what `to_json` returns. Absent fields have their default.

    Args:
        cls: the message's class. obj: the JSON values. version: its version.

    Raises:
        Malformed: a name that this version does not have, or a value of the wrong kind; `path` says where.
    """
    try:
        return _read_struct(cls, obj, version, "")
    except Malformed as error:
        error.message = cls.__name__  # the message's class, not that of the struct in which the error is: the path begins there
        raise


def _within(version: int, span: tuple[int, int]) -> bool:
    return span[0] <= version <= span[1]


_known: dict[type, tuple[Field, ...]] = {}


def _fields(cls: type[Message]) -> tuple[Field, ...]:
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = fields_of(cls)
    return found


def _json_value(kind: str, value: Any, version: int) -> Any:
    if value is None:
        return None
    if kind.startswith("["):
        return [_json_value(kind[1:-1], item, version) for item in value]
    if kind in _BYTES:
        return base64.b64encode(value).decode()
    if kind == "uuid":
        return base64.urlsafe_b64encode(getattr(value, "bytes", value)).decode().rstrip("=")
    if kind == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if kind in _INTEGERS:
        return int(value)
    if kind in ("bool", "float64", "string"):
        return value
    return to_json(value, version)


def _read_struct(cls: type[M], obj: Any, version: int, path: str) -> M:
    if not isinstance(obj, dict):
        raise _wrong(cls, version, path, "an object", obj)
    there = [field for field in _fields(cls) if _within(version, field.versions)]
    by_name = {field.former: field for field in there if field.former} | {field.vendor: field for field in there}
    values: dict[str, Any] = {}
    for name, value in obj.items():
        where = f"{path}.{name}" if path else name
        if name == "unknownTags" and hasattr(cls, "unknown_tags"):
            values["unknown_tags"] = _read_tags(cls, value, version, where)
        elif name not in by_name:
            raise Malformed(f"no field {name!r} in this version", message=cls.__name__, version=version, path=path or None)
        else:
            field = by_name[name]
            values[field.name] = _read_value(cls, field.type, value, version, where, _within(version, field.nullable))
    return cls(**values)


def _read_tags(cls: type[Message], value: Any, version: int, path: str) -> tuple[tuple[int, bytes], ...]:
    try:
        return tuple((int(item["tag"]), base64.b64decode(item["data"], validate=True)) for item in value)
    except (TypeError, KeyError, ValueError):
        raise _wrong(cls, version, path, "a list of {tag, data}", value) from None


def _read_value(cls: type[Message], kind: str, value: Any, version: int, path: str, nullable: bool) -> Any:
    if value is None:
        if not nullable and not _jute_null(cls, kind):
            raise _wrong(cls, version, path, kind, value)
        return None
    if kind.startswith("["):
        if not isinstance(value, list):
            raise _wrong(cls, version, path, "a list", value)
        return tuple(_read_value(cls, kind[1:-1], item, version, f"{path}[{i}]", False) for i, item in enumerate(value))
    if kind in _BYTES or kind == "uuid":
        return _read_base64(cls, kind, value, version, path)
    if kind == "float64":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        raise _wrong(cls, version, path, "a number", value)
    if kind in _INTEGERS or kind in ("bool", "string"):
        wanted = {"bool": bool, "string": str}.get(kind, int)
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise _wrong(cls, version, path, kind, value)
        return value
    child = getattr(importlib.import_module(cls.__module__), kind)
    return _read_struct(child, value, version, path)


def _jute_null(cls: type[Message], kind: str) -> bool:
    """Whether a value may be null because of ZooKeeper's dialect, where any received text, buffer or vector may be null."""
    return cls.__module__.endswith(".zookeeper.messages") and (kind in ("string", "bytes") or kind.startswith("["))


def _read_base64(cls: type[Message], kind: str, value: Any, version: int, path: str) -> bytes:
    try:
        if kind == "uuid":
            data = base64.b64decode(value + "==", altchars=b"-_", validate=True)
            if len(data) != 16:
                raise ValueError
            return data
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _wrong(cls, version, path, "a uuid of 22 characters" if kind == "uuid" else "base64", value) from None


def _wrong(cls: type[Message], version: int, path: str, wanted: str, value: Any) -> Malformed:
    got = "null" if value is None else type(value).__name__
    return Malformed(f"{wanted} expected, got {got}", message=cls.__name__, version=version, path=path or None)
