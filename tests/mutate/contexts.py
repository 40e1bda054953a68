"""pytest plugin for runs under coverage: each test is a context of the data, and its seconds and verdict go to the file `MUTATE_TIMES`
names.

May assume: `coverage run -m pytest -p mutate.contexts`, or no coverage at all; then only the times are kept. Must not: judge.
"""

from __future__ import annotations

import collections
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

_SECONDS: dict[str, float] = collections.defaultdict(float)
_FAILED: set[str] = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _SECONDS[report.nodeid] += report.duration
    if report.failed:
        _FAILED.add(report.nodeid)


def pytest_sessionfinish() -> None:
    target = os.environ.get("MUTATE_TIMES")
    if target:
        Path(target).write_text(json.dumps({"seconds": dict(_SECONDS), "failed": sorted(_FAILED)}))
