"""`make nightly PIECES="wheel demo" ARGS="--minutes 20"`: runs pieces, each for 38 minutes at most, and writes .cache/nightly/results.md.

    python -m nightly [piece …] [--minutes M] [--again] [--stale] [--list]

A piece whose time is up goes on at the next call, as long as its sources are the same; one whose result is of the sources that lie here is
left alone unless it failed (`--again` runs it all the same). Exit code 0: all passed; 3: something is left to do; 1: something failed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys

from . import page, run
from .pieces import AGAIN, MINUTES, Piece, named


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", help="which; all without one")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of each piece (default: {MINUTES:.0f})")
    parser.add_argument("--again", action="store_true", help="from the start, whatever passed before")
    parser.add_argument("--stale", action="store_true", help="run nothing; tell which results are of other sources than these")
    parser.add_argument("--list", action="store_true", help="run nothing; tell what there is")
    given = parser.parse_args(arguments)
    chosen = named(given.pieces)
    if given.list or given.stale:
        return tell(chosen, stale=given.stale)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it; pieces' tests of Ctrl-C must not
    codes = [one(piece, given.minutes, again=given.again) for piece in chosen]
    return 1 if 1 in codes else max(codes)


def tell(chosen: list[Piece], *, stale: bool) -> int:
    rows = page.read()
    for piece in chosen:
        why = page.stale(piece, rows.get(piece.name))
        if stale and why:
            print(f"{piece.name}: {why}")
        elif not stale:
            print(f"{piece.name:<16}{piece.what}: {', '.join(step.name for step in piece.steps)}")
    return 0


def one(piece: Piece, minutes: float, *, again: bool) -> int:
    """Run a piece, or leave it alone; 0, 1 or 3."""
    known = page.read().get(piece.name)
    if again:
        (run.FOLDER / f"{piece.name}.json").unlink(missing_ok=True)
        shutil.rmtree(run.FOLDER / piece.name, ignore_errors=True)
    elif known is not None and known.verdict == "ok" and not page.stale(piece, known):
        say(f"{piece.name}: ok on {known.date} at {known.commit}, of these sources")
        return 0
    row = run.run(piece, minutes, say, run.FOLDER)
    if row is None:
        say(f"{piece.name}: steps are left; the same command goes on")
        return AGAIN
    page.record(piece, row)
    say(f"{piece.name}: {row.verdict}: {row.figure}")
    if row.verdict.startswith("FAILED"):
        return 1
    return 0 if row.verdict == "ok" else AGAIN


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
