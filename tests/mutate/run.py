"""One piece of a run: takes faults that a seed picks and that nothing is known of yet, and has them judged, for so many minutes.

What it is: `Run`. Adapters and `net` by several workers, each with a copy of the tree; the engine, which must be built anew for each
fault, in one copy of its own. May assume: the map is made. Must not: print more than progress.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from . import sample
from .cover import Map, environment
from .judge import Judge
from .report import Told
from .source import Mutant
from .state import Results
from .tree import Tree

SIZES = {"flow": 40, "aio": 20, "net": 20, "engine": 20}


class Run:
    """What one seed wants of some groups.

    Args:
        size: faults of an adapter beside those that are always in the sample; None: 60, and fewer of what adapters share.
    """

    def __init__(
        self, checkout: Path, results: Results, tests: str, seed: int, groups: tuple[str, ...], size: int | None = None, full: bool = True
    ) -> None:
        self.checkout = checkout  # a snapshot of it
        self.trees = checkout.parent
        self.results = results
        self.tests = tests
        self.seed = seed
        self.size = size
        self.full = full
        found = sample.everything(checkout)
        self.every = [mutant for mutants in found.values() for mutant in mutants]
        self.mutants = {group: found[group] for group in groups}
        self.stop = threading.Event()

    def picked(self, group: str) -> list[Mutant]:
        """What the seed picks of a group: as many as wanted that are not known to be invalid, and those that are always in."""
        wanted = self.size if self.size is not None else SIZES.get(group, 60)
        valid = (mutant for mutant in sample.ranked(self.mutants[group], self.seed) if not self._invalid(mutant))
        chosen = list(itertools.islice(valid, wanted))
        return [*chosen, *sample.always(self.mutants[group])] if self.full else chosen

    def _invalid(self, mutant: Mutant) -> bool:
        known = self.results.known(mutant, self.tests)
        return known is not None and known.kind == "invalid"

    def told(self) -> list[Told]:
        """What is known of what the seed picks, though tests have changed since."""
        picked = (mutant for group in self.mutants for mutant in self.picked(group))
        return [Told(mutant, self.results.of(mutant), self.results.known(mutant, self.tests) is None) for mutant in picked]

    def left(self) -> list[Mutant]:
        """What is still to be judged, group after group in turn."""
        rows = [[mutant for mutant in self.picked(group) if self.results.known(mutant, self.tests) is None] for group in self.mutants]
        return [mutant for row in itertools.zip_longest(*rows) for mutant in row if mutant is not None]

    def named(self, texts: list[str]) -> list[Mutant]:
        """Those whose key has one of these texts in it."""
        return [mutant for mutants in self.mutants.values() for mutant in mutants if any(text in mutant.key for text in texts)]

    def judge(self, known: Map, mutants: list[Mutant], minutes: float, jobs: int) -> None:
        """Have them judged until all are or the minutes are over. KeyboardInterrupt ends it; what is known is kept."""
        ends = time.monotonic() + minutes * 60
        lanes = [
            ("engine", [mutant for mutant in mutants if mutant.group == "engine"], 1),
            ("tree", [mutant for mutant in mutants if mutant.group != "engine"], jobs),
        ]
        workers = []
        for name, wanted, count in lanes:
            line: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
            for mutant in wanted:
                line.put(mutant)
            for number in range(min(count, len(wanted))):
                worker = threading.Thread(target=self._work, args=(f"{name}-{number}", line, known, ends), daemon=True)
                workers.append(worker)
                worker.start()
        try:
            while any(worker.is_alive() for worker in workers):
                for worker in workers:
                    worker.join(0.2)
        except KeyboardInterrupt:
            self.stop.set()
            for worker in workers:
                worker.join(10)
            raise

    def _work(self, name: str, line: queue.SimpleQueue[Mutant], known: Map, ends: float) -> None:
        tree = Tree(self.checkout, self.trees / name)
        tree.sync()
        tree.warm(environment(tree.root))
        judge = Judge(tree, known, self.stop)
        for mutant in _drained(line):
            if self.stop.is_set() or time.monotonic() > ends:
                return
            try:
                verdict = judge.verdict(mutant)
            except KeyboardInterrupt:
                return
            if verdict.kind != "unsure":  # it is judged again
                self.results.add(mutant, verdict, self.tests)
            print(f"{verdict.kind:<9}{verdict.seconds:6.1f} s  {mutant.key}   [{verdict.by or verdict.tests}]", flush=True)


def _drained(line: queue.SimpleQueue[Mutant]) -> Iterator[Mutant]:
    while True:
        try:
            yield line.get_nowait()
        except queue.Empty:
            return
