"""Which sources a result is of: a digest of the files, so that it holds over rebases and changes of documents, and the commit beside it.

May assume: git, or none (then all files of the listed places count, and the commit is unknown). Must not: change anything.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
PLACES = (
    *("src", "tests", "proto", "benchmarks", "examples", ".ci", "docs/build.py"),
    *("Makefile", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml", "setup.py"),
)
BUILT = re.compile(
    r"\.so$|\.pyc$|/_(codec|net)\.c$|\.egg-info/|^\.(git|venv|cache|[a-z]+_cache|hypothesis)/|^(build|dist|demo-out|bench-out)/"
)

RECORDS = ("tests/seconds.json",)  # what was measured, which changes no result


def git(*arguments: str, clone: Path = CLONE) -> str | None:
    """What git says; None where there is no git or it knows no answer."""
    try:
        return subprocess.run(["git", *arguments], cwd=clone, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def files(places: Sequence[str] = PLACES, clone: Path = CLONE) -> list[str]:
    """The files of these places that belong to the work, in order."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *places, clone=clone)
    if listed:
        names = set(listed.split("\0"))
    else:
        found = [path for place in places for path in ([clone / place] if (clone / place).is_file() else (clone / place).rglob("*"))]
        names = {str(path.relative_to(clone)) for path in found}
    return sorted(name for name in names if name and not BUILT.search(name) and (clone / name).is_file())


def digest(places: Sequence[str] = PLACES, clone: Path = CLONE) -> str:
    """Of the files as they lie there now, committed or not."""
    whole = hashlib.sha256()
    for name in files(places, clone):
        if name in RECORDS:
            continue
        whole.update(f"{name}\0{hashlib.sha256((clone / name).read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()[:10]


def commit(places: Sequence[str] = PLACES, clone: Path = CLONE) -> str:
    """The commit that is checked out, with a plus where these places have changes; "unknown" without git."""
    head = git("rev-parse", "--short=7", "HEAD", clone=clone)
    if head is None:
        return "unknown"
    return head + "+" * bool(git("status", "--porcelain", "--", *places, clone=clone))
