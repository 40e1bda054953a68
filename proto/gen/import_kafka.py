"""`python -m proto.gen.import_kafka JAR … [--log NAME] [--name MESSAGE …]`: Kafka's own definitions as text in our grammar.

Prints the messages that the schema does not have yet (or those named), to be read, documented and put into proto/kafka/ by hand. Jars
stand in order of release: a version that only an older one has is taken from there. Comments are those that the schema already has for
fields of the same name; those of Kafka's files are not copied.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from typing import Any

from .__main__ import ROOT
from .check import check
from .kafka_json import KafkaField, KafkaMessage, read
from .model import NEVER, Protocol, Span, camel
from .model import Field as SchemaField
from .parse import read_protocol

WORDS = {"coordinator-key": "key", "coordinator-value": "value", "metadata": "value"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proto.gen.import_kafka", description=__doc__)
    parser.add_argument("jars", nargs="+")
    parser.add_argument("--log", default="", help="the internal log whose records the jars define")
    parser.add_argument("--name", action="append", help="this message, known or not")
    options = parser.parse_args()
    schema = check(read_protocol(ROOT / "proto" / "kafka"))
    found: dict[str, KafkaMessage] = {}
    for jar in options.jars:
        for name, message in read([jar]).items():
            found[name] = merged(found[name], message) if name in found else message
    writer = _Writer(schema, options.log)
    for name in sorted(options.name or found, key=lambda name: (found[name].api, name)):
        if options.name or (name not in schema.structs and found[name].versions != NEVER):
            print(writer.message(found[name]))


def merged(older: KafkaMessage, newer: KafkaMessage) -> KafkaMessage:
    """The newer definition, with the versions and fields that only the older one has."""
    if newer.versions == NEVER:
        return older
    if older.versions == NEVER:
        return newer
    _add_older(older.fields, newer.fields)
    newer.versions = Span(min(older.versions.first, newer.versions.first), max(older.versions.last, newer.versions.last))
    if newer.word == "coordinator-key":
        newer.versions = Span(0, max(newer.api, newer.versions.last))
    return newer


def _add_older(older: list[KafkaField], newer: list[KafkaField]) -> None:
    names = [one.name for one in newer]
    for i, one in enumerate(older):
        if one.name not in names:
            newer.insert(i, one)
            names.insert(i, one.name)
        else:
            same = newer[names.index(one.name)]
            same.versions = Span(min(one.versions.first, same.versions.first), same.versions.last)
            _add_older(one.children, same.children)


class _Writer:
    def __init__(self, schema: Protocol, log: str) -> None:
        self.taken = set(schema.structs)
        self.log = log
        self.docs: dict[str, set[str]] = defaultdict(set)
        for definition in schema.structs.values():
            self._learn(definition.fields)

    def _learn(self, fields: list[SchemaField]) -> None:
        for one in fields:
            if one.doc:
                self.docs[camel(one.name)].add(one.doc)

    def message(self, message: KafkaMessage) -> str:
        word = WORDS.get(message.word, message.word)
        name = message.name.removesuffix("Request" if word == "request" else "Response" if word == "response" else "-")
        head = [word, name]
        if word == "request":
            head += ["api", str(message.api)]
        elif word in ("key", "value"):
            head += ["log", self.log]
            if word == "key" or message.word == "metadata":
                head += ["prefix", str(message.api)]
        head += ["versions", str(message.versions)]
        head += ["flexible", str(message.flexible)] if message.flexible != NEVER else []
        if word == "key":
            head += ["value", message.name.removesuffix("Key") + "Value"]
        self.owner, self.span, self.structs = message, message.versions, {}
        rows: list[list[str]] = []
        self._rows(message.fields, 1, rows, word)
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows]
        return "\n".join(["  ".join(head), *lines, ""])

    def _struct(self, kind: str) -> str:
        if kind not in self.structs:
            name = kind if kind not in self.taken else self.owner.name.removesuffix("Data") + kind
            self.structs[kind] = name
            self.taken.add(name)
            return name
        return ""

    def _rows(self, fields: list[KafkaField], depth: int, rows: list[list[str]], word: str = "") -> None:
        for one in fields:
            fresh = self._struct(one.kind) if one.children else ""
            kind = self.structs.get(one.kind, one.kind) if one.children else "blob" if one.zero_copy else one.kind
            name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", one.name).lower()
            whole = word == "key" or (one.versions.first <= self.span.first and one.versions.last >= self.span.last)
            versions = "" if whole else str(one.versions)
            rows.append(["  " * depth + name, f"[{kind}]" if one.array else kind, versions, self._facts(name, one)])
            if fresh:
                self._rows(one.children, depth + 1, rows)

    def _facts(self, name: str, one: KafkaField) -> str:
        facts = [f"vendor {one.name}"] if camel(name) != one.name else []
        if one.nullable != NEVER:
            first, last = max(one.versions.first, self.span.first), min(one.versions.last, self.span.last)
            facts.append("nullable" if one.nullable.first <= first and last <= one.nullable.last else f"nullable {one.nullable}")
        if one.default is not ...:
            facts.append("default " + _default(one.default))
        facts += ["ignorable"] * one.ignorable + ["key"] * one.key + ["inflexible"] * one.inflexible
        if one.tag >= 0:
            facts.append(f"tag {one.tag}" + ("" if one.tag_versions == one.versions else f" {one.tag_versions}"))
        if one.entity:
            facts.append("entity " + {"topicName": "topic", "groupId": "group", "brokerId": "broker"}.get(one.entity, one.entity))
        if len(known := self.docs.get(one.name, ())) == 1:  # several: it means different things
            facts.append("  # " + next(iter(known)))
        return "  ".join(facts)


def _default(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    main()
