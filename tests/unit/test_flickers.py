"""Which failures are run a second time, and what a run makes of those that pass then (flickers.py, run.py)."""

from __future__ import annotations

import collections
import datetime
import json
import os
import sys
import textwrap
import time
from pathlib import Path

import pytest

import budget
import flickers
import run
from brokers import table
from brokers.catalogue import ATTEMPTS, CATALOGUE, Pool
from brokers.errors import BootFailed
from flickers import Failure, Listed, believed, judge
from lanes import Job, Lanes, Outcome

TODAY = datetime.date(2026, 11, 28)
TESTS = Path(__file__).parents[1]
HERE = Path(__file__)


def failure(test: str, why: str = "") -> Failure:
    return Failure(test, "wire of all", (test,), why, f"words of {test}")


def test_one_that_passes_alone_has_flickered_and_one_that_fails_again_fails() -> None:
    asked: list[str] = []

    def again(one: Failure) -> bool:
        asked.append(one.test)
        return one.test == "a"

    found = judge([failure("a"), failure("b"), failure("c", "it compares records or bytes")], again, [], TODAY)
    assert asked == ["a", "b"]
    assert [one.test for one in found.flickered] == ["a"]
    assert [(one.test, why) for one, why in found.failed] == [
        ("b", "failed again, alone"),
        ("c", "not run again: it compares records or bytes"),
    ]
    assert not found.fails
    assert "    words of a" in found.lines()


@pytest.mark.parametrize(("number", "fails"), [(flickers.MOST, False), (flickers.MOST + 1, True)])
def test_more_than_three_flickers_fail_the_run(number: int, fails: bool) -> None:
    found = judge([failure(str(index)) for index in range(number)], lambda one: True, [], TODAY)
    assert bool(found.fails) is fails


@pytest.mark.parametrize(("days", "fails"), [(0, False), (14, False), (15, True)])
def test_a_listed_one_may_flicker_for_a_fortnight(days: int, fails: bool) -> None:
    """By the first of its dates: a later line does not begin another fortnight."""
    listed = [Listed(TODAY - datetime.timedelta(days=back), "abc", "a", "an answer") for back in (0, days)]
    assert bool(judge([failure("a")], lambda one: True, listed, TODAY).fails) is fails
    assert not judge([failure("b")], lambda one: True, listed, TODAY).fails


def test_the_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "flickers.txt"
    path.write_text("# heads\n\n2026-11-28  abc1234  tests/wire/test_x.py::test_y[a b]  the second heartbeat,  of two\n")
    assert flickers.read(path) == [Listed(TODAY, "abc1234", "tests/wire/test_x.py::test_y[a b]", "the second heartbeat,  of two")]
    path.write_text("2026-11-28  abc1234  tests/wire/test_x.py::test_y\n")
    with pytest.raises(ValueError, match=r"flickers\.txt:1"):
        flickers.read(path)


def test_each_listed_test_is_there() -> None:
    for one in flickers.read():
        path, _, name = one.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (run.CLONE / path).read_text(), one


def test_each_pattern_names_files_that_are_there() -> None:
    for pattern in flickers.LEDGERS:
        assert list(run.CLONE.glob(pattern)), pattern


def compared(left: object, right: object) -> BaseException:
    with pytest.raises(AssertionError) as caught:
        assert left == right
    return caught.value


def test_what_may_be_a_lost_record_is_believed_at_once() -> None:
    wire = TESTS / "wire" / "test_tasks.py"
    assert believed("tests/integration/test_kafka_histories.py::test_x", wire, TimeoutError())
    assert believed("tests/spark/test_kafka_once.py::test_x[1]", wire, TimeoutError())
    assert believed("tests/wire/test_tasks.py::test_x", wire, TimeoutError(), marked=True)
    assert believed("tests/wire/test_tasks.py::test_x", wire, compared([b"1", b"2"], [b"1"]))
    assert not believed("tests/wire/test_tasks.py::test_x", wire, compared(1.7, 1.5))
    assert not believed("tests/wire/test_tasks.py::test_x", wire, TimeoutError("b'of no record'"))


def test_a_unit_test_that_waits_for_nothing_is_believed_at_once() -> None:
    assert believed("tests/unit/test_checksum.py::test_x", TESTS / "unit" / "test_checksum.py", ValueError())
    assert not believed("tests/unit/test_run.py::test_x", TESTS / "unit" / "test_run.py", ValueError())


SUITE = {
    "wire/test_good.py": "def test_good(): pass",
    "wire/test_bad.py": "def test_bad(): assert 1 == 2",
    "wire/test_once.py": """
        import pathlib, pytest
        def first(name):
            path = pathlib.Path(__file__).with_name(name)
            return not path.exists() and path.write_text("seen") > 0
        @pytest.mark.parametrize("n", range({number}))
        def test_once(n):
            assert not first(f"once-{{n}}"), "the machine was busy"
        """,
    "wire/test_set_up.py": """
        import pathlib, pytest
        @pytest.fixture
        def late(tmp_path_factory):
            path = pathlib.Path(__file__).with_name("late")
            if not path.exists():
                path.touch()
                raise TimeoutError("not there")
            yield
        def test_late(late): pass
        """,
    "spark/test_kafka_once.py": """
        import pathlib
        def test_ledger():
            path = pathlib.Path(__file__).with_name("ledger")
            if not path.exists():
                path.touch()
                raise RuntimeError("1 of 1000 is missing")
        """,
}


