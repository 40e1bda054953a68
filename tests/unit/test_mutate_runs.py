"""Runs of `make mutate`: how they resume and add up, which tests judge a fault, and what a report says."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from mutate import report
from mutate.cover import Map
from mutate.judge import Judge, Verdict
from mutate.source import Edit, Mutant, digest
from mutate.state import Result, Results, arguments
from mutate.tree import Tree


def mutant(key: str = "k", *, first: int = 2, within: str = "w", always: bool = False, top_level: bool = False) -> Mutant:
    edit = Edit("src/wireproto/kafka/x.py", 0, 1, "y", first, first)
    return Mutant(key, "kafka", "drop", (edit,), "a()", "pass", within, always, top_level)


def test_what_was_found_is_there_after_a_run_was_ended(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.txt", tmp_path, "abc1234")
    results.add(mutant(), Verdict("caught", "import", 1.0), "t1")
    known = Results(tmp_path / "results.txt", tmp_path).known(mutant(), "t2")
    assert known is not None
    assert (known.kind, known.by, known.commit, known.tests) == ("caught", "import", "abc1234", "t1")


def test_results_of_several_runs_stand_in_one_file_in_an_order_of_their_own(tmp_path: Path) -> None:
    for key in ("k2", "k1"):
        Results(tmp_path / "results.txt", tmp_path).add(mutant(key), Verdict("caught", "a test\tof two\nlines"), "t")
    rows = [line.split("\t") for line in (tmp_path / "results.txt").read_text().splitlines() if not line.startswith("#")]
    assert [(row[2], row[-1]) for row in rows] == [("a test of two lines", "k1"), ("a test of two lines", "k2")]


def test_a_line_of_another_form_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "results.txt").write_text("kafka\tcaught\tk1\n")
    with pytest.raises(ValueError, match="3 columns instead of 8"):
        Results(tmp_path / "results.txt", tmp_path)


def test_a_survivor_is_judged_again_when_tests_have_changed(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.txt", tmp_path)
    results.add(mutant(), Verdict("survived"), "t1")
    assert results.known(mutant(), "t1") is not None
    assert results.known(mutant(), "t2") is None
    assert results.of(mutant()) is not None


def test_what_a_test_noticed_is_judged_again_when_that_test_is_gone(tmp_path: Path) -> None:
    test = tmp_path / "tests/unit/test_x.py"
    test.parent.mkdir(parents=True)
    for text, there in (("class TestX:\n    def test_it(self): ...\n", True), ("def test_it_too(): ...\n", False), ("", False)):
        test.write_text(text)
        results = Results(tmp_path / "results.txt", tmp_path)
        results.add(mutant(), Verdict("caught", "tests/unit/test_x.py::TestX::test_it[a::b]"), "t")
        assert (results.known(mutant(), "t") is not None) is there
    test.unlink()
    assert Results(tmp_path / "results.txt", tmp_path).known(mutant(), "t") is None


def test_a_result_ends_with_the_function_it_was_about(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.txt", tmp_path)
    for key in ("k", "gone"):
        results.add(mutant(key), Verdict("caught"), "t")
    assert results.of(mutant(within="other")) is None
    assert results.forget([mutant("k"), mutant("gone", within="other")]) == 1
    assert list(Results(tmp_path / "results.txt", tmp_path).kept) == ["k"]


def test_an_argument_needs_its_reason(tmp_path: Path) -> None:
    table = tmp_path / "equivalent.txt"
    table.write_text("# head\nkafka/x.py f drop: a() -> pass\n    said twice,\n    by b() too\n\nkafka/x.py g drop: a() -> pass\n")
    assert arguments(table) == {"kafka/x.py f drop: a() -> pass": "said twice, by b() too"}


def told(key: str, kind: str | None, *, old: bool = False) -> report.Told:
    return report.Told(mutant(key), Result("kafka", kind, "", "w", "t", "", "", key) if kind else None, old)


def test_the_report_counts_caught_and_argued_and_shows_the_rest() -> None:
    seeds = {
        1: [told("k1", "caught"), told("k2", "hang"), told("k3", "survived", old=True), told("k4", "survived"), told("k5", "invalid")],
        2: [told("k1", "caught"), told("k6", "caught"), told("k7", None)],
    }
    shown = report.text(seeds, {"k4": "because"})
    scores = [line.split() for line in shown.partition("=== score")[2].strip().splitlines()]
    assert scores == [
        ["judged", "caught", "argued", "survived", "left", "score"],
        ["kafka", "4", "2", "1", "1", "0", "75.0%"],
        ["seed", "1", "4", "2", "1", "1", "0", "75.0%"],
        ["kafka", "2", "2", "0", "0", "1", "100.0%"],
        ["seed", "2", "2", "2", "0", "0", "1", "100.0%"],
        ["kafka", "5", "3", "1", "1", "1", "80.0%"],
        ["all", "5", "3", "1", "1", "1", "80.0%"],
    ]
    assert "k3\n    src/wireproto/kafka/x.py:2   (before tests changed)\n    - a()\n    + pass" in shown
    assert "k4" not in shown


def test_nothing_judged_has_no_score() -> None:
    assert report.scores({1: [told("k", None)]}, {}).splitlines()[-1].split() == ["all", "0", "0", "0", "0", "1", "-"]


@pytest.fixture
def known(tmp_path: Path) -> Map:
    """A map of a source of three lines in two functions, and two test files."""
    (tmp_path / "src/wireproto/kafka").mkdir(parents=True)
    source = tmp_path / "src/wireproto/kafka/x.py"
    source.write_text("X = 1\ndef f():\n    return 1\ndef g():\n    return 2\n")
    for part in ("unit", "wire", "conformance"):
        (tmp_path / "tests" / part).mkdir(parents=True)
    found = Map(tmp_path)
    (found.folder / "sources").mkdir(parents=True)
    then = digest(source.read_bytes())
    (found.folder / "sources" / then).write_bytes(source.read_bytes())
    for name, tests in (("a", {"one": (3, 0.5), "two": (5, 0.2)}), ("b", {"three": (3, 0.1), "bad": (3, 0.1)})):
        path = tmp_path / f"tests/unit/test_{name}.py"
        path.write_text("")
        ids = {test: f"tests/unit/test_{name}.py::{test}" for test in tests}
        found._file(f"tests/unit/test_{name}.py").write_text(
            json.dumps(
                {
                    "digest": digest(b""),
                    "seconds": {ids[test]: seconds for test, (_, seconds) in tests.items()},
                    "failed": [ids["bad"]] if "bad" in ids else [],
                    "sources": {"src/wireproto/kafka/x.py": then},
                    "ran": {"src/wireproto/kafka/x.py": {ids[test]: [1, line] for test, (line, _) in tests.items()}},
                }
            )
        )
    found.load()
    return found


def judged_by(known: Map, one: Mutant, budget: float = 9.0, after: str = "") -> list[str]:
    judge = Judge(Tree(known.checkout, known.checkout / "copy"), known, threading.Event(), budget)
    return [test.partition("::")[2] for test in judge.chosen(one, [f"tests/unit/{after}"] if after else ())]


def test_the_tests_that_run_a_line_judge_it_quickest_first(known: Map) -> None:
    assert judged_by(known, mutant(first=3)) == ["three", "one"]
    assert judged_by(known, mutant(first=5)) == ["two"]


def test_a_test_that_is_about_the_file_comes_before_a_quicker_one_that_is_about_others(known: Map) -> None:
    (known.checkout / "src/wireproto/net").mkdir()
    other = known.checkout / "src/wireproto/net/y.py"
    other.write_text("pass\n" * 100)
    (known.folder / "sources/other").write_text(other.read_text())
    table = known.folder / "tests-unit-test_b.py.json"
    kept = json.loads(table.read_text())
    kept["sources"]["src/wireproto/net/y.py"] = "other"
    kept["ran"]["src/wireproto/net/y.py"] = {"tests/unit/test_b.py::three": list(range(1, 100))}
    table.write_text(json.dumps(kept))
    later = Map(known.checkout)
    later.load()
    assert judged_by(later, mutant(first=3)) == ["one", "three"]


def test_a_test_that_fails_without_a_fault_judges_nothing(known: Map) -> None:
    assert "bad" not in judged_by(known, mutant(first=3))


def test_whoever_runs_a_module_judges_what_stands_outside_its_functions(known: Map) -> None:
    assert judged_by(known, mutant(first=1, top_level=True)) == ["three", "two", "one"]


def test_a_module_without_functions_is_judged_by_whoever_runs_its_neighbours(known: Map) -> None:
    (known.checkout / "src/wireproto/kafka/x_types.py").write_text("X = 1\n")
    one = replace(mutant(first=1, top_level=True), edits=(Edit("src/wireproto/kafka/x_types.py", 0, 1, "", 1, 1),))
    assert judged_by(known, one) == ["three", "two", "one"]


def test_the_budget_of_a_fault_is_kept(known: Map) -> None:
    assert judged_by(known, mutant(first=3), budget=0.4) == ["three"]


def test_what_the_first_tests_do_not_notice_has_a_larger_budget_of_the_others(known: Map) -> None:
    assert judged_by(known, mutant(first=3), budget=0.4, after="test_b.py::three") == ["one"]
    assert judged_by(known, mutant(first=3), budget=0.4, after="test_a.py::one") == ["three"]


def test_the_map_follows_lines_that_have_moved(known: Map) -> None:
    source = known.checkout / "src/wireproto/kafka/x.py"
    source.write_text(f"# a line more\n{source.read_text()}")
    later = Map(known.checkout)
    later.load()
    assert judged_by(later, mutant(first=4)) == ["three", "one"]
    assert judged_by(later, mutant(first=3)) == []


def test_a_line_that_was_changed_or_put_in_is_run_by_whoever_ran_what_stood_there(known: Map) -> None:
    """A test file that did not change is not run for the map again."""
    source = known.checkout / "src/wireproto/kafka/x.py"
    source.write_text("X = 1\ndef f():\n    return due(1)\n    return 3\ndef g():\n    y = 2\n    return y\n")
    later = Map(known.checkout)
    later.load()
    assert [judged_by(later, mutant(first=line)) for line in (3, 4, 6, 7)] == [["three", "one"]] * 2 + [["two"]] * 2


def test_a_test_file_that_changed_is_run_for_the_map_again(known: Map) -> None:
    assert known.stale() == {}
    (known.checkout / "tests/unit/test_a.py").write_text("# more\n")
    assert known.stale() == {"unit": ["tests/unit/test_a.py"]}


def test_tests_of_an_adapter_that_is_not_judged_need_no_map(known: Map) -> None:
    for name in ("kafka_x", "pulsar_x"):
        (known.checkout / f"tests/wire/test_{name}.py").write_text("")
    assert known.stale(("kafka", "net")) == {"wire": ["tests/wire/test_kafka_x.py"]}
    assert known.stale() == {"wire": ["tests/wire/test_kafka_x.py", "tests/wire/test_pulsar_x.py"]}


def test_a_tree_has_the_fault_for_as_long_as_it_is_judged_and_the_checkout_never(known: Map) -> None:
    tree = Tree(known.checkout, known.checkout / ".cache/mutate/trees/one")
    tree.sync()
    path = "src/wireproto/kafka/x.py"
    plain = (known.checkout / path).read_text()
    with tree.with_fault(mutant()):
        assert (tree.root / path).read_text() == "y" + plain[1:]
        assert (known.checkout / path).read_text() == plain
    assert (tree.root / path).read_text() == plain


def test_what_was_built_of_an_engines_fault_goes_with_it(known: Map) -> None:
    source = known.checkout / "src/wireproto/_net_parts/x.pyx"
    source.parent.mkdir()
    source.write_text("pass\n")
    (known.checkout / "src/wireproto/_net.so").write_text("plain")
    tree = Tree(known.checkout, known.checkout / ".cache/mutate/trees/one")
    tree.sync()
    fault = Mutant("k", "engine", "drop", (Edit("src/wireproto/_net_parts/x.pyx", 0, 4, "x", 1, 1),), "pass", "x", "w")
    with tree.with_fault(fault):
        (tree.root / "src/wireproto/_net.so").write_text("built with the fault")
    assert (tree.root / "src/wireproto/_net.so").read_text() == "plain"
    assert (tree.root / "src/wireproto/_net_parts/x.pyx").read_text() == "pass\n"


def judge_of(known: Map, script: str) -> Judge:
    """A judge whose tests are this shell script: $FAULT says whether the fault is in, $1 how often it has run."""
    tree = Tree(known.checkout, known.checkout / ".cache/mutate/trees/one")
    tree.sync()
    (tree.root / ".venv").unlink()
    (known.checkout / ".venv/bin").mkdir(parents=True)
    python = known.checkout / ".venv/bin/python"
    python.write_text(f"""#!/bin/sh
