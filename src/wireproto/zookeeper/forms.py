"""Converts ZooKeeper's records to and from JSON for `wireproto.wire`, and the bodies of a multi and of its reply, which are lists.

    request   ( MultiHeader type=op done=0 err=-1, the op's record )*            MultiHeader type=-1 done=1 err=-1
    reply     ( MultiHeader type=op done=0 err=0,  the op's result )*            MultiHeader type=-1 done=1 err=-1

A failed operation's result has type -1 and is an ErrorResponse; delete and check have none. As JSON::

    {"operations": [{"header": {"type": 2, "done": false, "err": -1}, "record": {"path": "/a", "version": -1}}],
     "end": {"type": -1, "done": true, "err": -1}}

with ``results`` in the place of ``operations`` for a reply. When encoding, ``done``, ``err`` and ``end`` may be left out.

What is written here is what jute's own encoder writes, to the byte: null for any text, buffer or vector, and a character above U+FFFF as
its two surrogates of three bytes each. Clients send neither (`wireproto.zookeeper.messages` refuses the nulls that servers refuse, and
writes UTF-8, which Java reads where it does not read the surrogates). A message with such a character in UTF-8 has ``"encoding": "utf-8"``
beside its fields, and is written that way again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from wireproto._codec import Message
from wireproto.errors import Malformed, ProtocolError, ValueUnsupported
from wireproto.explain import walk
from wireproto.forms import Form, SchemaForm
from wireproto.lines import Bytes, Line
from wireproto.message import fields_of, from_json, messages, to_json

from . import messages as m
from .lists import REQUESTS, RESULTS

_END: Final = {"type": -1, "done": True, "err": -1}
_FOUR: Final = b"\xf0\xf1\xf2\xf3\xf4"
"""First bytes of four-byte characters."""
_NULL: Final = b"\xff\xff\xff\xff"
_NUMBERS: Final = {"bool": struct.Struct(">?"), "int8": struct.Struct(">b"), "int32": struct.Struct(">i"), "int64": struct.Struct(">q")}


def forms() -> dict[str, Form]:
    """Return the form of every jute record, of MultiRequest and of MultiResponse, by name."""
    return {
        **{name: Jute(cls) for name, cls in messages("zookeeper").items()},
        "MultiRequest": Multi("MultiRequest", "operations", REQUESTS, -1),
        "MultiResponse": Multi("MultiResponse", "results", RESULTS, 0),
    }


class Jute(SchemaForm):
    """The form of one record."""

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Decode a record to JSON fields. Raises ProtocolError."""
        return _marked(self, super().decode(version, data), data)

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode a record from JSON fields. Raises Malformed, ValueUnsupported."""
        fields, utf8 = _unmarked(fields, self.cls.__name__)
        return jute(from_json(self.cls, fields), utf8)


def _marked(form: Form, shown: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Add ``"encoding": "utf-8"`` to the fields, where that makes a difference."""
    if any(byte in data for byte in _FOUR) and form.encode(0, {**shown, "encoding": "utf-8"}) == data != form.encode(0, shown):
        shown["encoding"] = "utf-8"
    return shown


def _unmarked(fields: Mapping[str, Any], message: str) -> tuple[dict[str, Any], bool]:
    rest = dict(fields)
    encoding = rest.pop("encoding", None)
    if encoding not in (None, "utf-8"):
        raise Malformed(f"no encoding {encoding!a}", message=message, version=0, path="encoding")
    return rest, encoding is not None


def jute(record: Message, utf8: bool = False) -> bytes:
    """Return the bytes that jute's BinaryOutputArchive makes of a record.

    Args:
        utf8: whether characters above U+FFFF are written as four bytes, not as two surrogates.

    Raises:
        ValueUnsupported: a number that does not fit.
    """
    return b"".join(_parts(record, type(record).__name__, _utf8 if utf8 else surrogates))


def _parts(record: Message, path: str, text: Callable[[str], bytes]) -> Iterator[bytes]:
    for field in fields_of(type(record)):
        yield from _value(field.type, getattr(record, field.name), f"{path}.{field.vendor}", text)


