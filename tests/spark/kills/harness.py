"""Runs a job to its end, killing it at the points that a seed chose.

The points are numbers of records seen in the target, spread over the whole input; each waits in addition for one of these moments, so that
the steps of a micro-batch which write little are hit too:

    writing      at once: records of a micro-batch are on their way
    planned      the checkpoint has a new micro-batch's end (its tasks are about to start)
    committed    the checkpoint has a micro-batch's commit (the next one is about to be planned)
    fence … note the log of an exactly-once sink's decisions has grown by so many offsets: of a micro-batch it has six, a fence, the
                 decision and a note that it is carried out, and the end of each one's transaction
    taken … ended  the same of one to Pulsar: three entries, that the driver has it, the decision, and that it is carried out

A worker is killed while it works, and that counts when a task was lost by it; until then another one is killed. `all` is the driver with
all that belongs to it: where the driver alone is killed, its Python processes go on until they find out. A driver's death and a query's own
failure, as when a broker was away for long, are followed by a new start from the checkpoint at once, while what the old driver left behind
may still live: for LEFT seconds, after which a process of an earlier driver is a fault, as is any process of the job once all is through.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brokers import Kafka, Pulsar
from brokers.process import spawn

from . import processes
from .ends import Sight, attached, sight
from .records import Judge

ROOT = Path(__file__).parents[3]
MOMENTS = ("writing", "writing", "planned", "committed")
DECISIONS = {"fence": 1, "fenced": 2, "decision": 3, "decided": 4, "note": 5, "noted": 6}
TAKEN = {"taken": 1, "judged": 2, "ended": 3}
"""By moment: offsets that the partition of the sink's decisions has grown by; of Pulsar entries."""
LOST_TASK = re.compile(r"Lost task .*Python worker exited unexpectedly")
PATIENCE = 480.0
LEFT = 60.0
PACE, QUICK = 0.01, 0.002
TOO_LARGE = "all was through before the last kill; the micro-batches are too large for so many"


@dataclass(frozen=True)
class Kill:
    """One kill: of whom, when so many records have been seen, at which moment after that."""

    whom: str
    point: int
    moment: str


def plan(seed: int, kinds: Sequence[str], each: int, total: int, batch: int, moments: Sequence[str] = MOMENTS) -> list[Kill]:
    """`each` kills of every kind in random order, one in each of as many equal parts of the input but its last four micro-batches,
    which leave a late machine some to see the moment of the last kill in."""
    chance = random.Random(seed)
    whom = [kind for kind in kinds for _ in range(each)]
    chance.shuffle(whom)
    room = (total - 4 * batch) / len(whom)
    return [
        Kill(kind, int(room * (number + chance.random() * 0.9)), "writing" if kind == "worker" else chance.choice(moments))
        for number, kind in enumerate(whom)
    ]


