"""`make soak`: kills by the dozen over a million records; progress goes to standard output and to a file.

    python -m spark.kills [--job kafka] [--records 1000000] [--kills 20] [--batch 10000] [--seed N] [--out soak-out.txt] [--exactly-once]

Exit code 0: nothing was lost, repeated where it must not be, or out of its key's order.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from . import jobs

ONCE = ("once", "pulsar-once")


def main() -> int:
    """All jobs, or those asked for."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", action="append", choices=sorted(jobs.JOBS), help="only this one (repeatable)")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--batch", type=int, default=10_000, help="records to a micro-batch")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, default=Path("soak-out.txt"))
    parser.add_argument("--exactly-once", action="store_true", help="the jobs that write once alone, with --kills in all, not of each kind")
    given = parser.parse_args()
    each = -(-given.kills // jobs.ONCE_KINDS) if given.exactly_once else given.kills
    failed = False
    with given.out.open("w") as out:

        def say(text: str) -> None:
            print(text, flush=True)
            print(text, file=out, flush=True)

        for name in given.job or (ONCE if given.exactly_once else sorted(jobs.JOBS)):
            with tempfile.TemporaryDirectory(prefix="wireproto-soak-") as folder:
                size = jobs.Size(total=given.records, each=each, batch=given.batch, seed=given.seed)
                wrong = jobs.JOBS[name](size, Path(folder), say)
            for line in wrong:
                say(f"{name}: {line}")
            failed = failed or bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
