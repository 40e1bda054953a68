"""Which test runs which line: the map by which the tests that judge a fault are chosen.

What it is: `Map`, read from `.cache/mutate/map`, one file a test file: its digest, seconds and verdict of each test, and the lines of
the client half that it ran. `renew` runs what has changed since under coverage, part by part (unit, wire, conformance on the embedded
broker), so that it can be ended at any time and go on. Lines are those of the sources then, which are kept beside it: `lines_now` finds
them again in today's. May assume: tests are not changed meanwhile. Must not: judge. Left out: tests that need a JVM, which are about
codecs.
"""

from __future__ import annotations

import ast
import collections
import difflib
import json
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import coverage

from .source import digest

FOLDERS = {"unit": (), "wire": (), "conformance": ("--broker", "dev")}
TIME = 1500.0  # seconds for one part
ADAPTERS = ("kafka", "pulsar", "rocketmq", "zookeeper")
HALF = (*ADAPTERS, "flow", "aio", "net", "auth")


def test_files(root: Path) -> dict[str, list[str]]:
    """Test files by part, but for those of this tool itself."""
    found = {part: sorted(str(path.relative_to(root)) for path in (root / "tests" / part).glob("test_*.py")) for part in FOLDERS}
    return {part: [name for name in names if "/test_mutate_" not in name] for part, names in found.items()}


