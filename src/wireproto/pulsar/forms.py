"""Lists Pulsar's messages for `wireproto.wire`: every message of the .proto by name, and the whole frame.

    frame      u32 size of all that follows · u32 command size · BaseCommand · stored entry (SEND and MESSAGE)
    entry      [0e 02 · u32 size · BrokerEntryMetadata] · [0e 01 · u32 CRC-32C of the rest] · u32 size · MessageMetadata · payload
    batch      { u32 size · SingleMessageMetadata · payload_size bytes }*            the payload, packed as the metadata says

As JSON a message has the fields that are set, under the .proto's names: enums as names, bytes as base64; what the schema does not know is
in ``unknown_fields``. Fields are written in the order of the .proto, as Pulsar's Java classes do; CONNECT of a client in C++ or Python has
them by number, which shows as ``"field_order": "number"`` and is kept. A uint32 that Java wrote as a negative number (in ten bytes) is
shown as one.

A frame is ``{"command", "broker_entry_metadata", "checksum", "metadata", "payload", "messages"}``: ``payload`` is what is on the wire;
``messages`` shows a batch readably (``messages_error`` why that failed) and is used for encoding when there is no payload. The checksum is
verified, and computed again when encoding; without the field there is none.

Messages are whole; the module does no I/O.
"""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from wireproto._codec import crc32c
from wireproto.compression import compress, decompress
from wireproto.errors import ChecksumMismatch, Malformed, ProtocolError, Truncated, ValueUnsupported
from wireproto.forms import Form, bytes_of, whole_frame
from wireproto.lines import Bytes, Line, base64_of

from . import PulsarApi_pb2 as api

CODECS: Final = {0: "none", 1: "lz4-block", 2: "zlib", 3: "zstd", 4: "snappy-raw"}
UNPACKED: Final = 256 << 20
"""Bytes that a packed batch may have."""

_PAYLOADS = {api.BaseCommand.SEND, api.BaseCommand.MESSAGE}


def forms() -> dict[str, Form]:
    """List every message of the .proto, and Frame, by name."""
    found: dict[str, Form] = {"Frame": Frame()}
    for name in api.DESCRIPTOR.message_types_by_name:
        found[name] = Proto(getattr(api, name))
    return found


