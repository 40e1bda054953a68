"""Converts records to lines of text and back: JSON lines, plain lines, templates.

These are the forms that ``produce`` reads and ``consume`` writes, with the same fields both ways::

    {"key": "UA1545", "value": "…", "headers": [["day", "1"]], "timestamp": 1357034400000, "partition": 2, "position": "17"}

Bytes are text where they are UTF-8, else ``{"base64": "…"}``; null and empty stay apart. ``headers`` is a list of pairs (an object is
accepted when reading); ``position`` is ignored when reading. A template names fields in braces: ``{key}\\t{value}``. The module knows no
protocol and does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

from wireproto.errors import OptionError
from wireproto.records import Record

FIELDS = ("key", "value", "headers", "timestamp", "partition", "position")


@dataclass(frozen=True, slots=True)
class Row:
    """A record as `produce` sends it; the fields are the arguments of `Producer.send`."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


def write_bytes(data: bytes | None) -> Any:
    """Return bytes as JSON: text, ``{"base64": …}`` or null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def read_bytes(value: Any, where: str) -> bytes | None:
    """Read what `write_bytes` wrote. Raises OptionError, which names the field by `where`."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as why:
            raise OptionError(f"{where} holds a lone surrogate, which is no text; use base64") from why
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as why:
            raise OptionError(f"{where} is not base64: {why}") from why
    raise OptionError(f'{where} must be text, null or {{"base64": "…"}}, not {json.dumps(value)[:40]}')


def to_json(record: Record) -> str:
    """Format a record as one JSON line."""
    return json.dumps(
        {
            "key": write_bytes(record.key),
            "value": write_bytes(record.value),
            "headers": [[name, write_bytes(value)] for name, value in record.headers],
            "timestamp": record.timestamp,
            "partition": record.partition,
            "position": record.position.text(),
        },
        ensure_ascii=False,
    )


def from_json(text: str, line: int) -> Row:
    """Read one JSON line as a row. Raises OptionError, which names line and field."""
    where = f"line {line}"
    try:
        fields = json.loads(text)
    except ValueError as why:
        raise OptionError(f"{where} is not JSON: {why}") from why
    if not isinstance(fields, dict):
        raise OptionError(f"{where} is not a JSON object")
    strange = sorted(set(fields) - set(FIELDS))
    if strange:
        raise OptionError(f"{where} has unknown fields: {', '.join(strange)}; there are {', '.join(FIELDS)}")
    return Row(
        value=read_bytes(fields.get("value"), f"{where}, value"),
        key=read_bytes(fields.get("key"), f"{where}, key"),
        headers=_headers(fields.get("headers"), where),
        timestamp=_number(fields.get("timestamp"), f"{where}, timestamp"),
        partition=_number(fields.get("partition"), f"{where}, partition"),
    )


def _headers(value: Any, where: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(isinstance(p, (list, tuple)) and len(p) == 2 and isinstance(p[0], str) for p in pairs):
        raise OptionError(f"{where}, headers must be a list of [name, value] pairs or an object")
    return tuple((name, read_bytes(inner, f"{where}, header {name}")) for name, inner in pairs)


def _number(value: Any, where: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise OptionError(f"{where} must be a whole number")
    return value


class Template:
    """Text with fields in braces, both ways: ``{key}\\t{value}``; ``\\t``, ``\\n``, ``\\0`` and ``{{`` are understood.

    Args:
        text: the template, as typed on the command line.

    Raises:
        OptionError: an unknown field, or for reading two fields with nothing between them.
    """

    def __init__(self, text: str) -> None:
        for short, char in (("\\t", "\t"), ("\\n", "\n"), ("\\0", "\0")):
            text = text.replace(short, char)
        self.parts: list[str] = re.split(r"\{(\w+)\}", text.replace("{{", "\x01").replace("}}", "\x02"))
        self.parts[::2] = [part.replace("\x01", "{").replace("\x02", "}") for part in self.parts[::2]]
        strange = sorted(set(self.parts[1::2]) - {*FIELDS, "topic"})
        if strange:
            raise OptionError(f"unknown fields in the template: {', '.join(strange)}; there are {', '.join(FIELDS)}")

    def write(self, record: Record) -> bytes:
        """Format a record by the template; null is written as nothing, bytes as they are."""
        out = bytearray()
        for index, part in enumerate(self.parts):
            out += part.encode() if index % 2 == 0 else self._field(record, part)
        return bytes(out)

    @staticmethod
    def _field(record: Record, name: str) -> bytes:
        if name == "headers":
            return b",".join(key.encode() + b"=" + (value or b"") for key, value in record.headers)
        value = getattr(record, name)
        if value is None:
            return b""
        return value if isinstance(value, bytes) else str(value).encode()

    def read(self, line: bytes, number: int) -> Row:
        """Read a line by the template; each field ends where the text after it begins. Raises OptionError, which names the line."""
        fields: dict[str, bytes] = {}
        rest = line
        head, *pairs = self.parts
        if not rest.startswith(head.encode()):
            raise OptionError(f"line {number} does not begin as the template does")
        rest = rest[len(head.encode()) :]
        for name, after in zip(pairs[::2], pairs[1::2], strict=True):
            if after:
                value, found, rest = rest.partition(after.encode())
                if not found:
                    raise OptionError(f"line {number} has no {after!r} after {name}")
            else:
                value, rest = rest, b""
            fields[name] = value
        try:
            numbers = {name: int(fields[name]) for name in ("timestamp", "partition") if name in fields}
        except ValueError as why:
            raise OptionError(f"line {number}: timestamp and partition must be whole numbers") from why
        return Row(fields.get("value"), fields.get("key"), timestamp=numbers.get("timestamp"), partition=numbers.get("partition"))
