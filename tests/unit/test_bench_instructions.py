"""The bench's instruction counts: what is counted, what it reads from callgrind, and what it says where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks import compiled, instructions
from benchmarks.counting import ATTEMPTS, Counting, total
from benchmarks.figures import Figures
from benchmarks.harness import Stretch

from brokers.plugin import missing

LOOPS = """
from itertools import repeat

def work(times):
    sum(repeat(1, times))  # one loop, in C: what the interpreter spends on one in Python depends on what it has made of the code so far

def tasks(bench):
    bench.compare("once", 1, {"wireproto": lambda: work(500_000)})
    bench.compare("twice", 1, {"wireproto": lambda: work(1_000_000)})
"""

NOTES = """
import os
from pathlib import Path

def tasks(bench, file):
    if not file:
        os._exit(7)
    print('{"what a contender prints": {"is no answer": 1}}')
    Path(file).write_text(str(os.getpid()))
"""


class Marks:
    """Counts what the jobs here say that they cost, between begin and end."""

    def __init__(self) -> None:
        self.running = self.counted = 0

    def begin(self) -> None:
        self.running = 0

    def end(self) -> None:
        self.counted, self.running = self.running, 0


def test_the_sum_of_a_profile_is_read() -> None:
    assert total("events: Ir\nsummary: 0\n\nfn=(1)\n+1 5\ntotals: 678\n") == 678
    with pytest.raises(ValueError, match="without its sum"):
        total("summary: 12345\n")


def counting(*, peers: bool = False, recorded: float | None = None) -> tuple[Counting, Marks]:
    marks = Marks()
    figures = Figures({("wire", "task", "instructions"): 7.0 if recorded is None else recorded})
    bench = Counting(marks, figures, peers=peers)
    bench.suite = "wire"
    return bench, marks


def test_a_job_is_counted_whole_or_where_it_measures_itself() -> None:
    bench, marks = counting(peers=True)

    def spend(much: int) -> None:
        marks.running += much

    def measured() -> Stretch:
        spend(1000)
        with Stretch() as stretch:
            spend(50)
        spend(1000)
        return stretch

    def fails() -> None:
        raise ValueError

    bench.compare("task", 10, {"wireproto": lambda: spend(70), "measured": measured, "fails": fails})
    bench.compare("of time", 10, {"wireproto": lambda: spend(70)}, measures=("cpu",))
    assert bench.counts == {"task": {"wireproto": 7.0, "measured": 5.0}}
    assert Stretch.watch is None


def test_only_ours_is_counted_unless_peers_are_asked_for() -> None:
    bench, marks = counting()

    def spend(much: int) -> None:
        marks.running += much

    bench.compare("task", 10, {"wireproto": lambda: spend(70), "peer": lambda: spend(90)})
    assert bench.counts == {"task": {"wireproto": 7.0}}


@pytest.mark.parametrize(
    ("costs", "calls", "found"),
    [([80], 1, 8.0), ([90, 75], 2, 7.5), ([50, 65], 2, 6.5), ([95, 93, 94, *[96] * (ATTEMPTS - 3)], ATTEMPTS, 9.3)],
)
def test_a_figure_that_does_not_hold_is_counted_again(costs: list[int], calls: int, found: float) -> None:
    bench, marks = counting()
    left = [1, *costs]  # a first, cold call is not counted

    def job() -> None:
        marks.running += left.pop(0)

    bench.compare("task", 10, {"wireproto": job})
    assert bench.counts == {"task": {"wireproto": found}}
    assert len(left) == len(costs) - calls


def test_a_row_without_a_figure_is_counted_once() -> None:
    bench, marks = counting()
    calls = []

    def job() -> None:
        calls.append(1)
        marks.running += 70

    bench.compare("another task", 10, {"wireproto": job})
    assert bench.counts == {"another task": {"wireproto": 7.0}}
    assert len(calls) == 2  # the first one is cold


def test_without_valgrind_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(instructions.Unavailable, match="valgrind is not installed"):
        instructions.Counter().count("wire")


@pytest.mark.parametrize(
    ("tasks", "limit", "words"),
    [("raise SystemExit(0)", 120.0, r"^ends ended with 0 under valgrind: "), ("import signal; signal.pause()", 1.0, r"took more than 1 s")],
)
def test_a_count_without_a_whole_result_has_failed(
    tasks: str, limit: float, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether or not CI runs it: where there is a valgrind, nothing but a whole count will do."""
    if shutil.which("valgrind") is None:
        missing("valgrind", "it is not installed")
    (tmp_path / "ends.py").write_text(f"def tasks(bench):\n    {tasks}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{instructions.HERE.parent / 'src'}:{tmp_path}")
    with instructions.Counter(limit=limit) as counter, pytest.raises(instructions.Failed, match=words):
        counter.count("ends")


def test_any_c_compiler_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(FileNotFoundError, match="no C compiler"):
        compiled.compiler()
    for name in ("clang", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
        assert compiled.compiler() == [name]
    monkeypatch.setenv("CC", "clang -m64")
    assert compiled.compiler() == ["clang", "-m64"]


def test_callgrind_counts_what_a_job_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the work is twice the figure, to a hundredth: what is around it is not counted."""
    if shutil.which("valgrind") is None:
        missing("valgrind", "it is not installed")
    (tmp_path / "loops.py").write_text(LOOPS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{instructions.HERE.parent / 'src'}:{tmp_path}")
    with instructions.Counter() as counter:
        counts = counter.count("loops")
    once, twice = (counts[task]["wireproto"] for task in ("once", "twice"))
    assert once > 500_000 * 5, counts
    assert twice / once == pytest.approx(2.0, rel=0.01), counts


def test_one_process_counts_suite_after_suite_until_one_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("valgrind") is None:
        missing("valgrind", "it is not installed")
    (tmp_path / "notes.py").write_text(NOTES, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{instructions.HERE.parent / 'src'}:{tmp_path}")
    files = [str(tmp_path / name) for name in ("first", "second", "third")]
    with instructions.Counter() as counter:
        for file in files[:2]:
            assert counter.count("notes", file) == {}
        with pytest.raises(instructions.Failed, match="notes ended with 7 under valgrind"):
            counter.count("notes", "")
        assert counter.count("notes", files[2]) == {}
    first, second, third = (Path(file).read_text(encoding="utf-8") for file in files)
    assert first == second != third