def ran(tmp_path: Path, *names: str, number: int = 1) -> tuple[bool, list[Outcome], table.Results]:
    """Run these files of `SUITE` as `make test` does, and judge what came of it."""
    for name in names:
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(SUITE[name]).format(number=number) if "{number}" in SUITE[name] else textwrap.dedent(SUITE[name]))
    (tmp_path / "conftest.py").write_text("pytest_plugins = ['brokers.plugin']\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  broker(name): x\n  java: x\n  soak: x\n  no_rerun: x\n")
    folder = tmp_path / "out"
    folder.mkdir()
    environment = dict(os.environ) | {"PYTHONPATH": f"{TESTS}:{run.CLONE / 'src'}"}
    lanes = Lanes(2.0, folder, environment, tmp_path, time.monotonic() + 120, lambda line: None)
    jobs = []
    for part in sorted({name.partition("/")[0] for name in names}):
        job = Job(part, [])
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "--import-mode=importlib", f"tests/{part}"]
        jobs.append(Job(part, [[sys.executable, *words, f"--broker-table={folder / job.file}.json"]], cores=0.5))
    outcomes = [Outcome(Job("install", []), "ok"), *lanes.run(jobs)]
    results = run.gathered(jobs, folder)
    judgement = run.judged(lanes, outcomes, results, folder)
    machine = budget.Machine()
    machine.stop()
    return run.report(outcomes, results, machine, 7, judgement), outcomes, results


def test_a_test_that_fails_once_is_named_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a set-up, too."""
    good, outcomes, results = ran(tmp_path, "wire/test_good.py", "wire/test_once.py", "wire/test_set_up.py")
    said = capsys.readouterr().out
    assert good, said
    assert results.flickers == ["tests/wire/test_once.py::test_once[0]", "tests/wire/test_set_up.py::test_late"]
    assert not results.failures
    assert outcomes[1].verdict == "ok"
    assert outcomes[1].counts == collections.Counter(passed=3, failed=0, errors=0)
    assert run.closing(outcomes, 1.0).startswith("3 passed in")
    assert "FLICKERED tests/wire/test_once.py::test_once[0] (wire)" in said
    assert "the machine was busy" in said


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, outcomes, results = ran(tmp_path, "wire/test_bad.py", "wire/test_once.py")
    said = capsys.readouterr().out
    assert not good
    assert results.failures == ["tests/wire/test_bad.py::test_bad"]
    assert outcomes[1].verdict == "FAILED"
    assert run.closing(outcomes, 1.0).startswith("1 failed, 1 passed in")
    assert "FAILED tests/wire/test_bad.py::test_bad (failed again, alone)" in said


def test_four_that_fail_once_fail_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, _, results = ran(tmp_path, "wire/test_once.py", number=4)
    assert not good
    assert len(results.flickers) == 4
    assert "4 tests flickered; 3 may" in capsys.readouterr().out


def test_a_ledger_that_fails_once_fails_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, _, results = ran(tmp_path, "spark/test_kafka_once.py", "wire/test_good.py")
    assert not good
    assert results.failures == ["tests/spark/test_kafka_once.py::test_ledger"]
    assert "(not run again: its failure may be a lost, repeated or wrongly decoded record)" in capsys.readouterr().out


def test_a_session_that_ended_by_more_than_failed_tests_stays_failed(tmp_path: Path) -> None:
    """pytest's other exit codes: an error of its own, an interruption."""
    results = table.Results(failures=["tests/wire/test_x.py::test_y"])
    results.details["tests/wire/test_x.py::test_y"] = {
        "test": "tests/wire/test_x.py::test_y", "believed": "", "words": "", "part": "wire", "brokers": "",
    }  # fmt: skip
    job = Job("wire", [[sys.executable, "-c", "pass"]])
    (tmp_path / "wire.json").write_text(json.dumps(results.to_json()))
    for code, verdict in ((1, "ok"), (3, "FAILED")):
        outcome = Outcome(job, "FAILED", code, collections.Counter(failed=1))
        lanes = Lanes(1.0, tmp_path, dict(os.environ), tmp_path, time.monotonic() + 60, lambda line: None)
        whole = table.load(tmp_path / "wire.json")
        run.judged(lanes, [outcome], whole, tmp_path)
        assert outcome.verdict == verdict


def test_counts_of_brokers_follow() -> None:
    results = table.Results()
    name = "tests/integration/test_x.py::test_y"
    for entry, test_failed in ((name, 1), (f"{name} (teardown)", 1)):
        results.count("kafka-4.3.1", "integration", "failed", test_failed)
        results.failures.append(entry)
        results.details[entry] = {"test": name, "believed": "", "words": "", "part": "integration", "brokers": "kafka-4.3.1"}
    results.flickered((name, f"{name} (teardown)"), name)
    assert results.counts["kafka-4.3.1"]["integration"] == {"passed": 1, "failed": 0, "skipped": 0}
    assert (results.failures, results.flickers) == ([], [name])


class Dying:
    """A broker whose first boots fail."""

    boot_seconds = 1.0
    made = 0

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.servers: list[object] = []

    def start(self) -> None:
        Dying.made += 1
        if Dying.made <= self._failures:
            raise BootFailed(f"attempt {Dying.made}: port taken")

    def close(self) -> None: ...


@pytest.mark.parametrize("failures", [0, ATTEMPTS - 1, ATTEMPTS])
def test_a_broker_that_does_not_boot_is_set_up_again_from_nothing(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "kafka-dying", lambda: Dying(failures))  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(Dying, "made", 0)
    pool = Pool()
    if failures < ATTEMPTS:
        pool.get("kafka-dying")
    else:
        for _ in range(2):  # the second time at once
            with pytest.raises(BootFailed):
                pool.get("kafka-dying")
    assert Dying.made == min(failures + 1, ATTEMPTS)
    assert len(pool.boots_again.get("kafka-dying", [])) == failures