def cuts(seed: int, batch: int, *, tasks: bool) -> Iterator[dict[str, str]]:
    """Options of the source, at each start others: micro-batches of at most `batch` records, and where `tasks`, of other tasks.

    A micro-batch that was planned before the start keeps its records, and runs again in other tasks.
    """
    chance = random.Random(seed)
    before: dict[str, str] = {}
    while True:
        found = {"maxOffsetsPerTrigger": str(chance.randint(batch // 2, batch))}
        if tasks:
            found["minPartitions"] = str(chance.randint(1, 16))  # up to its partitions' number it splits nothing
        if all(before.get(name) != value for name, value in found.items()):
            yield found
            before = found


@dataclass
class Job:
    """A job's settings: Spark's options, and the micro-batch's size that they ask for at most.

    Attributes:
        cuts: further options of the source, by the driver's starts.
        decisions: topic and partition of an exactly-once sink's decisions, -1: of one to Pulsar.
    """

    source: Mapping[str, str]
    form: str
    sink: Mapping[str, str]
    batch: int
    cuts: Iterable[Mapping[str, str]] = field(default_factory=lambda: itertools.repeat({}))
    decisions: tuple[str, int] | None = None

    @property
    def moments(self) -> tuple[str, ...]:
        if self.decisions is None:
            return MOMENTS
        return (*MOMENTS, *(DECISIONS if self.decisions[1] >= 0 else TAKEN))


@dataclass
class Run:
    """One job, from the first start to its end.

    Args:
        job: what to run. target: where it writes: broker and topic. brokers: those to kill, by the name of their kind.
        judge: sees the target while the job runs. folder: for checkpoint and log. say: takes a line of progress.
    Attributes:
        starts: of the driver. failures: errors by which a query ended by itself. kills: those done.
    """

    job: Job
    target: tuple[Kafka | Pulsar, str]
    brokers: Mapping[str, Kafka | Pulsar]
    judge: Judge
    folder: Path
    say: Callable[[str], None] = print
    starts: int = 0
    failures: list[str] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._cuts = iter(self.job.cuts)
        self._log = self.folder / "job.log"
        self._checkpoint = self.folder / "checkpoint"
        self._child: subprocess.Popen[bytes] | None = None
        self._began = self._moved = time.monotonic()
        self._through = False
        self._read_to = 0
        self._orphans: list[tuple[float, processes.Watch]] = []

    def all_of_it(self, kills: Sequence[Kill]) -> None:
        """Run until all input is through.

        Raises:
            AssertionError: no progress for PATIENCE seconds, or the job says that all is through before the last kill.
        """
        broker, topic = self.target
        self._began = self._moved = time.monotonic()
        self.start()
        try:
            with sight(broker, topic, committed=False) as target:
                for kill in kills:
                    self.reach(target, max(kill.point, self.judge.distinct + 1))
                    self.wait_for(target, kill.moment)
                    self.strike(target, kill)
                self.until(target, lambda: self._through)
            self.nothing_left()
        finally:
            self.end()

    # --- the process ---

    def start(self) -> None:
        """Start the driver, from the checkpoint if there is one."""
        source = {**self.job.source, **next(self._cuts)}
        task = {"source": source, "format": self.job.form, "sink": dict(self.job.sink), "checkpoint": str(self._checkpoint)}
        paths = os.pathsep.join(str(ROOT / place) for place in ("src", "tests", "tests/spark/warm"))
        environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable, processes.MARK: self._mark}
        with self._log.open("ab") as out:
            self._child = spawn(
                [sys.executable, "-m", "spark.kills.job", json.dumps(task)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.starts += 1

    def end(self) -> None:
        """Kill whatever is left."""
        for process in processes.marked(self._mark):
            process.kill()
        if self._child is not None:
            self._child.wait()

    def nothing_left(self) -> None:
        """Wait for everything that the job ever started to end by itself, and for the target's broker to have nobody attached."""
        deadline = time.monotonic() + LEFT
        for process in processes.marked(self._mark):
            over = processes.Watch(process).ended(deadline - time.monotonic())
            assert over, f"still there {LEFT:.0f} s after the job's end: {process}"
        assert not processes.marked(self._mark)
        broker, topic = self.target
        while found := attached(broker, topic):
            assert time.monotonic() < deadline, f"{found} producers and readers of the job are still attached to {topic}"

    def check(self) -> None:
        """Notice the driver's end: all is through, or it starts again."""
        code = self._child.poll() if self._child is not None else None
        if code is None:
            return
        self._child = None
        if code == 0:
            self._through = True
            return
        text = self.logged()
        cause = text.rpartition("the query failed:")[2].strip() if "the query failed:" in text else text[-2000:]
        self.failures.append(cause[:2000])
        self.note(f"the query ended by itself: {cause[:300]!r}")
        assert len(self.failures) <= 3 + len(self.kills), f"the job fails again and again: {cause[-3000:]}"
        self.start()
        self._moved = time.monotonic()  # Spark gives a Python worker 10 s to begin, which a busy machine may take several times

    def logged(self) -> str:
        """What the job wrote since this was asked last."""
        with self._log.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        self._read_to += len(text)
        return text.decode(errors="replace")

    # --- its progress ---

    def until(self, target: Sight, condition: Callable[[], bool]) -> None:
        """Look at the target until the condition holds."""
        while not condition():
            self.look(target)
            assert not self._through or condition(), TOO_LARGE

    def look(self, target: Sight, pace: float = PACE) -> None:
        """Look at the target and the driver once."""
        before = self.judge.distinct
        target.look(self.judge, pace)
        self.check()
        if self.judge.distinct != before:
            self._moved = time.monotonic()
        assert time.monotonic() < self._moved + PATIENCE, f"no progress for {PATIENCE:.0f} s; the job's log ends with\n{self.tail()}"

    def reach(self, target: Sight, point: int) -> None:
        """So many records seen."""
        self.until(target, lambda: self.judge.distinct >= point)

    def wait_for(self, target: Sight, moment: str) -> None:
        """The moment after a point."""
        if moment == "writing":
            return
        grown = DECISIONS.get(moment) or TAKEN.get(moment)
        if grown is not None:
            self.wait_for_a_decision(target, grown)
            return
        folder = self._checkpoint / ("offsets" if moment == "planned" else "commits")
        before = latest(folder)
        self.until(target, lambda: latest(folder) > before)

    def wait_for_a_decision(self, target: Sight, grown: int) -> None:
        """The partition of the decisions has grown by so much. What follows takes milliseconds."""
        assert self.job.decisions is not None
        before = target.end(*self.job.decisions)
        while target.end(*self.job.decisions) < before + grown:
            self.look(target, QUICK)
            assert not self._through, TOO_LARGE

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def note(self, text: str) -> None:
        self.say(f"[{time.monotonic() - self._began:6.1f} s] {self.judge.distinct:>9,} of {self.judge.total:,}: {text}")

    # --- kills ---

    def strike(self, target: Sight, kill: Kill) -> None:
        """Kill, and start again what does not come again by itself."""
        self.kills.append(kill)
        batch = latest(self._checkpoint / "offsets")
        what = f"kill {len(self.kills)}: {kill.whom} at {kill.point:,} ({kill.moment}, micro-batch {batch})"
        if kill.whom in ("driver", "all"):
            family = processes.marked(self._mark)
            killed = processes.driver(family) if kill.whom == "driver" else family
            for process in killed:
                process.kill()
            self.note(what)
            self._orphans += [(time.monotonic() + LEFT, processes.Watch(process)) for process in family if process not in killed]
            if self._child is not None:
                self._child.wait()
            self.start()
        elif kill.whom == "worker":
            tries = self.kill_a_worker(target, kill.point)
            self.note(f"{what}: a task was lost by kill number {tries} of a worker")
        else:
            self.note(what)
            broker = self.brokers[kill.whom]
            broker.kill()
            broker.start()
            self.note(f"{kill.whom} is back after {broker.boot_seconds:.1f} s")
        self._orphans = [(deadline, watch) for deadline, watch in self._orphans if not watch.ended()]
        late = [watch.process for deadline, watch in self._orphans if deadline < time.monotonic()]
        assert not late, f"their driver was killed {LEFT:.0f} s ago, and they are still there: {late}"

    def kill_a_worker(self, target: Sight, seed: int) -> int:
        """Kill workers, one for each micro-batch, until a task is lost; how many it took.

        Records of a micro-batch are just coming, so whoever uses the processor is at a task; before and after, it may be Spark's planner.
        Where they are seen when they are committed alone, Spark's own names tell.
        """
        chance = random.Random(seed)
        self.logged()
        tries, said = 0, ""
        ran: dict[int, int] = {}
        before = -1
        while not LOST_TASK.search(said):
            seen = self.judge.distinct
            found = processes.workers(processes.marked(self._mark))
            ran = {process.pid: process.ran() for process in found}
            self.look(target)
            busy = [process for process in found if process.ran() > ran[process.pid]]
            committed = latest(self._checkpoint / "commits")
            if not target.open_ones:
                busy = processes.at_tasks(busy)
            elif self.judge.distinct == seen:
                busy = []
            if busy and committed > before and chance.random() < 0.5:
                chance.choice(busy).kill()
                tries, before = tries + 1, committed
            said += self.logged()
            assert not self._through, TOO_LARGE
        return tries


def latest(folder: Path) -> int:
    """The newest micro-batch that a folder of the checkpoint names, -1 without one."""
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)  # noqa: PTH208
    except FileNotFoundError:
        return -1
