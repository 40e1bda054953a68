"""`make test`: installs, then runs every part of the suite, several at a time; prints minutes and one closing line in pytest's form.

    python tests/run.py [--parts lint unit wire …] [--table] [--seed N] [--minutes N]    CPython 3.11 to 3.13; the standard library will do

A part that fails does not keep the others from running. Its output lies in a folder under .cache/test/ while it runs and is printed when it
has ended; a part that is alone is printed as it comes. After `--minutes` everything is ended: what did not run is named, and the run has
failed. The exit code is 0 only when all passed and nothing that must run was missing. What chance decides follows from one seed, the date
if none is given, which the run prints: `--seed` repeats it.

A test that fails is run once more when all parts have ended, unless its failure may be a lost or repeated record (flickers.py): one that
passes then flickered, which the run names; it fails with more than three of them.

A whole run leaves .cache/ran.json: what ran where, on which commit, what failed, what was skipped and why, and the seconds of each file.
Parts run by hand leave it alone. `--table` writes docs/conformance.md from it.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import budget
import chance
import flickers
from brokers import table
from lanes import OUTCOMES, Job, Lanes, Outcome
from load import Load

CLONE = Path(__file__).resolve().parents[1]
CACHE = CLONE / ".cache"
BIN = CLONE / ".venv" / "bin"
RESULTS = CACHE / "ran.json"
MINUTES = 82.0
KEPT = 5  # folders of earlier runs
PROTOCOLS = ("rocketmq", "kafka", "pulsar", "zookeeper")  # those that take longest first
STUBTEST = "--ignore-disjoint-bases --ignore-positional-only --ignore-unused-allowlist --allowlist tests/stubtest-allow.txt"
FUZZED = (  # a thousand changed inputs a message and more; the rest for a few seconds each
    "kafka-messages zookeeper-messages rocketmq-messages --runs 150000",
    "pulsar-messages --runs 50000",
    "kafka-records pulsar-entries rocketmq-stored rocketmq-headers zookeeper-multi arrow-import --seconds 4",
    "lz4 kafka-encoding framer matchers --seconds 4",
)
PARTS = ("lint", "unit", "wire", "fuzz", "conformance", "real", "integration", "spark", "campaign", "bench")
MORE = ("soak",)  # by name only: what `make soak` runs beside its kills


def tool(name: str, *arguments: str) -> list[str]:
    return [str(BIN / name), *arguments]


class Suite:
    """The jobs of the parts: `folder` takes their results, `seed` decides what chance does in them."""

    def __init__(self, parts: Sequence[str], folder: Path, seed: int) -> None:
        self.parts, self.folder, self.seed = parts, folder, seed

    def jobs(self) -> list[Job]:
        """In the order in which they begin, if there is room."""
        found = list(self._all())
        assert len({job.name for job in found}) == len(found)
        return found

    def _all(self) -> Iterator[Job]:
        if "lint" in self.parts:
            yield Job("lint", self._lint(), cores=0.5)
        spark = list(self._spark()) if "spark" in self.parts else []
        if "soak" in self.parts:
            yield self._pytest("spark soak", "tests/spark", "--soak", "only")
        brokers, wire = list(self._brokers()), list(self._wire()) if "wire" in self.parts else []
        # The longest first, so that little is left to wait for. Those of scripted peers are as long whatever runs beside them.
        yield from (*wire[1:2], *wire[3:4], *spark[:1], *brokers[:2], *wire[4:], *spark[1:], *brokers[2:3])
        if "unit" in self.parts:
            yield self._pytest("unit", "tests/unit", cores=0.18)
        if "campaign" in self.parts:
            yield from self._campaigns()
        yield from (*wire[:1], *wire[2:3], *brokers[3:])
        yield from self._dev()
        if "fuzz" in self.parts:  # it counts inputs and seconds of the processor: the same work, however slowly
            fuzz = ["env", f"PYTHONPATH={CLONE / 'src'}:{CLONE / 'tests'}", *tool("python", "-m", "fuzz")]
            yield Job("fuzz", [[*fuzz, "--seed", str(self.seed), "--cuts", *words.split()] for words in FUZZED], spare=True)
        if "bench" in self.parts:
            yield from self._bench()

    def _spark(self) -> Iterator[Job]:
        """Two sessions, each with Spark sessions of its own; most of them wait."""
        for name, which in (("spark kafka", "--protocol"), ("spark others", "--except")):
            yield self._pytest(name, "tests/spark", which, "kafka", "--durations=12", cores=0.32)

    def _wire(self) -> Iterator[Job]:
        """Scripted peers: a session for the files of each protocol and one for the others, since most of it waits."""
        left = sorted(str(path.relative_to(CLONE)) for path in (CLONE / "tests/wire").rglob("test_*.py"))
        for protocol in PROTOCOLS:
            files = [name for name in left if protocol in name]
            left = [name for name in left if name not in files]
            yield self._pytest(f"wire {protocol}", *files, cores=0.08)
        yield self._pytest("wire of all", *left, cores=0.25)

    def _campaigns(self) -> Iterator[Job]:
        """Two beside one another: more would find what the machine does, not what clients do."""
        for protocol in PROTOCOLS:
            words = ["-m", "campaign", protocol, "--short", "--seed", str(self.seed), "--out", str(self.folder / f"campaign-{protocol}")]
            command = ["env", f"PYTHONPATH={CLONE / 'src'}:{CLONE / 'tests'}", *tool("python", *words)]
            yield Job(f"campaign {protocol}", [command], cores=1.0 if protocol == "kafka" else 0.5)

    def _bench(self) -> Iterator[Job]:
        """What is counted in one process is the same however slowly it goes; clients poll more often when their brokers are late, by 40 %
        of the instructions beside two loops at nice 19."""
        for name, suites, alone in (("bench core", ("codec", "wire", "engine"), False), ("bench clients", ("clients",), True)):
            out = str(self.folder / name.replace(" ", "-"))
            yield Job(name, [tool("python", "-m", "benchmarks", *suites, "--quick", "--out", out)], alone=alone, spare=not alone)

    def _brokers(self) -> Iterator[Job]:
        """Conformance and integration mostly wait. One session for all that runs on a protocol's real brokers: each boots once."""
        folders = [f"tests/{part if part == 'integration' else 'conformance'}" for part in ("real", "integration") if part in self.parts]
        for protocol in PROTOCOLS if folders else ():
            cores = {"kafka": 0.28, "rocketmq": 0.24, "pulsar": 0.2, "zookeeper": 0.15}[protocol]  # as they took, like all of these
            yield self._pytest(f"{protocol} brokers", *folders, "--broker", "real", "--protocol", protocol, "--durations=12", cores=cores)

    def _dev(self) -> Iterator[Job]:
        """The same tests on the embedded broker, and those that need none."""
        for protocol in PROTOCOLS if "conformance" in self.parts else ():
            yield self._pytest(f"{protocol} dev", "tests/conformance", "--broker", "dev", "--protocol", protocol, cores=0.1)
        others = [f"tests/{part}" for part in ("conformance", "integration") if part in self.parts]
        if others:
            yield self._pytest("no broker", *others, "--broker", "none", cores=0.3)
        for protocol in PROTOCOLS if "soak" in self.parts else ():
            words = ("tests/conformance", "tests/integration", "--soak", "only", "--protocol", protocol)
            yield self._pytest(f"{protocol} soak", *words, cores=0.5)

    def _pytest(self, name: str, *arguments: str, cores: float = 1.0) -> Job:
        """Without pytest's own cache, which sessions beside each other would write over one another's."""
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--hypothesis-seed={self.seed}", *arguments]
        job = Job(name, [], cores)
        return Job(name, [tool("python", *words, f"--broker-table={self.folder / job.file}.json")], cores)

    def _lint(self) -> list[list[str]]:
        return [
            tool("ruff", "check", "-q", "src", "tests", "proto", "benchmarks", "examples"),
            tool("ruff", "format", "-q", "--check", "src", "tests", "proto", "benchmarks", "examples"),
            tool("python", "-m", "proto.gen", "--check"),
            tool("python", "tests/lint_cython.py"),
            tool("lint-imports", "--no-cache"),
            tool("python", "tests/doc_blocks.py"),  # for mypy and basedpyright
            tool("mypy"),
            tool("mypy", "--strict", "-p", "brokers", "-p", "campaign"),
            tool("basedpyright", "-p", "tests/typing"),
            tool("stubtest", *STUBTEST.split(), "wireproto._codec", "wireproto._net"),
        ]


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder of this run's own; those of the oldest runs go."""
    root = CACHE / "test"
    folder = root / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for old in sorted(root.iterdir())[:-KEPT]:
            try:
                with (old / "lock").open() as other:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(old, ignore_errors=True)
            except OSError:
                continue  # it is still running
        yield folder


