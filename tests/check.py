"""`make check`: lint, and the unit and wire tests of what changed since the last commit on main, in two minutes at most.

    python tests/check.py [--since COMMIT] [--seconds N]    by the Makefile, when the extensions are built

What changed is what git shows beside `--since` (where this branch left origin/main, or main), new files included. Which tests belong to
a changed file is the rule of `found`: the file itself if it is a test; tests named after it; tests that import it, directly or through
helpers under tests/; tests named after its package, as the Kafka adapter's are. They run in that order, the quickest first
(tests/seconds.json), until `--seconds` are full. What does not fit is counted and left to `make test`, and so is whatever reaches a
change through other packages only.

May assume: git, the environment that `make` made. Must not: count as a whole run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
BIN = CLONE / ".venv" / "bin"
FOLDERS = ("tests/unit", "tests/wire")
SECONDS = 90.0
UNKNOWN = 5.0  # seconds of a file without a record
_LINTED = ("src", "tests", "proto", "benchmarks", "examples")


@dataclass(frozen=True)
class Found:
    """A test file, why it was picked, and how near it is to the change: 0 is the changed file itself, 1 named after it, 2 imports
    it, 3 named after its package."""

    path: str
    why: str
    rank: int


def changed(since: str, clone: Path = CLONE) -> list[str]:
    """List the files that differ from a commit, new ones included; deleted ones are named, too."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=clone, capture_output=True, text=True, check=True).stdout.split("\0")

    names = [*git("diff", "--name-only", "--no-renames", "-z", since), *git("ls-files", "--others", "--exclude-standard", "-z")]
    return sorted(set(filter(None, names)))


