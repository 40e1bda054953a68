"""Runs a test again that failed since Spark gave up on a Python process of its own: it has ten seconds to call back, which nothing changes.

What it is: a hook for conftest.py. The test's own fixtures are set up anew each time, those of its module and of the session are kept, but
for the last test of them: so what a test makes has names that no earlier run of it had (`fresh`, `tmp_path`, a broker of its own).
May assume: pytest. Must not: run anything again for another reason, or in silence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

HERE = Path(__file__).parent
SAID = ("Timed out while waiting for the Python worker to connect back", "Python worker failed to connect back")  # PythonWorkerFactory
TIMES = 3
PAUSE = 20.0  # seconds, and twice as many each time: whatever else has the processors is to be through
RUNS = pytest.StashKey[int]()  # those of a test that were late


def late(reports: Sequence[pytest.TestReport]) -> bool:
    """Whether it failed, and Spark said so."""
    return any(report.failed and any(words in report.longreprtext for words in SAID) for report in reports)


def tell(config: pytest.Config, line: str) -> None:
    """Past what captures output, which is on between tests, too."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    terminal.write_line(f"\n{line}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, pytest.Function) or not item.path.is_relative_to(HERE):
        return None
    before = item.stash.get(RUNS, 0)
    if not before:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if before + 1 < TIMES and late(reports):
        tell(item.config, f"{item.nodeid}: Spark's Python process did not call back within its ten seconds: once more")
        time.sleep(PAUSE * 2**before)
        item.stash[RUNS] = before + 1
        item._initrequest()  # fixtures anew
        return bool(item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem))  # as any test: it has all of pytest-timeout's time
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
