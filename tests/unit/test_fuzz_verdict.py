"""What `make fuzz` makes of how a worker ended: its own count, unless something ended it after that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz import __main__ as fuzz


@pytest.mark.parametrize(("found", "code", "counted"), [(0, 0, 0), (2, 1, 2), (0, 1, 1), (0, -11, 1), (0, 99, 1)])
def test_a_worker_that_ends_otherwise_than_it_says_has_found_something(
    found: int, code: int, counted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sanitizer that reports while the interpreter ends does so behind the worker's last line."""
    ends = f"os.kill(os.getpid(), {-code})" if code < 0 else f"os._exit({code})"
    said = f'import os; print(\'{{"format": "x", "runs": 7, "found": {found}}}\', flush=True); {ends}'
    real = subprocess.Popen

    def worker(command: list[str], **keywords: Any) -> subprocess.Popen[str]:
        return real([sys.executable, "-c", said], **keywords)

    monkeypatch.setattr(fuzz, "FOLDER", tmp_path)
    monkeypatch.setattr(fuzz.subprocess, "Popen", worker)
    assert fuzz.run("x", 7, 0, ["--seed", "1"], dict(os.environ))["found"] == counted