def base(clone: Path = CLONE) -> str:
    """Name the commit that changes are counted from: where this branch left main, as the remote has it if there is one."""
    for main in ("origin/main", "main"):
        run = subprocess.run(["git", "merge-base", "HEAD", main], cwd=clone, capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return run.stdout.strip()
    return "HEAD"


def module_of(path: str) -> str | None:
    """Name the module that a file belongs to, as tests import it: ``src/wireproto/kafka/group.py`` is ``wireproto.kafka.group``.

    A part of an extension (``_codec_parts/…``) belongs to the extension; None for what is no module.
    """
    words = list(Path(path).with_suffix("").parts)
    if not path.endswith((".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h")) or words[0] not in ("src", "tests") or len(words) < 2:
        return None
    words = words[1:]
    for index, word in enumerate(words):
        if word.endswith("_parts"):
            words = [*words[:index], word.removesuffix("_parts")]
            break
    if words[-1] == "__init__":
        words.pop()
    return ".".join(words) or None


def imports(text: str, package: str) -> set[str]:
    """Read which modules a source imports: for ``from a import b`` both ``a`` and ``a.b``; `package` is what relative ones start from."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            stem = ".".join([*above, *filter(None, [node.module])])
            names |= {stem, *(f"{stem}.{alias.name}" for alias in node.names)}
    return names


def named_after(test: str, module: str) -> bool:
    """Whether a test file's name holds a module's: ``test_kafka_group_lost.py`` that of ``wireproto.kafka.group``, in any folder.

    The protocol, or whatever package the module is in, must be in the test's path, too.
    """
    *packages, name = module.split(".")
    words = re.split(r"[/_.]", test)
    wanted = name.strip("_").split("_")
    together = any(words[at : at + len(wanted)] == wanted for at in range(len(words)))
    return together and all(package.strip("_") in words for package in packages[1:])


def of_package(test: str, module: str) -> bool:
    """Whether a test file's path names the package of a module, like ``test_kafka_lost.py`` that of ``wireproto.kafka.group``."""
    packages = module.split(".")[1:-1]
    return bool(packages) and packages[0].strip("_") in re.split(r"[/_.]", test)


def found(files: Iterable[str], clone: Path = CLONE) -> list[Found]:
    """Find the unit and wire tests of changed files: the rule of this module, the nearest first.

    Args:
        files: paths below the clone.
        clone: the folder that has ``tests/``.
    """
    sources = {str(path.relative_to(clone)): path for path in sorted((clone / "tests").rglob("*.py"))}
    read: dict[str, set[str]] = {}
    for name, path in sources.items():
        module = module_of(name) or ""
        read[name] = imports(path.read_text(), module if path.name == "__init__.py" else module.rpartition(".")[0])
    tests = [name for name in sources if name.startswith(FOLDERS) and Path(name).name.startswith("test_")]
    picked: dict[str, Found] = {}

    def pick(test: str, why: str, rank: int) -> None:
        if test not in picked or rank < picked[test].rank:
            picked[test] = Found(test, why, rank)

    for file in files:
        if file in tests:
            pick(file, "changed", 0)
        module = module_of(file)
        if module is None or file in tests:
            continue
        if Path(file).name == "conftest.py":
            for test in tests:
                if Path(test).is_relative_to(Path(file).parent):
                    pick(test, f"below {file}", 2)
            continue
        for test in tests:
            if module.startswith("wireproto.") and named_after(test, module):
                pick(test, f"named after {module}", 1)
            elif module.startswith("wireproto.") and of_package(test, module):
                pick(test, f"named after the package of {module}", 3)
        for test in _importers(module, tests, read):
            pick(test, f"imports {module}", 2)
    return sorted(picked.values(), key=lambda each: (each.rank, each.path))


def _importers(module: str, tests: Iterable[str], read: dict[str, set[str]]) -> Iterator[str]:
    """Find the tests that import a module, or a helper under tests/ that does."""
    helpers = {module_of(name): name for name in read if not Path(name).name.startswith("test_")}
    wanted, left = {module}, [module]
    while left:
        one = left.pop()
        for name, path in helpers.items():
            if name is not None and name not in wanted and one in read[path]:
                wanted.add(name)
                left.append(name)
    for test in tests:
        if wanted & read[test]:
            yield test


def fitting(tests: Iterable[Found], seconds: dict[str, float], most: float) -> tuple[list[Found], list[Found]]:
    """Divide tests into those that run and those that are left out: the nearest first, of those the quickest, while they fit.

    Args:
        tests: in any order. seconds: of each file; one without takes `UNKNOWN`.
        most: seconds. What was changed itself runs however long it takes; where nothing fits, the first one does.
    """
    runs: list[Found] = []
    left: list[Found] = []
    taken = 0.0
    for test in sorted(tests, key=lambda each: (each.rank, seconds.get(each.path, UNKNOWN), each.path)):
        takes = seconds.get(test.path, UNKNOWN)
        if test.rank == 0 or taken + takes <= most:
            runs.append(test)
            taken += takes
        else:
            left.append(test)
    if not runs and left:
        runs.append(left.pop(0))
    return runs, left


def recorded(path: Path = CLONE / "tests" / "seconds.json") -> dict[str, float]:
    """Read the seconds of unit and wire test files in the last run on record, beside all other parts."""
    known = json.loads(path.read_text()) if path.exists() else {}
    return {file: seconds for session, files in known.items() for file, seconds in files.items() if file.startswith(FOLDERS)}


def lint(files: Iterable[str]) -> list[list[str]]:
    """List the commands that judge changed files: style of those themselves, types and imports of everything."""
    sources = [name for name in files if name.startswith(tuple(f"{root}/" for root in _LINTED)) and (CLONE / name).exists()]
    python = [name for name in sources if name.endswith((".py", ".pyi"))]
    commands = [[str(BIN / "ruff"), "check", "-q", *python], [str(BIN / "ruff"), "format", "-q", "--check", *python]] if python else []
    if any("/wireproto/" in name and name.endswith((".pyx", ".pxd", ".pxi")) for name in sources):
        commands.append([str(BIN / "python"), "tests/lint_cython.py"])
    if any(name.startswith("proto/") or "generated" in name or "_gen" in name for name in sources):
        commands.append([str(BIN / "python"), "-m", "proto.gen", "--check"])
    if python:
        commands += [[str(BIN / "lint-imports"), "--no-cache"], [str(BIN / "mypy")]]
    return commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", default=base(), help="the commit that changes are counted from (default: where main is)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of tests, by their record (default: %(default).0f)")
    given = parser.parse_args()
    began = time.monotonic()
    files = changed(given.since)
    if not files:
        print(f"check: nothing differs from {given.since}")
        return 0
    runs, left = fitting(found(files), recorded(), given.seconds)
    differ = f"{len(files)} file{'s' * (len(files) > 1)} changed since {given.since[:10]}"
    print(f"check: {differ}; test files that run: {len(runs)}, that are left to `make test`: {len(left)}")
    for test in runs:
        print(f"  {test.path}  ({test.why})")
    sys.stdout.flush()
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "MYPYPATH": "tests"}
    words = [str(BIN / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = subprocess.Popen([*words, *(test.path for test in runs)], cwd=CLONE, env=environment) if runs else None
    bad: list[str] = []
    for command in lint(files):
        done = subprocess.run(command, cwd=CLONE, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            shown = " ".join(word.removeprefix(f"{BIN}/") for word in command[:4])
            print(f"check: {shown} …\n{done.stdout}{done.stderr}", flush=True)
            bad.append(shown)
    if tests is not None and tests.wait():
        bad.append("tests")
    print(f"check: {'FAILED: ' + ', '.join(bad) if bad else 'ok'} in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
