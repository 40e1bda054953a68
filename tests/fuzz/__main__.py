"""`python -m fuzz [format …] [--runs N | --seconds S] [--cuts] [--plain]`: one worker a format, one after the other, each watched.

A worker that ends by a signal (a sanitizer's report) or stands still for 30 s has failed on the input in its memory file, which is kept.
Exit code 1 when anything was found, 2 where the compiler has no sanitizers (`--plain` does without). The command that finds it again is
printed. Totals are added to .cache/fuzz/total.json, so that several runs with different seeds add up.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .build import CLONE, sanitized
from .mutate import present

FOLDER = CLONE / ".cache" / "fuzz"
FORMATS = (
    *("kafka-messages", "zookeeper-messages", "zookeeper-multi", "pulsar-messages", "rocketmq-messages", "rocketmq-headers"),
    *("kafka-records", "pulsar-entries", "rocketmq-stored", "arrow-import", "lz4", "kafka-encoding", "framer", "matchers"),
)
STILL = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", help=f"which: {', '.join(FORMATS)}; all without one")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each format")
    parser.add_argument("--seconds", type=float, default=0, help="seconds of the processor for each format (60 when there is no --runs)")
    parser.add_argument("--cuts", action="store_true", help="first every entry of the corpus, cut at every byte")
    parser.add_argument("--seed", type=int, default=None, help="decides the inputs; the time without it")
    parser.add_argument("--plain", action="store_true", help="the clone's own core, without sanitizers: six times as fast")
    given = parser.parse_args()
    if unknown := set(given.formats) - set(FORMATS):
        parser.error(f"no format {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    seconds = given.seconds or (0 if given.runs else 60.0)
    seed = given.seed if given.seed is not None else int(time.time())
    ours = {"PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'tests'}"}
    if not given.plain:
        try:
            ours = sanitized().environment
        except FileNotFoundError as why:
            print(f"fuzz: {why}, so that what reads beside its memory would not be seen; install them, or give --plain", file=sys.stderr)
            return 2
    environment = os.environ | ours
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{'format':<20} {'inputs':>12} {'per s':>8} {'decoded':>12} {'corpus':>8}  found   (seed {seed}{', plain' * given.plain})")
    failed = False
    for name in given.formats or FORMATS:
        facts = run(name, given.runs, seconds, ["--seed", str(seed), *(["--cuts"] if given.cuts else [])], environment)
        if not given.plain:
            add_up(facts)
        if facts["found"]:
            failed = True
            how = f"--runs {given.runs}" if given.runs else f"--runs {facts['runs']}"
            print(f"again: make fuzz ARGS='{name} {how} --seed {seed}{' --cuts' * given.cuts}{' --plain' * given.plain}'", flush=True)
        corpus = f"{facts['corpus'][0]}+{facts['corpus'][1] - facts['corpus'][0]}"
        decoded = facts["outcomes"].get("decoded", 0)
        print(f"{name:<20} {facts['runs']:>12,} {facts['per_second']:>8,} {decoded:>12,} {corpus:>8}  {facts['found']}", flush=True)
    return 1 if failed else 0


def run(name: str, runs: int, seconds: float, more: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """One worker's counts; a crash or a hang is kept and counted as found."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        memory = Path(folder) / "memory"
        command = [sys.executable, "-m", "fuzz.worker", name, *more]
        command += ["--memory", str(memory), "--found", str(FOLDER / "found")]
        command += ["--runs", str(runs)] if runs else []
        command += ["--seconds", str(seconds)] if seconds else []
        began = time.monotonic()
        with subprocess.Popen(command, env=environment, cwd=CLONE, stdout=subprocess.PIPE, text=True) as worker:
            hung = watch(worker, memory)
            text = worker.stdout.read() if worker.stdout else ""
        if not hung and worker.returncode in (0, 1) and text.strip():
            facts = dict(json.loads(text.strip().splitlines()[-1]))
            if worker.returncode == bool(facts["found"]):  # else a sanitizer ended it, after its last line
                return facts
        count, entry, data = present(memory) if memory.exists() else (0, 0, b"")
        kept = FOLDER / "found" / f"{name}-{'hang' if hung else 'crash'}-{more[1]}-{count}.hex"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"# entry {entry} of the corpus, seed {more[1]}, input {count}\n{data.hex()}\n")
        print(
            f"{name}: {'stood still' if hung else f'ended with {worker.returncode}'} at input {count:,}; it is in {kept}",
            file=sys.stderr,
            flush=True,
        )
        spent = time.monotonic() - began
        return {"format": name, "runs": count, "per_second": round(count / spent), "found": 1, "corpus": [0, 0], "outcomes": {}}


def watch(worker: subprocess.Popen[str], memory: Path) -> bool:
    """Wait for the end; True when it had to be killed: its count stood still, and (cuts are not counted) nobody touched its memory."""
    last, since = (-1, 0), time.monotonic()
    while True:
        try:
            worker.wait(2)
            return False
        except subprocess.TimeoutExpired:
            count = present(memory)[0] if memory.exists() else 0
            now = count, memory.stat().st_mtime_ns if memory.exists() else 0
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > STILL + (60 if not count else 0):
                worker.kill()
                worker.wait()
                return True


def add_up(facts: dict[str, Any]) -> None:
    """Keep the total of a format over all runs."""
    path = FOLDER / "total.json"
    with (FOLDER / "total.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        totals = json.loads(path.read_text()) if path.exists() else {}
        totals[facts["format"]] = totals.get(facts["format"], 0) + facts["runs"]
        path.write_text(json.dumps(totals, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
