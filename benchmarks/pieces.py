"""A run in pieces: what each suite found, kept in a folder until all have run, so that a run of an hour may be cut anywhere.

A run is known by its sources and by what it was asked for; other ones begin anew. Must not: measure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Facts = dict[str, Any]


@dataclass
class Run:
    """A run that may have begun earlier.

    Attributes:
        folder: where its pieces are.
        suites: all that it is to run, in order.
        pieces: by suite, what it found.
        resumed: whether some were there already.
    """

    folder: Path
    suites: Sequence[str]
    pieces: dict[str, Facts]
    resumed: bool

    @classmethod
    def open(cls, folder: Path, suites: Sequence[str], asked: Facts, *, fresh: bool = False) -> Run:
        """The run that was asked for: gone on with where it was cut, else a new one.

        Args:
            asked: what must be equal for pieces to belong together.
            fresh: begin anew in any case.
        """
        about = folder / "run.json"
        wanted = {**asked, "suites": list(suites)}
        pieces: dict[str, Facts] = {}
        begun = json.loads(about.read_text(encoding="utf-8")) if about.exists() and not fresh else None
        if begun == wanted:
            kept = {suite: folder / f"{suite}.json" for suite in suites}
            pieces = {suite: json.loads(path.read_text(encoding="utf-8")) for suite, path in kept.items() if path.exists()}
        if len(pieces) == len(suites):
            pieces = {}  # it was finished: this is the next one
        folder.mkdir(parents=True, exist_ok=True)
        if not pieces:
            for path in folder.glob("*.json"):
                path.unlink()
            about.write_text(json.dumps(wanted), encoding="utf-8")
        return cls(folder, suites, pieces, bool(pieces))

    def left(self) -> list[str]:
        """Suites that have not run."""
        return [suite for suite in self.suites if suite not in self.pieces]

    def add(self, suite: str, facts: Facts) -> None:
        """Keep what a suite found."""
        part = self.folder / f"{suite}.part"
        part.write_text(json.dumps(facts), encoding="utf-8")
        part.rename(self.folder / f"{suite}.json")
        self.pieces[suite] = facts

    def rows(self) -> list[Facts]:
        """Of all suites that have run, in order."""
        return [row for suite in self.suites if suite in self.pieces for row in self.pieces[suite]["rows"]]

    def brokers(self) -> dict[str, str]:
        """What ran beside."""
        return {name: words for piece in self.pieces.values() for name, words in piece["brokers"].items()}

    def failures(self) -> list[str]:
        """Everything that failed."""
        broken = [line for suite in self.suites if suite in self.pieces for line in self.pieces[suite]["broken"]]
        return [*broken, *(line for row in self.rows() for line in row["failures"])]
