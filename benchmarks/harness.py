"""The bench: takes contenders in turns, keeps CPU and wall time of every round, holds the row to its figures and bars.

What it is: timing and results only. A job is called once a round and is measured whole, or measures the stretch of it that counts
and returns that (`with Stretch() as stretch: …; return stretch`): opening and closing a client is no part of sending a record.
May assume: one process, whose CPU time is the contenders' (brokers are other processes). Must not: know a contender.
"""

from __future__ import annotations

import faulthandler
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, Self

from . import instructions, yardstick
from .bars import Bars
from .figures import Figures
from .servers import Servers

OURS = "wireproto"
LONGEST = 300.0  # seconds of one call of a job; a contender that hangs ends the run there, with the line it stands at
ATTEMPTS = 3  # a row fails when so many comparisons, each contender's best round of all of them, leave it so
Cost = Literal["cpu", "wall"]


class Watch(Protocol):
    """Told when a stretch begins and ends."""

    def begin(self) -> None: ...
    def end(self) -> None: ...


class Stretch:
    """CPU seconds of this process (all threads) and wall seconds between enter and exit.

    Attributes:
        watch: told of each stretch, where something else counts meanwhile (instructions.py).
    """

    watch: Watch | None = None
    cpu = wall = 0.0

    def __enter__(self) -> Self:
        if self.watch:
            self.watch.begin()
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        if self.watch:
            self.watch.end()


Job = Callable[[], "Stretch | object"]


@dataclass
class Contender:
    """Microseconds per unit, a round each; `note` is why it failed."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    note: str = ""

    def facts(self) -> dict[str, Any]:
        if self.note or not self.cpu:
            return {"note": self.note or "not run"}
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
        by: the cost that the row is about.
        held: peer and cost of each bar that the row must have.
        ahead: those peers that may be ahead of us, whose bar may be below 1.
        bars: by peer and cost, how many times our cost theirs must be at least.
        judged: whether bars fail the row (a quick run measures too little for them).
        figures: by measure, our own cost a unit; `faults` says what is wrong with them.
        instructions: instructions of a whole call by contender, where they were counted.
    """

    suite: str
    task: str
    unit: str
    count: int
    contenders: dict[str, Contender]
    ours: str = OURS
    by: Cost = "cpu"
    held: Sequence[tuple[str, str]] = ()
    ahead: Sequence[str] = ()
    bars: Mapping[tuple[str, str], float] = field(default_factory=dict)
    judged: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    instructions: dict[str, float] = field(default_factory=dict)

    def ratio(self, peer: str, by: str = "cpu") -> float | None:
        """How many times our cost theirs is, by the best of as many rounds of each."""
        mine, theirs = getattr(self.contenders[self.ours], by), getattr(self.contenders[peer], by)
        if not mine or not theirs or self.contenders[self.ours].note or self.contenders[peer].note:
            return None
        both = min(len(mine), len(theirs))
        return float(min(theirs[:both]) / max(min(mine[:both]), 1e-9))

    def crashes(self) -> list[str]:
        """Contenders that failed."""
        return [f"{self.suite}: {self.task}: {name} failed: {c.note.splitlines()[0]}" for name, c in self.contenders.items() if c.note]

    def absent(self) -> list[str]:
        """Peers that have a bar and do not take part, or take part and have none."""
        lost = [f"{peer} has a bar and is not among the contenders" for peer, _ in self.bars if peer not in self.contenders]
        if self.judged:
            lost += [f"{peer} has no bar ({cost})" for peer, cost in self.held if (peer, cost) not in self.bars]
        return [f"{self.suite}: {self.task}: {words}" for words in lost]

    def misses(self) -> list[str]:
        """Bars missed."""
        found = []
        for (peer, cost), bar in self.bars.items() if self.judged else ():
            ratio = self.ratio(peer, cost) if peer in self.contenders else None
            if ratio is not None and ratio < bar:
                found.append(f"{self.suite}: {self.task}: {ratio:.2f}x {peer} ({cost}), the bar is {bar:g}x")
        return found

    def doubtful(self) -> bool:
        """Whether more rounds may tell another story: a bar missed, a figure of time over its tolerance."""
        return bool(self.misses()) or any(" cpu" in fault and "recorded are" in fault for fault in self.faults)

    def failures(self) -> list[str]:
        """Everything that fails the run."""
        return [*self.crashes(), *self.absent(), *self.misses(), *self.faults]

    def facts(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "task": self.task,
            "unit": self.unit,
            "count": self.count,
            "ours": self.ours,
            "by": self.by,
            "judged": self.judged,
            "held": [list(pair) for pair in self.held],
            "ahead": list(self.ahead),
            "bars": [[*pair, bar] for pair, bar in self.bars.items()],
            "figures": self.figures,
            "failures": self.failures(),
            "instructions": self.instructions,
            "contenders": {name: contender.facts() for name, contender in self.contenders.items()},
            "ratios": {p: {"cpu": self.ratio(p), "wall": self.ratio(p, "wall")} for p in self.contenders if p != self.ours},
        }


