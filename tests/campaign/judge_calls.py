"""Whether each call ended within its timeout and a second, and whether memory stayed flat. Sans-IO."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterator

from .ledger import Finding, Ledger

LATE = 1.0  # seconds beyond the timeout
ROOM = 24 << 10  # kB that a process may grow by between the second quarter of its life and the last: pools, arenas
LONG = 120.0  # seconds below which memory says nothing


def judge(ledger: Ledger, slack: float = 1.0) -> Iterator[Finding]:
    """Args:
    slack: how many times as late a call may be.
    """
    troubles: collections.Counter[str] = collections.Counter()
    for call in ledger.calls:
        late = call.seconds - call.timeout - LATE * slack
        if late > ledger.stalled(call.at - call.seconds, call.at):
            text = f"{call.role}: {call.name} took {call.seconds:.1f} s with a timeout of {call.timeout:.1f} s: {call.outcome}"
            yield Finding("calls end in time", text, call.at)
        if call.outcome != "ok":
            troubles[f"{call.role}: {call.name}: {call.outcome.split('(')[0][:100]}"] += 1
    for what, times in troubles.most_common():
        yield Finding("calls that raised", f"{times} × {what}", fault=False)


def memory(ledger: Ledger) -> Iterator[Finding]:
    for process, samples in ledger.memory.items():
        if not samples or samples[-1][0] - samples[0][0] < LONG:
            continue
        quarter = len(samples) // 4
        before = statistics.median(size for _, size in samples[quarter : 2 * quarter])
        behind = statistics.median(size for _, size in samples[-quarter:])
        text = f"{process}: {before / 1024:.0f} MiB in the second quarter, {behind / 1024:.0f} MiB in the last"
        yield Finding("memory is flat", text, samples[-1][0], behind - before > ROOM)
