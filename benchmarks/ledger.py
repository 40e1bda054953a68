"""Lines of text that are kept in the clone: a head that says what they are, a history of why they changed, one row a line.

What it is: reading and writing of such a file. Must not: know what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BETWEEN = " | "
HISTORY = "# history (newest last):"


class NoReason(Exception):
    """A ledger is not renewed without a reason."""


def sound(run: Mapping[str, Any]) -> None:
    """Raises ValueError when a suite or a contender of a run (its results.json) failed: what is left of it is no record."""
    spoilt = [words for suite in run["broken"].values() for words in suite]
    for row in run["rows"]:
        failed = [name for name, facts in row["contenders"].items() if "note" in facts]
        spoilt += [f"{row['suite']}: {row['task']}: {name} failed" for name in failed]
    if spoilt:
        raise ValueError("the run did not come through: " + "; ".join(spoilt))


@dataclass
class Ledger:
    """One file.

    Attributes:
        head: comment lines, each with its ``#``, that say what the file is.
        history: a line a renewal.
        rows: cells, in the file's order.
    """

    head: list[str]
    history: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, head: Sequence[str], columns: int) -> Ledger:
        """The file, or an empty ledger where there is none. Raises ValueError for a line of another number of columns."""
        found = cls(list(head))
        if not path.exists():
            return found
        past = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                if past:
                    found.history.append(line.removeprefix("#").strip())
                past = past or line == HISTORY
            elif line.strip():
                cells = tuple(cell.strip() for cell in line.split(BETWEEN.strip()))
                if len(cells) != columns:
                    raise ValueError(f"{path.name}: {len(cells)} columns instead of {columns}: {line}")
                found.rows.append(cells)
        return found

    def write(self, path: Path, rows: Iterable[Sequence[str]], entry: str, reason: str, notes: Iterable[str] = ()) -> None:
        """Replace the rows, and add to the history what happened, why, and notes, a line each. Raises NoReason, and then writes nothing."""
        if not reason.strip():
            raise NoReason(f"{path.name} is renewed with a reason only")
        self.rows = [tuple(cells) for cells in rows]
        self.history += [f"{entry}: {' '.join(reason.split())}", *notes]
        wide = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = [BETWEEN.join(cell.ljust(size) for cell, size in zip(cells, wide, strict=True)).rstrip() for cells in self.rows]
        path.write_text("\n".join([*self.head, HISTORY, *(f"# {line}" for line in self.history), "", *lines]) + "\n", encoding="utf-8")
