"""One format's run: `python -m fuzz.worker FORMAT --runs N --seconds S --seed K --memory FILE --found FOLDER`.

Inputs whose outcome (class of error and its path) is new join the corpus, which is the only feedback there is. What is raised beside
`WireprotoError` is written to FOLDER and told; the run goes on. The last line is a JSON object of counts.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import os
import re
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

from wireproto.errors import WireprotoError

from .mutate import Mutator
from .targets import TARGETS

CORPUS = Path(__file__).with_name("corpus")
FOUND_AT_MOST = 20
GROWTH_AT_LEAST = 200  # more for a larger corpus, but never so many that broken inputs outnumber good ones


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.worker")
    parser.add_argument("format", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0, help="of the processor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", action="store_true", help="before that every entry of the corpus, cut at every byte")
    parser.add_argument("--memory", type=Path, required=True)
    parser.add_argument("--found", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    target = TARGETS[given.format]
    mutator = Mutator(given.memory, given.seed)
    for label, data in target.corpus():
        mutator.add(label, data)
    whole = len(mutator.labels)
    growth = max(GROWTH_AT_LEAST, whole // 2)
    outcomes: collections.Counter[str] = collections.Counter()
    seen: set[object] = set()
    found: set[str] = set()
    check, take = target.check, mutator.input
    began = time.process_time()
    done = cut_all(given, found, outcomes) if given.cuts else 0
    settled = 0
    while (not given.runs or done < given.runs) and (not given.seconds or time.process_time() - began < given.seconds):
        for _ in range(500):
            label, data = take()
            try:
                check(label, data)
                outcome: object = "ok"
            except WireprotoError as error:
                kind = type(error).__name__
                outcomes[kind] += 1
                outcome = (kind, getattr(error, "path", None))
            except Exception as error:
                keep(given, label, data, error, found)
                if len(found) >= FOUND_AT_MOST:
                    break
                continue
            if outcome not in seen and len(seen) < growth:
                seen.add(outcome)
                if len(data) < 4096:
                    mutator.add(label, data)
        done += 500
        if not settled and done >= 20_000:
            settled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if len(found) >= FOUND_AT_MOST:
            break
    seconds = time.process_time() - began
    outcomes["decoded"] = done - sum(outcomes.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {
        "format": given.format,
        "runs": done,
        "seconds": round(seconds, 1),
        "per_second": round(done / max(seconds, 1e-9)),
        "found": len(found),
        "corpus": [whole, len(mutator.labels)],
        "resident_growth_kib": peak - settled if settled else None,
        "outcomes": dict(outcomes),
    }
    print(json.dumps(facts), flush=True)
    return 1 if found else 0


def cut_all(given: argparse.Namespace, found: set[str], outcomes: collections.Counter[str]) -> int:
    """Every prefix of every entry; how many there were."""
    target = TARGETS[given.format]
    count = 0
    for label, data in target.corpus():
        os.utime(given.memory)  # who watches sees that it goes on
        for cut in range(len(data) + 1):
            count += 1
            try:
                target.check(label, data[:cut])
            except WireprotoError as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                keep(given, label, data[:cut], error, found)
    return count


def keep(given: argparse.Namespace, label: object, data: bytes, error: Exception, found: set[str]) -> None:
    """Write an input that went wrong, once for each place where it did."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{type(error).__name__} {re.sub(r'[0-9]+', 'N', str(error))[:80]} {frames[-1].name}:{frames[-1].lineno}"
    if place in found:
        return
    found.add(place)
    given.found.mkdir(parents=True, exist_ok=True)
    name = f"{given.format}-{hashlib.sha256(data).hexdigest()[:12]}.hex"
    (given.found / name).write_text(f"# {label!r}\n# {place}\n{data.hex()}\n")
    print(f"{given.format}: {label!r}: {place}; input in {given.found / name}", file=sys.stderr, flush=True)
    traceback.print_exception(error, limit=-6, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