class Map:
    """What ran which line."""

    def __init__(self, checkout: Path, folder: Path | None = None) -> None:
        self.checkout = checkout
        self.folder = folder or checkout / ".cache/mutate/map"
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()  # lines by test and file, and by test alone
        self._ran: dict[str, dict[int, set[str]]] = {}
        self._shift: dict[tuple[str, str], dict[int, list[int]]] = {}

    # --- making it ---

    def stale(self, groups: Collection[str] = ADAPTERS) -> dict[str, list[str]]:
        """Test files whose part of the map is missing or older than they are; of those that are about adapters, these adapters' alone."""
        found: dict[str, list[str]] = {}
        others = [adapter for adapter in ADAPTERS if adapter not in groups]
        for part, files in test_files(self.checkout).items():
            wanted = [name for name in files if not any(f"/test_{other}_" in name for other in others)]
            missing = [name for name in wanted if self._kept(name).get("digest") != digest((self.checkout / name).read_bytes())]
            if missing:
                found[part] = missing
        return found

    def _file(self, test: str) -> Path:
        return self.folder / (test.replace("/", "-") + ".json")

    def _kept(self, test: str) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self._file(test).read_text())
        except (OSError, ValueError):
            return {}
        return kept

    def renew(self, root: Path, part: str, files: list[str]) -> None:
        """Run these test files in `root`, a copy of the checkout, under coverage."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data, times = self.folder / f"{part}.data", self.folder / f"{part}.times"
        command = [str(self.checkout / ".venv/bin/coverage"), "run", f"--data-file={data}", "-m", "pytest", "-q", "-p", "mutate.contexts"]
        command += ["-p", "no:cacheprovider", "-m", "not java", *FOLDERS[part], *files]
        subprocess.run(command, cwd=root, env=environment(root) | {"MUTATE_TIMES": str(times)}, check=False, timeout=TIME)
        self.take(data, json.loads(times.read_text()), files)

    def take(self, data: Path, times: dict[str, Any], files: list[str]) -> None:
        """Keep what a run under coverage told of these test files."""
        read = coverage.CoverageData(str(data))
        read.read()
        found: dict[str, Any] = {name: collections.defaultdict(lambda: collections.defaultdict(list)) for name in files}
        for measured in read.measured_files():
            path = measured[measured.index("src/wireproto/") :] if "src/wireproto/" in measured else ""
            if path.split("/")[2:3] and path.split("/")[2] in HALF and "/messages/" not in path:
                for line, contexts in read.contexts_by_lineno(measured).items():
                    for test in contexts:
                        name = test.partition("::")[0]
                        if name in found:
                            found[name][path][test].append(line)
        kept = self._keep_sources({path for tests in found.values() for path in tests})
        for name, paths in found.items():
            mine = {test: seconds for test, seconds in times["seconds"].items() if test.startswith(f"{name}::")}
            self._file(name).write_text(
                json.dumps(
                    {
                        "digest": digest((self.checkout / name).read_bytes()),
                        "seconds": mine,
                        "failed": [test for test in times["failed"] if test in mine],
                        "sources": {path: kept[path] for path in paths},
                        "ran": paths,
                    }
                )
            )

    def _keep_sources(self, paths: Iterable[str]) -> dict[str, str]:
        kept = {}
        (self.folder / "sources").mkdir(exist_ok=True)
        for path in paths:
            text = (self.checkout / path).read_bytes()
            kept[path] = digest(text)
            (self.folder / "sources" / kept[path]).write_bytes(text)
        return kept

    # --- asking it ---

    def load(self) -> None:
        """Read the map of the test files that there are."""
        for files in test_files(self.checkout).values():
            for name in files:
                kept = self._kept(name)
                self.seconds.update(kept.get("seconds", {}))
                self.failed.update(kept.get("failed", ()))
                for path, tests in kept.get("ran", {}).items():
                    if (self.checkout / path).exists():
                        self._add(path, kept["sources"][path], tests)

    def _add(self, path: str, then: str, tests: dict[str, list[int]]) -> None:
        moved = self.lines_now(path, then)
        lines = self._ran.setdefault(path, collections.defaultdict(set))
        for test, ran in tests.items():
            self._counts[test, path] += len(ran)
            self._counts[test, ""] += len(ran)
            for line in ran:
                for now in moved.get(line, ()):
                    lines[now].add(test)

    def lines_now(self, path: str, then: str) -> dict[int, list[int]]:
        """Where the lines of a source of then stand today.

        One that was changed stands where it was, and what was put in behind a line is run by whoever ran that line: a test file that is as
        it was is not run for the map again. Lines that are gone are not in it.
        """
        if (path, then) not in self._shift:
            old = (self.folder / "sources" / then).read_text().splitlines()
            new = (self.checkout / path).read_text().splitlines()
            found: dict[int, list[int]] = collections.defaultdict(list)
            for _, a, a_end, b, b_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
                for line in range(b, b_end):
                    found[max(min(a + line - b, a_end - 1), 0) + 1].append(line + 1)
            self._shift[path, then] = found
        return self._shift[path, then]

    def tests_of_lines(self, path: str, first: int, last: int) -> set[str]:
        """The tests that ran one of these lines."""
        lines = self._ran.get(path, {})
        return {test for line in range(first, last + 1) for test in lines.get(line, ())} - {""}

    def cost(self, test: str, paths: Iterable[str]) -> float:
        """Seconds of a test, the more the less it is about these files."""
        share = sum(self._counts[test, path] for path in paths) / max(1, self._counts[test, ""])
        return (self.seconds.get(test, 1.0) + 0.02) / max(share, 0.01)

    def tests_of_file(self, path: str) -> set[str]:
        """The tests that ran anything inside a function of this file."""
        lines = self._ran.get(path, {})
        return {test for line in bodies(self.checkout / path) for test in lines.get(line, ())} - {""}

    def tests_of_group(self, group: str) -> set[str]:
        """The tests that ran anything of an adapter."""
        return self._by_group.get(group, set())

    @cached_property
    def _by_group(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = collections.defaultdict(set)
        for path in self._ran:
            found[path.split("/")[2]] |= self.tests_of_file(path)
        return found


def bodies(path: Path) -> Iterator[int]:
    """The lines inside functions, without their heads."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef):
            yield from range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)


def environment(root: Path) -> dict[str, str]:
    """For a run in a copy: its sources come before those that the environment has installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "PYTEST", "MUTATE"))}
    paths = f"{root / 'src'}{os.pathsep}{root / 'tests'}"
    return kept | {"PYTHONPATH": paths, "PATH": f"{root / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"}
