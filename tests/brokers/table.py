"""What ran where: counts by broker and part of the suite, as text, JSON and a page of the docs.

``python -m brokers.table results.json docs/conformance.md`` writes the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_OUTCOMES = ("passed", "failed", "skipped")


@dataclass
class Results:
    """`counts[broker][part][outcome]`; why a broker is missing; how long it took to boot."""

    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    boot_seconds: dict[str, float] = field(default_factory=dict)
    when: str = ""

    @property
    def empty(self) -> bool:
        return not self.counts and not self.missing

    def count(self, broker: str, part: str, outcome: str, number: int = 1) -> None:
        cell = self.counts.setdefault(broker, {}).setdefault(part, dict.fromkeys(_OUTCOMES, 0))
        cell[outcome] += number

    def merge(self, other: Results) -> None:
        """Take the other's counts in place of ours where both ran the same part on the same broker."""
        for broker, parts in other.counts.items():
            self.counts.setdefault(broker, {}).update(parts)
            self.missing.pop(broker, None)
        self.missing |= other.missing
        self.boot_seconds |= other.boot_seconds

    def to_json(self) -> dict[str, Any]:
        return {"counts": self.counts, "missing": self.missing, "boot_seconds": self.boot_seconds, "when": self.when}


def load(path: Path) -> Results:
    """Results from a file, or none when it does not exist."""
    return Results(**json.loads(path.read_text())) if path.exists() else Results()


def _cell(counts: dict[str, int] | None) -> str:
    if not counts:
        return ""
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)


def rows(results: Results) -> Iterator[list[str]]:
    """Head and body of the table."""
    parts = sorted({part for cells in results.counts.values() for part in cells})
    yield ["broker", "boot", *parts]
    for broker in sorted({*results.counts, *results.missing}):
        boot = f"{results.boot_seconds[broker]:.1f} s" if broker in results.boot_seconds else ""
        yield [broker, boot, *(_cell(results.counts.get(broker, {}).get(part)) for part in parts)]


def lines(results: Results) -> list[str]:
    """The table as aligned text."""
    body = list(rows(results))
    widths = [max(len(row[column]) for row in body) for column in range(len(body[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in body]


def page(results: Results) -> str:
    """The table as a page of the docs."""
    head, *body = rows(results)
    out = [
        "# Which tests ran on which broker",
        "",
        f"Written by `make table` from the runs of `make test` up to {results.when}. `dev-*` is the embedded dev broker,",
        "the others are real servers from Maven Central. Skipped: a role or value that this broker does not have;",
        "other tests prove that it is refused.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in body),
        *(f"\nNot run: {name}: {why}" for name, why in sorted(results.missing.items())),
    ]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    source, target = (Path(argument) for argument in sys.argv[1:3])
    target.write_text(page(load(source)))
