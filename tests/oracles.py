"""pytest plugin: what other people's code was asked, and how much of it agreed, as a table at the end of the run.

    def test_every_record(oracle): oracle("zookeeper-jute 3.9.5", records=68, vectors=408, exact_in_both_directions=408, misses=0)

A test gives its counts when it has compared everything; counts of one oracle, given by several tests, stand in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

_COUNTS: dict[str, dict[str, int]] = {}


@pytest.fixture(scope="session")
def oracle() -> Callable[..., None]:
    """``oracle(name, **counts)``: numbers for the table; those of the same name and word are added up."""

    def note(name: str, **counts: int) -> None:
        known = _COUNTS.setdefault(name, {})
        for word, number in counts.items():
            known[word] = known.get(word, 0) + number

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _COUNTS:
        return
    terminalreporter.section("judged by others")
    width = max(map(len, _COUNTS))
    for name, counts in sorted(_COUNTS.items()):
        terminalreporter.line(f"{name:<{width}}  " + ", ".join(f"{number:,} {word.replace('_', ' ')}" for word, number in counts.items()))
