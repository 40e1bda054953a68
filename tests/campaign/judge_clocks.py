"""Whether clocks that were to jump did, in each process of the workload: else nothing is proved by what went well. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator

from .ledger import CLOCK, Finding, Ledger

LATE = 5.0  # seconds behind the fault in which a process may still tell of it


def judge(ledger: Ledger) -> Iterator[Finding]:
    for window in (window for window in ledger.windows if window.name == CLOCK):
        over = (window.healed or window.began) + LATE
        for process, samples in ledger.memory.items():
            there = samples[0][0] < window.began and samples[-1][0] > over
            if there and not any(window.began <= at <= over for at in ledger.jumps[process]):
                yield Finding("clocks jump", f"{process} saw none", window.began)
