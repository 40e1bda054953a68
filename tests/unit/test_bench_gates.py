"""What fails a run of the bench: contenders that fail, peers and figures that are missing, figures and bars that do not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks import harness, suites, yardstick
from benchmarks.bars import Bars
from benchmarks.figures import Figures
from benchmarks.harness import Bench, Row, Stretch

TASK = "a task"


def costs(*cpu: float, wall: float = 1.0) -> Callable[[], Stretch]:
    """A job that has cost so many microseconds, in turn; the last for ever."""
    left = list(cpu)

    def job() -> Stretch:
        stretch = Stretch()
        stretch.cpu, stretch.wall = (left.pop(0) if len(left) > 1 else left[0]) / 1e6, wall / 1e6
        return stretch

    return job


def crashes() -> None:
    raise TypeError("its interface is another one by now")


@pytest.fixture(autouse=True)
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A yardstick that takes what it takes on the machine of the records."""
    monkeypatch.setattr(yardstick, "milliseconds", lambda: yardstick.REFERENCE_MS)


def bench(
    suite: str = "codec records",
    *,
    recorded: dict[str, float] | None = None,
    bars: dict[tuple[str, str], float] | None = None,
    **more: Any,
) -> Bench:
    """One whose figures of the task are these; without any, one of another task."""
    values = {(suite, TASK, measure): figure for measure, figure in (recorded or {}).items()} or {("other", "task", "cpu"): 1.0}
    return Bench(suite=suite, figures=Figures(values), bars=Bars({(suite, TASK): bars or {}}), **more)


def compared(made: Bench, jobs: dict[str, Any], **options: Any) -> Row:
    options.setdefault("measures", ("cpu",))
    return made.compare(TASK, 1, jobs, rounds=2, warm=False, **options)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("who", ["wireproto", "peer"])
def test_a_contender_that_fails_fails_its_row(who: str, quick: bool) -> None:
    jobs = {"wireproto": costs(1), "peer": costs(3)} | {who: crashes}
    row = compared(bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0}, quick=quick), jobs)
    assert f"codec records: {TASK}: {who} failed: TypeError: its interface is another one by now" in row.failures()
    assert row.facts()["contenders"][who] == {"note": "TypeError: its interface is another one by now"}


class Panic(BaseException):
    """What an extension in Rust raises when it gives up: no Exception."""


@pytest.mark.parametrize("end", [SystemExit(0), Panic("at src/lib.rs:1")])
@pytest.mark.parametrize("quick", [False, True])
def test_a_contender_that_ends_the_program_fails_its_row_alone(end: BaseException, quick: bool) -> None:
    def ends() -> None:
        raise end

    row = compared(bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0}, quick=quick), {"wireproto": costs(1), "peer": ends})
    assert row.failures() == [f"codec records: {TASK}: peer failed: {type(end).__name__}: {end}"]


def test_control_c_ends_the_bench() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compared(bench(recorded={"cpu": 1.0}), {"wireproto": interrupted})


@pytest.mark.parametrize("quick", [False, True])
def test_a_row_that_has_records_and_did_not_run_fails(quick: bool) -> None:
    made = bench("kafka", recorded={"instructions": 1.0}, bars={("peer", "cpu"): 2.0}, quick=quick)
    made.figures.foreign["kafka", "another", "instructions"] = 1.0
    made.bars.values["kafka", "a third, 4.9.7"] = {("peer", "cpu"): 2.0}
    made.figures.values["pulsar", "of another suite", "instructions"] = 1.0
    older = [] if quick else ["kafka: a third, 4.9.7: has records and did not run"]  # which a quick run leaves out
    assert suites.lost(made) == [f"kafka: {TASK}: has records and did not run", *older, "kafka: another: has records and did not run"]
    compared(made, {"wireproto": costs(1)}, measures=())
    assert suites.lost(made) == [*older, "kafka: another: has records and did not run"]


def test_a_contender_that_fails_late_is_not_judged_by_its_first_rounds() -> None:
    rounds: Iterator[Any] = iter([costs(3), crashes])
    row = compared(bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0}), {"wireproto": costs(1), "peer": lambda: next(rounds)()})
    assert row.ratio("peer") is None
    assert len(row.failures()) == 1


@pytest.mark.parametrize("quick", [False, True])
def test_a_peer_with_a_bar_that_is_no_contender_fails_the_row(quick: bool) -> None:
    made = bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0, ("gone", "cpu"): 2.0}, quick=quick)
    assert compared(made, {"wireproto": costs(1), "peer": costs(3)}).failures() == [
        f"codec records: {TASK}: gone has a bar and is not among the contenders"
    ]


def test_a_peer_without_a_bar_fails_the_row_unless_it_is_shown_only() -> None:
    jobs = {"wireproto": costs(1), "peer": costs(3)}
    (failure,) = compared(bench(recorded={"cpu": 1.0}), jobs).failures()
    assert "peer has no bar (cpu)" in failure
    assert not compared(bench(recorded={"cpu": 1.0}), jobs, shown=("peer",)).failures()
    (failure,) = compared(bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0}), jobs, rates=("peer",)).failures()
    assert "peer has no bar (wall)" in failure


