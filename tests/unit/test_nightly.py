"""`make nightly` on pieces of a second: what passed is not run again, what failed is, what is late goes on; the page keeps the newest."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokers.process import spawn
from nightly import __main__ as nightly
from nightly import bare, copies, page, pieces, run, work
from nightly.pieces import Piece, Step

PASSES = "print('7 passed, 1 skipped in 0.10s')"
WAITS = "import sys, time\nprint('waiting', flush=True)\ntime.sleep(600)"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree with one source and a git of its own."""
    (tmp_path / "clone" / "src").mkdir(parents=True)
    (tmp_path / "clone" / "src" / "one.py").write_text("one = 1\n")
    return tmp_path / "clone"


class Desk:
    """A piece's runs in a folder of its own; `ran` counts the runs of each step."""

    def __init__(self, clone: Path, **steps: str) -> None:
        self.clone, self.folder, self.said = clone, clone.parent / "state", [""]
        counted = "import pathlib, sys\nwith open(sys.argv[1], 'a') as file: print(sys.argv[2], file=file)\n"
        self.counter = clone.parent / "ran"
        self.counter.touch()
        command = (sys.executable, "-c")
        made = [Step(name, (*command, counted + code, str(self.counter), name)) for name, code in steps.items()]
        self.piece = Piece("tiny", "a piece of a second", tuple(made), ("src",))

    def run(self, minutes: float = 1.0) -> page.Row | None:
        return run.run(self.piece, minutes, self.said.append, self.folder, self.clone)

    def ran(self) -> list[str]:
        return self.counter.read_text().split()


def test_steps_that_pass_make_a_row(clone: Path) -> None:
    desk = Desk(clone, first=PASSES, second="print('no closing line')")
    row = desk.run()
    assert row is not None
    assert (row.verdict, row.figure) == ("ok", "first: 7 passed, 1 skipped; second: no closing line")
    assert row.sources == work.digest(("src",), clone)
    assert desk.ran() == ["first", "second"]


