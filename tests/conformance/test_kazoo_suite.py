"""kazoo's own tests, unchanged, on the embedded ensemble: what its maintainers hold to be right of a server, and of their client on it.

They run in a process of their own, over the cluster of `kazoo_cluster`. `make test` runs what does not wait long; `make soak` runs all
of it, on a real ensemble too. What fails is run once more by itself: kazoo's tests wait by the clock in places, and a
busy machine has been enough for that. What fails twice is a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

CLONE = Path(__file__).resolve().parents[2]
LIMIT = 390.0  # seconds, a run
LEFT_OUT = {
    **dict.fromkeys(
        (f"test_client.py::TestReconfig::{name}" for name in ("test_no_super_auth", "test_add_remove_observer", "test_bad_input")),
        "the embedded ensemble has the members that it was begun with, and refuses a reconfig as unimplemented",
    ),
    "test_connection.py::TestConnectionDrop::test_connection_dropped": "wants a megabyte to take longer than a word to its own thread",
}
SLOW = {
    "test_cache.py::KazooTreeCacheTests::test_delete_operation": "4 s",
    "test_client.py::TestClient::test_update_host_list": "5 s asleep, with a member away",
    "test_client.py::TestConnection::test_listener_only_called_on_real_state_change": "3 s, of the client alone",
    "test_connection.py::TestReadOnlyMode::test_read_only": "15 s asleep, without a quorum",
    "test_lock.py::KazooLockTests::test_lock_timeout": "3 s",
    "test_lock.py::TestSemaphore::test_timeout": "3 s",
    "test_partitioner.py::KazooPartitionerTests::test_race_condition_new_partitioner_during_the_lock": "9 s",
    "test_partitioner.py::KazooPartitionerTests::test_race_condition_new_partitioner_steals_the_lock": "8 s",
    "test_selectors_select.py": "11 s, of Python's select",
    "test_watchers.py::KazooChildrenWatcherTests::test_child_stop_on_session_loss": "4 s",
    "test_watchers.py::KazooChildrenWatcherTests::test_child_watcher_remove_session_watcher": "10 s",
}
SKIPS = {
    "Only run build config tests on CI.": "asks a server for the version that a variable of kazoo's CI names",
    "eventlet handler not available.": "the client's threads made otherwise; a server sees no difference",
    "gevent not available.": "the same",
    "PureSASL not available.": "needs a server with SASL, which the embedded one does not speak",
}


class Suite:
    """Runs of kazoo's tests in one folder."""

    def __init__(self, folder: Path, on: str) -> None:
        self._folder = folder
        self._environment = os.environ | {"PYTHONPATH": f"{CLONE / 'tests'}{os.pathsep}{CLONE / 'src'}", "WIREPROTO_KAZOO_ON": on}
        (folder / "pytest.ini").write_text("[pytest]\n")

    def run(self, *words: str) -> dict[str, str]:
        """What became of each test: ``passed``, ``failed``, or why it was skipped; its output is printed."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "conformance.kazoo_cluster", "--pyargs", "--timeout", "100"]
        command += ["-q", "--tb", "short", "--show-capture", "no", f"--junitxml={report}", "kazoo.tests", *words]
        done = subprocess.run(command, cwd=self._folder, env=self._environment, capture_output=True, text=True, timeout=LIMIT, check=False)
        print(done.stdout[-20_000:])
        assert done.returncode in (0, 1), done.stdout[-4000:] + done.stderr[-4000:]
        return {f"{case.get('classname')}.{case.get('name')}": fate(case) for case in ElementTree.parse(report).iter("testcase")}

    def judge(self, *left_out: str) -> dict[str, str]:
        """The same of all but these; what failed has failed twice."""
        found = self.run(*(f"--deselect={name}" for name in left_out))
        if "failed" in found.values():
            found |= self.run("--last-failed", "--last-failed-no-failures=none")
        return found


def fate(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    return "passed" if skipped is None else str(skipped.get("message"))


def check(found: dict[str, str], least: int) -> None:
    assert [name for name, end in found.items() if end == "failed"] == []
    assert {end for end in found.values() if end != "passed"} <= set(SKIPS)
    assert sum(end == "passed" for end in found.values()) >= least, "tests are missing"


@pytest.mark.broker("dev-zookeeper")
def test_what_does_not_wait_long_passes_on_the_embedded_ensemble(tmp_path: Path) -> None:
    check(Suite(tmp_path, "dev").judge(*LEFT_OUT, *SLOW), least=280)


@pytest.mark.soak
@pytest.mark.broker("dev-zookeeper")
def test_all_of_it_passes_on_the_embedded_ensemble(tmp_path: Path) -> None:
    check(Suite(tmp_path, "dev").judge(*LEFT_OUT), least=295)


@pytest.mark.soak
@pytest.mark.timeout(800)
@pytest.mark.broker("zookeeper-3.9.5-ensemble")
def test_all_of_it_passes_on_a_real_ensemble(tmp_path: Path) -> None:
    """The control: nothing is left out that a server would be found at fault by."""
    check(Suite(tmp_path, "real").judge(), least=300)
