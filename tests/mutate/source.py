"""Source text and what may be changed in it: places in bytes, edits, and mutants with their names.

What it is: `Source`, one file parsed; `Edit`, bytes replaced; `Mutant`, a fault: one or more edits under a key that outlives changes
elsewhere in the file: module, function, kind, the text before and after, and which of several alike. Must not: write anything.
"""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LONGEST = 90  # of a text in a key; a longer one is cut and followed by its digest


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `stop` of a file become `text`. `first` and `last` are the lines (from 1) of the statement that it stands in."""

    path: str
    start: int
    stop: int
    text: str
    first: int
    last: int


@dataclass(frozen=True)
class Mutant:
    """One fault. group: kafka, pulsar, rocketmq, zookeeper, net or engine, whose score it counts for. always: is in every sample."""

    key: str
    group: str
    operator: str
    edits: tuple[Edit, ...]
    before: str
    after: str
    within: str  # digest of the functions changed: a result holds while this does
    always: bool = False
    top_level: bool = False  # stands outside functions, so that lines tell nothing about who uses it


@dataclass
class Source:
    """One file below the tree's root."""

    path: str
    data: bytes
    seen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path, path: str) -> Source:
        return cls(path, (root / path).read_bytes())

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.data)

    @cached_property
    def starts(self) -> list[int]:
        found = [0]
        for line in self.data.splitlines(keepends=True):
            found.append(found[-1] + len(line))
        return found

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node's text begins and ends, in bytes."""
        begin = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def text(self, node: ast.AST) -> str:
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def lines(self, first: int, last: int) -> str:
        return self.data[self.starts[first - 1] : self.starts[min(last, len(self.starts) - 1)]].decode()

    def named(self, scope: str, operator: str, before: str, after: str) -> str:
        """A key, numbered when there were some like it."""
        key = f"{short(self.path)} {scope} {operator}: {brief(before)} -> {brief(after)}"
        count = self.seen[key] = self.seen.get(key, 0) + 1
        return key if count == 1 else f"{key} #{count}"


def short(path: str) -> str:
    return path.removeprefix("src/wireproto/")


def brief(text: str) -> str:
    """One line of at most `LONGEST` characters that still tells texts apart."""
    flat = re.sub(r"\s+", " ", text).strip()
    return flat if len(flat) <= LONGEST else f"{flat[:70]}… {digest(flat)[:8]}"


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def applied(data: bytes, edits: list[Edit]) -> bytes:
    """The file with these edits, which must not overlap."""
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.stop :]
    return data
