"""What PySparks older than ours lack: formats work without it, and without any PySpark the remedy is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark import versions

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
NOTHING = """
import sys
sys.modules["pyspark.sql.datasource"] = None
import pyspark_wireproto_kafka
assert not hasattr(pyspark_wireproto_kafka, "DefaultSource")
import wireproto.spark
try:
    wireproto.spark.register(None)
except ImportError as why:
    print(why)
"""


def python(*arguments: str) -> str:
    """What a process of its own prints, far from UTC."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TZ": "Asia/Kolkata"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_formats_work_with_the_api_of_pyspark_4_0() -> None:
    assert python(str(HERE / "old_pyspark.py")) == "as it must be\n"


def test_without_the_api_the_remedy_is_told() -> None:
    assert "needs PySpark 4.0 or newer" in python("-c", NOTHING)


@pytest.mark.parametrize(("ends", "code"), [(["", "", ""], 0), (["", "os.kill(os.getpid(), 11)", ""], 1), (["", "os._exit(3)"], 1)])
def test_a_tour_that_a_signal_ends_has_failed(
    ends: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versions, "command", lambda number: [sys.executable, "-c", f"import os; {ends[int(number)]}"])
    monkeypatch.setattr(sys, "argv", ["versions", *map(str, range(len(ends)))])
    assert versions.main() == code
    assert capsys.readouterr().out.count("FAILED") == code
