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
import pytest_timeout
from _pytest.runner import runtestprotocol

HERE = Path(__file__).parent
SAID = ("Timed out while waiting for the Python worker to connect back", "Python worker failed to connect back")  # PythonWorkerFactory
TIMES = 3
PAUSE = 20.0  # seconds, and twice as many each time: whatever else has the processors is to be through


def late(reports: Sequence[pytest.TestReport]) -> bool:
    """Whether it failed, and Spark said so."""
    return any(report.failed and any(words in report.longreprtext for words in SAID) for report in reports)


def tell(config: pytest.Config, line: str) -> None:
    """Past what captures output, which is on between tests, too."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    terminal.write_line(f"\n{line}")


def timed(item: pytest.Item) -> None:
    """Give it all of pytest-timeout's time again, which stops at the first failure: a run that hangs is to end."""
    settings = pytest_timeout._get_item_settings(item)
    if settings.timeout and not settings.func_only:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=settings)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not isinstance(item, pytest.Function) or not item.path.is_relative_to(HERE):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in range(TIMES - 1, -1, -1):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not left or not late(reports):
            break
        tell(item.config, f"{item.nodeid}: Spark's Python process did not call back within its ten seconds: once more")
        time.sleep(PAUSE * 2 ** (TIMES - 1 - left))
        item._initrequest()  # fixtures anew
        timed(item)  # this run alone begins anew: for the wrappers of the hook, as that which counts who needs a broker, it is one test
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
