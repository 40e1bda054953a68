"""Reads JSON as Java's fastjson writes it, and writes bodies that brokers parse with fastjson.

The reader accepts standard JSON and what else RocketMQ servers send in bodies (seen on 4.9.7 and 5.5.0):

    {0:"127.0.0.1:10911"}                           a number as a key, unquoted
    {{"brokerName":"b","queueId":0,"topic":"T"}:7}  an object as a key
    {name:'x'}  [1,2,]                              bare names, single quotes, trailing commas

A key that is an object becomes an `ObjectKey`; a number or bare name becomes its text, so that ``{0:"a"}`` and ``{"0":"a"}`` read alike.
A repeated key: the last one wins, as in fastjson.
It recurses no deeper than `DEPTH`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from wireproto.errors import Malformed, Truncated

DEPTH = 64
"""Nesting that the reader accepts; real bodies nest 6 deep."""

DIGITS = 400
"""Length of a number that the reader accepts; Java's largest double has 309 digits."""

_SPACE = re.compile(r"[ \t\r\n\f\b\v]*")
_PLAIN = re.compile(r'[^"\'\\]*')
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?[LlSsBbFfDd]?(?![\w.])")
_NAME = re.compile(r"[A-Za-z_$][\w$.]*")
_WORDS: dict[str, Any] = {"null": None, "true": True, "false": False, "NaN": float("nan"), "undefined": None}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX = re.compile(r"[0-9A-Fa-f]+")


class ObjectKey(Mapping[str, Any]):
    """Is an object used as a key: a frozen, hashable mapping; equal whatever the order of its fields."""

    __slots__ = ("_fields", "_hash")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self._hash = hash(_frozen(self._fields))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and dict(self) == dict(other)

    def __repr__(self) -> str:
        return f"ObjectKey({self._fields!r})"


def _frozen(value: Any) -> Any:
    """Return a hashable value, equal for equal values."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def loads(body: bytes | str) -> Any:
    """Read one JSON value.

    Raises:
        Malformed, Truncated: with the offset, in characters of the text.
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
    except UnicodeDecodeError as why:
        raise Malformed("a JSON body is not UTF-8", offset=why.start) from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _Reader(text).whole()


class _Reader:
    """Reads a text in one pass; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> Any:
        value = self.value(0)
        self.space()
        if self.at != len(self.text):
            raise self.bad("more text after the JSON value")
        return value

    def bad(self, why: str) -> Malformed | Truncated:
        if self.at >= len(self.text):
            return Truncated("the JSON text ends too early", offset=len(self.text))
        return Malformed(f"{why}: {self.text[self.at : self.at + 20]!r}", offset=self.at)

    def space(self) -> str:
        """Skip white space and return the character that follows, or ''."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        if depth > DEPTH:
            raise Malformed(f"JSON nested deeper than {DEPTH}", offset=self.at)
        first = self.space()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first and first in "\"'":
            return self.string(first)
        if found := _NUMBER.match(self.text, self.at):
            if len(found[0]) > DIGITS:
                raise self.bad(f"a number of more than {DIGITS} digits")
            self.at = found.end()
            number = found[0].rstrip("LlSsBbFfDd")
            return float(number) if found[1] or found[2] else int(number)
        if (found := _NAME.match(self.text, self.at)) and found[0] in _WORDS:
            self.at = found.end()
            return _WORDS[found[0]]
        raise self.bad("not a JSON value")

    def object(self, depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        self.at += 1
        while True:
            first = self.space()
            if first == "}":
                self.at += 1
                return out
            if first == ",":
                self.at += 1
                continue
            key = self.key(first, depth)
            if self.space() != ":":
                raise self.bad("expected ':'")
            self.at += 1
            out[key] = self.value(depth + 1)
            if self.space() not in (",", "}"):
                raise self.bad("expected ',' or '}'")

    def key(self, first: str, depth: int) -> Any:
        if first == "{":
            if depth >= DEPTH:
                raise Malformed(f"JSON nested deeper than {DEPTH}", offset=self.at)
            return ObjectKey(self.object(depth + 1))
        if first and first in "\"'":
            return self.string(first)
        found = _NUMBER.match(self.text, self.at) or _NAME.match(self.text, self.at)
        if found is None:
            raise self.bad("not a JSON key")
        self.at = found.end()
        return found[0]

    def array(self, depth: int) -> list[Any]:
        out: list[Any] = []
        self.at += 1
        while True:
            first = self.space()
            if first == "]":
                self.at += 1
                return out
            if first == ",":
                self.at += 1
                continue
            out.append(self.value(depth + 1))
            if self.space() not in (",", "]"):
                raise self.bad("expected ',' or ']'")

    def string(self, quote: str) -> str:
        parts: list[str] = []
        self.at += 1
        while True:
            found = _PLAIN.match(self.text, self.at)
            assert found is not None
            parts.append(found[0])
            self.at = found.end()
            char = self.text[self.at : self.at + 1]
            if not char:
                raise self.bad("unfinished string")
            self.at += 1
            if char == quote:
                return _join_surrogates("".join(parts))
            parts.append(self.escape() if char == "\\" else char)

    def escape(self) -> str:
        char = self.text[self.at : self.at + 1]
        width = {"u": 4, "x": 2}.get(char, 0)
        digits = self.text[self.at + 1 : self.at + 1 + width]
        if not char or len(digits) < width:
            self.at = len(self.text)
            raise self.bad("unfinished escape")
        if width and not _HEX.fullmatch(digits):
            raise self.bad("bad escape")
        self.at += 1 + width
        return chr(int(digits, 16)) if width else chr(int(char)) if char in "01234567" else _ESCAPES.get(char, char)


def _join_surrogates(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def dumps(value: Any) -> bytes:
    """Write a value; keys that are not text are written as fastjson writes them (bare numbers, objects)."""
    return _write(value).encode("utf-8")


def _write(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_write(key)}:{_write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_write, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
