"""The process under callgrind: `python -m benchmarks.counting FOLDER PEERS`, started by instructions.py.

Each line of its input is a JSON list: a module, and what its `tasks` takes after the bench. It runs them on a bench that counts instead of
timing, and answers with a line of its output: the counts, by task and contender. Whatever contenders print goes to its standard error.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from .figures import Figures
from .harness import OURS, Bench, Contender, Job, Row, Stretch
from .suites import label

ATTEMPTS = 6  # counts of a job whose figure does not hold; the first that does is taken, or the least: how often a client is woken differs
END = 100  # bytes of a profile that hold its sum: all of it takes as long to read as some jobs to count


class Marks:
    """Tells callgrind when to count, and reads what it counted; a stretch within another one replaces it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.counted = folder, 0, 0
        self.library = ctypes.CDLL(str(folder / "marks.so"))
        if not self.library.listening():
            raise RuntimeError("this process does not run under callgrind")

    def begin(self) -> None:
        self.library.begin()

    def end(self) -> None:
        self.library.end(b"stretch")
        self.number += 1
        profile = self.folder / f"out.{self.number}"
        with profile.open("rb") as file:
            file.seek(max(0, profile.stat().st_size - END))
            self.counted = total(file.read().decode(errors="replace"))
        profile.unlink()


class Counting(Bench):
    """A bench that counts instead of timing.

    Args:
        marks: what counts.
        peers: count every contender, not only ours.
    """

    def __init__(self, marks: Any, figures: Figures, *, peers: bool) -> None:
        super().__init__(quick=True, counting=True, figures=figures)
        self.marks, self.peers = marks, peers
        self.counts: dict[str, dict[str, float]] = {}

    def count(self, *where: str) -> None:
        """Nothing: this is the count."""

    def compare(
        self, task: str, count: int, jobs: Mapping[str, Job], *, ours: str = OURS, measures: Sequence[str] = ("instructions",), **_: Any
    ) -> Row:
        """Count, unless the task is none to be counted."""
        if "instructions" in measures:
            names = list(jobs) if self.peers else [ours]
            self.counts[task] = {name: value for name in names if (value := self.least(task, jobs[name], count)) is not None}
        return Row(self.suite, task, "", count, {name: Contender() for name in jobs}, ours)

    def least(self, task: str, job: Job, count: int) -> float | None:
        """Instructions a unit; None for a job that fails."""
        try:
            measured = isinstance(job(), Stretch)
            found = [self.once(job, measured) / count]
            key = (self.suite, task, "instructions")
            while self.figures.knows(*key) and self.figures.fault(*key, found[-1]):  # too many, or too few: who is woken seldom does less
                if len(found) == ATTEMPTS:
                    return min(found)
                found.append(self.once(job, measured) / count)
        except Exception as why:
            print(f"{task}: {type(why).__name__}: {why}", file=sys.stderr)
            return None
        return found[-1]

    def once(self, job: Job, measured: bool) -> int:
        """Instructions of one call, or of the stretch that it measures."""
        gc.collect()
        gc.disable()
        Stretch.watch = self.marks
        try:
            with nullcontext() if measured else Stretch():
                job()
        finally:
            Stretch.watch = None
            gc.enable()
        return int(self.marks.counted)


def total(profile: str) -> int:
    """The sum of a callgrind profile."""
    found = re.search(r"^totals: (\d+)", profile, re.MULTILINE)
    if found is None:
        raise ValueError("a callgrind profile without its sum")
    return int(found[1])


class WithoutPandas:
    """Keeps pandas from being imported: pyarrow does, to look whether a list is one of its, and that takes seconds here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(folder: str, peers: str) -> None:
    warnings.simplefilter("ignore")
    sys.meta_path.insert(0, WithoutPandas())
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # brokers
    with os.fdopen(os.dup(0)) as asked, os.fdopen(os.dup(1), "w") as answers, Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        marks, figures = Marks(Path(folder)), Figures.read()
        for line in asked:
            module, *where = json.loads(line)
            bench = Counting(marks, figures, peers=bool(int(peers)))
            bench.suite = label(module)
            importlib.import_module(module).tasks(bench, *where)
            print(json.dumps(bench.counts), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
