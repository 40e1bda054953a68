"""The bench: takes contenders in turns, keeps CPU and wall time of every round, compares with bars.

What it is: timing and results only. A job is called once a round and is measured whole, or measures the stretch of it that counts
and returns that (`with Stretch() as stretch: …; return stretch`): opening and closing a client is no part of sending a record.
May assume: one process, whose CPU time is the contenders' (brokers are other processes). Must not: know a contender.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

OURS = "wireproto"
TOLERANCE = 0.85  # of a codec's bar: what noise may take
CLIENT_TOLERANCE = 0.5  # of a client's bar: brokers and networks are in the figure
FLOOR_FACTOR = 2.0  # what costs no more than this times its floor has not failed, whatever its bar says
ATTEMPTS = 3  # a gate fails when the best of so many comparisons misses


class Stretch:
    """CPU seconds of this process (all threads) and wall seconds between enter and exit."""

    cpu = wall = 0.0

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall


Job = Callable[[], "Stretch | object"]


@dataclass
class Contender:
    """Microseconds per unit, a round each."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    note: str = ""

    def facts(self) -> dict[str, Any]:
        if not self.cpu:
            return {"note": self.note}
        return {
            "cpu_us_min": min(self.cpu),
            "cpu_us_median": statistics.median(self.cpu),
            "wall_us_min": min(self.wall),
            "wall_us_median": statistics.median(self.wall),
            "rounds": len(self.cpu),
        }


@dataclass
class Row:
    """One task and its contenders.

    Attributes:
        bars: by peer, how many times our cost theirs must be at least; `by` says which cost.
        rates: by peer, how many times their rate (of wall time) ours must be at least.
        gate: a miss by more than `fails_below` (a factor) fails the run.
        floor: the contender that does the bare minimum, if there is one: near it no bar can fail.
    """

    suite: str
    task: str
    unit: str
    count: int
    contenders: dict[str, Contender]
    ours: str
    bars: Mapping[str, float]
    by: Literal["cpu", "wall"]
    gate: bool
    fails_below: float
    rates: Mapping[str, float] = field(default_factory=dict)
    instructions: dict[str, float] = field(default_factory=dict)
    floor: str | None = None

    def ratio(self, peer: str, by: str = "cpu") -> float | None:
        """How many times our cost theirs is, by the best round of each."""
        mine, theirs = getattr(self.contenders[self.ours], by), getattr(self.contenders[peer], by)
        return min(theirs) / max(min(mine), 1e-9) if mine and theirs else None

    def margins(self) -> list[tuple[float, str]]:
        """Each bar that was measured: the ratio as a part of the bar, and the bar in words."""
        found = []
        for bars, by in ((self.bars, self.by), (self.rates, "wall")):
            for peer, bar in bars.items():
                ratio = self.ratio(peer, by) if peer in self.contenders else None
                if ratio is not None:
                    found.append((ratio / bar, f"{self.suite}: {self.task}: {ratio:.2f}x {peer} ({by}), the bar is {bar:g}x"))
        return found

    def margin(self) -> float:
        """The worst of the margins; 1 without a bar."""
        return min((margin for margin, _ in self.margins()), default=1.0)

    def near_floor(self) -> bool:
        """Whether CPU and wall time are within `FLOOR_FACTOR` of the floor's, measured in the same run."""
        ratios = [self.ratio(self.floor, by) for by in ("cpu", "wall")] if self.floor else [None]
        return all(ratio is not None and ratio >= 1 / FLOOR_FACTOR for ratio in ratios)

    def misses(self) -> list[str]:
        """Bars missed, by whatever little."""
        return [text for margin, text in self.margins() if margin < 1]

    def failures(self) -> list[str]:
        """Bars missed by more than the gate lets pass."""
        if self.near_floor():
            return []
        return [text for margin, text in self.margins() if self.gate and margin < self.fails_below]

    def facts(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "task": self.task,
            "unit": self.unit,
            "count": self.count,
            "ours": self.ours,
            "by": self.by,
            "gate": self.gate,
            "bars": dict(self.bars),
            "rates": dict(self.rates),
            "instructions": self.instructions,
            "contenders": {name: contender.facts() for name, contender in self.contenders.items()},
            "ratios": {p: {"cpu": self.ratio(p), "wall": self.ratio(p, "wall")} for p in self.contenders if p != self.ours},
        }