@contextmanager
def installing() -> Iterator[None]:
    """Only one run at a time installs into this clone."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("... another run is installing here")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(line: str) -> None:
    print(line, flush=True)


def failures(jobs: Sequence[Job], folder: Path) -> list[flickers.Failure]:
    """Read which tests failed in the jobs' pytest sessions, a test once."""
    found = []
    for job in jobs:
        path = folder / f"{job.file}.json"
        if not path.exists():
            continue  # `gathered` counts it as a failure
        of_job = table.load(path)
        entries: dict[str, list[str]] = {}
        for entry in of_job.failures:
            if entry in of_job.details:  # else a module that cannot be imported
                entries.setdefault(of_job.details[entry]["test"], []).append(entry)
        for test, names in entries.items():
            details = [of_job.details[name] for name in names]
            believed = next((detail["believed"] for detail in details if detail["believed"]), "")
            found.append(flickers.Failure(test, job.name, tuple(names), believed, details[0]["words"]))
    return found


def again(job: Job, test: str, number: int, folder: Path) -> Job:
    """The job that runs one test of a job once more, with nothing beside it."""
    (command,) = job.commands
    kept = [word for word in command if not word.startswith(("tests/", "--broker-table=", "--durations="))]
    return Job(f"again {number}", [[*kept, test, f"--broker-table={folder}/again-{number}.json"]], alone=True)


