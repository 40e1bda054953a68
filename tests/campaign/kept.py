"""The newest result of each protocol and seed, kept in results.txt beside this file, for docs/conformance.md.

A line a run: protocol version seed minutes commit date faults records deliveries median most findings, parted by blanks; `median`, `most`
are seconds behind healing until all flowed. `make campaign ARGS="… --keep"` writes it. Standard library only.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path

FILE = Path(__file__).with_name("results.txt")
HEAD = ["broker", "seed", "minutes", "commit", "date", "faults", "records", "deliveries", "all flowed: median, most", "findings"]


@dataclass(frozen=True)
class Row:
    """One run."""

    protocol: str
    version: str
    seed: int
    minutes: float
    commit: str
    date: str
    faults: int
    records: int
    deliveries: int
    median: float
    most: float
    findings: int

    def line(self) -> str:
        return " ".join(map(str, astuple(self)))

    def cells(self) -> list[str]:
        """As a row below `HEAD`."""
        flows = f"{self.median:.1f} s, {self.most:.1f} s"
        numbers = [f"{self.faults}", f"{self.records:,}", f"{self.deliveries:,}", flows, f"{self.findings}"]
        return [f"{self.protocol} {self.version}", f"{self.seed}", f"{self.minutes:g}", self.commit, self.date, *numbers]


def read(file: Path = FILE) -> list[Row]:
    """All of them, by protocol and seed."""
    kinds = [{"int": int, "float": float}.get(str(field.type), str) for field in fields(Row)]
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [Row(*(kind(word) for kind, word in zip(kinds, line.split(" "), strict=True))) for line in lines]
    return sorted(rows, key=lambda row: (row.protocol, row.seed))


def keep(row: Row, file: Path = FILE) -> None:
    """Put it in the place of an earlier one of its protocol and seed."""
    rest = [one for one in read(file) if (one.protocol, one.seed) != (row.protocol, row.seed)]
    file.write_text("".join(one.line() + "\n" for one in sorted([*rest, row], key=lambda one: (one.protocol, one.seed))))
