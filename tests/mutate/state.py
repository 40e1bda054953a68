"""What was found, in a text file that grows over seeds, pieces and days: .cache/mutate/results.txt, which is not committed.

What it is: `Results`: a line a fault, with the verdict, who noticed it, the digests of the function and of the tests that it was judged
under, the date and the commit. Each result is written as soon as it is known, by a rename, so that a run can be ended at any moment and go
on. A result holds while the function is what it was and the test that noticed it is there; that of a survivor only
while the tests are what they were. Which faults a seed picks follows from the sources: it is not kept. Must not: judge.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from .judge import Verdict
from .source import Mutant, digest

NOTICED = ("caught", "hang")
SHORT = 10  # of a digest
HEAD = (
    "# What became of the faults that `make mutate` put in: a line each, written by it and never by hand; faults of functions that are",
    "# no more what they were count for nothing. group, verdict, who noticed it, digest of the functions, of the tests, date, commit, key:",
    "# tabs between.",
)


@dataclass(frozen=True)
class Result:
    """A fault and what the tests said. Its fields are the columns of the file."""

    group: str
    kind: str
    by: str
    within: str
    tests: str
    when: str
    commit: str
    key: str


class Results:
    """The file; may be shared by threads.

    Args:
        checkout: where the tests are that are said to have noticed something.
        commit: that is judged.
    """

    def __init__(self, path: Path, checkout: Path, commit: str = "unknown") -> None:
        self.path, self.checkout, self.commit = path, checkout, commit
        self._lock = threading.Lock()
        self._tests: dict[str, str] = {}
        self.kept: dict[str, Result] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            if line and not line.startswith("#"):
                cells = line.split("\t")
                if len(cells) != len(fields(Result)):
                    raise ValueError(f"{path.name}: {len(cells)} columns instead of {len(fields(Result))}: {line}")
                self.kept[cells[-1]] = Result(*cells)

    def of(self, mutant: Mutant) -> Result | None:
        """What was last found, if the function is still what it was, whatever tests there were then."""
        found = self.kept.get(mutant.key)
        return found if found is not None and found.within == mutant.within[:SHORT] else None

    def known(self, mutant: Mutant, tests: str) -> Result | None:
        """What is known of it now."""
        found = self.of(mutant)
        if found is None or (found.kind == "survived" and found.tests != tests[:SHORT]):
            return None
        return found if self._there(found.by) else None

    def _there(self, test: str) -> bool:
        """Whether a test, as pytest names it, is still there; what is no test's name stays true."""
        path, _, rest = test.partition("::")
        if not rest:
            return True
        if path not in self._tests:
            file = self.checkout / path
            self._tests[path] = file.read_text(encoding="utf-8") if file.exists() else ""
        return re.search(rf"\bdef {re.escape(rest.partition('[')[0].rpartition('::')[2])}\(", self._tests[path]) is not None

    def add(self, mutant: Mutant, verdict: Verdict, tests: str) -> None:
        """Keep a verdict."""
        words = " ".join(verdict.by.split())
        when = time.strftime("%Y-%m-%d")
        digests = (mutant.within[:SHORT], tests[:SHORT])
        with self._lock:
            self.kept[mutant.key] = Result(mutant.group, verdict.kind, words, *digests, when, self.commit, mutant.key)
            self._write()

    def forget(self, mutants: Iterable[Mutant]) -> int:
        """Drop what is about none of these as they are now; how many that were."""
        wanted = {mutant.key for mutant in mutants if self.of(mutant) is not None}
        with self._lock:
            gone = len(self.kept) - len(wanted)
            if gone:
                self.kept = {key: one for key, one in self.kept.items() if key in wanted}
                self._write()
        return gone

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        order = sorted(self.kept.values(), key=lambda one: (one.group, one.key))
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join([*HEAD, *("\t".join(astuple(one)) for one in order)]) + "\n", encoding="utf-8")
        fresh.replace(self.path)


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
