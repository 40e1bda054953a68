"""Where the processors' time goes while a run is under way: seconds by kind of process and by job, and the highest load.

What it is: `Load`, for tests/run.py. May assume: Linux (/proc), the standard library. Must not: know what the jobs do.

Only processes below this one count, whatever their session: brokers have sessions of their own, and end with the process that started
them. A process counts with what was last seen of it, up to one pause before its end; what it did behind that, and whatever began and ended
between two samples, is missing. So short compilers and judges come out too low, and nothing is counted twice.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

PAUSE = 2.0
"""Seconds between two samples."""
WINDOW = 60.0
"""Seconds over which a job's demand and the machine's work are averaged."""
BUSY = 0.8
"""The share of a job's windows that demanded no more than what is called its demand."""
_TICKS = os.sysconf("SC_CLK_TCK")
_BROKERS = (  # main classes, as tests/brokers and Spark's own test programs start them
    ("kafka broker", re.compile(r"^kafka\.(Kafka|tools\.\w+|admin\.\w+)$")),
    ("rocketmq broker", re.compile(r"^org\.apache\.rocketmq\.(broker|namesrv|proxy|container)\.\w+$")),
    ("pulsar broker", re.compile(r"^org\.apache\.pulsar\.Pulsar\w+$")),
    ("zookeeper server", re.compile(r"^org\.apache\.zookeeper\.server\.[\w.]+$")),
    ("spark jvm", re.compile(r"^org\.apache\.spark\.[\w.]+$")),
)
_OF_TOOLS = re.compile(r"^(cc1(plus)?|as|ld(\.\w+)?|collect2|lto\d?|g?cc|[gc]\+\+|clang(\+\+)?|cython|[\w-]+-(gcc|g\+\+|ld)(-\d+)?|javac)$")

_PARTS = {"campaign": "campaign", "fuzz": "fuzz", "benchmarks": "bench", "proto": "lint", "pytest": "pytest"}
"""By the package whose module Python runs."""
_LINTERS = frozenset(("ruff", "mypy", "stubtest", "basedpyright", "node", "lint-imports", "cython-lint", "lint_cython.py", "doc_blocks.py"))
"""Programs of the part lint; node is basedpyright's."""


class Window(NamedTuple):
    """What happened in some seconds: processors at work for all, those that a hypervisor took away, the load of one minute at its end,
    and seconds of the processor by job."""

    seconds: float
    busy: float
    stolen: float
    load: float
    jobs: dict[str, float]


class Process(NamedTuple):
    """One process as /proc shows it: its parent, the tick at which it began, and seconds of the processor."""

    parent: int
    began: int
    seconds: float


def processes() -> dict[int, Process]:
    """List all processes by number."""
    found = {}
    for folder in os.scandir("/proc"):
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it may end meanwhile
                fields = Path(folder.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                ticks = int(fields[11]) + int(fields[12])
                found[int(folder.name)] = Process(int(fields[1]), int(fields[19]), ticks / _TICKS)
    return found


def below(root: int, known: dict[int, Process]) -> Iterator[tuple[int, int]]:
    """Find the processes that descend from one, without itself; each with the child of `root` that it descends from, or is."""
    children = collections.defaultdict(list)
    for number, process in known.items():
        children[process.parent].append(number)
    left = [(number, number) for number in children[root]]
    while left:
        number, child = left.pop()
        yield number, child
        left += [(each, child) for each in children[number]]


def machine() -> tuple[float, float]:
    """Read the seconds that all processors have worked since boot, and those that a hypervisor took away."""
    user, nice, system, _, _, irq, soft, stolen = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + soft) / _TICKS, stolen / _TICKS


def kind(words: list[str]) -> str:
    """Name the kind of process that a command line tells of."""
    if not words:
        return "rest"
    program, rest = Path(words[0]).name, words[1:]
    if program.startswith("valgrind") or "/valgrind/" in words[0]:
        return "valgrind"
    if program == "java":
        for name, pattern in _BROKERS:
            if any(pattern.match(word) for word in rest):
                return name
        return "other java"
    if _OF_TOOLS.match(program):
        return "compilers"
    if program.startswith(("python", "pypy")):
        return _of_python(rest)
    if program in _LINTERS:
        return "lint"
    return "pytest" if program in ("pytest", "py.test") else "rest"


