"""`make test`: installs, then runs every part of the suite one by one; prints the minutes of each and one closing line in pytest's form.

    python tests/run.py [--parts lint unit wire …] [--table]      any CPython 3.11 to 3.13; the standard library is enough

A part that fails does not keep the others from running. Its output is passed on as it comes. The exit code is 0 only when all passed.
`--table` writes docs/conformance.md from what ran.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
BIN = CLONE / ".venv" / "bin"
RESULTS = CLONE / ".cache" / "ran.json"
OUTCOMES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")
STUBTEST = "--ignore-disjoint-bases --ignore-positional-only --ignore-unused-allowlist --allowlist tests/stubtest-allow.txt"
SHIM = [sys.executable, "-S", str(CLONE / "tests" / "brokers" / "shim.py"), str(os.getpid())]  # ends the part when this process ends
_COUNT = re.compile(rf"(\d+) ({'|'.join(OUTCOMES)}|error|warning)\b")


def pytest(*arguments: str) -> list[str]:
    return [str(BIN / "python"), "-m", "pytest", "-q", f"--broker-table={RESULTS}", *arguments]


@dataclass
class Part:
    """One part: its commands, the minutes after which it is ended, and what must exist for it to run."""

    name: str
    commands: list[list[str]]
    limit: float
    needs: str = ""
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    seconds: float = 0.0
    verdict: str = "ok"


def tool(name: str, *arguments: str) -> list[str]:
    return [str(BIN / name), *arguments]


FUZZ = ["env", f"PYTHONPATH={CLONE / 'src'}:{CLONE / 'tests'}", *tool("python", "-m", "fuzz")]
FUZZED = (  # a thousand changed inputs a message and more; the rest for a few seconds each
    "kafka-messages --runs 400000",
    "zookeeper-messages rocketmq-messages --runs 150000",
    "pulsar-messages --runs 50000",
    "kafka-records pulsar-entries rocketmq-stored rocketmq-headers zookeeper-multi arrow-import framer matchers --seconds 4",
)
PARTS = [
    Part("install", [["make", "--no-print-directory", "PYTHON=" + sys.executable, ".venv/ready"]], 20),
    Part(
        "lint",
        [
            tool("ruff", "check", "-q", "src", "tests", "proto", "benchmarks", "examples"),
            tool("python", "-m", "proto.gen", "--check"),
            tool("python", "tests/lint_cython.py"),
            tool("lint-imports", "--no-cache"),
            tool("mypy"),
            tool("mypy", "--strict", "-p", "brokers"),
            tool("stubtest", *STUBTEST.split(), "wireproto._codec", "wireproto._net"),
        ],
        10,
    ),
    Part("unit", [pytest("tests/unit")], 10),
    Part("wire", [pytest("tests/wire")], 10),
    Part("fuzz", [[*FUZZ, "--seed", "1", "--cuts", *words.split()] for words in FUZZED], 15),
    Part("conformance on the dev broker", [pytest("tests/conformance", "--broker", "dev")], 15),
    Part("conformance on real brokers", [pytest("tests/conformance", "--broker", "real", "--durations=12")], 35, needs="tests/conformance"),
    Part("integration", [pytest("tests/integration")], 30),
    Part("spark", [pytest("tests/spark", "--durations=5")], 35, needs="tests/spark/test_*.py"),
    Part("bench", [tool("python", "-m", "benchmarks", "--quick")], 10, needs="benchmarks/__main__.py"),
]
SHORT = {part.name.split()[0] if part.name != "conformance on real brokers" else "real": part for part in PARTS}
SHORT["conformance"] = next(part for part in PARTS if part.name == "conformance on the dev broker")


def run(part: Part) -> None:
    """Run its commands, counting what pytest's closing lines tell."""
    began = time.monotonic()
    if part.needs and not any(CLONE.glob(part.needs)):
        part.verdict = "nothing there yet"
        return
    for command in part.commands:
        shown = " ".join(str(word).removeprefix(f"{CLONE}/") for word in command)
        print(f"--- {part.name}: {shown}", flush=True)
        left = part.limit * 60 - (time.monotonic() - began)
        code, counts = follow(command, left)
        part.counts.update(counts)
        if "pytest" in command and not counts["passed"] and not code:
            code = 5  # pytest's own code for a run without tests: what is there and does not run has not passed
        if code == 0 and not counts:
            part.counts["passed"] += 1  # a check that is no pytest run counts as one test
        if code:
            part.verdict = "FAILED" if code != -signal.SIGINT else f"ENDED after {part.limit} minutes"
            if not counts["failed"] and not counts["errors"]:
                part.counts["failed"] += 1
    part.seconds = time.monotonic() - began


