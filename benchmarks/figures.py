"""Our own recorded figures (figures.txt), which a row may exceed by its tolerance at most: 15 % where the codec is counted, else 30 %.

Three measures: *instructions* a unit, counted by callgrind (instructions.py); *cpu*, microseconds a unit beside the yardstick of the same
run (yardstick.py); *MB* resident. Interpreter and compiler are part of each: it is exact for the build that it was recorded on; another
build of the same CPython minor version may exceed it by half; another minor version has none.
A count of instructions far below its figure, by 15 % and by half, is a fault, too: the row does less than it did, or there is a gain to be
recorded, beside which the next loss shows.
Must not: measure. What a run found comes in, faults in words go out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .ledger import Ledger, NoReason, sound

FILE = Path(__file__).with_name("figures.txt")
HEAD = (
    "# Our own figures; a run may exceed each by its tolerance at most (figures.py). Written by  make bench ARGS=\"--renew 'why'\"",
    "# from the run before it, never by hand.",
    "# suite | task | measure | figure | build | machine | date | commit",
)
CODEC, OTHERS, FOREIGN = 0.15, 0.30, 0.50  # tolerances
BELOW = 0.50  # of counts that depend on how often a client is woken, which differs by a third
_CODEC = ("codec ", "wire", "engine")  # suites of the codec and of the engine, which nothing outside this process touches


def build() -> str:
    """This interpreter, and who compiled it and the core."""
    from wireproto import _codec

    found = re.search(rb"GCC: \([^)]*\) [\d.]+|clang version [\d.]+", Path(str(_codec.__file__)).read_bytes())
    core = re.sub(r": \([^)]*\)", "", found[0].decode()) if found else "unknown"
    return f"{platform.python_version()} by {platform.python_compiler()}, core by {core}"


def minor(words: str) -> str:
    """The minor version of a build."""
    return ".".join(words.split()[0].split(".")[:2])


def tolerance(suite: str, measure: str) -> float:
    """What a figure may be exceeded by, as a part of it."""
    return CODEC if measure == "instructions" and suite.startswith(_CODEC) else OTHERS


Key = tuple[str, str, str]  # suite, task, measure


@dataclass
class Figures:
    """The recorded ones.

    Attributes:
        values: of this build.
        foreign: of another one of the same minor version.
    """

    values: dict[Key, float] = field(default_factory=dict)
    foreign: dict[Key, float] = field(default_factory=dict)

    @property
    def judging(self) -> bool:
        """Whether there are any for this minor version; without one nothing can be held, which a run must say."""
        return bool(self.values or self.foreign)

    @classmethod
    def read(cls, path: Path = FILE, here: str = "") -> Figures:
        """Those of the file for a build: this one."""
        here, known = here or build(), cls()
        for suite, task, measure, figure, words, *_ in Ledger.read(path, HEAD, 8).rows:
            if minor(words) == minor(here):
                (known.values if words == here else known.foreign)[suite, task, measure] = float(figure)
        return known

    def knows(self, *key: str) -> bool:
        """Whether there is a figure of a suite, task and measure that this build is held to."""
        return key in self.values or (not self.values and key in self.foreign)

    def fault(self, suite: str, task: str, measure: str, value: float) -> str | None:
        """What is wrong with a figure that a run found, in words; None when it holds."""
        key, allowed = (suite, task, measure), tolerance(suite, measure)
        recorded, where = self.values.get(key), ""
        if recorded is None and not self.values:
            recorded, where, allowed = self.foreign.get(key), " on another build", FOREIGN
        if recorded is None:
            return f"{suite}: {task}: no figure of {measure} is recorded (this run: {value:.4g})"
        over = value / recorded - 1
        if over < -(CODEC if suite.startswith(_CODEC) else BELOW) and measure == "instructions" and not where:
            words = f"{suite}: {task}: {value:.4g} {measure}, recorded are {recorded:.4g}: {over:+.0%}"
            return f"{words}: does it still do the work? If so, renew the figure"
        if over <= allowed:
            return None
        return f"{suite}: {task}: {value:.4g} {measure}, recorded are {recorded:.4g}{where}: {over:+.0%}, {allowed:.0%} is allowed"


def renew(run: Mapping[str, Any], reason: str, path: Path = FILE, here: str = "") -> list[str]:
    """Write a run's figures (its results.json) into the file; rows of other builds, and those that the run did not measure, stay.

    Rows of a suite that ran in full and did not measure them any more go, but not where the machine could not tell. Returns what changed by
    more than a hundredth, in words. Raises NoReason; ValueError when a contender or a suite failed in the run.

    Args:
        here: the build that ran; that of the run.
    """
    if not reason.strip():
        raise NoReason(f"{path.name} is renewed with a reason only")
    sound(run)
    ledger, here, changes = Ledger.read(path, HEAD, 8), here or run["build"], []
    table = {(*row[:3], row[4]): row for row in ledger.rows}
    measured = {(suite, task, measure) for suite, task, measure, _ in found(run)}
    measured |= {(row["suite"], row["task"], "cpu") for row in run["rows"] if not row["judged"]}
    for key in [key for key in table if key[3] == here and (key[0], key[2]) in whole(run) and key[:3] not in measured]:
        changes.append(f"{key[0]}: {key[1]}: {key[2]} is measured no more")
        del table[key]
    for suite, task, measure, value in found(run):
        key = (suite, task, measure, here)
        before = float(table[key][3]) if key in table else None
        if before is None or abs(value / before - 1) > 0.01:
            change = f"{before:.4g} to {value:.4g} ({value / before - 1:+.0%})" if before else f"{value:.4g} (new)"
            changes.append(f"{suite}: {task}: {measure} {change}")
        table[key] = (suite, task, measure, f"{value:.5g}", here, run["machine"]["processor"], run["date"][:10], str(run["commit"]))
    ledger.write(path, sorted(table.values()), f"{run['date'][:10]} {run['commit']}", reason)
    return changes


def found(run: Mapping[str, Any]) -> Iterable[tuple[str, str, str, float]]:
    """Suite, task, measure and value of every figure of a run."""
    for row in run["rows"]:
        for measure, value in row["figures"].items():
            yield row["suite"], row["task"], measure, value


def whole(run: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Suites and measures of which the run has measured every row there is."""
    return set() if run["quick"] else {(suite, measure) for suite, _, measure, _ in found(run)}
