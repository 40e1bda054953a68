"""What a schema is, once read: definitions, fields, version ranges. Plain values, no behaviour beyond looking things up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

LAST = 32767  # "and every later version"
INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "varint": (-(2**31), 2**31 - 1),
    "varlong": (-(2**63), 2**63 - 1),
    "uvarint": (0, 2**32 - 1),
}
SIMPLE = {**dict.fromkeys(INTEGERS, "int"), "bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes"}
VIEWS = ("blob", "records")  # decoded as Slice
IGNORABLE, KEY, INFLEXIBLE, SECRET = 1, 2, 4, 8


class SchemaError(Exception):
    """A .wire file says something that the grammar does not allow; the text names file and line."""


class Span(NamedTuple):
    """Versions first to last, both included; empty when last < first."""

    first: int = 0
    last: int = LAST

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def overlaps(self, other: Span) -> bool:
        return max(self.first, other.first) <= min(self.last, other.last)

    def __str__(self) -> str:
        if self.last == LAST:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


NEVER = Span(1, 0)
EVER = Span()


@dataclass
class Field:
    name: str
    kind: str  # the type without brackets
    array: bool
    versions: Span
    where: str
    nullable: Span = NEVER
    default: Any = ...
    vendor: str = ""
    former: str = ""
    flags: int = 0
    tag: int = -1
    tag_versions: Span = EVER
    entity: str = ""
    doc: str = ""
    children: list[Field] = field(default_factory=list)

    @property
    def is_struct(self) -> bool:
        return self.kind not in SIMPLE and self.kind not in VIEWS


@dataclass
class Definition:
    word: str  # request, response, header, data, key, value, struct, record, command, reply
    name: str  # as the schema has it
    where: str
    facts: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    doc: str = ""
    source: str = ""

    @property
    def class_name(self) -> str:
        suffix = {"request": "Request", "response": "Response", "command": "Request", "reply": "Response"}.get(self.word, "")
        return self.name + suffix


@dataclass
class Operation:
    name: str
    facts: dict[str, Any]
    doc: str
    where: str


FLAGS = ("retriable", "refresh", "fenced", "in_doubt", "starts_over", "elsewhere")
"""Facts of an error that its class has as attributes (`wireproto.errors.WireprotoError`)."""


@dataclass
class Code:
    number: int
    name: str
    facts: list[str]
    class_name: str
    doc: str
    where: str
    before: str = ""  # what the number meant before this release


@dataclass
class Protocol:
    name: str
    definitions: list[Definition] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    errors: list[Code] = field(default_factory=list)
    enums: dict[str, tuple[str, list[Code]]] = field(default_factory=dict)
    structs: dict[str, Definition] = field(default_factory=dict)  # every class by its name, nested ones too


def camel(name: str) -> str:
    """The vendor's spelling by rule: `topic_id` to `topicId`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def pascal(name: str) -> str:
    """A class name of an error code: `NOT_LEADER` to `NotLeader`."""
    return "".join(part[:1].upper() + part[1:].lower() for part in name.split("_"))
