"""Each fault that is listed as equivalent is of a function that exists."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def defined(tree: ast.AST, prefix: str = "") -> set[str]:
    """Qualified names of the classes and functions in a module."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {prefix + node.name} | defined(node, f"{prefix}{node.name}.")
        else:
            found |= defined(node, prefix)
    return found


def test_each_key_of_the_equivalent_faults_names_something_that_exists() -> None:
    lines = (ROOT / "tests/mutate/equivalent.txt").read_text().splitlines()
    keys = [line.split()[:2] for line in lines if line and not line.startswith(("#", " "))]
    assert keys
    missing = []
    for file, name in keys:
        path = ROOT / "src/wireproto" / file
        names = defined(ast.parse(path.read_text())) if path.suffix == ".py" and path.exists() else set()
        if not path.exists() or (path.suffix == ".py" and name not in names):
            missing.append(f"{file} {name}")
    assert missing == []
