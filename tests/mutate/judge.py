"""Runs the tests that cover a fault, with the fault in.

What it is: `Judge.verdict(mutant)`: the tests that run the changed lines, one after the other, until one fails; a run that outlasts its
limit counts as noticed. Load speaks for no test: who failed must fail again with the fault, then pass without it, and where time decided
(a run or a test that did not end), the same must take a small part of that time without the fault, right after; else there is no verdict.
May assume: the tree is its own. Must not: keep results.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .cover import Map, environment
from .source import Mutant
from .tree import Tree

BUDGET = 60.0  # seconds of tests, as recorded, that one fault gets
REST = 3  # times that, which a fault that no test has noticed so far gets of the others
MEMORY_KB = 6 << 20
PART = 1 / 3  # of its limit that a test may take without the fault when it says that it ended for the fault's sake
ENGINE = re.compile(r"tests/(wire/test_(engine|adopted|tasks?|net\b|framer)|unit/test_engine)")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", re.MULTILINE)
_SECONDS = re.compile(r" in ([\d.]+)s")
LATE = "did not end"


@dataclass(frozen=True)
class Verdict:
    """caught (by a test), hang, survived, invalid: does not compile, or unsure: the machine's load may have said it."""

    kind: str
    by: str = ""
    seconds: float = 0.0
    tests: int = 0


@dataclass(frozen=True)
class Ran:
    """What a run of tests came to: passed, failed or hang; which test failed first; whether time decided; pytest's own seconds."""

    kind: str
    test: str = ""
    timed: bool = False
    seconds: float = 0.0


class Judge:
    """One thread's: a tree, the map and what is known of the tests there."""

    def __init__(self, tree: Tree, known: Map, stop: threading.Event, budget: float = BUDGET) -> None:
        self.tree = tree
        self.map = known
        self.budget = budget
        self._stop = stop
        self._unsound: set[str] = set()

    def chosen(self, mutant: Mutant, after: Sequence[str] = ()) -> list[str]:
        """The tests that judge it, those first that are quick and about its file, for as long as the budget lasts; `after`: those that have
        not noticed it."""
        if mutant.group == "engine":
            own = {test for test in self.map.seconds if ENGINE.match(test)}
            rest = sorted((test for test in self.map.seconds if test.startswith("tests/conformance")), key=self._time)
            return self._within([*sorted(own, key=self._time), *rest], after)
        found: set[str] = set()
        for edit in mutant.edits:
            if mutant.top_level:  # of a module of nothing but types and constants, whoever runs its neighbours
                lines = self.map.tests_of_file(edit.path) or self.map.tests_of_group(edit.path.split("/")[2])
            else:
                lines = self.map.tests_of_lines(edit.path, edit.first, edit.last)
            foreign = mutant.always and f"/{mutant.group}/" not in edit.path
            found |= lines & self.map.tests_of_group(mutant.group) if foreign else lines
        paths = {edit.path for edit in mutant.edits}
        return self._within(sorted(found, key=lambda test: (self.map.cost(test, paths), test)), after)

    def _time(self, test: str) -> tuple[float, str]:
        return self.map.seconds.get(test, 1.0), test

    def _within(self, tests: list[str], after: Sequence[str]) -> list[str]:
        left = self.budget * (REST if after else 1)
        kept: list[str] = []
        for test in tests:
            if test in self.map.failed or test in self._unsound or test in after:
                continue
            left -= self._time(test)[0]
            if left < 0 and kept:
                break
            kept.append(test)
        return kept

    def verdict(self, mutant: Mutant) -> Verdict:
        """What the tests say. Raises KeyboardInterrupt when the run is being ended."""
        began = time.monotonic()
        passed: list[str] = []
        while tests := self.chosen(mutant, passed):
            with self.tree.with_fault(mutant):
                if mutant.group == "engine" and not self.tree.build_engine():
                    return Verdict("invalid", "does not compile")
                found = self._run(tests)
                if found.kind == "passed":
                    over, passed = bool(passed), [*passed, *tests]
                    if over:
                        break
                    continue  # with those that are slower, or of other things
                if found.kind == "failed" and not found.test:  # nothing could be collected: the fault breaks the import
                    return Verdict("caught", "import", time.monotonic() - began, len(tests))
                suspects = [found.test] if found.test else tests
                twice = found.kind == "hang" or self._run(suspects).kind != "passed"
            kind = self._without(found, suspects) if twice else ""
            if kind:
                return Verdict(kind, found.test or LATE, time.monotonic() - began, len(tests))
            if found.kind == "hang":
                return Verdict("unsure", "it does not end without the fault, either", time.monotonic() - began, len(tests))
            self._unsound.update(suspects)
        return Verdict("survived", "" if passed else "no test runs it", time.monotonic() - began, len(passed))

    def _without(self, found: Ran, suspects: list[str]) -> str:
        """The verdict of those who failed, after they ran without the fault; empty when they fail then, too."""
        plain = self._run(suspects)
        if plain.kind != "passed":
            return ""
        if found.timed and plain.seconds > PART * (self._limit(suspects) if found.kind == "hang" else self._each(suspects)):
            return "unsure"
        return "hang" if found.kind == "hang" else "caught"

    def _each(self, tests: list[str]) -> float:
        """Seconds that one of these tests may take."""
        return 30 + 5 * max(self._time(test)[0] for test in tests)

    def _limit(self, tests: list[str]) -> float:
        """Seconds that all of them may take."""
        return 60 + 4 * sum(self._time(test)[0] for test in tests)

    def _run(self, tests: list[str]) -> Ran:
        """Run these tests until one fails."""
        listing = self.tree.root.with_suffix(".tests")
        listing.write_text("\n".join(tests))
        command = ["prlimit", f"--as={MEMORY_KB * 1024}", str(self.tree.checkout / ".venv/bin/python"), "-m", "pytest", "-x", "-q"]
        command += ["--no-header", "--tb=no", "-p", "no:cacheprovider", f"--timeout={self._each(tests):.0f}", f"@{listing}"]
        child = subprocess.Popen(
            command,
            cwd=self.tree.root,
            env=environment(self.tree.root) | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output = self._follow(child, time.monotonic() + self._limit(tests))
        if output is None:
            return Ran("hang", timed=True)
        took = _SECONDS.findall(output)
        seconds = float(took[-1]) if took else 0.0
        if child.returncode == 0:
            return Ran("passed", seconds=seconds)
        failed = _FAILED.search(output)
        return Ran("failed", failed[1], "Timeout (>" in (failed[2] or ""), seconds) if failed else Ran("failed", seconds=seconds)

    def _follow(self, child: subprocess.Popen[bytes], until: float) -> str | None:
        """Its output; None when it was ended because it was late."""
        while True:
            try:
                return child.communicate(timeout=0.5)[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                if self._stop.is_set() or time.monotonic() > until:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.communicate()
                    if self._stop.is_set():
                        raise KeyboardInterrupt from None
                    return None
