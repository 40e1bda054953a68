"""Whether each call ended within its timeout and a second, and whether memory stayed flat. Sans-IO."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterator

from .ledger import Finding, Ledger

LATE = 1.0  # seconds beyond the timeout
ROOM = 24 << 10  # kB that a process may grow by between the second quarter of its life and the last: pools, arenas
STEP = 8 << 10  # kB that it must have grown by in each half of that time to be told of: a leak goes on, a burst's buffers are used again
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
        sizes = [statistics.median(size for _, size in samples[n * quarter : (n + 1) * quarter]) for n in (1, 2, 3)]
        text = f"{process}: MiB in the second quarter and those behind it: {', '.join(f'{size / 1024:.0f}' for size in sizes)}"
        grows = sizes[2] - sizes[0] > ROOM and min(sizes[1] - sizes[0], sizes[2] - sizes[1]) > STEP
        yield Finding("memory is flat", text, samples[-1][0], grows)
