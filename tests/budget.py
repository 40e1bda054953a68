"""Seconds of each test file beside what was recorded: three times as much is told, ten times as much is a failure on a machine of our own.

    python tests/budget.py .cache/ran.json        records the seconds of the last whole run in tests/seconds.json

A test that takes five times as long as it did has mostly found something: a wait that ends by its limit and not by its event.
What it is: `compare` and `Machine`, for tests/run.py. May assume: Linux's /proc, the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

RECORD = Path(__file__).with_name("seconds.json")
BUDGET = 3
GROSS = 10
GRACE = 10.0  # seconds: a broker's boot counts for the first test that needs it
GROSS_GRACE = 60.0
FOREIGN = 0.25  # share of the machine that others use, from which on its clock tells little

Seconds = dict[str, dict[str, float]]  # session, file


def compare(ran: Seconds, record: Path = RECORD) -> tuple[list[str], int]:
    """Lines about files beyond their budget, and how many of them grossly are; files without a record are told, too."""
    known: Seconds = json.loads(record.read_text()) if record.exists() else {}
    lines, grossly = [], 0
    for session, files in sorted(ran.items()):
        for name, seconds in sorted(files.items()):
            recorded = known.get(session, {}).get(name)
            if recorded is None:
                if seconds > GRACE:
                    lines.append(f"{session}: {name} took {seconds:.0f} s; nothing is recorded")
            elif seconds > BUDGET * recorded + GRACE:
                lines.append(f"{session}: {name} took {seconds:.0f} s; {recorded:.1f} s are recorded")
                grossly += seconds > GROSS * recorded + GROSS_GRACE
    return lines, grossly


class Machine:
    """How much of the machine was used by others than this process's children, from here to `stop`."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._used = _used()
        self.foreign = 0.0

    def stop(self) -> None:
        ours, all_of_it = (now - then for now, then in zip(_used(), self._used, strict=True))
        whole = max(0.001, (time.monotonic() - self._began) * (os.cpu_count() or 1))
        self.foreign = max(0.0, all_of_it - ours) / whole

    @property
    def busy(self) -> bool:
        return self.foreign > FOREIGN

    def words(self) -> str:
        return f"others used {self.foreign:.0%} of this machine"


def _used() -> tuple[float, float]:
    """Processor seconds: of our children that have ended; of everybody, what a host took away included."""
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    user, nice, system, _idle, _waiting, hard, soft, stolen = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return ours.ru_utime + ours.ru_stime, (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    found: Seconds = json.loads(Path(sys.argv[1]).read_text())["seconds"]
    rounded = {session: {name: round(seconds, 1) for name, seconds in files.items()} for session, files in found.items()}
    RECORD.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n")