class Proto:
    """One message of the .proto, as a `wireproto.forms.Form`."""

    versions = (0, 0)

    def __init__(self, cls: type[Message]) -> None:
        self.cls = cls

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Return the fields of a message; see `read`. `version` is not used."""
        return read(self.cls, data, self.cls.DESCRIPTOR.name)

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Return a message's bytes; see `to_bytes`. `version` is not used."""
        return to_bytes(self.cls, fields, self.cls.DESCRIPTOR.name)

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return a line for each field, in the order of the bytes; see `walk`. `version` is not used."""
        source = Bytes(data, self.cls.DESCRIPTOR.name)
        walk(self.cls.DESCRIPTOR, source, "")
        return source.lines


class Frame:
    """A whole frame, its length included, as a `wireproto.forms.Form`."""

    versions = (0, 0)

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Return the parts of a frame; see the module. `version` is not used.

        Raises:
            Truncated, Malformed: the bytes are no frame. ChecksumMismatch: the entry's CRC-32C is wrong.
        """
        whole_frame(data, "Frame")
        source = Bytes(data, "Frame", at=4)
        raw = source.take(source.number(4, signed=False), "command")
        command = parse(api.BaseCommand, raw, "Frame", "command")
        shown: dict[str, Any] = {"command": read(api.BaseCommand, raw, "Frame", "command", command)}
        if command.type not in _PAYLOADS:
            if source.at < source.stop:
                shown["payload"] = base64_of(data[source.at :])
            return shown
        if source.at == source.stop:
            return shown
        if data[source.at : source.at + 2] == b"\x0e\x02":
            source.take(2)
            raw = source.take(source.number(4, signed=False), "broker_entry_metadata")
            shown["broker_entry_metadata"] = read(api.BrokerEntryMetadata, raw, "Frame", "broker_entry_metadata")
        if data[source.at : source.at + 2] == b"\x0e\x01":
            source.take(2)
            shown["checksum"] = source.number(4, signed=False)
            if (found := crc32c(data[source.at :])) != shown["checksum"]:
                raise ChecksumMismatch(
                    f"CRC-32C {shown['checksum']:#x} announced, {found:#x} found", message="Frame", path="checksum", offset=source.at - 4
                )
        raw = source.take(source.number(4, signed=False), "metadata")
        metadata = parse(api.MessageMetadata, raw, "Frame", "metadata")
        shown["metadata"] = read(api.MessageMetadata, raw, "Frame", "metadata", metadata)
        payload = data[source.at :]
        shown["payload"] = base64_of(payload)
        if metadata.HasField("num_messages_in_batch") and not metadata.encryption_keys:
            try:
                shown["messages"] = list(split(metadata, payload))
            except ProtocolError as error:
                shown["messages_error"] = str(error)
        return shown

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Return the bytes of a frame; see the module. `version` is not used.

        Raises:
            Malformed: a field is unknown or of the wrong type. ValueUnsupported: a required field is missing.
        """
        known = {"command", "broker_entry_metadata", "checksum", "metadata", "payload", "messages", "messages_error"}
        if strange := sorted(set(fields) - known):
            raise Malformed(f"no field {strange[0]!r}", message="Frame", path=strange[0])
        command = to_bytes(api.BaseCommand, fields.get("command", {}), "Frame", "command")
        entry = bytes_of(fields["payload"], "payload", "Frame") if fields.get("payload") is not None else b""
        if fields.get("metadata") is not None:
            metadata = to_bytes(api.MessageMetadata, fields["metadata"], "Frame", "metadata")
            if fields.get("payload") is None and fields.get("messages") is not None:
                entry = join(api.MessageMetadata.FromString(metadata), fields["messages"])
            entry = _sized(metadata) + entry
            if fields.get("checksum") is not None:
                entry = b"\x0e\x01" + crc32c(entry).to_bytes(4, "big") + entry
            if fields.get("broker_entry_metadata") is not None:
                raw = to_bytes(api.BrokerEntryMetadata, fields["broker_entry_metadata"], "Frame", "broker_entry_metadata")
                entry = b"\x0e\x02" + _sized(raw) + entry
        return _sized(_sized(command) + entry)

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return a line for each part and field, in the order of the bytes. `version` is not used.

        Raises:
            Truncated, Malformed: the bytes are no frame.
        """
        source = Bytes(data, "Frame")
        size = source.note(0, "length", source.number(4))
        if size < 0:
            raise source.error(Malformed, f"length {size}", "length")
        command = self._part(source, api.BaseCommand.DESCRIPTOR, "command")
        start = source.at
        if command.get("type") in ("SEND", "MESSAGE") and start < source.stop:
            if data[start : start + 2] == b"\x0e\x02":
                source.note(start, "magic", source.take(2).hex())
                self._part(source, api.BrokerEntryMetadata.DESCRIPTOR, "broker_entry_metadata")
                start = source.at
            if data[start : start + 2] == b"\x0e\x01":
                source.note(start, "magic", source.take(2).hex())
                source.note(start + 2, "checksum", f"{source.number(4, signed=False):#010x}")
            self._part(source, api.MessageMetadata.DESCRIPTOR, "metadata")
        start = source.at
        if start < source.stop:
            source.note(start, "payload", base64_of(source.take(source.stop - start)))
        if source.at != size + 4:
            raise source.error(Truncated if source.at < size + 4 else Malformed, f"a frame of {size} bytes has {source.at - 4}")
        return source.lines

    @staticmethod
    def _part(source: Bytes, descriptor: Any, path: str) -> dict[str, Any]:
        start, whole = source.at, source.stop
        size = source.note(start, f"{path}.size", source.number(4, path, signed=False))
        if size > whole - source.at:
            source.take(size, path)
        source.stop = source.at + size
        found = walk(descriptor, source, path)
        source.stop = whole
        return found


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


# ---- batches ----------------------------------------------------------------------------------------------------------------------