class Sizes(NamedTuple):
    """Units of a round.

    Attributes:
        timed: in a full run.
        counted: where instructions are counted; a figure is of so many.
        tried: in a quick run, whose rounds show only that each contender works.
    """

    timed: int
    counted: int
    tried: int


@dataclass
class Bench:
    """Runs comparisons and keeps their rows.

    Attributes:
        quick: our own figures are held and each contender runs once; no bars.
        counting: whether this process counts instructions: a suite may leave out whatever else it does.
        suite: name of the suite that runs now.
        module: its module, by its whole name.
        show: called with each finished row, so that a long run talks.
        figures, bars: what rows are held to.
        counter, servers: what counts instructions, and brokers that suites share; benches of one run have them in common.
        counted: instructions a call and calls' units, by task and contender (`count`).
        uncounted: why instructions could not be counted, if so.
        brokers: what ran beside, in words.
    """

    quick: bool = False
    counting: bool = False
    suite: str = ""
    module: str = ""
    show: Callable[[Row], None] = lambda row: None
    figures: Figures = field(default_factory=Figures)
    bars: Bars = field(default_factory=Bars)
    counter: instructions.Counter = field(default_factory=instructions.Counter)
    servers: Servers = field(default_factory=Servers)
    rows: list[Row] = field(default_factory=list)
    brokers: dict[str, str] = field(default_factory=dict)
    counted: dict[str, dict[str, float]] = field(default_factory=dict)
    uncounted: str = ""

    def units(self, sizes: Sizes) -> int:
        """How many a round here does."""
        return sizes.counted if self.counting else sizes.tried if self.quick else sizes.timed

    def count(self, *where: str) -> None:
        """Count the instructions of the suite's tasks in a process under callgrind.

        Args:
            where: what the module's `tasks` takes besides the bench: addresses of brokers.
        """
        try:
            self.counted |= self.counter.count(self.module, *where)
        except instructions.Unavailable as why:
            self.uncounted = str(why)

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
        by: Cost = "cpu",
        rates: Sequence[str] = (),
        ahead: Sequence[str] = (),
        shown: Sequence[str] = (),
        measures: Sequence[str] = ("instructions",),
        judged: bool = True,
        warm: bool = True,
    ) -> Row:
        """Time the jobs by turns.

        Args:
            count: units that one call of a job does.
            jobs: by contender. One that fails is left out from there on, and fails the row.
            passes: calls of a job in one round, `count` units each: the cost while it goes on, not just after another had the caches.
            few: contenders that get fewer rounds than the others, being slow; beside them, ours has as few.
            by: the cost that peers' bars are about.
            rates: peers with a bar in wall time besides.
            ahead: contenders that may be ahead of us, whose bar may be below 1: bare minima, ourselves in another way, and who is.
            shown: contenders without a bar.
            measures: which of our own figures the row is held to: "instructions", and "cpu" in full runs.
            judged: False where this machine cannot tell (two threads on a busy core): then no bar and no CPU figure is held.
            warm: call each once before, untimed.
        """
        row = Row(self.suite, task, unit, count, {name: Contender() for name in jobs}, ours, by)
        row.judged, row.ahead, row.bars = judged and not self.quick, ahead, self.bars.of(self.suite, task)
        peers = [name for name in jobs if name != ours and name not in shown]
        row.held = [(name, by) for name in peers] + [(name, "wall") for name in rates if by != "wall"]
        row.instructions = self.counted.get(task, {})
        beside: list[float] = []
        for _ in range(ATTEMPTS):
            if self.quick:
                try_once(row, jobs)
            else:
                take_turns(row, jobs, rounds, passes, few or {}, warm, beside)
            self.hold(row, measures, beside)
            if self.quick or row.crashes() or not row.doubtful():
                break
        self.rows.append(row)
        self.show(row)
        return row

    def tell(self, task: str, measure: str, value: float) -> Row:
        """A row that is one figure of ours, which something else than a clock measured."""
        row = Row(self.suite, task, measure, 1, {}, judged=not self.quick, figures={measure: value})
        self.held_to(row)
        self.rows.append(row)
        self.show(row)
        return row

    def hold(self, row: Row, measures: Sequence[str], beside: Sequence[float]) -> None:
        """Hold a row to our own figures."""
        row.faults.clear()
        if "instructions" in measures and not self.uncounted:
            if row.ours in row.instructions:
                row.figures["instructions"] = row.instructions[row.ours]
            else:
                row.faults.append(f"{row.suite}: {row.task}: no instructions were counted")
        mine = row.contenders[row.ours]
        if "cpu" in measures and row.judged and mine.cpu and not mine.note:
            row.figures["cpu"] = min(mine.cpu) / (min(beside) / yardstick.REFERENCE_MS)
        self.held_to(row)

    def held_to(self, row: Row) -> None:
        """Its figures against the recorded ones."""
        for measure, value in row.figures.items():
            fault = self.figures.fault(row.suite, row.task, measure, value) if self.figures.judging else None
            if fault:
                row.faults.append(fault)


