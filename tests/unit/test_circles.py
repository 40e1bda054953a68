"""No circles: within a folder of the package, no file knows another one that knows it, by whatever road.

Imports count wherever they stand: under TYPE_CHECKING, within a function, of a package's own names. A folder below counts as one file of
the folder above it, so that a circle is told where it is to be mended.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "wireproto"
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
Graph = dict[str, set[str]]


@cache
def imported(path: Path, package: Path) -> list[tuple[str, ...]]:
    """What a file imports of the package at `package`, as parts of a path below it."""
    return list(_imported(path, package))


def _imported(path: Path, package: Path) -> Iterator[tuple[str, ...]]:
    here = path.relative_to(package).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (package.name, *here[: len(here) - node.level + 1]) if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found = [(*base, alias.name) for alias in node.names]
        else:
            continue
        yield from (parts[1:] for parts in found if parts[0] == package.name)


def graph(folder: Path, package: Path) -> Graph:
    """Which of a folder's files and folders imports which other one."""
    here = folder.relative_to(package).parts
    names = {path.stem if path.is_file() else path.name for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    found: Graph = {name: set() for name in names - {"__init__"}}
    for name, known in found.items():
        files = [folder / f"{name}.py"] if (folder / f"{name}.py").exists() else list((folder / name).rglob("*.py"))
        for path in files:
            for parts in imported(path, package):
                if parts[: len(here)] == here and len(parts) > len(here) and parts[len(here)] in found:
                    known.add(parts[len(here)])
        known.discard(name)
    return found


def circles(edges: Graph) -> list[list[str]]:
    """Sets of names that reach each other, sorted."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            new = edges[left.pop()] - seen
            seen |= new
            left.extend(new)
        return seen

    reach = {name: reached(name) for name in edges}
    together = {name: frozenset(other for other in reach[name] if name in reach[other]) for name in edges}
    return sorted(sorted(names) for names in {found for found in together.values() if found})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE.parent)))
def test_no_folder_has_a_circle(folder: Path) -> None:
    assert circles(graph(folder, PACKAGE)) == []


def test_every_kind_of_import_counts(tmp_path: Path) -> None:
    package = tmp_path / "house"
    (package / "wing").mkdir(parents=True)
    files = {
        "a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import x\n",
        "b.py": "def late():\n    from house import c\n",
        "c.py": "from . import a\n",
        "d.py": "import house.wing.e\n",
        "wing/e.py": "from ..d import y\nfrom .f import z\n",
        "wing/f.py": "import house.g\nfrom . import missing\n",
        "g.py": "import os\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    assert circles(graph(package, package)) == [["a", "b", "c"], ["d", "wing"]]
    assert circles(graph(package / "wing", package)) == []
