"""The toy's messages: lines of words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wireproto.errors import Malformed
from wireproto.forms import Form
from wireproto.lines import Line

WORDS = {"Put": ("topic", "value"), "Get": ("topic", "offset"), "End": ("topic",), "Create": ("topic",), "Delete": ("topic",), "List": ()}


class Words:
    """A request."""

    versions = (0, 0)

    def __init__(self, name: str) -> None:
        self.name, self.fields = name, WORDS[name]

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        verb, *words = data.decode().split(" ")
        if verb != self.name.upper() or len(words) != len(self.fields):
            raise Malformed(f"not {self.name.upper()} and {len(self.fields)} words", message=self.name)
        return dict(zip(self.fields, words, strict=True))

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        return " ".join([self.name.upper(), *(str(fields[name]) for name in self.fields)]).encode()

    def explain(self, version: int, data: bytes) -> list[Line]:
        lines, at = [Line(0, len(self.name), "verb", self.name.upper())], len(self.name)
        for name, word in self.decode(version, data).items():
            lines.append(Line(at + 1, at + 1 + len(word), name, word))
            at += 1 + len(word)
        return lines


def forms() -> dict[str, Form]:
    return {name: Words(name) for name in WORDS}


class Frames:
    """Reads what a recording keeps; an answer is that of the oldest request."""

    def __init__(self) -> None:
        self._asked: list[str] = []

    def __call__(self, up: bool, frame: bytes) -> tuple[str, int, Any, Any, bytes]:
        if not up:
            return self._asked.pop(0), 0, None, frame.decode(), b""
        name = frame.decode().partition(" ")[0].capitalize()
        self._asked.append(name)
        return name, 0, None, Words(name).decode(0, frame), b""
