"""How much later than due something may happen on a loaded machine, and how to measure what must be quick all the same.

A deadline that is not kept costs seconds more than `LATE`, or for ever. Where only a shorter bound tells right from wrong, the best of
several runs counts: neighbours spoil one or two, a defect spoils all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LATE = 1.5
KEPT = 5.0
"""As `LATE`, where a deadline that is not kept costs ten seconds or more: a busy machine stops for two, and nothing is to be told apart."""
LONG = 60.0
"""Seconds that nothing takes which happens at all."""


def soon(seconds: float = 20.0) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def until(condition: Callable[[], object], what: str = "", limit: float = LONG) -> None:
    """Wait for what no call waits for: ask each few milliseconds, where asking takes long a fifth of the time at most."""
    deadline = time.monotonic() + limit
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, what or f"not so after {limit} s"
        time.sleep(min(0.05, max(0.002, 4 * (now - asked))))
        asked = time.monotonic()


def quickest(run: Callable[[], object], times: int = 5) -> float:
    """Seconds of the quickest of several runs."""
    best = float("inf")
    for _ in range(times):
        begin = time.monotonic()
        run()
        best = min(best, time.monotonic() - begin)
    return best
