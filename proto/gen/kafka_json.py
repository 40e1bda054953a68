"""Kafka's own definitions of its messages, as its jars carry them: JSON with comments under ``common/message`` and the like.

What it is: a reader for whoever compares them with the schema (the test suite does) or takes new ones into it (`import_kafka`).
Must not: be needed for generating; the schema in proto/kafka/ stands for itself.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .model import NEVER, Span
from .parse import parse_span

PLACES = re.compile(r"(common/message|common/metadata|message)/\w+\.json$")
COMMENT = re.compile(r"^\s*//.*$", re.M)


class Facts(NamedTuple):
    """What a field is in one version."""

    kind: str  # as in a .wire file; a struct is `struct`, its fields follow
    nullable: bool
    default: Any  # Ellipsis: the type's own
    tag: int  # -1: in line
    ignorable: bool
    key: bool
    inflexible: bool


@dataclass
class KafkaField:
    name: str
    kind: str  # without brackets; a struct's name
    array: bool
    versions: Span
    nullable: Span
    default: Any
    tag: int
    tag_versions: Span
    ignorable: bool
    key: bool
    inflexible: bool
    zero_copy: bool
    entity: str
    children: list[KafkaField] = field(default_factory=list)


@dataclass
class KafkaMessage:
    name: str
    word: str  # request, response, header, data, metadata, coordinator-key, coordinator-value
    api: int
    versions: Span
    flexible: Span
    unstable: bool
    fields: list[KafkaField]

    def flat(self, version: int) -> Iterator[tuple[str, Facts]]:
        """The fields that a version has, in the order of the file, nested ones behind their struct; by path."""
        return _flat(self.fields, version, "")


def read(jars: Iterable[str | Path]) -> dict[str, KafkaMessage]:
    """Every message that the jars define, by name; a later jar's definition replaces an earlier one's."""
    found: dict[str, KafkaMessage] = {}
    for jar in jars:
        if not str(jar).endswith(".jar"):
            continue
        with zipfile.ZipFile(jar) as opened:
            for name in sorted(opened.namelist()):
                if PLACES.fullmatch(name):
                    message = _message(json.loads(COMMENT.sub("", opened.read(name).decode())))
                    found[message.name] = message
    return found


def _span(text: str | None, otherwise: Span) -> Span:
    if text is None:
        return otherwise
    return NEVER if text == "none" else parse_span(text) or NEVER


def _message(obj: dict[str, Any]) -> KafkaMessage:
    structs = {struct["name"]: struct["fields"] for struct in obj.get("commonStructs", ())}
    versions = _span(obj["validVersions"], NEVER)
    fields = [_field(one, structs) for one in obj.get("fields", ())]
    flexible = _span(obj.get("flexibleVersions"), NEVER)
    unstable = obj.get("latestVersionUnstable", False)
    return KafkaMessage(obj["name"], obj["type"], obj.get("apiKey", -1), versions, flexible, unstable, fields)


def _field(obj: dict[str, Any], structs: dict[str, Any]) -> KafkaField:
    kind = obj["type"]
    array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    tagged = _span(obj.get("taggedVersions"), NEVER)
    made = KafkaField(
        name=obj["name"][:1].lower() + obj["name"][1:],
        kind=kind,
        array=array,
        versions=_span(obj.get("versions"), tagged),
        nullable=_span(obj.get("nullableVersions"), NEVER),
        default=_default(kind, array, obj.get("default", ...)),
        tag=int(obj.get("tag", -1)),
        tag_versions=tagged,
        ignorable=obj.get("ignorable", False),
        key=obj.get("mapKey", False),
        inflexible=obj.get("flexibleVersions") == "none",
        zero_copy=obj.get("zeroCopy", False),
        entity=obj.get("entityType", ""),
    )
    if kind[0].isupper():
        made.children = [_field(one, structs) for one in obj.get("fields") or structs[kind]]
    return made


def _default(kind: str, array: bool, value: Any) -> Any:
    """As the schema's model has it: null is None, the type's own is Ellipsis. Kafka reads the bare word null as if nothing stood there."""
    if value is ... or value is None or value == "" or (kind == "uuid" and not array):
        return ...
    if value == "null":
        return None
    if kind == "string" or array or kind[0].isupper():
        return value
    if kind == "bool":
        value = value in (True, "true")
    elif kind == "float64":
        value = float(value)
    else:
        value = int(str(value), 0)
    return value or ...


def _flat(fields: list[KafkaField], version: int, path: str) -> Iterator[tuple[str, Facts]]:
    for one in fields:
        if version in one.versions:
            kind = "struct" if one.children else one.kind
            tag = one.tag if version in one.tag_versions else -1
            shown = f"[{kind}]" if one.array else kind
            facts = Facts(shown, version in one.nullable, one.default, tag, one.ignorable, one.key, one.inflexible)
            yield path + one.name, facts
            if one.children:
                yield from _flat(one.children, version, f"{path}{one.name}.")
