"""Round messages: what fields they have, their JSON form, and the registry by protocol and name.

May assume: the generated `messages` module of each protocol. Must not: know a protocol's meaning, touch bytes of the wire.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import UnknownMessage

if TYPE_CHECKING:
    from ._codec import Message

PROTOCOLS = ("kafka", "rocketmq", "zookeeper")
"""Protocols whose messages come from the schema (Pulsar's commands use the protobuf runtime)."""


class Field(NamedTuple):
    """One line of the schema; a field whose type changes with the version has several.

    Versions are inclusive pairs; an empty one is (1, 0). `default` is Ellipsis for the type's own. `tag` is -1 for a field in line.
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


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """The schema's lines of one class, in wire order."""
    from ._codec import message_spec

    made = []
    for name, kind, since, until, null_since, null_until, default, vendor, flags, tag, tag_since, tag_until in message_spec(cls)[4]:
        flag = [bool(flags & bit) for bit in (1, 2, 4, 8)]
        span = (tag_since, tag_until if tag_until >= 0 else 32767) if tag >= 0 else (1, 0)
        made.append(Field(name, kind, (since, until), (null_since, null_until), default, vendor or camel(name), *flag, tag, span))
    return tuple(made)


def camel(name: str) -> str:
    """The vendor's spelling by rule: `topic_id` to `topicId`."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def messages(protocol: str) -> dict[str, type[Message]]:
    """Every message class of a protocol by name, structs that are only part of others included."""
    if protocol not in PROTOCOLS:
        raise UnknownMessage(f"no schema of messages for {protocol!r}; there is one for {', '.join(PROTOCOLS)}")
    module = importlib.import_module(f"wireproto.{protocol}.messages")
    return {name: getattr(module, name) for name in module.__all__}


def message_class(protocol: str, name: str) -> type[Message]:
    """The class of that name.

    Raises:
        UnknownMessage: there is none; the text names what comes near.
    """
    found = messages(protocol)
    if name in found:
        return found[name]
    import difflib

    near = difflib.get_close_matches(name, found, 3)
    raise UnknownMessage(f"no {protocol} message {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""), message=name)
