"""Text of `.wire` files to the model. Says what is wrong by file and line; rules across lines are `check`'s."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .model import (
    FLAGS,
    IGNORABLE,
    INFLEXIBLE,
    INTEGERS,
    KEY,
    LAST,
    SECRET,
    Code,
    Definition,
    Field,
    Operation,
    Protocol,
    SchemaError,
    Span,
    pascal,
)

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|#.*|[^\s#"]+')
RANGE = re.compile(r"(\d+)(\+|-(\d+))?$")
NAME = re.compile(r"[a-z][a-z0-9_]*$")
TYPE = re.compile(r"(?:\[(\w+)\]|(\w+))(\?)?$")
MESSAGE_WORDS = {"request", "response", "header", "data", "key", "value", "struct", "record", "command", "reply", "fields"}
FLAG_WORDS = {"ignorable": IGNORABLE, "key": KEY, "inflexible": INFLEXIBLE, "secret": SECRET}
SPAN_FACTS = {"versions", "removed", "prefix", "bare"}
DESTINATIONS = ("controller", "group", "transaction", "share", "leader", "configs", "name_server")


def read_protocol(folder: Path) -> Protocol:
    protocol = Protocol(folder.name)
    for path in sorted(folder.glob("*.wire")):
        _File(path, protocol).read()
    return protocol


def parse_span(text: str) -> Span | None:
    found = RANGE.match(text)
    if not found:
        return None
    first = int(found[1])
    if not found[2]:
        return Span(first, first)
    return Span(first, LAST if found[2] == "+" else int(found[3]))


class _File:
    """Reads one file; keeps the comment block that may belong to the next line."""

    def __init__(self, path: Path, protocol: Protocol) -> None:
        self.path = path
        self.protocol = protocol
        self.comments: list[str] = []
        self.indent = 0
        self.owner: Definition | None = None
        self.codes: list[Code] | None = None
        self.stack: list[tuple[int, Field]] = []
        self.line = 0
        self.request: Definition | None = None

    @property
    def where(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}:{self.line}"

    def fail(self, text: str) -> SchemaError:
        return SchemaError(f"{self.where}: {text}")

    def read(self) -> None:
        for raw in self.path.read_text(encoding="utf-8").splitlines():
            self.line += 1
            if "\t" in raw:
                raise self.fail("a tab")
            text = raw.strip()
            indent = len(raw) - len(raw.lstrip())
            if not text:
                self.comments = []
            elif text.startswith("#"):
                self.comments.append(text[1:].strip())
            else:
                words, doc = self.split(text)
                doc = " ".join([*self.comments, *([doc] if doc else [])])
                self.comments = []
                if indent == 0:
                    self.definition(words, doc)
                elif self.codes is not None:
                    self.code(words, doc)
                else:
                    self.field(indent, words, doc)

    def split(self, text: str) -> tuple[list[str], str]:
        words, doc = [], ""
        for word in TOKEN.findall(text):
            if word.startswith("#"):
                doc = word[1:].strip()
            else:
                words.append(word)
        return words, doc

    # definitions

    def definition(self, words: list[str], doc: str) -> None:
        self.stack, self.codes, self.owner = [], None, None
        word, rest = words[0], words[1:]
        if word == "errors":
            self.codes = self.protocol.errors
        elif word == "codes":
            if len(rest) != 1:
                raise self.fail("codes NAME")
            if rest[0] in self.protocol.enums:
                raise self.fail(f"codes {rest[0]} twice")
            self.codes = []
            self.protocol.enums[rest[0]] = (doc, self.codes)
        elif word == "operation":
            self.protocol.operations.append(Operation(rest[0], self.facts(rest[1:]), doc, self.where))
        elif word in MESSAGE_WORDS:
            if not rest:
                raise self.fail(f"{word} without a name")
            self.message(word, rest[0], self.facts(rest[1:]), doc)
        else:
            raise self.fail(f"{word!r} begins no definition")

    def message(self, word: str, name: str, facts: dict[str, Any], doc: str) -> None:
        owner = Definition(word, name, self.where, facts, doc=doc, source=self.path.name)
        if word == "request":
            self.request = owner
        elif word == "response":
            if self.request is None or self.request.name != name:
                raise self.fail(f"response {name} without its request above")
            owner.facts = {k: v for k, v in self.request.facts.items() if k in ("api", "versions", "flexible", "unstable", "removed")}
            owner.facts.update(facts)
        self.protocol.definitions.append(owner)
        self.owner = owner

    def facts(self, words: list[str]) -> dict[str, Any]:
        if len(words) % 2:
            raise self.fail(f"facts are pairs of a word and a value: {' '.join(words)}")
        facts: dict[str, Any] = {}
        for word, value in zip(words[::2], words[1::2], strict=True):
            if word in ("api", "code", "header", "xid"):
                facts[word] = int(value)
            elif word in ("flexible", "unstable") or word in SPAN_FACTS:
                span = None if value == "none" else parse_span(value)
                if value != "none" and span is None:
                    raise self.fail(f"{word} {value}: not a range")
                facts[word] = span
            elif word == "to" and value not in DESTINATIONS:
                raise self.fail(f"to {value}: not one of {', '.join(DESTINATIONS)}")
            else:
                facts[word] = value.strip('"')
        return facts

    # fields

    def field(self, indent: int, words: list[str], doc: str) -> None:
        if self.owner is None:
            raise self.fail("a field outside a definition")
        while self.stack and self.stack[-1][0] >= indent:
            self.stack.pop()
        if len(words) < 2:
            raise self.fail("a field has a name and a type")
        siblings = self.stack[-1][1].children if self.stack else self.owner.fields
        made = self.make_field(words, doc)
        if self.stack and not self.stack[-1][1].is_struct:
            raise self.fail(f"{self.stack[-1][1].name} is no struct and has no fields")
        siblings.append(made)
        self.stack.append((indent, made))

    def make_field(self, words: list[str], doc: str) -> Field:
        name, kind, *facts = words
        if not NAME.match(name):
            raise self.fail(f"{name!r} is not a snake_case name")
        found = TYPE.match(kind)
        if not found:
            raise self.fail(f"{kind!r} is not a type")
        made = Field(name, found[1] or found[2], bool(found[1]), Span(), self.where, doc=doc)
        if facts and (span := parse_span(facts[0])):
            made.versions = span
            facts.pop(0)
        if found[3]:
            made.nullable = made.versions
        while facts:
            self.fact(made, facts)
        return made

    def fact(self, made: Field, facts: list[str]) -> None:
        word = facts.pop(0)
        span = parse_span(facts[0]) if facts and word == "nullable" else None
        if word in FLAG_WORDS:
            made.flags |= FLAG_WORDS[word]
        elif word == "nullable":
            made.nullable = span or made.versions
            if span:
                facts.pop(0)
        elif not facts:
            raise self.fail(f"{word} without a value")
        elif word == "default":
            made.default = self.default(made, facts.pop(0))
        elif word == "tag":
            made.tag = int(facts.pop(0))
            made.tag_versions = made.versions
            if facts and (span := parse_span(facts[0])):
                made.tag_versions = span
                facts.pop(0)
        elif word in ("vendor", "ext"):
            made.vendor = facts.pop(0).strip('"')
        elif word == "former":
            made.former = facts.pop(0)
        elif word == "entity":
            made.entity = facts.pop(0)
        else:
            raise self.fail(f"{word!r} is no fact")

    def default(self, made: Field, text: str) -> Any:
        if text == "null":
            return None
        if made.array:
            raise self.fail("an array's default is empty, or null")
        if made.kind in INTEGERS:
            least, most = INTEGERS[made.kind]
            value = {"min": least, "max": most}.get(text)
            value = int(text, 0) if value is None else value
            if not least <= value <= most:
                raise self.fail(f"default {text} does not fit {made.kind}")
            return value
        if made.kind == "bool" and text in ("true", "false"):
            return text == "true"
        if made.kind == "float64":
            return float(text)
        if made.kind == "string":
            return text.strip('"')
        raise self.fail(f"default {text} for {made.kind}")

    # codes

    def code(self, words: list[str], doc: str) -> None:
        if len(words) < 2:
            raise self.fail("a code has a number and a name")
        number, name, *facts = words
        class_name = pascal(name)
        if "as" in facts:
            at = facts.index("as")
            class_name = facts[at + 1]
            del facts[at : at + 2]
        before = ""
        if "before" in facts:
            at = facts.index("before")
            before = facts[at + 1]
            del facts[at : at + 2]
        assert self.codes is not None
        for fact in facts:
            if fact not in (*FLAGS, "auth", "success"):
                raise self.fail(f"{fact!r} is no flag of an error")
        self.codes.append(Code(int(number, 0), name, facts, class_name, doc, self.where, before))
