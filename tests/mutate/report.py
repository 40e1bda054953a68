"""What there is to tell: the survivors with their line before and after, and the score of each group and seed.

What it is: pure text from results. Must not: run or judge.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .sample import GROUPS
from .source import Mutant, brief
from .state import NOTICED, Result


@dataclass(frozen=True)
class Told:
    """A fault that was picked, what was found of it (None: nothing yet), and whether that was before tests changed."""

    mutant: Mutant
    result: Result | None
    old: bool = False

    def kind(self, argued: Mapping[str, str]) -> str:
        if self.result is None:
            return "left"
        if self.result.kind in NOTICED:
            return "caught"
        if self.result.kind == "survived":
            return "argued" if self.mutant.key in argued else "survived"
        return self.result.kind


def survivors(told: Iterable[Told], argued: Mapping[str, str]) -> list[Told]:
    """Those that no test noticed and nobody argued away, in the order of the files."""
    left = [one for one in told if one.kind(argued) == "survived"]
    return sorted(left, key=lambda one: (one.mutant.group, one.mutant.edits[0].path, one.mutant.edits[0].first, one.mutant.key))


def survivor(one: Told) -> str:
    assert one.result is not None
    words = [one.result.by, "before tests changed" * one.old]
    note = "; ".join(word for word in words if word)
    edit = one.mutant.edits[0]
    place = f"{edit.path}:{edit.first}{f'   ({note})' * bool(note)}"
    return f"{one.mutant.key}\n    {place}\n    - {brief(one.mutant.before)}\n    + {brief(one.mutant.after)}"


def row(name: str, told: Iterable[Told], argued: Mapping[str, str]) -> str:
    """Of some faults: how many were judged, caught, argued, survived, the share of caught and argued; how many are left."""
    found = collections.Counter(one.kind(argued) for one in told)
    judged = found["caught"] + found["argued"] + found["survived"]
    counts = f"{judged:>8}{found['caught']:>8}{found['argued']:>8}{found['survived']:>10}{found['left']:>6}"
    share = f"{100 * (judged - found['survived']) / judged:>7.1f}%" if judged else f"{'-':>8}"
    return f"{name:<18}{counts}{share}"


def table(told: Iterable[Told], argued: Mapping[str, str], names: Sequence[str], of: Callable[[Told], str], total: str) -> list[str]:
    rows: dict[str, list[Told]] = {name: [] for name in names}
    every = list(told)
    for one in every:
        rows[of(one)].append(one)
    return [*(row(name, found, argued) for name, found in rows.items() if found), row(total, every, argued)]


def scores(seeds: Mapping[int, Sequence[Told]], argued: Mapping[str, str]) -> str:
    """A table: each group of each seed, each seed, and all seeds together, where a fault of several counts once."""
    lines = [f"{'':<18}{'judged':>8}{'caught':>8}{'argued':>8}{'survived':>10}{'left':>6}{'score':>8}"]
    for seed, told in seeds.items():
        lines += table(told, argued, GROUPS, lambda one: one.mutant.group, f"seed {seed}")
    every = {one.mutant.key: one for told in seeds.values() for one in told}
    if len(seeds) > 1:
        lines += table(every.values(), argued, GROUPS, lambda one: one.mutant.group, "all")
    else:
        lines.append(row("all", every.values(), argued))
    return "\n".join(lines)


def text(seeds: Mapping[int, Sequence[Told]], argued: Mapping[str, str]) -> str:
    every = {one.mutant.key: one for told in seeds.values() for one in told}
    parts = [survivor(one) for one in survivors(every.values(), argued)]
    return "\n".join([*(["=== survivors", *parts, ""] if parts else []), "=== score", scores(seeds, argued)])
