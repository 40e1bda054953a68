"""Runs jobs beside each other: as many as the machine has cores for, those that wait more than those that compute.

What it is: `Job`, `Outcome` and `Lanes`, for tests/run.py. May assume: Linux, the standard library. Must not: know what the jobs are.

A job's output goes to a file, which is printed whole when the job ends; a job that is alone is printed as it comes. Each command is a
session of its own, which the kernel ends when this process ends, and which hears of Ctrl-C although our own parent may ignore it (shim.py).
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

SHIM = Path(__file__).resolve().parent / "brokers" / "shim.py"
BEAT = 60.0  # seconds between two lines that say what is running
PAUSE = 0.1
LAST_WORDS = 30.0  # seconds for a job to end after Ctrl-C
SETTLED = 20.0  # seconds behind the last beginning of a job after which what the machine leaves idle is what it leaves
OUTCOMES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")
_COUNT = re.compile(rf"(\d+) ({'|'.join(OUTCOMES)}|error|warning)\b")
_CLOSING = re.compile(r"\b(passed|failed|skipped|errors?|deselected)\b.* in \d")


@dataclass(frozen=True)
class Job:
    """Commands that run one after the other.

    Attributes:
        name: for people, and of its files.
        commands: argument vectors; one that fails does not keep the next from running.
        cores: how much of the machine it and what it starts take: 1 computes, less mostly waits.
        alone: whether nothing may run beside it.
        spare: whether it computes in the processor time that the others leave (nice 19): it needs no room, and one such job runs at a time.
    """

    name: str
    commands: Sequence[Sequence[str]]
    cores: float = 1.0
    alone: bool = False
    spare: bool = False

    @property
    def file(self) -> str:
        return self.name.replace(" ", "-")


@dataclass
class Outcome:
    """What became of a job: ``verdict`` is "ok", "FAILED", "ENDED" or "NOT RUN"; ``code`` is its last exit code other than 0; seconds of
    the clock and of the processor."""

    job: Job
    verdict: str = "NOT RUN"
    code: int = 0
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0
    processor: float = 0.0


class _Running:
    """A job under way: its present command, and the file of its output."""

    def __init__(self, job: Job, folder: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self.outcome = Outcome(job, "ok")
        self.path = folder / f"{job.file}.txt"
        self._out: BinaryIO = self.path.open("wb")
        self._environment, self._cwd = environment, cwd
        self._left = list(job.commands)
        self._began = time.monotonic()
        self._from = 0
        self.printed = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._next()

    def _next(self) -> None:
        self._command = self._left.pop(0)
        shown = " ".join(word.removeprefix(f"{self._cwd}/") for word in self._command)
        self._out.write(f"--- {self.outcome.job.name}: {shown}\n".encode())
        self._out.flush()
        self._from = self._out.tell()
        self._child = subprocess.Popen(
            [*(["nice", "-n", "19"] * self.outcome.job.spare), sys.executable, "-S", str(SHIM), str(os.getpid()), *self._command],
            cwd=self._cwd,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def look(self) -> bool:
        """Whether it is through; begins its next command when one has ended."""
        assert self._child is not None
        pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
        if not pid:
            return False
        self._child.returncode = os.waitstatus_to_exitcode(status)
        self.outcome.processor += usage.ru_utime + usage.ru_stime
        self._count(self._child.returncode)
        if self._left and self.outcome.verdict != "ENDED":
            self._next()
            return False
        self.outcome.seconds = time.monotonic() - self._began
        self._out.close()
        return True

    def _count(self, code: int) -> None:
        """Take what pytest's closing line tells; a check that is no pytest run counts as one test."""
        counts: collections.Counter[str] = collections.Counter()
        tests = "pytest" in self._command
        with self.path.open("rb") as file:
            file.seek(self._from)
            for raw in file if tests else ():
                line = raw.decode(errors="replace")
                if _CLOSING.search(line):
                    counts.clear()
                    for number, word in _COUNT.findall(line):
                        counts[{"error": "errors", "warning": "warnings"}.get(word, word)] += int(number)
        if tests and not counts["passed"] and not code:
            code = 5  # pytest's own code for a run without tests: what is there and does not run has not passed
        if not tests and not code:
            counts["passed"] += 1
        if code:
            self.outcome.code = code
            if self.outcome.verdict == "ok":
                self.outcome.verdict = "FAILED"
            if not counts["failed"] and not counts["errors"]:
                counts["failed"] += 1
        self.outcome.counts.update(counts)

    def signal(self, number: signal.Signals) -> None:
        self.outcome.verdict = "ENDED"
        with contextlib.suppress(ProcessLookupError):
            assert self._child is not None
            os.killpg(self._child.pid, number)

    def show(self) -> None:
        """Print what has not been printed yet."""
        with self.path.open("rb") as file:
            file.seek(self.printed)
            text = file.read()
        self.printed += len(text)
        sys.stdout.write(text.decode(errors="replace"))
        sys.stdout.flush()

    @property
    def number(self) -> int:
        """Its process, which all others of the job descend from."""
        assert self._child is not None
        return self._child.pid

    def state(self) -> str:
        return f"{self.outcome.job.name} {clock(time.monotonic() - self._began)}"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