def split(metadata: api.MessageMetadata, payload: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of a batch; raises ProtocolError.

    Args:
        metadata: of the entry. payload: of the entry, packed as the metadata says.
    """
    if metadata.compression:
        payload = decompress(CODECS[metadata.compression], payload, UNPACKED, size=metadata.uncompressed_size)
    source = Bytes(payload, "Frame")
    for index in range(metadata.num_messages_in_batch):
        where = f"messages[{index}]"
        raw = source.take(source.number(4, where, signed=False), where)
        single = parse(api.SingleMessageMetadata, raw, "Frame", where)
        yield {
            "metadata": read(api.SingleMessageMetadata, raw, "Frame", where, single),
            "payload": base64_of(source.take(single.payload_size, where)),
        }
    if source.at != source.stop:
        raise source.error(Malformed, f"{source.stop - source.at} bytes left over", "messages")


def join(metadata: api.MessageMetadata, messages: Any) -> bytes:
    """Return the payload of a batch: the inverse of `split`. ``payload_size`` may be left out of each message's metadata."""
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise Malformed("a list of objects expected", message="Frame", path="messages")
    parts: list[bytes] = []
    for index, item in enumerate(messages):
        where = f"messages[{index}]"
        data = bytes_of(item.get("payload", ""), f"{where}.payload", "Frame")
        single = {"payload_size": len(data), **item.get("metadata", {})}
        parts += (_sized(to_bytes(api.SingleMessageMetadata, single, "Frame", where)), data)
    return compress(CODECS[metadata.compression], b"".join(parts)) if metadata.compression else b"".join(parts)


# ---- protobuf by its runtime ------------------------------------------------------------------------------------------------------


def parse(cls: Any, data: bytes, message: str, path: str | None = None) -> Any:
    """Parse a message of this class.

    Args:
        cls: its class. data: its bytes. message, path: named in errors.

    Raises:
        Truncated: the bytes end within a field, or before a required one of the message itself.
        Malformed: they are no protobuf of this message.
    """
    found = cls()
    try:
        found.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        walk(cls.DESCRIPTOR, Bytes(data, message), path or "")  # raises with the offset, or Truncated
        raise Malformed(f"no protobuf of {cls.DESCRIPTOR.name}", message=message, path=path) from None
    missing = _missing(found) or _bodiless(found)
    if missing:
        kind = Truncated if path is None and any("." not in name for name in missing) else Malformed
        raise kind(f"required fields are missing: {', '.join(missing)}", message=message, path=path, offset=len(data))
    return found


def read(cls: Any, data: bytes, message: str, path: str | None = None, found: Any = None) -> dict[str, Any]:
    """Return a message as `to_dict` does, with the order of its fields if it is another than the .proto's.

    Args:
        cls: its class. data: its bytes. message, path: named in errors. found: the message, where it was parsed before.
    """
    shown = to_dict(parse(cls, data, message, path) if found is None else found)
    if _serialize(cls, shown, message, "") != data:
        _sign(cls.DESCRIPTOR, Bytes(data, message), shown)
        if _serialize(cls, shown, message, "") != data and _serialize(cls, shown, message, "", by_number=True) == data:
            shown["field_order"] = "number"
    return shown


def _sign(descriptor: Any, source: Bytes, shown: dict[str, Any]) -> None:
    """Show a uint32 that was written as a negative number as one: Java's classes keep an int, and write -1 in ten bytes."""
    seen: dict[str, int] = {}
    while source.at < source.stop:
        key = source.varint()
        field = descriptor.fields_by_number.get(key >> 3)
        if key & 7 == 0:
            value = source.varint(bits=64)
            if field is not None and field.type == FieldDescriptor.TYPE_UINT32 and value >> 32 == 0xFFFFFFFF:
                shown[field.name] = value - (1 << 64)
            continue
        size = source.varint() if key & 7 == 2 else 8 if key & 7 == 1 else 4
        inner = shown.get(field.name) if field is not None and field.message_type is not None and key & 7 == 2 else None
        if isinstance(inner, list):
            index = seen[field.name] = seen.get(field.name, -1) + 1
            inner = inner[index] if index < len(inner) else None
        if not isinstance(inner, dict):
            source.take(size)
            continue
        whole, source.stop = source.stop, source.at + size
        _sign(field.message_type, source, inner)
        source.stop = whole


def to_dict(found: Message) -> dict[str, Any]:
    """Return the fields that are set, by number; unknown ones behind them."""
    shown: dict[str, Any] = {}
    try:
        for field, value in found.ListFields():
            shown[field.name] = [_plain(field, item) for item in value] if _repeated(field) else _plain(field, value)
    except UnicodeDecodeError as why:
        raise Malformed(f"text is not UTF-8: {why.reason}", message=found.DESCRIPTOR.name) from None
    unknown = [
        {"number": item.field_number, "wire_type": item.wire_type, "value": _unknown(item.wire_type, item.data, found)}
        for item in cast("Any", UnknownFieldSet)(found)
    ]
    if unknown:
        shown["unknown_fields"] = unknown
    return shown


def _unknown(wire_type: int, data: Any, found: Message) -> Any:
    if wire_type in (3, 4):
        raise Malformed("a group, which Pulsar has none of", message=found.DESCRIPTOR.name)
    return base64_of(data) if wire_type == 2 else data


def _repeated(field: Any) -> bool:
    """Return whether a field is repeated, under either name that the protobuf runtime has for it."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == 3) if found is None else bool(found)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64_of(value)
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
        raise Malformed("text is not UTF-8", message=None, path=field.name)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def to_bytes(cls: Any, fields: Any, message: str, path: str = "") -> bytes:
    """Encode fields as `read` returns them: in the order of the .proto, unknown ones where their number is.

    Args:
        cls: class of the message. fields: by name. message, path: named in errors.

    Raises:
        Malformed: a field is unknown or of the wrong type. ValueUnsupported: a required field is missing.
    """
    by_number = False
    if isinstance(fields, dict) and "field_order" in fields:
        by_number = fields["field_order"] == "number"
        if not by_number:
            raise Malformed(f"no order {fields['field_order']!a}", message=message, path="field_order")
        fields = {name: value for name, value in fields.items() if name != "field_order"}
    data = _serialize(cls, fields, message, path, by_number)
    found = cls()
    found.MergeFromString(data)
    missing = _missing(found)
    if missing:
        raise ValueUnsupported(f"required fields are missing: {', '.join(missing)}", message=message, path=path or None)
    return data


def _missing(found: Any) -> list[str]:
    """Return the paths of required fields that are not there, except those that hold a number of an enum that is newer than the schema."""
    return [path for path in found.FindInitializationErrors() if not _newer(found, path.split("."))]


def _bodiless(found: Any) -> list[str]:
    """Return the field that a BaseCommand's type announces, where it is not there."""
    if found.DESCRIPTOR is not api.BaseCommand.DESCRIPTOR or not found.HasField("type"):
        return []
    name = found.DESCRIPTOR.fields_by_number[found.type].name
    return [] if found.HasField(name) else [name]


def _newer(found: Any, path: list[str]) -> bool:
    head, *rest = path
    name, _, index = head.removesuffix("]").partition("[")
    if rest:
        inner = getattr(found, name)
        return _newer(inner[int(index)] if index else inner, rest)
    number = found.DESCRIPTOR.fields_by_name[name].number
    return any(item.field_number == number for item in cast("Any", UnknownFieldSet)(found))


@cache
def _places(cls: Any) -> tuple[tuple[int, int], ...]:
    """Return the numbers of the fields, each with its place in the .proto, where that is another order; by number."""
    fields = cls.DESCRIPTOR.fields
    numbers = [field.number for field in fields]
    return () if numbers == sorted(numbers) else tuple(sorted((field.number, field.index) for field in fields))


def _place(cls: Any, number: int) -> float:
    """Return a sort key: the place of a known field; an unknown one comes behind the next lower number."""
    places = _places(cls)
    if not places:
        return number
    below = bisect.bisect_right(places, (number, 1 << 30)) - 1
    if below < 0:
        return -1
    return places[below][1] + (0 if places[below][0] == number else 0.5)


def _serialize(cls: Any, fields: Any, message: str, path: str, by_number: bool = False) -> bytes:
    if not isinstance(fields, dict):
        raise Malformed("an object expected", message=message, path=path or None)
    parts: list[tuple[int, bytes]] = []
    for name, value in fields.items():
        where = f"{path}.{name}" if path else name
        if name == "unknown_fields":
            if not isinstance(value, list):
                raise Malformed("a list expected", message=message, path=where)
            parts += [_unknown_bytes(item, message, where) for item in value]
            continue
        field = cls.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise Malformed(f"no field {name!r}", message=message, path=where)
        repeated = _repeated(field)
        if value is None or (repeated and not isinstance(value, list)):
            raise Malformed("a list expected" if repeated else "a value expected, got null", message=message, path=where)
        for item in value if repeated else [value]:
            parts.append((field.number, _field_bytes(cls, field, item, message, where, by_number)))
    parts.sort(key=lambda part: part[0] if by_number else _place(cls, part[0]))
    return b"".join(data for _, data in parts)


def _field_bytes(cls: Any, field: Any, value: Any, message: str, path: str, by_number: bool) -> bytes:
    if field.message_type is not None:
        inner = _serialize(field.message_type._concrete_class, value, message, path, by_number)
        return _varint(field.number << 3 | 2) + _varint(len(inner)) + inner
    if field.type == FieldDescriptor.TYPE_BYTES:
        value = bytes_of(value, path, message)
    elif field.type == FieldDescriptor.TYPE_DOUBLE and isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    elif field.enum_type is not None:
        known = {item.name: item.number for item in field.enum_type.values}
        if not isinstance(value, str) or value not in known:
            raise Malformed(f"no {field.enum_type.name} {value!a}", message=message, path=path)
        value = known[value]
    elif isinstance(value, bool) != (field.type == FieldDescriptor.TYPE_BOOL):
        wanted = "a boolean" if field.type == FieldDescriptor.TYPE_BOOL else "a number or text"
        raise Malformed(f"{wanted} expected", message=message, path=path)
    elif field.type == FieldDescriptor.TYPE_UINT32 and isinstance(value, int) and -(1 << 31) <= value < 0:
        return _varint(field.number << 3) + _varint(value + (1 << 64))
    single = cls()
    try:
        if _repeated(field):
            getattr(single, field.name).append(value)
        else:
            setattr(single, field.name, value)
        data: bytes = single.SerializePartialToString()
    except (TypeError, ValueError, OverflowError) as why:
        raise Malformed(str(why), message=message, path=path) from None
    return data


def _unknown_bytes(item: Any, message: str, path: str) -> tuple[int, bytes]:
    try:
        number, wire_type, value = item["number"], item["wire_type"], item["value"]
        head = _varint(number << 3 | wire_type)
        if wire_type == 0:
            return number, head + _varint(value)
        if wire_type in (1, 5):
            return number, head + value.to_bytes(8 if wire_type == 1 else 4, "little")
    except (TypeError, KeyError, AttributeError, OverflowError, ValueError):
        raise Malformed("an object of number, wire_type and value expected", message=message, path=path) from None
    data = bytes_of(value, path, message)
    return number, head + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(value)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- protobuf byte by byte --------------------------------------------------------------------------------------------------------


def walk(descriptor: Any, source: Bytes, path: str) -> dict[str, Any]:
    """Note all fields up to the source's end, a line each.

    Args:
        descriptor: of the message. source: its bytes. path: of the message in its frame.

    Returns:
        the last value of each field that is no message, by name.

    Raises:
        Truncated: a field is cut off.
        Malformed: a field number of 0, a group, or an unknown wire type.
    """
    seen: dict[str, Any] = {}
    while source.at < source.stop:
        start = source.at
        key = source.varint(path)
        number, wire_type = key >> 3, key & 7
        field = descriptor.fields_by_number.get(number)
        where = f"{path}.{field.name if field else number}" if path else field.name if field else str(number)
        if number == 0 or wire_type not in (0, 1, 2, 5):
            raise source.error(Malformed, f"field {number} of wire type {wire_type}", path)
        if wire_type == 2:
            size = source.varint(where)
            if field is not None and field.message_type is not None:
                if size > source.stop - source.at:
                    source.take(size, where)
                source.note(start, where, f"{size} bytes")
                whole, source.stop = source.stop, source.at + size
                walk(field.message_type, source, where)
                source.stop = whole
                continue
            raw = source.take(size, where)
            value: Any = base64_of(raw)
            if field is not None and field.type == FieldDescriptor.TYPE_STRING:
                value = raw.decode(errors="backslashreplace")
        else:
            value = source.varint(where, 64) if wire_type == 0 else source.take(8 if wire_type == 1 else 4, where)
            value = _number(field, value)
        seen[where.rpartition(".")[2]] = source.note(start, where, value)
    return seen


def _number(field: FieldDescriptor | None, value: Any) -> Any:
    if isinstance(value, bytes):
        return struct.unpack("<d", value)[0] if len(value) == 8 and field is not None else int.from_bytes(value, "little")
    if field is None:
        return value
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.type == FieldDescriptor.TYPE_BOOL:
        return value != 0
    if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32) and value >= 1 << 63:
        return value - (1 << 64)
    return value
