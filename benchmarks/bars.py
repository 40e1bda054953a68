"""The peers' bars (bars.txt): how many times our cost a peer's must be at least, in a full run.

A bar is set from a full run at `PART` of what was measured and never below 1, but for contenders that a row says may be ahead (a bare
socket, a C program, ourselves in another way). Must not: measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .ledger import Ledger, NoReason, sound

FILE = Path(__file__).with_name("bars.txt")
HEAD = (
    "# Peers' bars: times our cost that theirs is at least, in CPU or wall time of a full run (bars.py).",
    "# Written by  make bench ARGS=\"--bars 'why'\"  from the full run before it, never by hand.",
    "# suite | task | peer | cost | bar | measured | date | commit",
)
PART = 0.8


@dataclass
class Bars:
    """The recorded ones: by suite and task, (peer, cost) to bar."""

    values: dict[tuple[str, str], dict[tuple[str, str], float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = FILE) -> Bars:
        found = cls()
        for suite, task, peer, cost, bar, *_ in Ledger.read(path, HEAD, 8).rows:
            found.values.setdefault((suite, task), {})[peer, cost] = float(bar)
        return found

    def of(self, suite: str, task: str) -> dict[tuple[str, str], float]:
        """A row's bars."""
        return self.values.get((suite, task), {})


def bar(ratio: float, *, may_lead: bool) -> float:
    """The bar that a measured ratio sets: two digits."""
    part = float(f"{PART * ratio:.2g}")
    return part if may_lead else max(1.0, part)


def renew(run: Mapping[str, Any], reason: str, path: Path = FILE) -> list[str]:
    """Set every bar anew from a full run's results.json. Returns, in words, the bars that became lower, and peers that are ahead of us.

    What the machine of the run could not tell, two threads on one core for one, keeps the bars that it has. Bars that are gone, with their
    row or their peer, are among the words. Raises NoReason; ValueError when the run is not a whole full one, or a contender or a suite
    failed in it.
    """
    if not reason.strip():
        raise NoReason(f"{path.name} is renewed with a reason only")
    if run["quick"] or not run["complete"]:
        raise ValueError("bars are set from a full run of every suite")
    sound(run)
    ledger = Ledger.read(path, HEAD, 8)
    before = {cells[:4]: float(cells[4]) for cells in ledger.rows}
    rows: list[tuple[str, ...]] = []
    lower: list[str] = []
    for row in run["rows"]:
        if not row["judged"]:
            rows += [kept for kept in ledger.rows if kept[:2] == (row["suite"], row["task"])]
            continue
        for peer, cost in (tuple(pair) for pair in row["held"]):
            ratio = row["ratios"].get(peer, {}).get(cost)
            if ratio is None:
                raise ValueError(f"{row['suite']}: {row['task']}: {peer} was not measured")
            may = peer in row["ahead"]
            new, old = bar(ratio, may_lead=may), before.get((row["suite"], row["task"], peer, cost))
            what = f"{row['suite']}: {row['task']}: {peer} ({cost})"
            if old is not None and new < old:
                lower.append(f"lower: {what}: {old:g}x to {new:g}x, measured {ratio:.2f}x")
            if ratio < 1 and not may:
                lower.append(f"ahead of us: {what}: measured {ratio:.2f}x, the bar is {new:g}x")
            rows.append((row["suite"], row["task"], peer, cost, f"{new:g}", f"{ratio:.3g}", run["date"][:10], str(run["commit"])))
    here = {cells[:4] for cells in rows}
    lower += [
        f"gone: {suite}: {task}: {peer} ({cost}), {was:g}x"
        for (suite, task, peer, cost), was in before.items()
        if (suite, task, peer, cost) not in here
    ]
    ledger.write(path, sorted(rows), f"{run['date'][:10]} {run['commit']}", reason, lower)
    return lower