def follow(command: list[str], limit: float) -> tuple[int, collections.Counter[str]]:
    """Run one command, passing its output on; its code and the counts of its closing line."""
    environment = dict(os.environ) | {"PATH": f"{BIN}:{os.environ['PATH']}", "MYPYPATH": "tests", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command,
        cwd=CLONE,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ended = False
    deadline = time.monotonic() + max(limit, 10)
    counts: collections.Counter[str] = collections.Counter()

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        os.killpg(child.pid, signal.SIGINT)
        signal.alarm(30)
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))

    signal.signal(signal.SIGALRM, end)
    signal.alarm(max(1, int(deadline - time.monotonic())))
    try:
        assert child.stdout
        for raw in child.stdout:
            line = raw.decode(errors="replace")
            sys.stdout.write(line)
            sys.stdout.flush()
            if "pytest" in command and re.search(r"\b(passed|failed|skipped|errors?|deselected)\b.* in \d", line):
                counts = collections.Counter()
                for number, word in _COUNT.findall(line):
                    counts[{"error": "errors", "warning": "warnings"}.get(word, word)] += int(number)
        code = child.wait()
    except KeyboardInterrupt:
        os.killpg(child.pid, signal.SIGINT)
        child.wait(30)
        raise
    finally:
        signal.alarm(0)
    return (-signal.SIGINT if ended else code), counts


def closing(parts: list[Part], seconds: float) -> str:
    """One line in pytest's own form."""
    total: collections.Counter[str] = collections.Counter()
    for part in parts:
        total.update(part.counts)
    total["failed"] += total.pop("errors", 0)
    total.pop("deselected", None)
    words = [f"{total[word]} {word}" for word in OUTCOMES if total[word]]
    clock = f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02}:{int(seconds % 60):02}"
    return f"{', '.join(words) or 'no tests ran'} in {seconds:.2f}s ({clock})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=sorted(SHORT), default=None, help="only these (install always comes first)")
    parser.add_argument("--table", action="store_true", help="write docs/conformance.md from what ran")
    given = parser.parse_args()
    chosen = PARTS if not given.parts else [PARTS[0], *(part for part in PARTS[1:] if part in [SHORT[name] for name in given.parts])]
    RESULTS.parent.mkdir(exist_ok=True)
    if not given.parts:
        RESULTS.unlink(missing_ok=True)  # parts run one by one replace their own counts only
    began = time.monotonic()
    done: list[Part] = []
    for part in chosen:
        run(part)
        done.append(part)
        if part is PARTS[0] and part.verdict != "ok":
            break
    if given.table and RESULTS.exists():
        follow(tool("python", "tests/brokers/table.py", str(RESULTS), "docs/conformance.md"), 60)
    print("\n=== parts of make test")
    for part in done:
        facts = ", ".join(f"{part.counts[word]} {word}" for word in ("passed", "failed", "errors", "skipped") if part.counts[word])
        print(f"{part.name:<32} {part.seconds / 60:5.1f} min   {part.verdict:<10} {facts}")
    PARTS[0].counts.clear()  # installing is no test
    if done[0].verdict != "ok":
        PARTS[0].counts["failed"] = 1
    print(closing(done, time.monotonic() - began), flush=True)
    return 0 if all(part.verdict in ("ok", "nothing there yet") for part in done) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
