"""Errors are judged by their class and its facts (`net.retry.verdict`), not by number, and nobody changes what an error says of itself.

The tables of numbers are `codes.py`; everything else names the class: `isinstance(why, UnknownTopicOrPartition)`, `code == NoNode.code`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "wireproto"
PARTS = ("net", "flow", "kafka", "pulsar", "rocketmq", "zookeeper", "spark", "cli")
FACTS = {"retriable", "refresh", "fenced", "in_doubt", "starts_over", "elsewhere"}
NAMED = ("code", "err", "error_code")
MAKERS = {"error", "error_of"}
WAITS = ("wait", "pause", "retry", "backoff", "delay", "soon")


def files() -> Iterator[Path]:
    for part in PARTS:
        yield from (path for path in (PACKAGE / part).rglob("*.py") if path.name != "codes.py" and "messages" not in path.parts)


def numbers(node: ast.expr, constants: dict[str, ast.expr], deep: bool = True) -> bool:
    """Whether an expression is a number that is no 0, or a collection of such, written here or as a constant of the file."""
    if isinstance(node, ast.Name) and node.id in constants and deep:
        return numbers(constants[node.id], constants, deep=False)
    if isinstance(node, ast.UnaryOp):
        return numbers(node.operand, constants)
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value != 0
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(numbers(item, constants) for item in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("frozenset", "set", "tuple") and node.args:
        return numbers(node.args[0], constants)
    return isinstance(node, ast.BinOp) and (numbers(node.left, constants) or numbers(node.right, constants))


def is_code(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in NAMED or name.endswith("_code")


def faults(source: str) -> list[tuple[int, str]]:
    """(line, what is wrong) of a file."""
    tree = ast.parse(source)
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=True))
            constants |= {name.id: found for name, found in pairs if isinstance(name, ast.Name)}
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops):
            sides = [node.left, *node.comparators]
            if any(map(is_code, sides)) and any(numbers(side, constants) for side in sides):
                wrong.append((node.lineno, f"a number beside a code: {ast.unparse(node)}"))
        elif isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            if name in MAKERS and numbers(node.args[0], constants):
                wrong.append((node.lineno, f"an error made of a number: {ast.unparse(node)}"))
        elif isinstance(node, ast.Assign):
            facts = [target for target in node.targets if isinstance(target, ast.Attribute) and target.attr in FACTS]
            if any(ast.unparse(target.value) != "self" for target in facts):
                wrong.append((node.lineno, f"a fact changed on the way: {ast.unparse(node)}"))
        elif isinstance(node, ast.Attribute) and node.attr == "retriable" and isinstance(node.ctx, ast.Load):
            wrong.append((node.lineno, "judged here: ask net.retry.verdict"))
    return sorted(wrong)


def test_no_code_is_judged_by_its_number() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}": what
        for path in files()
        if path != PACKAGE / "net" / "retry.py"
        for line, what in faults(path.read_text())
    }
    assert found == {}


def grown(source: str) -> list[int]:
    """Lines on which a wait is multiplied by hand."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
            factors = (node.left, node.right)
            names = [side.attr if isinstance(side, ast.Attribute) else getattr(side, "id", "") for side in factors]
            unit = any(isinstance(side, ast.Constant) and side.value == 1000 for side in factors)
            if not unit and any(word in name.lower() for name in names for word in WAITS):
                found.append(node.lineno)
    return sorted(set(found))


def test_every_growing_wait_is_the_policy_s() -> None:
    """With its jitter: who failed together does not come back together."""
    found = {
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in files()
        if path != PACKAGE / "net" / "retry.py"
        for line in grown(path.read_text())
    }
    assert found == set()
    assert grown("a.wait = min(1.0, a.wait * 2)\nb = first_pause * 2 ** tries\nsize = size * 2\n") == [1, 2]
    assert grown("ms = int(self.max_wait * 1000)\n") == []


def test_each_way_round_the_judge_is_seen() -> None:
    text = """
A, B = 3, {4, 5}
C = Known.code
def f(why, reply, err):
    why.code == 3
    reply.error_code in (0, 7)
    err != A
    why.code not in B
    error(A, "gone")
    why.retriable = False
    if why.retriable: pass
    reply.code == 0 or why.code == C or why.code <= 9 or why.number == 3
    self.refresh = 3
    cluster.refresh(A)
"""
    assert [line for line, _ in faults(text)] == [5, 6, 7, 8, 9, 10, 11]
