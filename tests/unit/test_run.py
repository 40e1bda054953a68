"""`make test` itself: lanes, limits, Ctrl-C, what it counts, and that each test is in exactly one of its jobs."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from benchmarks import suites

import budget
import flickers
import run
from brokers import table
from brokers.catalogue import CATALOGUE
from brokers.plugin import chosen
from lanes import Idle, Job, Lanes, Outcome
from patience import until

TESTS = Path(__file__).parents[1]
FAMILIES = {suite.partition(".")[0] for suite in suites.SUITES}
PATIENCE = 60.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def lanes(folder: Path, cores: float, seconds: float = PATIENCE) -> tuple[Lanes, list[str]]:
    said: list[str] = []
    return Lanes(cores, folder, dict(os.environ), folder, time.monotonic() + seconds, said.append), said


MEETS = """
import pathlib, time
pathlib.Path("{mine}").touch()
limit = time.monotonic() + 30
while not pathlib.Path("{other}").exists():
    assert time.monotonic() < limit, "nobody there"
    time.sleep(0.01)
"""


def test_jobs_that_wait_run_beside_each_other(tmp_path: Path) -> None:
    jobs = [Job(mine, [python(MEETS.format(mine=mine, other=other))], cores=0.5) for mine, other in (("a", "b"), ("b", "a"))]
    assert [outcome.verdict for outcome in lanes(tmp_path, 1.0)[0].run(jobs)] == ["ok", "ok"]


@pytest.mark.parametrize("alone", [False, True])
def test_jobs_that_compute_get_a_core_each(tmp_path: Path, alone: bool) -> None:
    """The second one would find the first one's folder."""
    code = "import os, time; os.mkdir('x'); time.sleep(0.4); os.rmdir('x')"
    jobs = [Job(name, [python(code)], cores=0.1 if alone else 1.0, alone=alone) for name in "ab"]
    assert [outcome.verdict for outcome in lanes(tmp_path, 1.9)[0].run(jobs)] == ["ok", "ok"]


def test_one_job_at_a_time_computes_in_what_the_others_leave(tmp_path: Path) -> None:
    nice = "import os, time; assert os.nice(0) == 19"
    alone = "os.mkdir('x'); time.sleep(0.4); os.rmdir('x')"
    first, full = (textwrap.dedent(MEETS).format(mine=mine, other=other) for mine, other in (("first", "full"), ("full", "first")))
    jobs = [
        Job("first", [python(f"{nice}\n{first}\n{alone}")], spare=True),
        Job("second", [python(f"{nice}\n{alone}")], spare=True),
        Job("full", [python(full)], cores=1.0),
    ]
    assert [outcome.verdict for outcome in lanes(tmp_path, 1.0)[0].run(jobs)] == ["ok", "ok", "ok"]


def test_a_job_begins_where_the_machine_has_stood_idle_though_the_numbers_leave_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lanes.SETTLED", 0.3)
    monkeypatch.setattr(Idle, "cores", lambda _: float(os.cpu_count() or 1))
    jobs = [Job(mine, [python(MEETS.format(mine=mine, other=other))]) for mine, other in (("a", "b"), ("b", "a"))]
    beside = lanes(tmp_path, float(os.cpu_count() or 1))[0]
    first = [Job(f"first {number}", [python(MEETS.format(mine=f"f{number}", other="b"))]) for number in range((os.cpu_count() or 1) - 1)]
    assert {outcome.verdict for outcome in beside.run([*first, *jobs])} == {"ok"}


def test_what_was_idle_is_what_did_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["cpu  100 10 50 400 40 0 0 0 0 0\ncpu0 1\n", "cpu  110 20 55 415 45 1 2 2 0 0\ncpu0 1\n"]
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    idle = Idle(iter(said).__next__)
    assert idle.cores() == 4 * (15 + 5) / (10 + 10 + 5 + 15 + 5 + 1 + 2 + 2)


def test_the_limit_ends_what_runs_and_names_what_did_not(tmp_path: Path) -> None:
    waits = "import signal; open('there', 'w'); signal.pause()"
    jobs = [Job("long", [python(waits), python("open('second', 'w')")]), Job("next", [python("")])]
    beside, _ = lanes(tmp_path, 1.0)
    moments: list[float] = []

    def over() -> None:
        """Not before the job is there: an interpreter that still starts dies of Ctrl-C without a word."""
        until((tmp_path / "there").exists)
        moments.append(time.monotonic())
        beside._deadline = moments[0]

    limit = threading.Thread(target=over)
    limit.start()
    outcomes = beside.run(jobs)
    limit.join()
    assert [outcome.verdict for outcome in outcomes] == ["ENDED", "NOT RUN"]
    assert time.monotonic() < moments[0] + 20
    assert not (tmp_path / "second").exists()
    assert "KeyboardInterrupt" in (tmp_path / "long.txt").read_text()


