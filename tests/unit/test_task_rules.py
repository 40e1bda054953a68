"""Rules that no test run would find broken in time: what steps must not do wherever they stand in the sources.

A generator that yields while it holds a lock has the I/O thread wait for itself; one that yields in a `finally` cannot be ended.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "wireproto"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def within(node: ast.AST) -> Iterator[ast.AST]:
    """What runs as part of `node`, in its order: not the functions that are only defined there."""
    left = [node]
    while left:
        part = left.pop()
        if part is not node:
            yield part
        children = [child for child in ast.iter_child_nodes(part) if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef))]
        left += reversed(children)


def yields(nodes: list[ast.stmt]) -> int | None:
    """The first line on which one of these yields."""
    for part in within(ast.Module(body=nodes, type_ignores=[])):
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return part.lineno
    return None


def is_lock(item: ast.withitem) -> bool:
    return ast.unparse(item.context_expr).lower().endswith("lock")


def is_context_manager(function: ast.AST) -> bool:
    """Run by `with`, in one thread, not by the I/O thread: it yields within its own finally, which is what it is for."""
    return isinstance(function, FUNCTIONS) and any("contextmanager" in ast.unparse(mark) for mark in function.decorator_list)


def findings(source: str, name: str) -> list[str]:
    found: list[str] = []
    if "yield" not in source:
        return found
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, FUNCTIONS) or is_context_manager(function):
            continue
        for node in within(function):
            if isinstance(node, ast.With) and any(map(is_lock, node.items)) and (line := yields(node.body)):
                found.append(f"{name}:{line}: yields while it holds a lock")
            if isinstance(node, ast.Try) and (line := yields(node.finalbody)):
                found.append(f"{name}:{line}: yields in a finally")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(self):\n with self._lock:\n  yield 1", ["x:3: yields while it holds a lock"]),
        ("def f(self):\n with a, self.auth_lock:\n  if x:\n   y = yield from g()", ["x:4: yields while it holds a lock"]),
        ("def f():\n with LOCK:\n  return [(yield 1)]", ["x:3: yields while it holds a lock"]),
        ("def f():\n try:\n  yield 1\n finally:\n  yield 2", ["x:5: yields in a finally"]),
        ("def f():\n with lock:\n  def g():\n   yield 1\n yield 2", []),
        ("def f():\n try:\n  yield 1\n finally:\n  with lock:\n   pass", []),
        ("def f():\n with open(block):\n  yield 1", []),
        ("@contextlib.contextmanager\ndef f():\n with lock:\n  yield 1", []),
    ],
)
def test_the_rules_find_what_breaks_them(source: str, found: list[str]) -> None:
    assert findings(source, "x") == found


def test_upkeep_is_tasks_and_takes_no_worker_thread_of_the_client() -> None:
    """One worker does one thing after the other, so that a silent server holds up what has nothing to do with it."""
    found = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        if "background" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "background"
    ]
    assert found == [], "what blocks is for `offload`, what waits is steps"


def test_no_steps_hold_a_lock_over_a_yield_or_wait_in_a_finally() -> None:
    paths = sorted(SOURCES.rglob("*.py"))
    assert len(paths) > 200
    assert [line for path in paths for line in findings(path.read_text(), str(path.relative_to(SOURCES)))] == []
