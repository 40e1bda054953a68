"""The one runner: `python -m benchmarks [suite …] [--quick] [--instructions] [--out DIR]`.

Suites: codec, wire, clients (kafka, pulsar, rocketmq, zookeeper), engine, memory, startup, spark; or one part, as ``clients.kafka``.
With --instructions each codec suite is run under valgrind as well, which takes minutes, and its rows show instructions per unit.
Writes results.json, results.txt and results.svg to bench-out/.
Exit code 1 when a suite fails, a codec ratio is below its bar less 15 % (best of three runs), or a client's below half its bar.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
import warnings
from pathlib import Path

from . import instructions, picture, report
from .harness import Bench

CLONE = Path(__file__).resolve().parents[1]
SUITES = (
    *("startup", "codec.records", "codec.formats", "wire", "engine", "memory"),
    *("clients.zookeeper", "clients.kafka", "clients.pulsar", "clients.rocketmq", "spark"),
)


LONG = frozenset(("spark",))  # minutes even when quick, for Spark's own start and warm-up: only by name, or in a full run


def chosen(names: list[str], *, quick: bool) -> list[str]:
    """Suites by name or by family; without a name all, or all but the long ones. Raises SystemExit for a name that is none."""
    for name in names:
        if not any(suite == name or suite.startswith(f"{name}.") for suite in SUITES):
            raise SystemExit(f"no suite {name!r}; there are {', '.join(SUITES)}")
    if not names:
        return [suite for suite in SUITES if not quick or suite not in LONG]
    return [suite for suite in SUITES if any(suite == name or suite.startswith(f"{name}.") for name in names)]


def counted(suite: str) -> instructions.Counts:
    """Instructions of a codec suite's jobs; none, and why, where they cannot be counted."""
    if not suite.startswith("codec."):
        return {}
    try:
        return instructions.count(suite)
    except instructions.Unavailable as why:
        print(f"no instruction counts for {suite}: {why}", flush=True)
        return {}


def write(out: Path, bench: Bench, command: str) -> None:
    """Results so far, after each suite: a run of half an hour that is interrupted leaves what it measured."""
    facts = report.document(bench, command)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(facts, indent=1) + "\n")
    (out / "results.txt").write_text(report.heading(facts) + "\n\n" + "\n\n".join(report.table(row) for row in bench.rows) + "\n")
    (out / "results.svg").write_text(picture.draw(facts))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="which; all without one")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and records: minutes instead of half an hour")
    parser.add_argument("--instructions", action="store_true", help="count instructions of the codec suites by valgrind's callgrind")
    parser.add_argument("--out", type=Path, default=CLONE / "bench-out", help="folder for the results (default: bench-out)")
    given = parser.parse_args()
    sys.path.insert(0, str(CLONE / "tests"))  # brokers
    warnings.simplefilter("ignore")  # the peers' own
    bench = Bench(quick=given.quick, show=lambda row: print(report.table(row), flush=True))
    options = [f"--{name}" for name in ("quick", "instructions") if getattr(given, name)]
    command = " ".join(["python -m benchmarks", *given.suites, *options])
    print(report.heading(report.document(bench, command)), flush=True)
    broken: list[str] = []
    for name in chosen(given.suites, quick=given.quick):
        bench.suite = name.replace("clients.", "").replace("codec.", "codec ")
        bench.clients = name.startswith("clients.")
        began = time.monotonic()
        bench.instructions = counted(name) if given.instructions else {}
        try:
            importlib.import_module(f"benchmarks.{name}").suite(bench)
        except Exception as why:
            traceback.print_exc()
            broken.append(f"{name}: {type(why).__name__}: {why}")
        print(f"--- {name}: {time.monotonic() - began:.0f} s", flush=True)
        write(given.out, bench, command)
    failed = [line for row in bench.rows for line in row.failures()]
    for line in [line for row in bench.rows for line in row.misses()]:
        print(f"bar missed{' (FAILS)' if line in failed else ''}: {line}")
    for line in broken:
        print(f"suite failed: {line}")
    print(f"results in {given.out}")
    return 1 if failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