def test_a_step_that_failed_runs_again_alone(clone: Path, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    desk = Desk(clone, good=PASSES, bad=f"sys.exit(0 if pathlib.Path({str(mended)!r}).exists() else 2)", last=PASSES)
    row = desk.run()
    assert row is not None
    assert row.verdict == "FAILED 1 of 3 steps"
    assert "bad: said nothing (ended with 2)" in row.figure
    mended.touch()
    row = desk.run()
    assert row is not None
    assert row.verdict == "ok"
    assert desk.ran() == ["good", "bad", "last", "bad"]


def test_a_step_that_goes_on_is_asked_again_and_the_others_are_not(clone: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    code = f"path = pathlib.Path({str(half)!r})\ndone = path.exists()\npath.touch()\nsys.exit(0 if done else {pieces.AGAIN})"
    desk = Desk(clone, good=PASSES, long=code)
    row = desk.run()
    assert row is not None
    assert (row.verdict, row.figure) == ("ok, 1 not run", "good: 7 passed, 1 skipped")
    row = desk.run()
    assert row is not None
    assert row.verdict == "ok"
    assert desk.ran() == ["good", "long", "long"]


def test_other_sources_begin_anew(clone: Path) -> None:
    desk = Desk(clone, first=PASSES, second=f"sys.exit({pieces.AGAIN})")
    desk.run()
    (clone / "src" / "one.py").write_text("one = 2\n")
    desk.run()
    assert desk.ran() == ["first", "second", "first", "second"]


def test_what_ran_while_the_sources_changed_is_not_kept(clone: Path) -> None:
    source = clone / "src" / "one.py"
    desk = Desk(clone, first=f"pathlib.Path({str(source)!r}).write_text('one = 3\\n')", second=PASSES)
    assert desk.run() is None
    assert "not kept, for the sources changed" in desk.said[-1]
    assert desk.ran() == ["first"]


def test_the_minutes_of_a_step_that_was_gone_on_with_add_up(tmp_path: Path) -> None:
    kept, step = run.Kept.load(tmp_path / "tiny.json", "abc"), Step("long", ())
    for verdict, seconds in (("again", 30.0), ("again", 40.0), ("ok", 2.0)):
        kept.put(step, verdict, "", seconds)
    assert kept.steps["long"]["seconds"] == 72.0
    kept.put(step, "FAILED", "", 5.0)
    assert kept.steps["long"]["seconds"] == 5.0, "another time, from the beginning"


def test_a_figure_is_the_last_line_that_says_something() -> None:
    for step in next(piece for piece in pieces.PIECES if piece.name == "soak").steps:
        assert run.figure(step, "began\n7 kills, nothing lost\n") == "7 kills, nothing lost"


def test_a_copy_is_made_without_what_our_own_make_was_told(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []

    def ran(command: list[str], **keywords: Any) -> subprocess.CompletedProcess[bytes]:
        told.append(keywords["env"])
        return subprocess.CompletedProcess(command, 0)

    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "ARGS", "PARTS", "PIECES", "TABLE"):
        monkeypatch.setenv(name, "--again")
    monkeypatch.setattr(copies, "mirror", lambda target: [])
    monkeypatch.setattr(copies.subprocess, "run", ran)
    monkeypatch.setattr(sys, "argv", ["copies", "one", "--parts", "unit"])
    assert copies.main() == 0
    assert [value for value in told[0].values() if "--again" in value] == []


def test_a_bare_system_is_made_anew_for_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        if command[0] == "mmdebstrap":
            for folder in ("etc", bare.TRUSTED):
                Path(command[-2], folder).mkdir(parents=True)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(work, "CLONE", tmp_path)
    monkeypatch.setattr(bare.subprocess, "run", ran)
    first = bare.made("bookworm")
    assert bare.made("bookworm") == first
    monkeypatch.setattr(bare, "PACKAGES", bare.PACKAGES[1:])
    assert bare.made("bookworm") != first


def test_a_step_that_takes_all_the_time_has_failed(clone: Path) -> None:
    desk = Desk(clone, long=WAITS)
    row = desk.run(minutes=0.02)
    assert row is not None
    assert (row.verdict, row.figure) == ("FAILED", "not ended after 0 minutes")


def test_a_step_that_had_less_than_all_of_it_goes_on(clone: Path) -> None:
    desk = Desk(clone, first=PASSES, long=WAITS)
    row = desk.run(minutes=0.1)
    assert row is not None
    assert row.verdict == "ok, 1 not run"
    row = desk.run(minutes=0.02)
    assert row is not None
    assert row.verdict == "FAILED 1 of 2 steps", "now it had all of it"
    assert desk.ran().count("first") == 1


def test_a_step_is_ended_as_by_ctrl_c() -> None:
    code = "import time\ntry: print('begun', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('interrupted')"
    child = spawn([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"begun\n"
        run.end(child)
        assert child.stdout.read() == b"interrupted\n"


def test_the_page_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "nightly.md"
    first, second = pieces.PIECES[:2]
    row = page.Row("ok", "3 wheels, | and more", "1.5", "2026-11-22", "abc1234", "0123456789")
    page.record(first, row, path)
    page.record(second, page.Row("FAILED", "x", "2.0", "2026-11-23", "abc1235+", "0123456780"), path)
    rows = page.read(path)
    assert rows[first.name] == page.Row("ok", "3 wheels, / and more", "1.5", "2026-11-22", "abc1234", "0123456789")
    assert rows[second.name].verdict == "FAILED"
    assert {rows[piece.name].verdict for piece in pieces.PIECES[2:]} == {"never run"}


def test_what_is_older_than_the_work_is_told(clone: Path) -> None:
    piece = Piece("tiny", "", (), ("src",))
    row = page.Row("ok", "", "", "2026-11-22", work.commit(("src",), clone), work.digest(("src",), clone))
    assert page.stale(piece, row, clone) == ""
    begun = page.Row("ok, 1 not run", "", "", row.date, row.commit, row.sources)
    assert page.stale(piece, begun, clone) == f"ok, 1 not run at {row.commit} of {row.date}: the same command goes on"
    (clone / "docs.md").write_text("no source\n")
    assert page.stale(piece, row, clone) == ""
    (clone / "src" / "two.py").write_text("two = 2\n")
    assert page.stale(piece, row, clone).startswith("ok at ")
    assert page.stale(piece, None, clone) == "never run"


def test_a_commit_with_changes_has_a_plus(clone: Path) -> None:
    assert work.commit(("src",), clone) == "unknown"
    if work.git("--version") is None:
        return  # as on a bare system: it stays unknown
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qm", "One"]):
        assert work.git(*words, clone=clone) is not None
    head = work.commit(("src",), clone)
    digest = work.digest(("src",), clone)
    assert len(head) == 7
    (clone / "src" / "one.py").write_text("one = 2\n")
    assert work.commit(("src",), clone) == head + "+"
    assert work.digest(("src",), clone) != digest


@pytest.mark.parametrize("with_git", [False, True])
def test_what_is_built_is_no_source(clone: Path, with_git: bool) -> None:
    if with_git:
        work.git("init", "-q", clone=clone)
    for name in ("_codec.so", "_codec.c", "_net.c", "one.pyc"):
        (clone / "src" / name).write_text("built")
    assert work.files(("src",), clone) == ["src/one.py"]
    if not with_git:
        for name in (".venv/bin/python", ".cache/nightly/trees/x/src/one.py", "build/one.py", ".mypy_cache/one"):
            (clone / name).parent.mkdir(parents=True)
            (clone / name).write_text("not of the work")
    assert work.files((".",), clone) == ["src/one.py"]


def test_a_copy_follows_the_work_and_keeps_what_it_built(clone: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (clone / "src" / "two.py").write_text("two = 2\n")
    assert copies.mirror(copy, clone) == ["src/one.py", "src/two.py"]
    (copy / "src" / "_codec.so").write_text("built there")
    before = (copy / "src" / "two.py").stat().st_mtime_ns
    (clone / "src" / "one.py").unlink()
    (clone / "src" / "three.py").write_text("three = 3\n")
    assert copies.mirror(copy, clone) == ["src/one.py", "src/three.py"]
    assert sorted(path.name for path in (copy / "src").iterdir()) == ["_codec.so", "three.py", "two.py"]
    assert (copy / "src" / "two.py").stat().st_mtime_ns == before


def test_a_whole_call(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the page, leaves alone what is ok of these sources, and a failure counts more than what is left to do."""
    passes = Step("only", (sys.executable, "-c", PASSES))
    table = tuple(
        Piece(name, "", (step,), ("LICENSE",))
        for name, step in {
            "good": passes,
            "bad": Step("only", (sys.executable, "-c", "raise SystemExit(1)")),
            "long": Step("only", (sys.executable, "-c", f"raise SystemExit({pieces.AGAIN})")),
        }.items()
    )
    monkeypatch.setattr(pieces, "PIECES", table)
    monkeypatch.setattr(page, "PAGE", tmp_path / "nightly.md")
    monkeypatch.setattr(run, "FOLDER", tmp_path / "state")
    before = signal.getsignal(signal.SIGINT)
    assert nightly.main(["good"]) == 0
    assert nightly.main(["good", "long"]) == pieces.AGAIN
    assert "good: ok on" in capsys.readouterr().out
    assert nightly.main([]) == 1
    assert nightly.main(["--stale"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "long: never run"
    assert {name: row.verdict for name, row in page.read(tmp_path / "nightly.md").items()} == {
        "good": "ok",
        "bad": "FAILED",
        "long": "never run",
    }
    signal.signal(signal.SIGINT, before)
    with pytest.raises(SystemExit, match="no piece other"):
        nightly.main(["other"])


def test_every_piece_can_be_listed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nightly", "--list"], cwd=work.CLONE / "tests", capture_output=True, text=True, timeout=60, check=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == [piece.name for piece in pieces.PIECES]
    for piece in pieces.PIECES:
        assert len({step.name for step in piece.steps}) == len(piece.steps) > 0
