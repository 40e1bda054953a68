"""constraints.txt: one exact version of everything that tests, lint and benches install, on every CPython, and it is what is here."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import constraints

CLONE = Path(__file__).resolve().parents[2]
NIGHTLY = {"pip-audit", "uv"}  # in environments of their own


def pins() -> Iterator[Requirement]:
    for line in constraints.FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield Requirement(line)


def pinned(name: str, environment: dict[str, str]) -> list[Version]:
    """The versions of it that hold in an environment."""
    return [
        Version(next(iter(pin.specifier)).version)
        for pin in pins()
        if canonicalize_name(pin.name) == canonicalize_name(name) and (pin.marker is None or pin.marker.evaluate(environment))
    ]


def on(python: str) -> dict[str, str]:
    return {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}  # type: ignore[dict-item]


def test_each_line_is_one_exact_version() -> None:
    lines = [str(pin.specifier) for pin in pins()]
    assert len(lines) > 60
    assert [line for line in lines if not re.fullmatch(r"==[^,*]+", line)] == []
    assert [pin.name for pin in pins() if pin.extras or pin.url] == [], "pip refuses such a constraint"


@pytest.mark.parametrize("python", constraints.PYTHONS)
def test_everything_that_is_named_is_pinned_once_to_what_fits(python: str) -> None:
    environment = on(python)
    wrong = {}
    for requirement in map(Requirement, constraints.wanted()):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found = pinned(requirement.name, environment)
            if len(found) != 1 or not requirement.specifier.contains(found[0]):
                wrong[str(requirement)] = found
    assert wrong == {}


def test_what_is_installed_here_is_what_is_pinned() -> None:
    """And so is everything that it needs in turn: nothing comes in a version that nobody wrote down."""
    environment = default_environment() | {"extra": ""}
    todo = [Requirement(text).name for text in constraints.wanted()]
    seen: dict[str, tuple[str, list[str]]] = {}
    while todo:
        name = canonicalize_name(todo.pop())
        if name in seen or name in NIGHTLY:
            continue
        try:
            here = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            seen[name] = ("absent", ["absent"])  # of another platform; what is named and missing fails where it is imported
            continue
        seen[name] = (here.version, list(map(str, pinned(name, dict(environment)))))  # type: ignore[arg-type]
        needs = map(Requirement, here.requires or ())
        todo += [need.name for need in needs if need.marker is None or need.marker.evaluate(environment)]  # type: ignore[arg-type]
    assert len(seen) > 60
    assert {name: pair for name, pair in seen.items() if [pair[0]] != pair[1]} == {}


def test_make_installs_nothing_without_them() -> None:
    lines = [line for line in (CLONE / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert lines
    assert [line for line in lines if "-c constraints.txt" not in line] == []
    assert re.search(r"^\$\(VENV\)/deps:.* constraints\.txt", (CLONE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_another_pyspark_takes_the_other_versions_from_here() -> None:
    text = constraints.without("pyspark", "py4j")
    assert not re.search(r"^(pyspark|py4j)\b", text, re.MULTILINE)
    assert len(text.splitlines()) == len(constraints.FILE.read_text(encoding="utf-8").splitlines()) - 2
