"""Instructions per unit of a suite's jobs, by valgrind's callgrind: figures that no neighbour on the machine changes.

What it is: a `Counter` runs the `tasks` of suites in one Python under callgrind, which counts nothing until a job is told to begin: so
imports, set-up and a first, cold call fall out. All threads of the process count; the kernel's work and other processes do not. A job that
measures a stretch of itself is counted there. Must not: time anything. Valgrind has no AVX-512 and no VPCLMULQDQ: our CRCs and whatever
else picks its code by processor run as on an older one there.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from .compiled import build

HERE = Path(__file__).parent
Counts = dict[str, dict[str, float]]  # by task and contender, instructions a unit


class Unavailable(Exception):
    """There is no valgrind here, or nothing to compile its marks with."""


class Failed(Exception):
    """It is here, and what it counted did not come to its end."""


class Counter:
    """A Python under callgrind, started for the first suite and kept for the next: its start and imports take seconds there.

    Args:
        peers: count the other contenders, too.
        limit: seconds that a suite may take.
    """

    def __init__(self, *, peers: bool = False, limit: float = 1200.0) -> None:
        self._peers, self._limit = peers, limit
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; the next count starts another one."""
        child, folder, self._child, self._folder = self._child, self._folder, None, None
        if child is not None:
            child.kill()
            child.communicate()
        if folder is not None:
            folder.cleanup()

    def count(self, module: str, *where: str) -> Counts:
        """Run the `tasks` of a module under callgrind.

        Args:
            where: what `tasks` takes after the bench.

        Raises:
            Unavailable: nothing can be counted here.
            Failed: the suite ended the process, or took longer than the limit; another process counts the next one.
        """
        child = self._child or self._start()
        assert child.stdin
        assert child.stdout
        assert self._folder
        try:
            child.stdin.write(json.dumps([module, *where]).encode() + b"\n")
            child.stdin.flush()
            ready, _, _ = select.select([child.stdout], [], [], self._limit)
            answer = child.stdout.readline() if ready else b""
            if not ready:
                raise Failed(f"{module} took more than {self._limit:.0f} s under valgrind")
            if not answer.endswith(b"\n"):
                said = (Path(self._folder.name) / "said").read_text(encoding="utf-8", errors="replace")
                raise Failed(f"{module} ended with {child.wait(60.0)} under valgrind: {said[-300:]}")
        except BaseException:
            self.close()
            raise
        counts: Counts = json.loads(answer)
        return counts

    def _start(self) -> subprocess.Popen[bytes]:
        valgrind = shutil.which("valgrind")
        if valgrind is None:
            raise Unavailable("valgrind is not installed")
        self._folder = tempfile.TemporaryDirectory()
        folder = self._folder.name
        try:
            build(HERE / "marks.c", Path(folder) / "marks.so", ("-shared", "-fPIC"))
        except (FileNotFoundError, subprocess.CalledProcessError) as why:
            self.close()
            raise Unavailable(f"marks.c (it needs valgrind's headers): {getattr(why, 'stderr', why)}") from None
        command = [valgrind, "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "benchmarks.counting", folder, str(int(self._peers))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with (Path(folder) / "said").open("wb") as said:
            self._child = subprocess.Popen(command, cwd=HERE.parent, env={**os.environ, "PYTHONHASHSEED": "0"}, stderr=said, **pipes)
        return self._child
