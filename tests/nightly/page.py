"""The newest result of each piece in this clone, and which of them are older than the work.

What it is: rows read from a page in .cache/nightly and written to it; the page is the only store. It is not committed: a result is of the
sources that lay here when the piece ran, and the next commit makes it old.
Must not: run anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from . import pieces, work
from .pieces import Piece

PAGE = work.CLONE / ".cache" / "nightly" / "results.md"
HEAD = """# What runs outside of `make test`

Written by `make nightly`, whose pieces are too long for every run, or need more than a clone: the newest result of each.
`make nightly PIECES="wheel demo"` runs some, and goes on where they ended; `make nightly ARGS=--stale` tells which results are of older
sources than what lies here now. *Sources* is a digest of the files that the piece depends on.

| piece | what it is | verdict | figure | minutes | date | commit | sources |
|---|---|---|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| `(\S+)` \|" + r"([^|]*)\|" * 7 + "$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """What became of a piece: when, on which commit and digest of sources."""

    verdict: str
    figure: str
    minutes: str
    date: str
    commit: str
    sources: str


def read(page: Path | None = None) -> dict[str, Row]:
    """The rows that the page has, by piece."""
    page = page or PAGE
    if not page.exists():
        return {}
    return {found[0]: Row(*(cell.strip() for cell in found[2:])) for found in _ROW.findall(page.read_text(encoding="utf-8"))}


def write(rows: Mapping[str, Row], page: Path) -> None:
    """The page with these rows, in the order of the pieces; a piece without a row says so."""
    lines = []
    for piece in pieces.PIECES:
        row = rows.get(piece.name, Row("never run", "", "", "", "", ""))
        cells = [piece.what, *astuple(row)]
        lines.append(f"| `{piece.name}` | " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(HEAD + "".join(lines), encoding="utf-8")


def record(piece: Piece, row: Row, page: Path | None = None) -> None:
    """Put one row in; the others stay."""
    page = page or PAGE
    write(read(page) | {piece.name: row}, page)


def stale(piece: Piece, row: Row | None, clone: Path = work.CLONE) -> str:
    """Why this row says nothing of what lies here now; empty where it does."""
    if row is None or not row.date:
        return "never run"
    if row.sources != work.digest(piece.places, clone):
        changed = work.git("diff", "--name-only", row.commit.rstrip("+"), "--", *piece.places, clone=clone)
        known = f"{len(changed.split())} files changed since" if changed else "other sources than here"
        return f"{row.verdict} at {row.commit} of {row.date}: {known}"
    if row.verdict.startswith("ok, "):
        return f"{row.verdict} at {row.commit} of {row.date}: the same command goes on"
    return ""
