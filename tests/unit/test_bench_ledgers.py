"""The bench's records: figures and bars are renewed from a run with a reason, and what the run does not know stays."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as runner
from benchmarks import bars, figures, report, suites
from benchmarks.ledger import NoReason
from benchmarks.pieces import Run

OURS, NEWER = "3.11.7 by GCC 12.2.0", "3.13.0 by GCC 12.2.0"
ROW = {
    "suite": "kafka",
    "task": "consume: all",
    "figures": {"instructions": 370.0, "cpu": 0.056},
    "held": [["peer", "cpu"], ["peer", "wall"], ["floor", "cpu"]],
    "ahead": ["floor"],
    "ratios": {"peer": {"cpu": 10.6, "wall": 1.1}, "floor": {"cpu": 0.5, "wall": 0.5}},
    "judged": True,
    "contenders": {name: {"cpu_us_min": 1.0} for name in ("wireproto", "peer", "floor")},
    "failures": [],
}


def run(*rows: dict[str, Any], quick: bool = False, complete: bool = True) -> dict[str, Any]:
    box = {"processor": "AMD EPYC"}
    made = {"date": "2026-11-22T10:00:00", "commit": "abc1234", "machine": box, "rows": list(rows), "quick": quick, "complete": complete}
    return made | {"sources": "digest", "build": OURS, "broken": {}}


def changed(**to: Any) -> dict[str, Any]:
    return {**copy.deepcopy(ROW), **to}


@pytest.mark.parametrize("reason", ["", "  "])
def test_nothing_is_renewed_without_a_reason(reason: str, tmp_path: Path) -> None:
    for renew in (figures.renew, bars.renew):
        with pytest.raises(NoReason):
            renew(run(ROW), reason, tmp_path / "file.txt")
    assert not list(tmp_path.iterdir())


def test_figures_are_renewed_with_what_they_were_measured_on(tmp_path: Path) -> None:
    path = tmp_path / "figures.txt"
    assert not figures.Figures.read(path).judging
    changes = figures.renew(run(ROW), "the first\nones", path, OURS)
    assert changes == ["kafka: consume: all: instructions 370 (new)", "kafka: consume: all: cpu 0.056 (new)"]
    text = path.read_text()
    assert "# 2026-11-22 abc1234: the first ones\n" in text
    assert "kafka | consume: all | cpu          | 0.056 | 3.11.7 by GCC 12.2.0 | AMD EPYC | 2026-11-22 | abc1234\n" in text
    known = figures.Figures.read(path, OURS)
    assert known.fault("kafka", "consume: all", "cpu", 0.056) is None
    assert known.fault("kafka", "consume: all", "cpu", 0.056 * 1.31) is not None


def test_another_build_has_half_as_much_again_and_another_minor_version_nothing(tmp_path: Path) -> None:
    path = tmp_path / "figures.txt"
    figures.renew(run(ROW), "first", path, OURS)
    other = figures.Figures.read(path, "3.11.2 by Clang 14.0.6")
    assert other.fault("kafka", "consume: all", "cpu", 0.056 * 1.49) is None
    assert "recorded are 0.056 on another build: +51%, 50% is allowed" in str(other.fault("kafka", "consume: all", "cpu", 0.056 * 1.51))
    assert not figures.Figures.read(path, NEWER).judging
    assert figures.Figures.read(path, "3.11.2 by Clang 14.0.6").judging


def test_figures_that_a_run_does_not_know_stay_and_those_that_are_gone_go(tmp_path: Path) -> None:
    path = tmp_path / "figures.txt"
    other, third = changed(suite="wire"), changed(task="consume: some")
    figures.renew(run(ROW, other, third), "first", path, OURS)
    figures.renew(run(ROW), "another interpreter", path, NEWER)
    quick = changed(figures={"instructions": 300.0})
    assert figures.renew(run(quick, quick=True), "quicker", path, OURS) == ["kafka: consume: all: instructions 370 to 300 (-19%)"]
    assert len(figures.Figures.read(path, OURS).values) == 6
    assert figures.renew(run(quick), "a task is gone", path, OURS) == ["kafka: consume: some: instructions is measured no more"]
    left = figures.Figures.read(path, OURS).values
    assert ("kafka", "consume: some", "instructions") not in left
    assert ("wire", "consume: all", "instructions") in left
    assert len(figures.Figures.read(path, NEWER).values) == 2
    assert path.read_text().count("# 2026-11-22 abc1234: ") == 4


def test_bars_are_four_fifths_of_what_was_measured_and_never_below_one(tmp_path: Path) -> None:
    path = tmp_path / "bars.txt"
    assert bars.renew(run(ROW), "first", path) == []
    assert bars.Bars.read(path).of("kafka", "consume: all") == {("peer", "cpu"): 8.5, ("peer", "wall"): 1.0, ("floor", "cpu"): 0.4}
    slower = changed(ratios={"peer": {"cpu": 5.0, "wall": 0.9}, "floor": {"cpu": 0.6, "wall": 0.5}})
    assert bars.renew(run(slower), "the peer at its best", path) == [
        "lower: kafka: consume: all: peer (cpu): 8.5x to 4x, measured 5.00x",
        "ahead of us: kafka: consume: all: peer (wall): measured 0.90x, the bar is 1x",
    ]
    assert bars.Bars.read(path).of("kafka", "consume: all")["peer", "cpu"] == 4.0
    history = path.read_text()
    assert "# 2026-11-22 abc1234: the peer at its best\n" in history
    assert "# lower: kafka: consume: all: peer (cpu): 8.5x to 4x, measured 5.00x\n" in history


def test_bars_that_are_gone_are_told(tmp_path: Path) -> None:
    path = tmp_path / "bars.txt"
    bars.renew(run(ROW, changed(task="consume: some", held=[["peer", "cpu"]])), "first", path)
    assert bars.renew(run(changed(held=[["peer", "cpu"]])), "a row and two peers less", path) == [
        "gone: kafka: consume: all: floor (cpu), 0.4x",
        "gone: kafka: consume: all: peer (wall), 1x",
        "gone: kafka: consume: some: peer (cpu), 8.5x",
    ]
    assert "# gone: kafka: consume: some: peer (cpu), 8.5x\n" in path.read_text()


def test_what_the_machine_could_not_tell_keeps_its_records(tmp_path: Path) -> None:
    path, second = tmp_path / "bars.txt", tmp_path / "figures.txt"
    bars.renew(run(ROW), "first", path)
    figures.renew(run(ROW), "first", second)
    untold = changed(judged=False, figures={"instructions": 370.0}, ratios={"peer": {"cpu": 0.1, "wall": 0.1}})
    assert bars.renew(run(untold, changed(task="other")), "on one core", path) == []
    assert bars.Bars.read(path).of("kafka", "consume: all") == {("peer", "cpu"): 8.5, ("peer", "wall"): 1.0, ("floor", "cpu"): 0.4}
    figures.renew(run(untold, changed(task="other")), "on one core", second)
    assert figures.Figures.read(second, OURS).values["kafka", "consume: all", "cpu"] == 0.056


FAILED = changed(contenders={"wireproto": {"cpu_us_min": 1.0}, "peer": {"note": "BrokenPipeError: gone"}})


@pytest.mark.parametrize(
    "made", [run(FAILED), run(ROW) | {"broken": {"memory": ["memory: AssertionError: it grows"]}}], ids=["row", "suite"]
)
def test_a_run_in_which_something_failed_is_no_record(made: dict[str, Any], tmp_path: Path) -> None:
    for renew in (figures.renew, bars.renew):
        with pytest.raises(ValueError, match=r"did not come through: (kafka: consume: all: peer failed|memory: AssertionError: it grows)"):
            renew(made, "why", tmp_path / "file.txt")
    assert not list(tmp_path.iterdir())


def test_a_count_that_is_far_below_its_figure_is_a_fault_on_the_same_build(tmp_path: Path) -> None:
    path = tmp_path / "figures.txt"
    figures.renew(run(ROW), "first", path)
    known = figures.Figures.read(path, OURS)
    assert known.fault("kafka", "consume: all", "instructions", 370 * 0.51) is None
    told = str(known.fault("kafka", "consume: all", "instructions", 370 * 0.49))
    assert told.endswith("recorded are 370: -51%: does it still do the work? If so, renew the figure")
    assert known.fault("kafka", "consume: all", "cpu", 0.01) is None
    assert figures.Figures.read(path, "3.11.2 by Clang 14.0.6").fault("kafka", "consume: all", "instructions", 100.0) is None


UNMEASURED = changed(ratios={"peer": {"cpu": None, "wall": 1.0}})


@pytest.mark.parametrize("made", [run(ROW, quick=True), run(ROW, complete=False), run(UNMEASURED)])
def test_bars_are_set_from_a_whole_full_run_alone(made: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"full run|not measured"):
        bars.renew(made, "why", tmp_path / "bars.txt")
    assert not list(tmp_path.iterdir())


def test_the_clone_s_own_records_are_read_and_are_of_suites_that_there_are() -> None:
    known, peers = figures.Figures.read(here=OURS), bars.Bars.read()
    assert peers.values
    assert known.judging
    labels = {suites.label(name) for name in suites.SUITES}
    assert {key[0] for key in (*known.values, *known.foreign, *peers.values)} <= labels


# ---- the runner -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["--renew", "--bars"])
def test_the_verbs_refuse_without_a_reason(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text(json.dumps({**run(ROW), "sources": report.sources(), "command": "python -m benchmarks"}))
    before = figures.FILE.read_text(), bars.FILE.read_text()
    assert runner.main([verb, " ", "--out", str(tmp_path)]) == 2
    assert "with a reason only" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        runner.main([verb, "--out", str(tmp_path)])
    assert (figures.FILE.read_text(), bars.FILE.read_text()) == before


def test_a_run_of_other_sources_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text(json.dumps({**run(ROW), "command": "python -m benchmarks"}))
    assert runner.main(["--renew", "why", "--out", str(tmp_path)]) == 2
    assert "the last run was of abc1234" in capsys.readouterr().err


@pytest.mark.parametrize(("ci", "fails"), [("true", True), ("1", True), ("", False), ("false", False)])
def test_what_cannot_be_held_is_a_failure_in_ci(
    ci: str, fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    assert bool(runner.unheld("valgrind is not installed")) is fails
    assert ("NOT HELD: valgrind is not installed" in capsys.readouterr().out) is not fails


# ---- runs in pieces ----------------------------------------------------------------------------------------------------------------

PIECE: dict[str, Any] = {"rows": [ROW], "brokers": {}, "broken": []}


def test_a_run_that_was_cut_is_gone_on_with(tmp_path: Path) -> None:
    asked = {"sources": "abc", "quick": False}
    first = Run.open(tmp_path, ["wire", "engine"], asked)
    assert (first.resumed, first.left()) == (False, ["wire", "engine"])
    first.add("wire", PIECE)
    second = Run.open(tmp_path, ["wire", "engine"], asked)
    assert (second.resumed, second.left(), second.rows()) == (True, ["engine"], [ROW])
    second.add("engine", {**PIECE, "broken": ["engine: it broke"]})
    assert second.failures() == ["engine: it broke"]
    assert Run.open(tmp_path, ["wire", "engine"], asked).left() == ["wire", "engine"]  # it was whole: the next one


@pytest.mark.parametrize("other", [{"sources": "def", "quick": False}, {"sources": "abc", "quick": True}])
def test_a_run_of_something_else_begins_anew(other: dict[str, Any], tmp_path: Path) -> None:
    Run.open(tmp_path, ["wire", "engine"], {"sources": "abc", "quick": False}).add("wire", PIECE)
    assert Run.open(tmp_path, ["wire", "engine"], other).left() == ["wire", "engine"]


def test_a_fresh_run_begins_anew(tmp_path: Path) -> None:
    Run.open(tmp_path, ["wire", "engine"], {"sources": "abc"}).add("wire", PIECE)
    assert not Run.open(tmp_path, ["wire", "engine"], {"sources": "abc"}, fresh=True).resumed
