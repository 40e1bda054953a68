"""Every Python block of the README and of docs/ runs as printed, against the embedded broker; the README's first in a process of its own.

Blocks of one page run in order and share their names. Those of docs/spark.md want a Spark session: they run in tests/spark; those of
docs/transactions.md, and others marked ``real-broker``, a real broker: in tests/integration. Addresses like ``kafka://localhost:9092`` are
the embedded broker's here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker

CLONE = Path(wireproto.__file__).parents[2]
PAGES = sorted(
    path
    for path in (CLONE / "README.md", CLONE / "CHANGELOG.md", *CLONE.glob("docs/*.md"))
    if path.name not in ("spark.md", "transactions.md") and "```python" in path.read_text()
)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"(kafka|pulsar|rocketmq|zookeeper)://localhost:\d+")


def blocks(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, fresh_dev_broker: DevBroker, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    for number, block in enumerate(blocks(page), 1):
        source = _ADDRESS.sub(lambda found: fresh_dev_broker.url(found[1]), block)
        exec(compile(source, f"{page.name} block {number}", "exec"), names)
    capsys.readouterr()


def test_the_first_example_is_short_and_runs_as_printed(tmp_path: Path) -> None:
    first = blocks(CLONE / "README.md")[0]
    assert len(first.splitlines()) < 15
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment["PYTHONPATH"] = str(CLONE / "src")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", first], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for protocol in ("kafka", "pulsar", "rocketmq", "zookeeper"):
        assert f"{protocol} [b'two teas'] go on at" in done.stdout


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in (*CLONE.glob("*.md"), *CLONE.glob("docs/**/*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