def judged(lanes: Lanes, outcomes: Sequence[Outcome], results: table.Results, folder: Path) -> flickers.Judgement:
    """Run failed tests again, and take what flickered out of `results` and `outcomes`."""
    jobs = {outcome.job.name: outcome.job for outcome in outcomes}
    numbers = iter(range(1, 1 << 30))

    def passes(failure: flickers.Failure) -> bool:
        say(f"\n=== run again, alone: {failure.test}")
        return lanes.run([again(jobs[failure.job], failure.test, next(numbers), folder)])[0].verdict == "ok"

    ended = [outcome.job for outcome in outcomes if outcome.verdict in ("ok", "FAILED")]
    found = flickers.judge(failures(ended, folder), passes, flickers.read(), datetime.date.today())
    for failure in found.flickered:
        results.flickered(failure.entries, failure.test)
    for outcome in outcomes:
        mine = [failure for failure in found.flickered if failure.job == outcome.job.name]
        taken_back = sum(len(failure.entries) for failure in mine)
        if not taken_back or outcome.code != 1 or outcome.verdict != "FAILED":
            continue  # an exit code other than 1 is not that of failed tests
        counts = outcome.counts
        ran = sum(any(not entry.endswith(" (teardown)") for entry in failure.entries) for failure in mine)
        if counts["failed"] + counts["errors"] == taken_back:
            outcome.verdict = "ok"
        for word in ("failed", "errors"):
            back = min(counts[word], taken_back)
            counts[word] -= back
            taken_back -= back
        counts["passed"] += ran
    return found


