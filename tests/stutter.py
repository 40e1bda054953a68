"""Runs pytest and holds its process still at random moments, as a machine does that is shared: what only passes in time shows itself.

What it is: a program, ``python tests/stutter.py [--of 1.0] [--for 1.2] -- tests/wire -q``. May assume: Linux, the standard library.
Must not: stop what pytest has started, for then brokers would stand still with it and their clocks would be as late as ours.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

from chance import seed


def held(process: subprocess.Popen[bytes], chance: random.Random, pause: float, longest: float) -> int:
    """Stop and wake the process until it ends. Returns how often it stood still."""
    times = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.2, 2.0 * pause))
            return times
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(longest * chance.random() ** 2)  # most are short
        os.kill(process.pid, signal.SIGCONT)
        times += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--of", type=float, default=1.0, help="seconds between two stops, about")
    parser.add_argument("--for", type=float, default=1.2, dest="longest", help="seconds of the longest stop")
    parser.add_argument("--seed", type=int, default=seed())
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="what pytest is given, behind --")
    given = parser.parse_args()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *[word for word in given.rest if word != "--"]]
    process = subprocess.Popen(command)
    try:
        times = held(process, random.Random(given.seed), given.of, given.longest)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()
    print(f"held still {times} times, {given.longest} s at most; seed {given.seed}")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
