"""Rules of the suite itself that no run would find broken: what a test module must not switch off."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def muted(source: str) -> Iterator[int]:
    """Lines on which a mark takes every warning of a test away, ours among them."""
    if "filterwarnings" not in source:
        return  # nothing to parse: most have no such mark
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.filterwarnings"):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            if "ignore" in texts and not any(str(text).startswith("error") for text in texts):
                yield node.lineno


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('pytestmark = pytest.mark.filterwarnings("ignore")', [1]),
        ('@pytest.mark.filterwarnings("ignore")\ndef test(): ...', [1]),
        ('pytest.mark.filterwarnings("ignore", "error::Warning:wireproto")', []),
        ('pytest.mark.filterwarnings("ignore:old API:DeprecationWarning")', []),
    ],
)
def test_a_mark_that_mutes_everything_is_seen(source: str, lines: list[int]) -> None:
    assert list(muted(source)) == lines


def test_no_test_mutes_our_own_warnings() -> None:
    paths = sorted(TESTS.rglob("*.py"))
    found = [f"{path.relative_to(TESTS)}:{line}" for path in paths for line in muted(path.read_text(encoding="utf-8"))]
    assert not found, "warnings of the peers alone may be muted (spark.peers.QUIET)"
