"""Kafka's messages for tests: random ones out of our schema, and what the schema says of a version beside what Kafka's jars say."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from wireproto._codec import Message, message_spec
from wireproto.kafka import messages
from wireproto.message import Field, fields_of

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["", "t", "flights", "ünïcode 世界 🚀", "a\0b", "x" * 300]
FLOATS = [0.0, -0.0, -1.5, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "varint": 32, "varlong": 64}
UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uvarint": 32}


def kafka_json() -> ModuleType:
    """The reader of Kafka's own definitions, from the generator at the repository's root."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("proto.gen.kafka_json")
    finally:
        sys.path.remove(str(ROOT))


@cache
def fields(cls: type[Message]) -> tuple[Field, ...]:
    return fields_of(cls)


def within(version: int, span: tuple[int, int]) -> bool:
    return span[0] <= version <= span[1]


def struct_of(field: Field) -> type[Message] | None:
    """The class of a field that is a struct, or an array of them."""
    return getattr(messages, field.type.strip("[]"), None) if field.type.strip("[]")[0].isupper() else None


def filled(cls: type[Message], version: int, rng: random.Random, *, unknown_tags: bool = False, nan: bool = False) -> Any:
    """A message with random values in every field that the version has.

    Args:
        unknown_tags: now and then tags that the schema does not know, in a flexible version.
        nan: not-a-number may be among the values (it is not equal to itself).
    """
    flexible_from = message_spec(cls)[3]
    return _filled(cls, version, rng, unknown_tags and 0 <= flexible_from <= version, nan)


def _filled(cls: type[Message], version: int, rng: random.Random, tags: bool, nan: bool) -> Any:
    values: dict[str, Any] = {}
    for field in fields(cls):
        if not within(version, field.versions):
            continue
        if within(version, field.nullable) and rng.random() < 0.25:
            values[field.name] = None
        elif field.type.startswith("["):
            count = rng.choice([0, 1, 3])
            values[field.name] = tuple(_value(field, field.type[1:-1], version, rng, tags, nan) for _ in range(count))
        else:
            values[field.name] = _value(field, field.type, version, rng, tags, nan)
    if tags and rng.random() < 0.3:
        values["unknown_tags"] = tuple((tag, rng.randbytes(rng.choice([0, 1, 200]))) for tag in (20, rng.randrange(30, 20000), 2**31 - 2))
    return cls(**values)


def _value(field: Field, kind: str, version: int, rng: random.Random, tags: bool, nan: bool) -> Any:
    if kind in BITS:
        most = (1 << BITS[kind] - 1) - 1
        return rng.choice([0, 1, -1, -most - 1, most, rng.randrange(-most, most)])
    if kind in UNSIGNED:
        most = (1 << UNSIGNED[kind]) - 1
        return rng.choice([0, 1, most, rng.randrange(most)])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(TEXTS)
    if kind == "uuid":
        return rng.randbytes(16)
    if kind == "float64":
        return rng.choice(FLOATS if nan else FLOATS[:-1])
    if kind in ("bytes", "records", "blob"):
        return rng.randbytes(rng.choice([0, 5, 200]))
    child = struct_of(field)
    assert child is not None, kind
    return _filled(child, version, rng, tags, nan)


def flat(cls: type[Message], version: int, path: str = "") -> Iterator[tuple[str, Any]]:
    """What our schema says of a version, in the form of the reader's ``KafkaMessage.flat``."""
    facts = kafka_json().Facts
    for field in fields(cls):
        if within(version, field.versions):
            child = struct_of(field)
            kind = "struct" if child else field.type.strip("[]").replace("blob", "bytes")
            default = ... if field.default is not None and not field.default else field.default
            tag = field.tag if within(version, field.tag_versions) else -1
            shown = f"[{kind}]" if field.type.startswith("[") else kind
            marks = (field.ignorable, field.key, field.inflexible)
            yield path + field.vendor, facts(shown, within(version, field.nullable), default, tag, *marks)
            if child:
                yield from flat(child, version, f"{path}{field.vendor}.")