def _of_python(rest: list[str]) -> str:
    """Name the kind of a Python process by what it runs."""
    words = iter(rest)
    for word in words:
        if word in ("-X", "-W"):
            next(words, "")
        elif word == "-c":
            return "rest"
        elif word == "-m":
            module = next(words, "")
            if module.startswith("pyspark."):
                return "spark python workers"
            return _PARTS.get(module.partition(".")[0], "compilers" if module in ("cython", "build") else "rest")
        elif not word.startswith("-"):
            name = Path(word).name
            if "pyspark" in word and name in ("daemon.py", "worker.py"):
                return "spark python workers"
            if name in _LINTERS:
                return "lint"
            return "pytest" if name in ("pytest", "py.test") else "compilers" if name in ("cython", "cythonize", "setup.py") else "rest"
    return "rest"


class Load:
    """Samples while it is entered: ``with Load() as load: …; load.lines()``.

    Args:
        names: names the jobs that run, by the number of the process that each descends from; a child of ours.

    Attributes:
        highest: the highest load of one minute that was seen.
        windows: what happened, `WINDOW` seconds each.
    """

    def __init__(self, pause: float = PAUSE, names: Callable[[], Mapping[int, str]] = dict) -> None:
        self.highest = 0.0
        self.windows: list[Window] = []
        self._pause = pause
        self._names = names
        self._jobs: collections.Counter[str] = collections.Counter()
        self._window = time.monotonic(), *machine()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._kinds: dict[tuple[int, int], str] = {}
        self._seconds: dict[tuple[int, int], float] = {}
        self._before: dict[tuple[int, int], float] = {}
        self._thread = threading.Thread(target=self._sample_on, name="load", daemon=True)

    def __enter__(self) -> Self:
        known = processes()
        for number, _ in below(os.getpid(), known):
            self._before[number, known[number].began] = known[number].seconds
        self.sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.sample()
        self._end_window()

    def _sample_on(self) -> None:
        while not self._end.wait(self._pause):
            self.sample()

    def sample(self) -> None:
        """Look at all processes once; also called by whoever knows that one will end now."""
        known, names = processes(), self._names()
        with self._lock:
            for number, child in below(os.getpid(), known):
                process = known[number]
                key = number, process.began
                seconds = process.seconds - self._before.get(key, 0.0)
                if seconds > self._seconds.get(key, 0.0) or key not in self._kinds:
                    with contextlib.suppress(OSError):  # each time: a child is what its parent is, until it executes a program
                        words = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                        if words:  # one that has ended and was not waited for has none
                            self._kinds[key] = kind(words)
                    self._jobs[names.get(child, "")] += seconds - self._seconds.get(key, 0.0)  # type: ignore[assignment]
                    self._seconds[key] = seconds
            self.highest = max(self.highest, _load())
            if time.monotonic() >= self._window[0] + WINDOW:
                self._end_window()

    def _end_window(self) -> None:
        began, busy, stolen = self._window
        now, (busy_now, stolen_now) = time.monotonic(), machine()
        seconds = max(now - began, 0.001)
        self.windows.append(Window(seconds, (busy_now - busy) / seconds, (stolen_now - stolen) / seconds, _load(), dict(self._jobs)))
        self._window = now, busy_now, stolen_now
        self._jobs.clear()

    def demands(self) -> dict[str, float]:
        """Compute the processors that each job and what it started took in its busier windows; one of its first or last may be a piece."""
        shares = collections.defaultdict(list)
        for window in self.windows:
            for name, seconds in window.jobs.items():
                shares[name].append(seconds / window.seconds)
        return {name: sorted(found)[int(BUSY * (len(found) - 1))] for name, found in shares.items() if name}

    def seconds(self) -> dict[str, float]:
        """Add up the seconds of the processor by kind, the most first."""
        found: collections.Counter[str] = collections.Counter()
        with self._lock:
            for key, seconds in self._seconds.items():
                found[self._kinds.get(key, "rest")] += seconds  # type: ignore[assignment]
        return dict(found.most_common())

    def lines(self) -> list[str]:
        """Write a line a kind: minutes of the processor, and the share of all; then the machine's work and load, window by window."""
        found = self.seconds()
        whole = sum(found.values()) or 1.0
        wide = max(map(len, ["kind", *found]))
        lines = [f"{'kind':<{wide}}  minutes of processor  share"]
        lines += [f"{name:<{wide}}  {seconds / 60:>20.1f}  {seconds / whole:>5.0%}" for name, seconds in found.items()]
        for words, values in (
            ("processors at work", [window.busy for window in self.windows]),
            ("taken away", [window.stolen for window in self.windows]),
            ("load", [window.load for window in self.windows]),
        ):
            lines.append(f"{words}, minute by minute: {' '.join(f'{value:.1f}' for value in values)}")
        return [*lines, f"highest load of one minute: {self.highest:.1f}"]


def _load() -> float:
    """Read the load of one minute."""
    return float(Path("/proc/loadavg").read_text().split()[0])