def gathered(jobs: Sequence[Job], folder: Path) -> table.Results:
    """What the jobs' pytest sessions left, as one."""
    found = table.Results()
    for job in jobs:
        path = folder / f"{job.file}.json"
        if path.exists():
            found.merge(table.load(path))
        elif "pytest" in job.commands[0]:
            found.failures.append(f"{job.name}: its session left no results")
    return found


def commit() -> str:
    """What this run is a run of."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=CLONE, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + " with changes" * bool(git("status", "--porcelain", "-uno"))
    except (OSError, subprocess.CalledProcessError):
        return "an unknown commit"


def closing(outcomes: Sequence[Outcome], seconds: float) -> str:
    """One line in pytest's own form."""
    total: collections.Counter[str] = collections.Counter()
    for outcome in outcomes:
        total.update(outcome.counts)
    total["failed"] += total.pop("errors", 0)
    total.pop("deselected", None)
    words = [f"{total[word]} {word}" for word in OUTCOMES if total[word]]
    long = f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02}:{int(seconds % 60):02}"
    return f"{', '.join(words) or 'no tests ran'} in {seconds:.2f}s ({long})"


def report(outcomes: Sequence[Outcome], results: table.Results, machine: budget.Machine, seed: int, judgement: flickers.Judgement) -> bool:
    """Say what became of everything; whether all is as it must be."""
    say("\n=== parts of make test: minutes of the clock, of processors")
    for outcome in outcomes:
        facts = ", ".join(f"{outcome.counts[word]} {word}" for word in ("passed", "failed", "errors", "skipped") if outcome.counts[word])
        say(f"{outcome.job.name:<20} {outcome.seconds / 60:5.1f} {outcome.processor / 60:5.1f}   {outcome.verdict:<8} {facts}")
    if results.skips:
        say("\n=== skipped, and why")
        for why, places in sorted(results.skips.items()):
            say(f"{sum(places.values()):>4}  {why}: {', '.join(sorted(places))}")
    for name, why in sorted(results.missing.items()):
        say(f"NOT RUN: {name}: {why}")
    late, grossly = budget.compare(results.seconds)
    if late:
        say(f"\n=== files beyond their budget of seconds (tests/seconds.json); {machine.words()}")
        for line in late:
            say(line)
    if grossly and not machine.busy:
        say(f"FAILED: {grossly} files took more than {budget.GROSS} times what is recorded, on a machine without other work")
    for name, words in sorted(results.boots_again.items()):
        say(f"\n=== {name} did not boot at once; what {len(words)} failed attempts said:")
        say("\n".join(words))
    for line in judgement.lines():
        say(line)
    if results.failures:
        reasons = {entry: why for failure, why in judgement.failed for entry in failure.entries}
        say("\n=== failed")
        for name in results.failures:
            say(f"FAILED {name}{f' ({reasons[name]})' if name in reasons else ''}")
    for why in judgement.fails:
        say(f"FAILED: {why}")
    unwell = any(outcome.verdict != "ok" for outcome in outcomes)
    if unwell or results.failures or judgement.fails:
        say(f"seed {seed}: make test ARGS='--seed {seed}' repeats what chance chose")
    return not (unwell or results.missing or results.failures or judgement.fails or (grossly and not machine.busy))


def whole(outcomes: Sequence[Outcome]) -> bool:
    """Whether everything ran to its end: of anything less there is no record."""
    return outcomes[0].verdict == "ok" and all(outcome.verdict in ("ok", "FAILED") for outcome in outcomes)