def test_a_bar_fails_by_however_little_and_in_every_attempt() -> None:
    made = bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0})
    (failure,) = compared(made, {"wireproto": costs(1), "peer": costs(1.99)}).failures()
    assert failure == f"codec records: {TASK}: 1.99x peer (cpu), the bar is 2x"
    assert not compared(made, {"wireproto": costs(1), "peer": costs(2.01)}).failures()
    again = compared(made, {"wireproto": costs(1.2, 1.2, 1.0), "peer": costs(2.01)})
    assert not again.failures()
    assert len(again.contenders["wireproto"].cpu) == 4  # a second attempt, and no third
    assert len(compared(made, {"wireproto": costs(2), "peer": costs(1)}).contenders["peer"].cpu) == 2 * harness.ATTEMPTS


def test_a_wall_bar_is_about_wall_time() -> None:
    made = bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0, ("peer", "wall"): 2.0})
    row = compared(made, {"wireproto": costs(1), "peer": costs(3, wall=1.5)}, rates=("peer",))
    assert row.failures() == [f"codec records: {TASK}: 1.50x peer (wall), the bar is 2x"]


def test_contenders_are_compared_by_as_many_rounds() -> None:
    made = bench(recorded={"cpu": 1.0})
    row = made.compare(TASK, 1, {"wireproto": costs(4, 2, 1), "peer": costs(8)}, rounds=3, few={"peer": 1}, warm=False, measures=())
    assert row.ratio("peer") == pytest.approx(2.0)


@pytest.mark.parametrize("quick", [False, True])
def test_a_row_without_a_figure_fails(quick: bool) -> None:
    made = bench(quick=quick)
    made.counted = {TASK: {"wireproto": 100.0}}
    (failure,) = compared(made, {"wireproto": costs(1)}, measures=("instructions",)).failures()
    assert "no figure of instructions is recorded (this run: 100)" in failure


def test_a_row_whose_instructions_were_not_counted_fails() -> None:
    (failure,) = compared(bench(recorded={"instructions": 1.0}), {"wireproto": costs(1)}, measures=("instructions",)).failures()
    assert "no instructions were counted" in failure


@pytest.mark.parametrize(
    ("suite", "measure", "over", "fails"),
    [
        ("codec records", "instructions", 1.16, True),
        ("codec records", "instructions", 1.14, False),
        ("wire", "instructions", 1.16, True),
        ("engine", "instructions", 1.16, True),
        ("kafka", "instructions", 1.31, True),
        ("kafka", "instructions", 1.29, False),
        ("kafka", "cpu", 1.31, True),
        ("kafka", "cpu", 1.29, False),
        ("kafka", "cpu", 1.5, True),
    ],
)
def test_our_own_figure_has_a_tolerance(suite: str, measure: str, over: float, fails: bool) -> None:
    made = bench(suite, recorded={measure: 1000.0})
    made.counted = {TASK: {"wireproto": 1000.0 * over}}
    failures = compared(made, {"wireproto": costs(1000.0 * over)}, measures=(measure,)).failures()
    assert bool(failures) is fails
    assert all(f"{over - 1:+.0%}" in failure for failure in failures)


def test_cpu_is_measured_beside_the_yardstick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is twice as slow makes nobody fail, and one that is twice as quick hides nothing."""
    monkeypatch.setattr(yardstick, "milliseconds", lambda: 2 * yardstick.REFERENCE_MS)
    assert not compared(bench("kafka", recorded={"cpu": 10.0}), {"wireproto": costs(20)}).failures()
    monkeypatch.setattr(yardstick, "milliseconds", lambda: yardstick.REFERENCE_MS / 2)
    assert compared(bench("kafka", recorded={"cpu": 10.0}), {"wireproto": costs(9)}).failures()


def test_the_best_round_of_three_attempts_holds_a_cpu_figure() -> None:
    made = bench("kafka", recorded={"cpu": 10.0})
    assert not compared(made, {"wireproto": costs(20, 20, 20, 20, 20, 10)}).failures()
    assert compared(made, {"wireproto": costs(20, 20, 20, 20, 20, 20, 10)}).failures()


def test_where_the_machine_cannot_tell_only_crashes_fail() -> None:
    made = bench(recorded={"cpu": 1.0}, bars={("peer", "cpu"): 2.0})
    assert not compared(made, {"wireproto": costs(5), "peer": costs(1)}, judged=False).failures()
    assert compared(made, {"wireproto": costs(5), "peer": crashes}, judged=False).failures()


def test_a_quick_run_holds_instructions_alone() -> None:
    made = bench(recorded={"cpu": 1.0, "instructions": 100.0}, bars={("peer", "cpu"): 2.0}, quick=True)
    made.counted = {TASK: {"wireproto": 100.0}}
    row = compared(made, {"wireproto": costs(9), "peer": costs(1)}, measures=("instructions", "cpu"))
    assert not row.failures()
    assert row.figures == {"instructions": 100.0}
    assert len(row.contenders["peer"].cpu) == 1


def test_a_figure_that_no_clock_measured_is_held_too() -> None:
    assert not bench("memory", recorded={"MB": 100.0}).tell(TASK, "MB", 129.0).failures()
    assert bench("memory", recorded={"MB": 100.0}).tell(TASK, "MB", 131.0).failures()


def test_the_yardstick_takes_time() -> None:
    began = Stretch()
    with began:
        yardstick.work()
    assert began.cpu > 0.001
