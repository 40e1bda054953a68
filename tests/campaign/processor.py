"""How much of the processors others took: a campaign on a shared machine is slower by so much, and its clients are not to blame.

May assume: Linux; the brokers and the workload are children of this process.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MOST = 0.9  # share of others beyond which nothing can be said


class Share:
    """Samples each second in a thread of its own, until `close`."""

    def __init__(self) -> None:
        self._samples = [self._now()]
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def others(self, begin: float, end: float) -> float:
        """The share of all processors, 0 to 1, that went to others between two moments, or in the seconds round them."""
        inside = [sample for sample in self._samples if begin - 1.5 <= sample[0] <= end + 1.5]
        if len(inside) < 2:
            inside = self._samples[-2:]
        if len(inside) < 2:
            return 0.0
        first, last = inside[0], inside[-1]
        seconds = (last[0] - first[0]) * (os.cpu_count() or 1)
        return min(max((last[1] - first[1] - (last[2] - first[2])) / seconds, 0.0), MOST)

    def slower(self, begin: float, end: float) -> float:
        """By what factor anything may have taken longer."""
        return 1.0 / (1.0 - self.others(begin, end))

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            self._samples.append(self._now())

    def _now(self) -> tuple[float, float, float]:
        """The moment, seconds of processors that anybody had, and those that we had."""
        user, nice, system, _, _, irq, soft, steal, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
        mine = sum(os.times()[:4])  # ours, and those of children that have ended
        for child in _children(os.getpid()):
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            mine += sum(map(int, fields[11:15])) / TICKS
        return time.monotonic(), (user + nice + system + irq + soft + steal) / TICKS, mine


def _children(parent: int) -> list[str]:
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:
            continue
    return found