class Idle:
    """Measures how many processors did nothing since `restart`; the whole machine's.

    Args:
        stat: reads what /proc/stat says.
    """

    def __init__(self, stat: Callable[[], str] = Path("/proc/stat").read_text) -> None:
        self._stat = stat
        self.restart()

    def restart(self) -> None:
        self._began, (self._idle, self._whole) = time.monotonic(), self._ticks()

    @property
    def seconds(self) -> float:
        """How long it has measured."""
        return time.monotonic() - self._began

    def cores(self) -> float:
        """Processors that were free, of those that the machine has; what a hypervisor took away was not free."""
        idle, whole = self._ticks()
        return (os.cpu_count() or 1) * (idle - self._idle) / max(whole - self._whole, 1)

    def _ticks(self) -> tuple[int, int]:
        user, nice, system, idle, waiting, *rest = map(int, self._stat().split("\n", 1)[0].split()[1:9])
        return idle + waiting, user + nice + system + idle + waiting + sum(rest)


class Lanes:
    """Where jobs run.

    A job begins where the numbers say that there is room, and where the machine has left as much idle as it takes for 20 seconds: jobs
    that wait longer than others leave room that no number of theirs shows.

    Args:
        cores: of the machine; jobs that need no more than this together run beside each other.
        folder: for their output.
        environment: of the commands. cwd: their folder.
        deadline: when everything is ended, by the monotonic clock.
        say: prints a line.
    """

    def __init__(
        self, cores: float, folder: Path, environment: Mapping[str, str], cwd: Path, deadline: float, say: Callable[[str], None]
    ) -> None:
        self._cores, self._folder, self._environment, self._cwd = cores, folder, environment, cwd
        self._deadline, self._say = deadline, say
        self._running: list[_Running] = []
        self._idle = Idle()

    def names(self) -> dict[int, str]:
        """Name the jobs that run, by the numbers of their processes."""
        return {running.number: running.outcome.job.name for running in list(self._running)}

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run them, the first ones first where they fit; outcomes in the given order.

        Raises:
            KeyboardInterrupt: at Ctrl-C, when all have ended.
        """
        outcomes = {job.name: Outcome(job) for job in jobs}
        waiting = list(jobs)
        live = len(jobs) == 1
        began = beaten = time.monotonic()
        try:
            while (waiting or self._running) and time.monotonic() < self._deadline:
                self._begin(waiting)
                for running in list(self._running):
                    through = running.look()
                    if live or through:
                        running.show()
                    if through:
                        self._running.remove(running)
                        outcomes[running.outcome.job.name] = running.outcome
                        self._tell(running.outcome, live)
                if not live and time.monotonic() > beaten + BEAT:
                    beaten = time.monotonic()
                    states = ", ".join(running.state() for running in self._running)
                    self._say(f"... {clock(beaten - began)}  running: {states}{'; to come: ' * bool(waiting)}{_names(waiting)}")
                time.sleep(PAUSE)
        finally:
            for outcome in self._end():
                outcomes[outcome.job.name] = outcome
                self._tell(outcome, live)
        return [outcomes[job.name] for job in jobs]

    def _begin(self, waiting: list[Job]) -> None:
        for job in list(waiting):
            others = [running.outcome.job for running in self._running]
            alone = job.alone or any(other.alone for other in others)
            if others and (alone or not self._fits(job, others)):
                continue
            if job.alone and job is not waiting[0]:
                continue  # only when all that stands before it is through
            waiting.remove(job)
            self._idle.restart()
            self._running.append(_Running(job, self._folder, self._environment, self._cwd))

    def _fits(self, job: Job, others: Sequence[Job]) -> bool:
        """Whether the machine has room for a job beside these."""
        if job.spare:
            return not any(other.spare for other in others)
        if sum(other.cores for other in others if not other.spare) + job.cores <= self._cores + 0.01:
            return True
        kept = (os.cpu_count() or 1) - self._cores  # for others, by the caller's wish
        return self._idle.seconds >= SETTLED and self._idle.cores() - kept >= job.cores

    def _tell(self, outcome: Outcome, live: bool) -> None:
        if not live:
            self._say(f"--- {outcome.job.name}: {outcome.verdict}, {clock(outcome.seconds)}\n")

    def _end(self) -> list[Outcome]:
        """End what still runs, as Ctrl-C does; after that, by force."""
        ended = []
        for running in self._running:
            running.signal(signal.SIGINT)
        limit = time.monotonic() + LAST_WORDS
        while self._running:
            for running in list(self._running):
                if time.monotonic() > limit:
                    running.signal(signal.SIGKILL)
                if running.look():
                    running.show()
                    self._running.remove(running)
                    running.outcome.verdict = "ENDED"
                    ended.append(running.outcome)
            time.sleep(PAUSE)
        return ended


def _names(jobs: Sequence[Job]) -> str:
    return ", ".join(job.name for job in jobs)
