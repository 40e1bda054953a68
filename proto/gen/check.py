"""Rules of a schema that no single line shows; also gathers every struct by its class name."""

from __future__ import annotations

from .model import LAST, Definition, Field, Protocol, SchemaError, Span

MAX_DEPTH = 16
MAX_VERSION = 63


def check(protocol: Protocol) -> Protocol:
    _shared(protocol)
    for definition in protocol.definitions:
        if definition.facts.get("versions", Span()) is None:
            continue  # `versions none`: listed only
        _add(protocol, definition.class_name, definition)
        _nested(protocol, definition.fields, definition)
    for name, definition in protocol.structs.items():
        _fields(protocol, definition)
        _depth(protocol, name, ())
    _codes(protocol)
    return protocol


def _shared(protocol: Protocol) -> None:
    """Give every definition `with X` the fields of `fields X` behind its own."""
    groups = {definition.name: definition for definition in protocol.definitions if definition.word == "fields"}
    protocol.definitions = [definition for definition in protocol.definitions if definition.word != "fields"]
    for definition in (*groups.values(), *protocol.definitions):
        if name := definition.facts.get("with"):
            if name not in groups:
                raise SchemaError(f"{definition.where}: no fields {name!r}")
            definition.fields = [*definition.fields, *groups[name].fields]


def _add(protocol: Protocol, name: str, definition: Definition) -> None:
    if name in protocol.structs:
        other = protocol.structs[name].where
        raise SchemaError(f"{definition.where}: {name} is already defined at {other}; put the message's name in front")
    protocol.structs[name] = definition


def _nested(protocol: Protocol, fields: list[Field], owner: Definition) -> None:
    for field in fields:
        if field.is_struct and field.children:
            _add(protocol, field.kind, Definition("struct", field.kind, field.where, {}, field.children, field.doc, owner.source))
            _nested(protocol, field.children, owner)


def _fields(protocol: Protocol, definition: Definition) -> None:
    for i, field in enumerate(definition.fields):
        if field.is_struct and field.kind not in protocol.structs:
            raise SchemaError(f"{field.where}: no type and no struct {field.kind!r}")
        if field.default is None and not (field.nullable.first <= field.nullable.last):
            raise SchemaError(f"{field.where}: default null, but never nullable")
        for other in definition.fields[:i]:
            if other.name == field.name and other.versions.overlaps(field.versions):
                raise SchemaError(f"{field.where}: {field.name} is also at {other.where} in the same version")
            if field.tag >= 0 and other.tag == field.tag and other.versions.overlaps(field.versions):
                raise SchemaError(f"{field.where}: tag {field.tag} is also {other.name}'s")
    versions = definition.facts.get("versions")
    if versions and versions.last > MAX_VERSION and versions.last != LAST:
        raise SchemaError(f"{definition.where}: version {versions.last}; at most {MAX_VERSION} are held")
    tags = sorted({field.tag for field in definition.fields if field.tag >= 0})
    if tags and tags != list(range(tags[-1] + 1)):
        raise SchemaError(f"{definition.where}: tags {tags} leave a gap")


def _depth(protocol: Protocol, name: str, above: tuple[str, ...]) -> None:
    if name in above or len(above) >= MAX_DEPTH:
        raise SchemaError(f"{protocol.structs[name].where}: {' in '.join([name, *reversed(above)])}: recursive, or too deep")
    for field in protocol.structs[name].fields:
        if field.is_struct:
            _depth(protocol, field.kind, (*above, name))


def _codes(protocol: Protocol) -> None:
    for listed in (protocol.errors, *(codes for _, codes in protocol.enums.values())):
        numbers: dict[tuple[int, str], str] = {}
        names: dict[str, str] = {}
        for code in listed:
            if (code.number, code.before) in numbers:
                raise SchemaError(f"{code.where}: code {code.number} is also at {numbers[code.number, code.before]}")
            if code.name in names:
                raise SchemaError(f"{code.where}: {code.name} is also at {names[code.name]}")
            numbers[code.number, code.before] = names[code.name] = code.where
    for operation in protocol.operations:
        for word in ("request", "reply"):
            if operation.facts.get(word, "none") not in ("none", *protocol.structs):
                raise SchemaError(f"{operation.where}: no record {operation.facts[word]!r}")
