"""The bench's instruction counts: what it reads from callgrind, shows, and says where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
PROGRAM = """
import json
from pathlib import Path
from benchmarks import instructions, report
from benchmarks.harness import Bench

print(instructions.total("version: 1\\nsummary: 12345\\n"), instructions.total("fn=(1)\\n+1 5\\ntotals: 678\\n"))
try:
    instructions.count("codec.records")
except instructions.Unavailable as why:
    print(why)

bench = Bench(instructions={"task": {"wireproto": 5000.0}})
row = bench.compare("task", 100, {"wireproto": lambda: None, "peer": lambda: None}, rounds=1)
print(row.facts()["instructions"], [line.split("   ")[-1] for line in report.table(row).splitlines() if "instructions" in line])

class Written(instructions.Counting):
    def child(self, job, calls):
        process = super().child(job, calls)
        (self.folder / str(process)).write_text(f"totals: {1000 + 70 * calls}")
        return process

def fail():
    raise ValueError

counting = Written(Path(FOLDER))
counting.compare("task", 10, {"wireproto": lambda: None, "fails": fail})
print(json.dumps(counting.counts))
"""


def test_counts_are_differences_and_are_shown(tmp_path: Path) -> None:
    """In a process of its own: it forks, and has no valgrind on its path."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("FOLDER", repr(str(tmp_path)))],
        cwd=CLONE,
        env={"PYTHONPATH": f"{CLONE / 'src'}:{CLONE}", "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "12345 678",
        "valgrind is not installed",
        "{'wireproto': 5000.0} ['50 instructions']",
        '{"task": {"wireproto": 70.0}}',
    ], done.stderr
