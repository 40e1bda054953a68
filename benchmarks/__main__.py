"""The one runner: `python -m benchmarks [suite …] [--quick] [--minutes M]`, and the verbs that keep what it found.

Suites: startup, codec, wire, engine, memory, clients (kafka, pulsar, rocketmq, zookeeper), spark; or one part, as ``clients.kafka``.
A full run holds each row to our own figures (figures.txt) and to its peers' bars (bars.txt). With --quick each contender runs once and our
own instructions alone are held, which a busy machine does not change. Results go to bench-out/: results.json, .txt and .svg.
A run that was cut is gone on with by the same command; --minutes ends it before a suite that may not fit, with exit code 3.
Exit code 1 when a suite or a contender failed, a figure is over its tolerance or not recorded, or a bar is missed.

--renew WHY writes the figures of the last run into figures.txt, --bars WHY sets the bars anew from it (a whole full run), --picture draws
docs/benchmarks.svg from it; none of them runs anything.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from . import bars, figures, picture, report, suites
from .harness import Bench
from .instructions import Counter
from .ledger import sound
from .pieces import Run
from .servers import Servers

CLONE = Path(__file__).resolve().parents[1]
PICTURE = CLONE / "docs" / "benchmarks.svg"
PICTURED = ("kafka", "pulsar", "rocketmq", "zookeeper")
LONGEST = {"spark": 25.0, "clients.rocketmq": 20.0}  # minutes that a full suite may take; others less than TEN
TEN = 10.0
GO_ON = 3  # exit code: cut, the same command goes on


def piece(name: str, given: argparse.Namespace, counter: Counter, servers: Servers) -> dict[str, Any]:
    """Run one suite, beside what suites have in common."""
    bench = Bench(
        quick=given.quick,
        figures=figures.Figures.read(),
        bars=bars.Bars.read(),
        counter=counter,
        servers=servers,
        show=lambda row: print(report.table(row.facts()), flush=True),
    )
    broken, began = [], time.monotonic()
    try:
        suites.run(bench, name)
        broken += suites.lost(bench)
    except (Exception, SystemExit) as why:
        traceback.print_exc()
        broken.append(f"{name}: {type(why).__name__}: {why}")
    if bench.uncounted:
        broken += unheld(f"{name}: instructions were not counted: {bench.uncounted}")
    if not bench.figures.judging:
        broken += unheld(f"{name}: no figures are recorded for CPython {figures.minor(figures.build())}")
    seconds = time.monotonic() - began
    print(f"--- {name}: {seconds:.0f} s", flush=True)
    return {"rows": [row.facts() for row in bench.rows], "brokers": bench.brokers, "broken": broken, "seconds": seconds}


def unheld(words: str) -> list[str]:
    """What keeps a run from holding anything to our figures: a failure in CI, a warning elsewhere."""
    if os.environ.get("CI", "").lower() in ("", "0", "false"):
        print(f"NOT HELD: {words}", flush=True)
        return []
    return [words]


def write(out: Path, run: Run, given: argparse.Namespace) -> dict[str, Any]:
    """Results so far, after each suite."""
    facts = report.document(run.rows(), run.brokers(), " ".join(["python -m benchmarks", *given.suites, *["--quick"] * given.quick]))
    facts |= {"quick": given.quick, "complete": not run.left() and not given.suites, "failures": run.failures()}
    facts |= {"broken": {name: kept["broken"] for name, kept in run.pieces.items() if kept["broken"]}}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    text = "\n\n".join([report.heading(facts), *map(report.table, facts["rows"])])
    (out / "results.txt").write_text(text + "\n", encoding="utf-8")
    (out / "results.svg").write_text(picture.draw(facts), encoding="utf-8")
    return facts


def keep(given: argparse.Namespace) -> int:
    """The verbs that keep what the last run found."""
    try:
        facts = json.loads((given.out / "results.json").read_text(encoding="utf-8"))
        if facts["sources"] != report.sources():
            raise ValueError(f"the last run was of {facts['commit']}, whose sources are not what is here ({report.commit()})")
        print(f"from the run of {facts['date']}: {facts['command']}")
        if given.renew is not None:
            print("\n".join(figures.renew(facts, given.renew)) or "no figure changed by more than a hundredth")
        if given.bars is not None:
            print("\n".join(bars.renew(facts, given.bars)) or "no bar became lower")
        if given.picture:
            if facts["quick"] or not facts["complete"]:
                raise ValueError("the picture is drawn from a full run of every suite")
            sound(facts)
            PICTURE.write_text(picture.draw(facts, PICTURED), encoding="utf-8")
    except (ValueError, figures.NoReason, FileNotFoundError) as why:
        print(f"nothing kept: {why}", file=sys.stderr)
        return 2
    return 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="which; all without one")
    parser.add_argument("--quick", action="store_true", help="only what a busy machine does not change: our own instructions")
    parser.add_argument("--instructions", action="store_true", help="count the peers' instructions, too, which takes long")
    parser.add_argument("--minutes", type=float, help="end before a suite that may not fit into so many; the same command goes on")
    parser.add_argument("--fresh", action="store_true", help="begin anew instead of going on with a run that was cut")
    parser.add_argument("--out", type=Path, default=CLONE / "bench-out", help="folder for the results (default: bench-out)")
    parser.add_argument("--renew", metavar="WHY", help="write the last run's figures into figures.txt")
    parser.add_argument("--bars", metavar="WHY", help="set the peers' bars anew from the last run")
    parser.add_argument("--picture", action="store_true", help="draw docs/benchmarks.svg from the last run")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parsed(arguments)
    if given.picture or given.renew is not None or given.bars is not None:
        return keep(given)
    sys.path.insert(0, str(CLONE / "tests"))  # brokers
    warnings.simplefilter("ignore")  # the peers' own
    faulthandler.enable()  # a peer in C that takes the process with it is named by the line that called it
    names, began = suites.chosen(given.suites, quick=given.quick), time.monotonic()
    asked = {"sources": report.sources(), "quick": given.quick, "instructions": given.instructions, "build": figures.build()}
    asked |= {what: fact for what, fact in report.machine().items() if what != "load"}
    run = Run.open(given.out / "pieces", names, asked, fresh=given.fresh)
    if run.resumed:
        print(f"going on with a run that was cut; there are {', '.join(run.pieces)} (--fresh begins anew)")
    print(report.heading(write(given.out, run, given)), flush=True)
    with Counter(peers=given.instructions) as counter, Servers(shared=given.quick) as servers:
        for name in run.left():
            spent = (time.monotonic() - began) / 60
            longest = TEN if given.quick else LONGEST.get(name, TEN)
            if given.minutes is not None and spent and spent + longest > given.minutes and run.pieces:
                print(f"cut after {spent:.0f} minutes; the same command goes on with {', '.join(run.left())}")
                return GO_ON
            run.add(name, piece(name, given, counter, servers))
            write(given.out, run, given)
    failures = run.failures()
    for line in failures:
        print(f"FAILED: {line}")
    print(f"{len(run.rows())} rows, {len(failures)} failures; results in {given.out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
