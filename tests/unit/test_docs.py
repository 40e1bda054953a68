"""The pages' option tables are those of the code, and the reference has every message."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wireproto import errors, wire
from wireproto.kafka import codes
from wireproto.pulsar import codes as pulsar_codes

CLONE = Path(__file__).resolve().parents[2]


def test_option_tables_and_the_list_of_modules_are_current() -> None:
    environment = os.environ | {"PYTHONPATH": str(CLONE / "src")}
    done = subprocess.run(
        [sys.executable, "docs/build.py", "--check"], cwd=CLONE, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("protocol", wire.protocols())
def test_the_reference_has_every_message(protocol: str) -> None:
    """That the pages are the schema's is checked with the other generated files."""
    page = (CLONE / "docs" / "reference" / f"{protocol}.md").read_text()
    headings = set(re.findall(r"^## (\S+)$", page, re.MULTILINE))
    named = set(re.findall(r"`(Frame|StoredMessage|MessageBatch|MultiRequest|MultiResponse)`", page))
    assert set(wire.names(protocol)) <= headings | named
    anchors = {heading.lower().replace(".", "") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors
    assert f"docs/reference/{protocol}.md" in (CLONE / "README.md").read_text()


def test_every_line_of_the_log_is_listed() -> None:
    """Texts of the lines written by `net.client_log.ClientLog`, wherever that is."""
    found: set[str] = set()
    for path in (CLONE / "src" / "wireproto").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            teller = ast.unparse(call.func)
            if re.search(r"(^|[._])log\.(info|warning)$", teller) or teller in ("self.warning", "self.info", "self._say"):
                found |= {one.value for one in call.args[1:] if isinstance(one, ast.Constant) and "%" in str(one.value)}
    assert len(found) >= 10
    page = (CLONE / "docs" / "logging.md").read_text()
    assert sorted(text for text in found if f"`{text}`" not in page) == []


def cells(page: str, head: str) -> list[list[str]]:
    """The rows of the table with this head, cell by cell."""
    lines = page.splitlines()
    rows = []
    for line in lines[lines.index(head) + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@pytest.mark.parametrize(
    ("name", "head"), [("interface.md", "| | Kafka | Pulsar | RocketMQ | ZooKeeper |"), ("transactions.md", "| | Kafka | Pulsar |")]
)
def test_each_guarantee_has_its_tests(name: str, head: str) -> None:
    """Each cell of the table, and no test that there is not."""
    page = (CLONE / "docs" / name).read_text()
    protocols = head.strip("| ").split(" | ")
    promised = {(row[0], protocol) for row in cells(page, head) for protocol, cell in zip(protocols, row[1:], strict=True) if cell}
    held = set()
    for row, protocol, tests in cells(page, "| | of | test |"):
        (whole,) = {promise for promise, of in promised if promise.startswith(row) and of == protocol}
        held.add((whole, protocol))
        for test in re.findall(r"`([^`]+)`", tests):
            path, _, function = test.partition("::")
            assert f"def {function}(" in (CLONE / "tests" / path).read_text(), test
    assert held == promised


def test_the_errors_of_transactions_are_all_explained() -> None:
    """Each class that is named is one, and none of those that tell a transaction's end is left out."""
    page = (CLONE / "docs" / "transactions.md").read_text()
    rows = cells(page, "| error | raised by | the transaction | then |")
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert all(row[1] and row[2] for row in rows)
    for name in named:
        found = getattr(errors, name, None) or getattr(codes, name, None) or getattr(pulsar_codes, name, None)
        assert isinstance(found, type), name
        assert issubclass(found, errors.WireprotoError)
    assert {one.__name__ for one in errors.TransactionError.__subclasses__()} <= named
