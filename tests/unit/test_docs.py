"""The pages' option tables are those of the code, and the reference has every message."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wireproto import wire

CLONE = Path(__file__).resolve().parents[2]


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
