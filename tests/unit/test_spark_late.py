"""A test that Spark's ten seconds made fail is run again, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark import late

TESTS = Path(__file__).parents[1]
CASES = """
import pytest

runs = []

@pytest.fixture
def fresh(tmp_path):
    return [tmp_path]

def test_it(fresh):
    fresh.append(1)
    assert len(fresh) == 2
    runs.append(fresh[0])
    if len(runs) <= {bad}:
        with pytest.raises(Exception, match="no topic"):
            raise RuntimeError("{text}")
    assert len(set(runs)) == {bad} + 1
"""
COUNTING = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    try:
        return (yield)
    finally:
        print("one test")
"""
LATE = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


@pytest.mark.parametrize(
    ("bad", "text", "code", "again"),
    [
        (0, LATE, 0, 0),
        (1, LATE, 0, 1),
        (late.TIMES - 1, LATE, 0, late.TIMES - 1),
        (late.TIMES, LATE, 1, late.TIMES - 1),
        (1, "something else", 1, 0),
    ],
    ids=["well", "late once", "late but for the last time", "late always", "another failure"],
)
def test_only_what_spark_gave_up_on_is_run_again(tmp_path: Path, bad: int, text: str, code: int, again: int) -> None:
    (tmp_path / "test_it.py").write_text(CASES.format(bad=bad, text=text))
    (tmp_path / "conftest.py").write_text(
        f"import pathlib, sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom spark import late\nlate.HERE = pathlib.Path(__file__).parent\n"
        "late.PAUSE = 0\nfrom spark.late import pytest_runtest_protocol\n"
    )
    (tmp_path / "counting.py").write_text(COUNTING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "counting", "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout.count("once more")) == (code, again), ran.stdout + ran.stderr
    assert ran.stdout.count("one test") == 1, "who counts tests, to end a broker behind the last one, counts it once"