def test_a_job_that_ignores_ctrl_c_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanes.LAST_WORDS", 0.5)
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.pause()"
    assert lanes(tmp_path, 1.0, 1.0)[0].run([Job("deaf", [python(code)])])[0].verdict == "ENDED"


def test_ctrl_c_reaches_parts_also_where_our_parent_ignores_it(tmp_path: Path) -> None:
    """As under nohup; SIGTERM ends the run there."""
    code = f"""
        import signal, sys, time
        sys.path.insert(0, {str(TESTS)!r})
        from lanes import Job, Lanes
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        job = Job("part", [[sys.executable, "-c", "import signal; print('there', flush=True); signal.pause()"]])
        Lanes(1.0, __import__("pathlib").Path("."), dict(__import__("os").environ), ".", time.monotonic() + 60, print).run([job])
    """
    child = subprocess.Popen(
        python(code),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert child.stdout is not None
    while (line := child.stdout.readline()) != "there\n":
        assert line, "it ended"
    child.send_signal(signal.SIGTERM)
    said, _ = child.communicate(timeout=PATIENCE)
    assert 'File "<string>", line 1' in said
    assert said.count("KeyboardInterrupt") == 2, said  # the part's and the run's


def test_it_counts_what_pytest_tells(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('why')\n")
    (tmp_path / "test_none.py").write_text("")
    quiet = ["-p", "no:cacheprovider", "-c", os.devnull, "-q", "--rootdir", str(tmp_path)]
    jobs = [
        Job("tests", [[sys.executable, "-m", "pytest", *quiet, str(tmp_path / "test_it.py")]]),
        Job("none", [[sys.executable, "-m", "pytest", *quiet, str(tmp_path / "test_none.py")]]),
        Job("checks", [python(""), python("raise SystemExit(3)"), python("")]),
    ]
    tests, none, checks = lanes(tmp_path, 1.0)[0].run(jobs)
    assert (tests.verdict, tests.counts) == ("FAILED", {"passed": 1, "failed": 1, "skipped": 1})
    assert (none.verdict, none.counts["failed"]) == ("FAILED", 1)
    assert (checks.verdict, checks.counts) == ("FAILED", {"passed": 2, "failed": 1})
    assert run.closing([tests, none, checks], 61) == "3 failed, 3 passed, 1 skipped in 61.00s (0:01:01)"


def options(command: list[str], name: str) -> list[str]:
    return [value for word, value in itertools.pairwise(command) if word == name]


def test_each_test_is_in_exactly_one_job(tmp_path: Path) -> None:
    """Also those that name no broker: they were in none, once."""
    commands = [list(command) for job in run.Suite(run.PARTS, tmp_path, 1).jobs() for command in job.commands]
    for path in (*(run.CLONE / "tests/wire").glob("test_*.py"), *(run.CLONE / "tests/wire").glob("*/test_*.py")):
        assert sum(str(path.relative_to(run.CLONE)) in command for command in commands) == 1, path
    for folder in ("conformance", "integration", "unit", "spark"):
        using = [command for command in commands if f"tests/{folder}" in command]
        kinds = [(), *((name,) for name in CATALOGUE)]
        kinds += [(f"dev-{protocol}",) for protocol in run.PROTOCOLS] if folder == "conformance" else []
        kinds += [("kafka-4.3.1", "pulsar-4.2.4")] if folder == "spark" else []
        for kind in kinds:
            picked = [one for one in using if chosen(kind, *(options(one, name) for name in ("--protocol", "--broker", "--except")))]
            assert len(picked) == 1, (folder, kind)


def test_each_suite_that_counts_runs_once(tmp_path: Path) -> None:
    commands = [list(command) for job in run.Suite(["bench"], tmp_path, 1).jobs() for command in job.commands]
    wanted = [[word for word in command[3:] if word in FAMILIES] for command in commands]
    assert sorted(name for names in wanted for name in suites.chosen(names, quick=True)) == sorted(suites.chosen([], quick=True))
    assert len(set(map(str, (options(command, "--out") for command in commands)))) == len(commands)


def test_parts_by_name_are_a_part_of_the_whole(tmp_path: Path) -> None:
    whole = {json.dumps([job.commands]) for job in run.Suite(run.PARTS, tmp_path, 1).jobs()}
    for part in ("lint", "unit", "wire", "fuzz", "spark", "bench"):
        jobs = run.Suite([part], tmp_path, 1).jobs()
        assert len(jobs) == {"wire": 5, "spark": 2, "bench": 2}.get(part, 1)
        assert all(json.dumps([job.commands]) in whole for job in jobs)


def test_the_whole_has_a_minute_of_each_protocol_s_campaign_by_the_run_s_seed(tmp_path: Path) -> None:
    commands = [
        list(command)
        for job in run.Suite(run.PARTS, tmp_path, 7).jobs()
        for command in job.commands
        if options(command, "-m") == ["campaign"]
    ]
    assert sorted(command[command.index("campaign") + 1] for command in commands) == sorted(run.PROTOCOLS)
    assert all("--short" in command and options(command, "--seed") == ["7"] for command in commands)
    assert len(set(map(str, (options(command, "--out") for command in commands)))) == len(commands)


def session(failed: int, seconds: float, why: str = "no tree") -> table.Results:
    results = table.Results()
    results.count("kafka-4.3.1", "integration", "passed", 2)
    results.count("kafka-4.3.1", "integration", "failed", failed)
    results.failures += ["tests/integration/test_x.py::test_y"] * failed
    results.skip(why, "kafka-4.3.1")
    results.seconds["kafka"] = {"tests/integration/test_x.py": seconds}
    results.boots = {"kafka-4.3.1": 3}
    return results


def test_sessions_of_a_run_add_up_and_no_failure_goes_away(tmp_path: Path) -> None:
    whole = session(2, 1.0)
    whole.merge(session(0, 2.0))
    assert whole.counts["kafka-4.3.1"]["integration"] == {"passed": 4, "failed": 2, "skipped": 0}
    assert len(whole.failures) == 2
    assert whole.skips == {"no tree": {"kafka-4.3.1": 2}}
    assert whole.seconds == {"kafka": {"tests/integration/test_x.py": 3.0}}
    assert whole.boots == {"kafka-4.3.1": 6}
    record, page = tmp_path / "ran.json", tmp_path / "page.md"
    facts = {"commit": "abc with changes", "when": "2026-01-01", "code": 1, "closing": "2 failed", "parts": {"kafka": ["FAILED", 1.0]}}
    record.write_text(json.dumps(whole.to_json() | facts))
    table.write(record, page)
    said = page.read_text()
    for words in ("abc with changes", "it FAILED", "4 passed, 2 failed", "`tests/integration/test_x.py::test_y`", "| no tree | 2 |"):
        assert words in said
    with pytest.raises(SystemExit, match="only a whole run"):
        table.write(tmp_path / "none.json", page)


def test_seconds_beyond_the_budget_are_told(tmp_path: Path) -> None:
    record = tmp_path / "seconds.json"
    record.write_text(json.dumps({"unit": {"a": 10.0, "b": 10.0, "c": 10.0, "gone": 1.0}}))
    lines, grossly = budget.compare({"unit": {"a": 39.0, "b": 41.0, "c": 161.0, "new": 11.0, "small": 1.0}}, record)
    assert [line.split()[1] for line in lines] == ["b", "c", "new"]
    assert grossly == 1


def test_the_machines_other_work_is_seen() -> None:
    """A process that is not our child's end yet counts as another's."""
    machine = budget.Machine()
    burning = subprocess.Popen(python("while True: pass"))
    try:
        limit = time.monotonic() + 1.0
        while time.monotonic() < limit:
            time.sleep(0.05)
        machine.stop()
    finally:
        burning.kill()
        burning.wait()
    assert machine.foreign > 0.02


def test_what_is_missing_or_failed_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    fine, machine = [Outcome(Job("unit", []), "ok")], budget.Machine()
    machine.stop()
    assert run.report(fine, table.Results(), machine, 7, flickers.Judgement())
    assert not run.report(fine, table.Results(missing={"kafka-4.3.1": "no mvn"}), machine, 7, flickers.Judgement())
    assert not run.report(fine, table.Results(failures=["a::b"]), machine, 7, flickers.Judgement())
    assert not run.report([Outcome(Job("wire", []))], table.Results(), machine, 7, flickers.Judgement())
    said = capsys.readouterr().out
    assert "NOT RUN: kafka-4.3.1: no mvn" in said
    assert "--seed 7" in said


def test_a_session_that_left_no_results_is_told(tmp_path: Path) -> None:
    """One that a signal ended: what it had counted is gone, and must not be gone from the page in silence."""
    jobs = run.Suite(["unit", "fuzz"], tmp_path, 1).jobs()
    assert run.gathered(jobs, tmp_path).failures == ["unit: its session left no results"]
    (tmp_path / "unit.json").write_text(json.dumps(session(0, 1.0).to_json()))
    assert run.gathered(jobs, tmp_path).failures == []


@pytest.mark.parametrize("verdict", ["NOT RUN", "ENDED"])
def test_there_is_a_record_of_a_run_that_ran_to_its_end_alone(verdict: str) -> None:
    install, part = Outcome(Job("install", []), "ok"), Outcome(Job("wire", []), "FAILED")
    assert run.whole([install, part])
    assert not run.whole([Outcome(Job("install", []), "FAILED"), part])
    assert not run.whole([install, part, Outcome(Job("unit", []), verdict)])


def test_the_record_names_the_commit_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RESULTS", tmp_path / "ran.json")
    for end, told in (("abc", "abc"), ("def", "abc, other files at its end")):
        monkeypatch.setattr(run, "commit", lambda end=end: end)
        run.keep(table.Results(), [], 0, 7, 1.0, "abc")
        assert json.loads((tmp_path / "ran.json").read_text())["commit"] == told