def keep(results: table.Results, outcomes: Sequence[Outcome], code: int, seed: int, seconds: float, begun: str) -> None:
    """The record of a whole run, put in place in one step. `begun` is the commit that it began with."""
    facts: dict[str, Any] = results.to_json() | {
        "commit": begun if commit() == begun else f"{begun}, other files at its end",
        "when": time.strftime("%Y-%m-%d"),
        "code": code,
        "seed": seed,
        "closing": closing(outcomes, seconds),
        "parts": {outcome.job.name: [outcome.verdict, round(outcome.seconds / 60, 1)] for outcome in outcomes},
    }
    fresh = RESULTS.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    fresh.replace(RESULTS)


def install(lanes: Lanes) -> Outcome:
    """The environment, whose wireproto must be this clone's: that of a copied environment is another one's."""
    ours = f"import wireproto; from pathlib import Path; assert Path(wireproto.__file__).is_relative_to({str(CLONE)!r}), wireproto.__file__"
    make = ["make", "--no-print-directory", "PYTHON=" + sys.executable, ".venv/ready"]
    job = Job("install", [make, tool("python", "-c", ours)])
    with installing():
        return lanes.run([job])[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=(*PARTS, *MORE), default=None, help="only these (install always comes first)")
    parser.add_argument("--table", action="store_true", help="write docs/conformance.md, after a whole run")
    parser.add_argument("--seed", type=int, default=chance.seed(), help="decides what chance does (default: the date)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"after which everything is ended (default: {MINUTES:.0f})")
    parser.add_argument("--cores", type=float, default=float(os.cpu_count() or 1), help="how much may run at a time (default: all)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the parts as Ctrl-C does
    environment = dict(os.environ) | {"PATH": f"{BIN}:{os.environ['PATH']}", "MYPYPATH": "tests", "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a thousand Python processes compiles what it imports anew
    environment[chance.VARIABLE] = str(given.seed)
    began = time.monotonic()
    begun = commit()
    with run_folder() as folder:
        say(f"seed {given.seed}; at most {given.minutes:.0f} minutes; the parts' output is in {folder.relative_to(CLONE)}/")
        lanes = Lanes(given.cores, folder, environment, CLONE, began + given.minutes * 60, say)
        jobs = Suite(given.parts or PARTS, folder, given.seed).jobs()
        machine = budget.Machine()
        first = install(lanes)
        with Load(names=lanes.names) as load:
            outcomes = lanes.run(jobs) if first.verdict == "ok" else [Outcome(job) for job in jobs]
        machine.stop()
        first.counts = collections.Counter() if first.verdict == "ok" else collections.Counter(failed=1)  # installing is no test
        outcomes.insert(0, first)
        results = gathered(jobs, folder)
        judgement = judged(lanes, outcomes, results, folder)
        say("\n=== whose processor time it was")
        say("\n".join(load.lines()))
        say("cores that lanes count for a part, and what it and its brokers took in its busier minutes: ")
        declared = {job.name: job.cores for job in jobs}
        say(", ".join(f"{name} {declared[name]:.2f} {taken:.2f}" for name, taken in load.demands().items() if name in declared))
        boots = sorted(results.boots.items(), key=lambda each: -each[1])
        say(f"{sum(results.boots.values())} boots of servers in pytest: {', '.join(f'{name} {number}' for name, number in boots)}")
        code = 0 if report(outcomes, results, machine, given.seed, judgement) else 1
        if not given.parts and whole(outcomes):
            keep(results, outcomes, code, given.seed, time.monotonic() - began, begun)
            if given.table:
                table.write(RESULTS, CLONE / "docs" / "conformance.md")
        unrun = [outcome.job.name for outcome in outcomes if outcome.verdict in ("NOT RUN", "ENDED")]
        if unrun:
            say(f"did not run to the end ({given.minutes:.0f} minutes): {', '.join(unrun)}")
        if results.flickers:
            say(f"{len(results.flickers)} flickered (of {flickers.MOST} at most): {', '.join(results.flickers)}")
        say(closing(outcomes, time.monotonic() - began))
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
