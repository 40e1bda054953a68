"""`make mutate ARGS="--seed 3"`: faults put into the client half one at a time; which of them does no test notice?

    --seed N        which sample (1); several may be given, results add up in .cache/mutate/results.txt
    --only GROUP    kafka, pulsar, rocketmq, zookeeper, flow, aio, net, engine (repeatable); all by default
    --size N        faults of each group, in place of 60 an adapter, 40 of flow, 20 each of aio, net and the engine
    --sampled       leave out those that are always in the sample: an option or a keyword ignored
    --minutes M     end after so long (30); the same command goes on where it ended, after Ctrl-C, too
    --jobs N        faults judged beside each other (2), each in a copy of the tree under .cache/mutate/trees
    --report        judge nothing, tell what is known; --key TEXT: judge only faults whose key contains it, again

The exit code is 0 when every picked fault is judged, 3 when some are left for another piece, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from nightly import work

from . import report, sample
from .cover import Map, test_files
from .report import Told
from .run import Run
from .state import Results, arguments, tests_digest
from .tree import Tree

CHECKOUT = Path(__file__).resolve().parents[2]
KEPT = CHECKOUT / ".cache/mutate"
ARGUED = Path(__file__).with_name("equivalent.txt")
RESULTS = KEPT / "results.txt"


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--only", action="append", choices=sample.GROUPS)
    parser.add_argument("--size", type=int)
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--key", action="append", default=[])
    given = parser.parse_args()
    ends = time.monotonic() + given.minutes * 60
    results = Results(RESULTS, CHECKOUT, work.commit(("src", "tests")))
    snapshot = Tree(CHECKOUT, KEPT / "trees/snapshot")
    snapshot.sync()
    tests = tests_digest(test_files(snapshot.root), snapshot.root)
    groups = tuple(given.only or sample.GROUPS)
    runs = [Run(snapshot.root, results, tests, seed, groups, given.size, not given.sampled) for seed in given.seed]
    left = 0
    if not given.report:
        forgotten = results.forget(runs[0].every)
        if forgotten:
            print(f"{forgotten} results were of functions that are no more what they were")
        known = mapped(snapshot.root, groups, ends)
        if known is None:
            print("the map is not finished: run again")
            return 3
        for run in runs:
            wanted = run.named(given.key) if given.key else run.left()
            run.judge(known, wanted, (ends - time.monotonic()) / 60, given.jobs)
            left += 0 if given.key else len(run.left())
    shown: dict[int, list[Told]] = {run.seed: run.told() for run in runs}
    if given.key:
        named = runs[0].named(given.key)
        shown = {runs[0].seed: [Told(mutant, results.of(mutant)) for mutant in named if results.of(mutant) is not None]}
    print("\n" + report.text(shown, arguments(ARGUED)))
    if left:
        print(f"{left} faults are left: run again")
    return 3 if left else 0


def mapped(snapshot: Path, groups: tuple[str, ...], ends: float) -> Map | None:
    """The map of who runs what, renewed where tests have changed; None when time was up before that was done."""
    known = Map(snapshot, KEPT / "map")
    stale = known.stale(groups)
    if stale:
        tree = Tree(snapshot, KEPT / "trees/map")
        tree.sync()
        for part, files in stale.items():
            if time.monotonic() > ends:
                return None
            known.renew(tree.root, part, files)
    known.load()
    return known


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
