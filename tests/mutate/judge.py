"""Runs the tests that cover a fault, with the fault in.

What it is: `Judge.verdict(mutant)`: the tests that run the changed lines, one after the other, until one fails; a run that outlasts its
limit counts as noticed. A test that failed must pass without the fault (asked once a test), and one that takes long must fail twice: no
flake may speak for a test. May assume: the tree is its own. Must not: keep results.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass

from .cover import Map, environment
from .source import Mutant
from .tree import Tree

BUDGET = 60.0  # seconds of tests, as recorded, that one fault gets
MEMORY_KB = 6 << 20
SLOW = 1.0
ENGINE = re.compile(r"tests/(wire/test_(engine|net\b|framer)|unit/test_engine)")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """caught (by a test), hang, survived, or invalid: does not compile."""

    kind: str
    by: str = ""
    seconds: float = 0.0
    tests: int = 0


class Judge:
    """One thread's: a tree, the map and what is known of the tests there."""

    def __init__(self, tree: Tree, known: Map, stop: threading.Event, budget: float = BUDGET) -> None:
        self.tree = tree
        self.map = known
        self.budget = budget
        self._stop = stop
        self._sound: dict[str, bool] = {}

    def chosen(self, mutant: Mutant) -> list[str]:
        """The tests that judge it, those first that are quick and about its file, for as long as the budget lasts."""
        if mutant.group == "engine":
            own = {test for test in self.map.seconds if ENGINE.match(test)}
            rest = sorted((test for test in self.map.seconds if test.startswith("tests/conformance")), key=self._time)
            return self._within([*sorted(own, key=self._time), *rest])
        found: set[str] = set()
        for edit in mutant.edits:
            lines = self.map.tests_of_file(edit.path) if mutant.top_level else self.map.tests_of_lines(edit.path, edit.first, edit.last)
            foreign = mutant.always and f"/{mutant.group}/" not in edit.path
            found |= lines & self.map.tests_of_group(mutant.group) if foreign else lines
        paths = {edit.path for edit in mutant.edits}
        return self._within(sorted(found, key=lambda test: (self.map.cost(test, paths), test)))

    def _time(self, test: str) -> tuple[float, str]:
        return self.map.seconds.get(test, 1.0), test

    def _within(self, tests: list[str]) -> list[str]:
        left = self.budget
        kept: list[str] = []
        for test in tests:
            if test in self.map.failed or self._sound.get(test) is False:
                continue
            left -= self._time(test)[0]
            if left < 0 and kept:
                break
            kept.append(test)
        return kept

    def verdict(self, mutant: Mutant) -> Verdict:
        """What the tests say. Raises KeyboardInterrupt when the run is being ended."""
        began = time.monotonic()
        with self.tree.with_fault(mutant):
            if mutant.group == "engine" and not self.tree.build_engine():
                return Verdict("invalid", "does not compile")
            while tests := self.chosen(mutant):
                outcome, failing = self._run(tests)
                if outcome == "hang":
                    return Verdict("hang", failing, time.monotonic() - began, len(tests))
                if outcome == "passed":
                    return Verdict("survived", "", time.monotonic() - began, len(tests))
                if not failing:  # nothing could be collected: the fault breaks the import
                    return Verdict("caught", "import", time.monotonic() - began, len(tests))
                if self._time(failing)[0] > SLOW and self._run([failing])[0] == "passed":
                    self._sound[failing] = False
                    continue
                break
            else:
                return Verdict("survived", "no test runs it", time.monotonic() - began)
        if self._sound.setdefault(failing, self._sound.get(failing) or self._run([failing])[0] == "passed"):
            return Verdict("caught", failing, time.monotonic() - began, len(tests))
        return self.verdict(mutant)

    def _run(self, tests: list[str]) -> tuple[str, str]:
        """passed, failed or hang; and the test that failed first."""
        listing = self.tree.root.with_suffix(".tests")
        listing.write_text("\n".join(tests))
        longest = max(self._time(test)[0] for test in tests)
        limit = 60 + 4 * sum(self._time(test)[0] for test in tests)
        command = ["prlimit", f"--as={MEMORY_KB * 1024}", str(self.tree.checkout / ".venv/bin/python"), "-m", "pytest", "-x", "-q"]
        command += ["--no-header", "--tb=no", "-p", "no:cacheprovider", f"--timeout={30 + 5 * longest:.0f}", f"@{listing}"]
        child = subprocess.Popen(
            command,
            cwd=self.tree.root,
            env=environment(self.tree.root) | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output = self._follow(child, time.monotonic() + limit)
        if output is None:
            return "hang", ""
        failed = _FAILED.search(output)
        return ("passed", "") if child.returncode == 0 else ("failed", failed[1] if failed else "")

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
