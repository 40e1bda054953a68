"""`make check`: which tests belong to a changed file, and how many of them it runs."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

import check
from check import Found

FILES = {
    "src/wireproto/kafka/group.py": "",
    "src/wireproto/pulsar/group.py": "",
    "src/wireproto/errors.py": "",
    "tests/helper.py": "from wireproto.kafka import group\n",
    "tests/deeper.py": "import helper\n",
    "tests/wire/conftest.py": "",
    "tests/unit/test_kafka_group.py": "import wireproto\n",
    "tests/unit/test_kafka_groups.py": "import wireproto\n",
    "tests/unit/test_pulsar_group.py": "import wireproto\n",
    "tests/unit/test_direct.py": "def test() -> None:\n    import wireproto.kafka.group\n",
    "tests/wire/test_through_helpers.py": "from deeper import x\n",
    "tests/wire/test_errors.py": "from wireproto.errors import X\n",
    "tests/integration/test_on_brokers.py": "import wireproto.kafka.group\n",
}


IMPORTS = functools.cache(check.imports)
"""What each file of this clone imports, parsed once for all tests."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree of `FILES`, under git."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    known = ["-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *known, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")


def test_tests_of_a_module_are_those_named_after_it_and_those_that_import_it(clone: Path) -> None:
    assert check.found(["src/wireproto/kafka/group.py"], clone) == [
        Found("tests/unit/test_kafka_group.py", "named after wireproto.kafka.group", 1),
        Found("tests/unit/test_direct.py", "imports wireproto.kafka.group", 2),
        Found("tests/wire/test_through_helpers.py", "imports wireproto.kafka.group", 2),
        Found("tests/unit/test_kafka_groups.py", "named after the package of wireproto.kafka.group", 3),
    ]


def test_a_helper_stands_for_all_that_import_it_and_a_conftest_for_all_below_it(clone: Path) -> None:
    assert [each.path for each in check.found(["tests/helper.py"], clone)] == ["tests/wire/test_through_helpers.py"]
    below = [each.path for each in check.found(["tests/wire/conftest.py"], clone)]
    assert below == ["tests/wire/test_errors.py", "tests/wire/test_through_helpers.py"]


def test_a_changed_test_comes_first_and_once(clone: Path) -> None:
    picked = check.found(["src/wireproto/kafka/group.py", "tests/unit/test_direct.py", "README.md"], clone)
    assert picked[0] == Found("tests/unit/test_direct.py", "changed", 0)
    assert [each.path for each in picked].count("tests/unit/test_direct.py") == 1


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/wireproto/_codec.pyx", "wireproto._codec"),
        ("src/wireproto/_codec_parts/lz4.pxi", "wireproto._codec"),
        ("src/wireproto/kafka/__init__.py", "wireproto.kafka"),
        ("tests/brokers/maven.py", "brokers.maven"),
        ("docs/kafka.md", None),
        ("proto/gen.py", None),
    ],
)
def test_the_module_of_a_file(path: str, module: str | None) -> None:
    assert check.module_of(path) == module


def test_relative_imports_are_followed() -> None:
    text = "from . import a\nfrom .b import c\nfrom ..d import e\nimport f.g\n"
    assert check.imports(text, "x.y") == {"x.y", "x.y.a", "x.y.b", "x.y.b.c", "x.d", "x.d.e", "f.g"}


def test_what_changed_is_counted_from_where_the_branch_left_main(clone: Path) -> None:
    (clone / "src/wireproto/errors.py").write_text("x = 1\n")
    (clone / "tests/unit/test_new.py").write_text("")
    assert check.changed(check.base(clone), clone) == ["src/wireproto/errors.py", "tests/unit/test_new.py"]
    git(clone, "switch", "-q", "-c", "work")
    commit(clone)
    (clone / "tests/helper.py").unlink()
    assert check.changed(check.base(clone), clone) == ["src/wireproto/errors.py", "tests/helper.py", "tests/unit/test_new.py"]
    assert check.changed("HEAD", clone) == ["tests/helper.py"]


def test_the_nearest_run_first_and_what_does_not_fit_is_left() -> None:
    tests = [Found("slow", "", 1), Found("quick", "", 1), Found("far", "", 2), Found("tiny", "", 2), Found("changed", "", 0)]
    seconds = {"slow": 50.0, "quick": 5.0, "far": 40.0, "tiny": 1.0, "changed": 500.0}
    runs, left = check.fitting(tests, seconds, 557.0)
    assert [each.path for each in runs] == ["changed", "quick", "slow", "tiny"]
    assert [each.path for each in left] == ["far"]
    runs, left = check.fitting(tests[:1], seconds, 1.0)
    assert runs == tests[:1], "one runs in any case"
    assert not left


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("src/wireproto/kafka/group.py", "tests/wire/test_kafka_members"),
        ("src/wireproto/zookeeper/producer.py", "tests/unit/test_zookeeper"),
        ("tests/check.py", "tests/unit/test_check.py"),
        ("src/wireproto/_codec.pyx", "tests/unit/"),
    ],
)
def test_modules_of_this_clone_have_tests(path: str, test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "imports", IMPORTS)
    assert (check.CLONE / path).exists()
    assert any(each.path.startswith(test) for each in check.found([path]))


def test_a_failing_test_or_a_finding_of_lint_fails_it(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the tools of this environment, in a tree whose only change is wrong in both ways."""
    tools = clone / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    for name in ("ruff", "lint-imports", "mypy"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    (clone / ".gitignore").write_text("bin/\n__pycache__/\n")
    commit(clone)
    monkeypatch.setattr(check, "CLONE", clone)
    monkeypatch.setattr(check, "BIN", tools)
    monkeypatch.setattr(check, "changed", lambda since: ["tests/unit/test_new.py"])
    monkeypatch.setattr(check, "found", lambda files: [Found("tests/unit/test_new.py", "changed", 0)])
    monkeypatch.setattr(sys, "argv", ["check.py", "--since", "HEAD"])
    test = clone / "tests/unit/test_new.py"
    test.write_text("def test_x() -> None:\n    assert True\n")
    assert check.main() == 0
    assert "check: ok" in capfd.readouterr().out
    test.write_text("def test_x() -> None:\n    assert False\n")
    assert check.main() == 1
    assert "check: FAILED: tests in" in capfd.readouterr().out
    test.write_text("def test_x() -> None:\n    assert True\n")
    (tools / "mypy").write_text("#!/bin/sh\necho wrong type\nexit 1\n")
    assert check.main() == 1
    said = capfd.readouterr().out
    assert "wrong type" in said
    assert "check: FAILED: mypy in" in said