def _value(kind: str, value: Any, path: str, text: Callable[[str], bytes]) -> Iterator[bytes]:
    if kind in _NUMBERS:
        try:
            yield _NUMBERS[kind].pack(value)
        except struct.error:
            raise ValueUnsupported(f"{value!r} is no {kind}", message=path.partition(".")[0], path=path.partition(".")[2]) from None
    elif value is None:
        yield _NULL
    elif kind == "string":
        yield from _sized(text(value))
    elif kind == "bytes":
        yield from _sized(bytes(value))
    elif kind.startswith("["):
        yield _NUMBERS["int32"].pack(len(value))
        for index, item in enumerate(value):
            yield from _value(kind[1:-1], item, f"{path}[{index}]", text)
    else:
        yield from _parts(value, path, text)


def _sized(data: bytes) -> Iterator[bytes]:
    yield _NUMBERS["int32"].pack(len(data))
    yield data


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def surrogates(text: str) -> bytes:
    """Encode text as Java's UTF-16 units, each written as UTF-8 would write it."""
    if text.isascii() or max(text) < "\U00010000":
        return text.encode("utf-8", "surrogatepass")
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass")


class Multi:
    """The form of a list with a header before each item and one at its end.

    Args:
        name: of the message.
        items: the JSON name of the list.
        records: operation code to the class that follows its header, None for nothing.
        err: the header's err where JSON leaves it out.
    """

    versions = (0, 0)

    def __init__(self, name: str, items: str, records: Mapping[int, type[Message] | None], err: int) -> None:
        self.name, self.items, self.records, self.err = name, items, records, err

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Decode the list to JSON fields. Raises Truncated, Malformed."""
        found: list[dict[str, Any]] = []
        at = 0
        while True:
            header, at = self._part(m.MultiHeader, data, at, f"{self.items}[{len(found)}].header")
            if header.done:
                break
            item: dict[str, Any] = {"header": to_json(header)}
            record = self._record(header.type, at)
            if record is not None:
                value, at = self._part(record, data, at, f"{self.items}[{len(found)}].record")
                item["record"] = to_json(value)
            found.append(item)
        if at != len(data):
            raise Malformed(f"{len(data) - at} bytes left over", message=self.name, version=0, offset=at)
        return _marked(self, {self.items: found, "end": to_json(header)}, data)

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode the list from JSON fields. Raises Malformed, ValueUnsupported."""
        fields, utf8 = _unmarked(fields, self.name)
        strange = sorted(set(fields) - {self.items, "end"})
        if strange:
            raise Malformed(f"no field {strange[0]!r}", message=self.name, version=0, path=strange[0])
        listed = fields.get(self.items, [])
        end = fields.get("end", {})
        if isinstance(end, dict):
            end = {**_END, **end}
            if end["done"] is not True:
                raise Malformed("the end is done", message=self.name, version=0, path="end.done")
        if not isinstance(listed, list):
            raise Malformed("a list expected", message=self.name, version=0, path=self.items)
        parts = []
        for index, item in enumerate(listed):
            where = f"{self.items}[{index}]"
            if not isinstance(item, dict) or not isinstance(item.get("header"), dict) or set(item) - {"header", "record"}:
                raise Malformed("an object of header and record expected", message=self.name, version=0, path=where)
            header = from_json(m.MultiHeader, {"done": False, "err": self.err, **item["header"]})
            record = self._record(header.type, None)
            parts.append(header.encode())
            if record is not None:
                parts.append(jute(from_json(record, item.get("record", {})), utf8))
            elif item.get("record"):
                raise Malformed("this result has no record", message=self.name, version=0, path=where)
        parts.append(from_json(m.MultiHeader, end).encode())
        return b"".join(parts)

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return a line for each field, with its bytes. Raises Truncated, Malformed."""
        source = Bytes(data, self.name, 0)
        for index in count():
            header = walk(m.MultiHeader, 0, source, f"{self.items}[{index}].header")
            if header["done"]:
                break
            record = self._record(header["type"], source.at)
            if record is not None:
                walk(record, 0, source, f"{self.items}[{index}].record")
        if source.at != source.stop:
            raise source.error(Malformed, f"{source.stop - source.at} bytes left over")
        return source.lines

    def _record(self, code: int, at: int | None) -> type[Message] | None:
        if code not in self.records:
            raise Malformed(f"operation {code} is not allowed in a multi", message=self.name, version=0, offset=at)
        return self.records[code]

    def _part(self, cls: type[Message], data: bytes, at: int, path: str) -> tuple[Any, int]:
        try:
            return cls.decode_from(data, start=at)
        except ProtocolError as error:
            error.message, error.path = self.name, f"{path}.{error.path}" if error.path else path
            raise