echo run >> {known.checkout}/runs
set -- $(wc -l < {known.checkout}/runs)
FAULT=$(head -c 1 src/wireproto/kafka/x.py | tr -d X)
three=tests/unit/test_b.py::three
{script}
""")
    python.chmod(0o755)
    return Judge(tree, known, threading.Event())


THREE = "tests/unit/test_b.py::three"
LATE = "Failed: Timeout (>30.5s) from pytest-timeout"


@pytest.mark.parametrize(
    ("script", "kind", "by"),
    [
        ('test -z "$FAULT" || { echo "FAILED $three - AssertionError"; exit 1; }', "caught", THREE),
        ("echo 1 passed in 0.10s", "survived", ""),
        ('test $1 != 1 || { echo "FAILED $three - AssertionError"; exit 1; }', "survived", ""),  # once, by chance
        ('grep -q three ../one.tests && { echo "FAILED $three - E"; exit 1; }; exit 0', "survived", ""),  # whatever there is
        (f'test -z "$FAULT" || {{ echo "FAILED $three - {LATE}"; exit 1; }}; echo 1 passed in 0.30s', "caught", THREE),
        (f'test -z "$FAULT" || {{ echo "FAILED $three - {LATE}"; exit 1; }}; echo 1 passed in 25.00s', "unsure", THREE),
    ],
)
def test_only_what_fails_for_the_faults_sake_speaks(known: Map, script: str, kind: str, by: str) -> None:
    verdict = judge_of(known, script).verdict(mutant(first=3))
    assert (verdict.kind, verdict.by) == (kind, by)


@pytest.mark.parametrize(("fails", "kind", "tests"), [("one", "caught", 1), ("nobody", "survived", 2)])
def test_a_fault_that_the_quick_tests_do_not_notice_meets_the_slow_ones(known: Map, fails: str, kind: str, tests: int) -> None:
    judge = judge_of(
        known, f'grep -q {fails} ../one.tests && test -n "$FAULT" && {{ echo "FAILED tests/unit/test_a.py::one - E"; exit 1; }}; exit 0'
    )
    judge.budget = 0.4
    found = judge.verdict(mutant(first=3))
    assert (found.kind, found.tests) == (kind, tests)


@pytest.mark.parametrize(("plain", "kind"), [("exit 0", "hang"), ("echo 1 passed in 1.50s", "unsure"), ("exec sleep 60", "unsure")])
def test_a_run_that_does_not_end_speaks_when_it_soon_ends_without_the_fault(
    known: Map, plain: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judge, "_limit", lambda *_: 2.0)
    judge = judge_of(known, f'test -z "$FAULT" || exec sleep 60\n{plain}')
    assert judge.verdict(mutant(first=3)).kind == kind


def test_a_run_that_is_being_ended_says_so_and_leaves_the_tree_whole(known: Map) -> None:
    stop = threading.Event()
    stop.set()
    tree = Tree(known.checkout, known.checkout / ".cache/mutate/trees/one")
    tree.sync()
    (tree.root / ".venv").unlink()
    (known.checkout / ".venv/bin").mkdir(parents=True)
    python = known.checkout / ".venv/bin/python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    with pytest.raises(KeyboardInterrupt):
        Judge(tree, known, stop).verdict(mutant(first=3))
    assert (tree.root / "src/wireproto/kafka/x.py").read_text() == (known.checkout / "src/wireproto/kafka/x.py").read_text()