@dataclass
class Bench:
    """Runs comparisons and keeps their rows.

    Attributes:
        quick: fewer rounds and records.
        suite: name of the suite that runs now.
        clients: whether it runs clients against brokers: their gates are half their bars, codec gates their bars less 15 %; the best of
            three attempts counts.
        show: called with each finished row, so that a long run talks.
        instructions: instructions a call, by task and contender, where they were counted (instructions.py).
    """

    quick: bool = False
    suite: str = ""
    clients: bool = False
    show: Callable[[Row], None] = lambda row: None
    rows: list[Row] = field(default_factory=list)
    brokers: dict[str, str] = field(default_factory=dict)
    instructions: dict[str, dict[str, float]] = field(default_factory=dict)

    def compare(
        self,
        task: str,
        count: int,
        jobs: Mapping[str, Job],
        *,
        unit: str = "record",
        rounds: int = 5,
        passes: int = 1,
        few: Mapping[str, int] | None = None,
        ours: str = OURS,
        bars: Mapping[str, float] | None = None,
        rates: Mapping[str, float] | None = None,
        by: Literal["cpu", "wall"] = "cpu",
        gate: bool = True,
        fails_below: float | None = None,
        warm: bool = True,
        floor: str | None = None,
    ) -> Row:
        """Time the jobs by turns.

        Args:
            count: units that one call of a job does.
            jobs: by contender. One that fails is left out from there on, with its error as its note; ours may not fail.
            passes: calls of a job in one round, `count` units each: the cost while it goes on, not just after another had the caches.
            few: contenders that get fewer rounds than the others, being slow.
            bars: by peer, least ratio of its cost to ours; `by` says which cost.
            rates: by peer, least ratio of our rate to its, in wall time.
            gate: whether a bar missed by more than `fails_below` (None: what the suite's kind says) fails the run.
            warm: call each once before, untimed.
            floor: the contender that shows what cannot be gone below; no bar fails within `FLOOR_FACTOR` of it.
        """
        factor = fails_below if fails_below is not None else CLIENT_TOLERANCE if self.clients else TOLERANCE
        best: Row | None = None
        for _ in range(ATTEMPTS if gate else 1):
            row = Row(self.suite, task, unit, count, {n: Contender() for n in jobs}, ours, bars or {}, by, gate, factor, rates or {})
            row.floor = floor
            take_turns(row, jobs, rounds, passes, few or {}, warm)
            if best is None or row.margin() > best.margin():
                best = row
            if not best.failures():
                break
        assert best is not None
        best.instructions = self.instructions.get(task, {})
        self.rows.append(best)
        self.show(best)
        return best


def take_turns(row: Row, jobs: Mapping[str, Job], rounds: int, passes: int, few: Mapping[str, int], warm: bool) -> None:
    """Fill the row's contenders, alternating."""
    for turn in range(-1 if warm else 0, rounds):
        for name, job in jobs.items():
            into = row.contenders[name]
            if into.note or len(into.cpu) >= few.get(name, rounds):
                continue
            try:
                took = timed(job, passes if turn >= 0 else 1)
            except Exception as why:
                if name.startswith(OURS):
                    raise
                into.note = f"{type(why).__name__}: {why}"
                continue
            if turn >= 0:
                into.cpu.append(took.cpu / (row.count * passes) * 1e6)
                into.wall.append(took.wall / (row.count * passes) * 1e6)


def timed(job: Job, passes: int = 1) -> Stretch:
    """Calls, with the collector off unless the job times itself (clients keep it on, as their users do)."""
    gc.collect()
    gc.disable()
    try:
        with Stretch() as whole:
            inner = job()
            for _ in range(passes - 1):
                job()
    finally:
        gc.enable()
    return inner if isinstance(inner, Stretch) else whole
