"""Instructions per unit of a suite's jobs, by valgrind's callgrind: figures that no neighbour on the machine changes.

What it is: `count(modules)` runs the `tasks` of suites in one Python under callgrind, which counts nothing until a job is told to begin: so
imports, set-up and a first, cold call fall out. All threads of the process count; the kernel's work and other processes do not. A job that
measures a stretch of itself is counted there. Must not: time anything. Valgrind has no AVX-512 and no VPCLMULQDQ: our CRCs and whatever
else picks its code by processor run as on an older one there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .compiled import build

HERE = Path(__file__).parent
Counts = dict[str, dict[str, float]]  # by task and contender, instructions a unit


class Unavailable(Exception):
    """There is no valgrind here, or nothing to compile its marks with."""


class Failed(Exception):
    """It is here, and what it counted did not come to its end."""


def count(modules: Sequence[str], where: Sequence[str] = (), *, peers: bool = False, limit: float = 1200.0) -> dict[str, Counts]:
    """Run the `tasks` of each module under callgrind, for `limit` seconds at most; counts by module. Raises Unavailable, Failed.

    Args:
        modules: one after the other in one process, since Python's start and imports take seconds there.
        where: what `tasks` takes after the bench.
        peers: count the other contenders, too.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Unavailable("valgrind is not installed")
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(HERE / "marks.c", Path(folder) / "marks.so", ("-shared", "-fPIC"))
        except (FileNotFoundError, subprocess.CalledProcessError) as why:
            raise Unavailable(f"marks.c (it needs valgrind's headers): {getattr(why, 'stderr', why)}") from None
        command = [valgrind, "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        try:
            done = subprocess.run(
                [*command, sys.executable, "-m", "benchmarks.counting", ",".join(modules), folder, str(int(peers)), *where],
                cwd=HERE.parent,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                capture_output=True,
                text=True,
                timeout=limit,
            )
            found: dict[str, Counts] = json.loads((Path(folder) / "counts.json").read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired:
            raise Failed(f"{', '.join(modules)} took more than {limit:.0f} s under valgrind") from None
        except FileNotFoundError:
            raise Failed(f"{', '.join(modules)} ended with {done.returncode} under valgrind: {done.stderr[-300:]}") from None
    return found