def take_turns(
    row: Row, jobs: Mapping[str, Job], rounds: int, passes: int, few: Mapping[str, int], warm: bool, beside: list[float]
) -> None:
    """Fill the row's contenders, alternating, and `beside` with what the yardstick took in each round."""
    for turn in range(-1 if warm else 0, rounds):
        beside.append(yardstick.milliseconds())
        for name, job in jobs.items():
            into = row.contenders[name]
            if into.note or turn >= few.get(name, rounds):
                continue
            gc.collect()
            one_round(into, job, row.count, passes if turn >= 0 else 1, kept=turn >= 0)


def try_once(row: Row, jobs: Mapping[str, Job]) -> None:
    """Fill the row's contenders with a round each of which nothing is held: neither does a yardstick run beside it, nor is there a
    collection before it, which costs as much as many a round."""
    for name, job in jobs.items():
        one_round(row.contenders[name], job, row.count, 1, kept=True)


def one_round(into: Contender, job: Job, count: int, passes: int, *, kept: bool) -> None:
    """Call a contender's job, and keep what it took or why it failed."""
    try:
        took = timed(job, passes)
    except KeyboardInterrupt:
        raise
    except BaseException as why:  # a peer that ends the program, or panics in Rust, ends itself alone
        into.note = f"{type(why).__name__}: {why}"
        return
    if kept:
        into.cpu.append(took.cpu / (count * passes) * 1e6)
        into.wall.append(took.wall / (count * passes) * 1e6)


def timed(job: Job, passes: int = 1) -> Stretch:
    """Calls, with the collector off for every contender alike: a round that happens to collect says nothing about who is timed."""
    gc.disable()
    faulthandler.dump_traceback_later(LONGEST * passes, exit=True)
    try:
        with Stretch() as whole:
            inner = job()
            for _ in range(passes - 1):
                job()
    finally:
        faulthandler.cancel_dump_traceback_later()
        gc.enable()
    return inner if isinstance(inner, Stretch) else whole
