"""The pages' option tables are those of the code, and importing the package stays cheap."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wireproto import wire

CLONE = Path(__file__).resolve().parents[2]
IMPORT_LIMIT = 0.060  # seconds
TIMER = "import time; begin = time.process_time(); import wireproto; print(time.process_time() - begin)"


def test_option_tables_are_current() -> None:
    environment = os.environ | {"PYTHONPATH": str(CLONE / "src")}
    done = subprocess.run(
        [sys.executable, "docs/build.py", "--check"], cwd=CLONE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("protocol", wire.PROTOCOLS)
def test_the_reference_has_every_message(protocol: str) -> None:
    """That the pages are the schema's is checked with the other generated files."""
    page = (CLONE / "docs" / "reference" / f"{protocol}.md").read_text()
    headings = set(re.findall(r"^## (\S+)$", page, re.MULTILINE))
    named = set(re.findall(r"`(Frame|StoredMessage|MessageBatch|MultiRequest|MultiResponse)`", page))
    assert set(wire.names(protocol)) <= headings | named
    anchors = {heading.lower().replace(".", "") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors
    assert f"docs/reference/{protocol}.md" in (CLONE / "README.md").read_text()


def test_import_takes_less_than_60_ms(tmp_path: Path) -> None:
    """CPU time, which is the wall time of a machine that has nothing else to do; byte code cached; the best of a few processes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONPATH": str(CLONE / "src")}
    found = []
    for _ in range(6):
        done = subprocess.run([sys.executable, "-c", TIMER], env=environment, capture_output=True, text=True, check=True)
        found.append(float(done.stdout))
    assert min(found) < IMPORT_LIMIT, f"import wireproto took {[round(seconds * 1000) for seconds in found]} ms of CPU"
