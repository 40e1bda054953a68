"""What was found, in one file that grows over seeds and runs: `.cache/mutate/results.json`.

What it is: `State`: a result a fault, and which faults each seed picked. Each result is written as soon as it is known, by a rename, so
that a run can be ended at any moment and go on. A result holds while the function is what it was; that of a survivor only while the tests
are, too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .judge import Verdict
from .source import Mutant, digest

NOTICED = ("caught", "hang")


@dataclass(frozen=True)
class Result:
    """A fault and what the tests said."""

    key: str
    group: str
    operator: str
    kind: str
    by: str
    place: str
    before: str
    after: str
    within: str
    tests: str
    seconds: float = 0.0


class State:
    """The file; may be shared by threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self.results: dict[str, Result] = {key: Result(**value) for key, value in kept.get("results", {}).items()}
        self.seeds: dict[str, dict[str, list[str]]] = kept.get("seeds", {})

    def known(self, mutant: Mutant, tests: str) -> Result | None:
        """What is known of it, if that still holds."""
        found = self.results.get(mutant.key)
        if found is None or found.within != mutant.within:
            return None
        return None if found.kind == "survived" and found.tests != tests else found

    def add(self, mutant: Mutant, verdict: Verdict, tests: str) -> None:
        """Keep a verdict."""
        edit = mutant.edits[0]
        result = Result(
            key=mutant.key,
            group=mutant.group,
            operator=mutant.operator,
            kind=verdict.kind,
            by=verdict.by,
            place=f"{edit.path}:{edit.first}",
            before=mutant.before,
            after=mutant.after,
            within=mutant.within,
            tests=tests,
            seconds=round(verdict.seconds, 1),
        )
        with self._lock:
            self.results[mutant.key] = result
            self._write()

    def picked(self, seed: int, group: str, keys: list[str]) -> None:
        """Which faults a seed picked of a group."""
        with self._lock:
            self.seeds.setdefault(str(seed), {})[group] = keys
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"results": {key: vars(value) for key, value in self.results.items()}, "seeds": self.seeds}, indent=1))
        new.replace(self.path)


def tests_digest(files: Mapping[str, list[str]], root: Path) -> str:
    """Of everything that can notice something."""
    return digest("".join(digest((root / name).read_bytes()) for names in files.values() for name in names))


def arguments(path: Path) -> dict[str, str]:
    """The faults that are none, with the reason: a line with the key, then indented lines."""
    found: dict[str, str] = {}
    key = ""
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("#") or not line.strip():
            continue
        if line[0].isspace():
            found[key] = f"{found[key]} {line.strip()}".strip()
        else:
            key = line.strip()
            found[key] = ""
    return {key: why for key, why in found.items() if why}
