"""Instructions per call of a codec suite's jobs, by valgrind's callgrind: figures that no neighbour on the machine changes.

What it is: `count(suite)` runs a suite in a Python under callgrind; there each row's contenders are called in two forked children, N
and 2N times. A child's total is what its parent had run plus its own calls, so the difference is N calls: imports, set-up and the first,
cold call fall out. May assume: fork. Must not: time anything. Valgrind has no AVX-512 and no VPCLMULQDQ: our CRCs and whatever else
picks its code by processor run as on an older one there.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .harness import Bench, Contender, Job, Row

CALLS = 1
Counts = dict[str, dict[str, float]]  # by task and contender, instructions a call


class Unavailable(Exception):
    """There is no valgrind here, or it failed."""


def count(suite: str) -> Counts:
    """Run `benchmarks.<suite>` under callgrind. Raises Unavailable."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Unavailable("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [valgrind, "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/%p"]
        done = subprocess.run(
            [*command, sys.executable, "-m", __name__, suite, folder],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        try:
            found: Counts = json.loads((Path(folder) / "counts.json").read_text())
        except FileNotFoundError:
            raise Unavailable(f"valgrind ended with {done.returncode}: {done.stderr[-300:]}") from None
    return found


class Counting(Bench):
    """A bench that counts instead of timing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(quick=True)
        self.folder = folder
        self.counts: Counts = {}

    def compare(self, task: str, count: int, jobs: Mapping[str, Job], **options: Any) -> Row:
        """Count, unless the task is about threads: valgrind runs one at a time, and a fork has none of those that its parent started."""
        if options.get("by") != "wall":
            self.counts[task] = {name: found for name, job in jobs.items() if (found := self.per_call(job)) is not None}
        return Row("", task, "", count, {name: Contender() for name in jobs}, "", {}, "cpu", False, 0.0)

    def per_call(self, job: Job) -> float | None:
        """None for a job that fails."""
        try:
            job()
        except Exception:
            return None
        children = [self.child(job, calls) for calls in (CALLS, 2 * CALLS)]  # one right after the other: their parent does little between
        if any(os.waitpid(child, 0)[1] for child in children):
            return None
        few, many = (total((self.folder / str(child)).read_text()) for child in children)
        return (many - few) / CALLS

    def child(self, job: Job, calls: int) -> int:
        """A fork's process id; it ends after the calls."""
        process = os.fork()
        if process:
            return process
        failed = 1
        try:
            for _ in range(calls):
                job()
            failed = 0
        finally:
            os._exit(failed)


def total(profile: str) -> int:
    """The sum of a callgrind profile."""
    found = re.search(r"^(?:totals|summary): (\d+)", profile, re.MULTILINE)
    if found is None:
        raise ValueError("a callgrind profile without its sum")
    return int(found[1])


def main(suite: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    bench = Counting(Path(folder))
    importlib.import_module(f"benchmarks.{suite}").suite(bench)
    (bench.folder / "counts.json").write_text(json.dumps(bench.counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
