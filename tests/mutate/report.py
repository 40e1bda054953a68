"""What a run has to tell: the survivors with their line before and after, and the score of each group.

What it is: pure text from results. Must not: run or judge.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping

from .sample import GROUPS
from .source import brief
from .state import NOTICED, Result


def survivors(results: Iterable[Result], argued: Mapping[str, str]) -> list[Result]:
    """Those that no test noticed and nobody argued away, in the order of the files."""
    left = [one for one in results if one.kind == "survived" and one.key not in argued]
    return sorted(left, key=lambda one: (one.group, one.place, one.key))


def survivor(one: Result) -> str:
    note = f"   ({one.by})" if one.by else ""
    return f"{one.key}\n    {one.place}{note}\n    - {brief(one.before)}\n    + {brief(one.after)}"


def scores(results: Iterable[Result], argued: Mapping[str, str]) -> str:
    """A table: of each group how many faults were judged, caught, argued, and the share of both."""
    counts: dict[str, collections.Counter[str]] = {group: collections.Counter() for group in GROUPS}
    for one in results:
        if one.kind != "invalid":
            kind = "caught" if one.kind in NOTICED else "argued" if one.key in argued else "survived"
            counts[one.group][kind] += 1
    lines = [f"{'':<12}{'faults':>8}{'caught':>8}{'argued':>8}{'survived':>10}{'score':>8}"]
    for group, found in [*counts.items(), ("all", sum(counts.values(), collections.Counter()))]:
        total = sum(found.values())
        if total:
            share = 100 * (total - found["survived"]) / total
            lines.append(f"{group:<12}{total:>8}{found['caught']:>8}{found['argued']:>8}{found['survived']:>10}{share:>7.1f}%")
    return "\n".join(lines)


def text(results: Iterable[Result], argued: Mapping[str, str]) -> str:
    kept = list(results)
    left = survivors(kept, argued)
    parts = [survivor(one) for one in left]
    return "\n".join([*(["=== survivors", *parts, ""] if parts else []), "=== score", scores(kept, argued)])
