"""Sample messages made from the schema: every field of a version, with the values that break codecs.

What it is: generators of messages for the tests and the fuzzer. Must not: be reproducible across Python versions in more than the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

from wireproto import wire
from wireproto._codec import Message, message_spec
from wireproto.message import message_class
from wireproto.pulsar import PulsarApi_pb2 as api

TEXTS = ["", "t", "Grüße 🛫", "a\ud800b", "\x00", "x" * 130]
INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "varint": 32, "varlong": 64}


def filled(cls: type[Message], version: int, rng: random.Random) -> Any:
    """A message with random values in every field of the version, NaN and lone surrogates among them."""
    flexible = 0 <= message_spec(cls)[3] <= version
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if field.versions[0] <= version <= field.versions[1]:
            if field.nullable[0] <= version <= field.nullable[1] and rng.random() < 0.25:
                values[field.name] = None
            elif field.type.startswith("["):
                values[field.name] = tuple(value(cls, field.type[1:-1], version, rng) for _ in range(rng.choice([0, 1, 3])))
            else:
                values[field.name] = value(cls, field.type, version, rng)
    if flexible and rng.random() < 0.3:
        values["unknown_tags"] = ((100, rng.randbytes(3)), (101, b""))
    return cls(**values)


def value(cls: type[Message], kind: str, version: int, rng: random.Random) -> Any:
    """A value of one of the schema's types; `cls` tells the protocol."""
    if kind in INTS:
        return rng.choice([0, 1, -1, -(1 << (INTS[kind] - 1)), (1 << (INTS[kind] - 1)) - 1])
    if kind in ("uint8", "uint16", "uint32", "uvarint"):
        return rng.choice([0, 1, 255])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(TEXTS)
    if kind == "uuid":
        return rng.randbytes(16)
    if kind == "float64":
        return rng.choice([0.0, -1.5, math.nan, math.inf, -math.inf])
    if kind in ("bytes", "records", "blob"):
        return rng.randbytes(rng.choice([0, 5, 200]))
    return filled(message_class(cls.__module__.split(".")[1], kind), version, rng)


def schema_messages(protocol: str, seed: int = 7) -> Iterator[tuple[str, int, type[Message], bytes]]:
    """(name, version, class, bytes) of a sample of every message of the schema in every version."""
    rng = random.Random(seed)
    for name, (first, last) in wire.names(protocol).items():
        if protocol == "zookeeper" and name in ("MultiRequest", "MultiResponse"):
            continue
        cls = message_class(protocol, name)
        for version in range(first, last + 1):
            yield name, version, cls, filled(cls, version, rng).encode(version)


def proto_filled(descriptor: Any, rng: random.Random, depth: int = 0) -> Any:
    """A protobuf message with every scalar and, to some depth, every message field."""
    found = getattr(api, descriptor.name)()
    for field in descriptor.fields:
        if field.message_type is not None and depth >= 2 and not field.is_required:
            continue
        target = getattr(found, field.name)
        for _ in range(2 if field.is_repeated else 1):
            inner = proto_filled(field.message_type, rng, depth + 1) if field.message_type is not None else proto_value(field, rng)
            if field.is_repeated:
                target.append(inner)
            elif field.message_type is not None:
                target.CopyFrom(inner)
            else:
                setattr(found, field.name, inner)
    return found


def proto_value(field: Any, rng: random.Random) -> Any:
    """A value of a protobuf field that is no message."""
    if field.enum_type is not None:
        return rng.choice(field.enum_type.values).number
    if field.type == field.TYPE_STRING:
        return rng.choice(["", "t", "Grüße 🛫"])
    if field.type == field.TYPE_BYTES:
        return rng.randbytes(5)
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == field.TYPE_DOUBLE:
        return rng.choice([0.5, math.inf])
    top = {field.TYPE_UINT64: 2**64 - 1, field.TYPE_INT64: 2**63 - 1, field.TYPE_UINT32: 2**32 - 1, field.TYPE_INT32: 2**31 - 1}[field.type]
    return rng.choice([0, 1, top] + ([-1] if field.type in (field.TYPE_INT32, field.TYPE_INT64) else []))


def proto_messages(seed: int = 3) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a sample of every message of Pulsar's .proto."""
    rng = random.Random(seed)
    for name in wire.names("pulsar"):
        if name != "Frame":
            yield name, proto_filled(api.DESCRIPTOR.message_types_by_name[name], rng).SerializeToString(deterministic=True)
