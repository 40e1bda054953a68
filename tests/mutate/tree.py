"""Copies of the checkout in which the faults are put: `.cache/mutate/trees/<name>`.

What it is: `Tree`, brought up to date with its original, changed by a mutant's edits and put right again; for the engine also built anew.
A run takes a snapshot of the checkout first, and its workers' trees are copies of that: the checkout may change meanwhile.
Must not: write into the original.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from .source import Mutant, applied

SKIPPED = {".git", ".venv", ".cache", "dist", "wheelhouse", "__pycache__", "demo-out", "bench-out", "target", "spark-warehouse"}
BUILD_TIME = 600.0


class Tree:
    """One copy. Not for two threads at a time."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout = checkout
        self.root = folder
        self.broken = False

    def sync(self) -> None:
        """As the checkout is now; times are kept, so that compiled files stay good."""
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = set(_files(self.checkout))
        for path in sorted(_files(self.root)):
            if path not in wanted and not str(path).startswith("build/"):
                (self.root / path).unlink()
        for path in wanted:
            self._renew(path)
        link = self.root / ".venv"
        if not link.is_symlink():
            link.symlink_to(self.checkout / ".venv")

    def _renew(self, path: Path | str) -> None:
        source, copy = self.checkout / path, self.root / path
        old = copy.stat() if copy.exists() else None
        new = source.stat()
        if old is None or (old.st_mtime_ns, old.st_size) != (new.st_mtime_ns, new.st_size):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy.with_name(f".{copy.name}.new"))
            copy.with_name(f".{copy.name}.new").replace(copy)

    @contextlib.contextmanager
    def with_fault(self, mutant: Mutant) -> Iterator[None]:
        """The copy with the fault in it, until the block ends."""
        paths = {edit.path for edit in mutant.edits}
        try:
            for path in paths:
                changed = applied((self.checkout / path).read_bytes(), [edit for edit in mutant.edits if edit.path == path])
                copy = self.root / path
                copy.unlink(missing_ok=True)
                copy.write_bytes(changed)
            yield
        finally:
            for path in paths:
                self._renew(path)
            if any(path.endswith(".pyx") for path in paths):  # what was built of the fault, too
                for built in (self.checkout / "src/wireproto").glob("_net*"):
                    if built.is_file():
                        self._renew(built.relative_to(self.checkout))

    def warm(self, environment: Mapping[str, str]) -> None:
        """Have everything compiled, tests with pytest's asserts, too: runs with a fault in, which keep nothing, begin sooner by it."""
        writing = {name: value for name, value in environment.items() if name != "PYTHONDONTWRITEBYTECODE"}
        python = str(self.root / ".venv/bin/python")
        tests = [f"tests/{part}" for part in ("unit", "wire", "conformance")]
        for command in (["-m", "compileall", "-q", "src", "tests"], ["-m", "pytest", "-q", "--co", "-p", "no:cacheprovider", *tests]):
            subprocess.run(
                [python, *command], cwd=self.root, env=writing, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            )

    def build_engine(self) -> bool:
        """Build the engine from what stands in the copy now; False when it does not compile."""
        command = [str(self.checkout / ".venv/bin/python"), "setup.py", "-q", "build_ext", "--inplace"]
        environment = os.environ | {"WIREPROTO_OPTIMISE": "-O1 -g0"}
        try:
            done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, timeout=BUILD_TIME, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in SKIPPED and not name.startswith(".venv")]
        for name in files:
            path = Path(folder, name)
            if name == ".gitignore" or not (path.is_symlink() or name.startswith(".")):
                yield path.relative_to(root)
