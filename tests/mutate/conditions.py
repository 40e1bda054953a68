"""Operators on conditions: a bound off by one, a test turned round, `and` for `or`, a member that a set no longer has.

Each takes a node and its place, and yields (start, stop, text): bytes to replace. Must not: know what the code is about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .walk import Place

Found = Iterator[tuple[int, int, str]]
BOUNDS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}


_CLOCK = re.compile(r"\b(now|monotonic|clock|deadline|until|when|ends|patience)\b|_(at|since|until|deadline)\b")


def bound(node: ast.AST, place: Place) -> Found:
    """`a < b` becomes `a <= b`, and so on, but for times, where nobody can tell; `x + 1` and `x - 1` become `x`."""
    source = place.source
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in BOUNDS:
        old, new = BOUNDS[type(node.ops[0])]
        begin, end = source.span(node.left)[1], source.span(node.comparators[0])[0]
        between = source.data[begin:end].decode()
        if not _CLOCK.search(source.text(node)):
            yield begin, end, between.replace(old, new, 1)
    step = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    if step and isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and node.right.value == 1:
        begin, end = source.span(node.left)[1], source.span(node)[1]
        closed = re.match(rb"(\s*\))*", source.data[begin:end])  # brackets round the left side are not part of it
        yield begin + (closed.end() if closed else 0), end, ""


def negate(node: ast.AST, place: Place) -> Found:
    """The test of an `if`, a `while`, a conditional expression or a comprehension's filter is turned round."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [] if isinstance(node.test, ast.Constant) else [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        begin, end = place.source.span(test)
        yield begin, end, f"not ({place.source.data[begin:end].decode()})"


def either(node: ast.AST, place: Place) -> Found:
    """`and` becomes `or`, and the reverse: between the first two operands."""
    if isinstance(node, ast.BoolOp):
        begin, end = place.source.span(node.values[0])[1], place.source.span(node.values[1])[0]
        between = place.source.data[begin:end].decode()
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield begin, end, re.sub(rf"\b{old}\b", new, between, count=1)


def member(node: ast.AST, place: Place) -> Found:
    """A set, or what an upper-case name holds, loses a member; `x in y` is never so, `x not in y` always."""
    source = place.source
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        yield *source.span(node), "False" if isinstance(node.ops[0], ast.In) else "True"
    if isinstance(node, ast.Set) or (isinstance(node, ast.Tuple) and _is_collection(place)):
        yield from _without(node.elts, place)
    if isinstance(node, ast.Dict) and not place.functions:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and len(node.keys) > 1:
                yield _with_comma(source.span(key)[0], source.span(value)[1], place)


def _is_collection(place: Place) -> bool:
    """Whether a tuple stands where its members are looked up: in `in (…)`, `frozenset((…))`, or under an upper-case name."""
    above = place.parent
    if isinstance(above, ast.Compare):
        return isinstance(above.ops[0], ast.In | ast.NotIn)
    if isinstance(above, ast.Call):
        return isinstance(above.func, ast.Name) and above.func.id == "frozenset"
    target = above.targets[0] if isinstance(above, ast.Assign) and not place.functions else None
    return isinstance(target, ast.Name) and target.id.isupper()


def _without(elements: list[ast.expr], place: Place) -> Found:
    if len(elements) > 1:
        for one in elements:
            begin, end = place.source.span(one)
            alone = len(elements) == 2 and one is elements[1] and isinstance(elements[0], ast.Starred)
            yield (begin, end, "") if alone else _with_comma(begin, end, place)  # `(*left,)` is a tuple, `(*left)` is no Python


def _with_comma(begin: int, end: int, place: Place) -> tuple[int, int, str]:
    """The bytes of a member and of the comma behind it, or before it when it is the last of a line that has none."""
    data = place.source.data
    behind = re.match(rb"\s*,", data[end:])
    if behind:
        return begin, end + behind.end(), ""
    ahead = re.search(rb",\s*$", data[:begin])
    return (ahead.start(), end, "") if ahead else (begin, end, "")


OPERATORS: dict[str, Callable[[ast.AST, Place], Found]] = {"bound": bound, "negate": negate, "either": either, "member": member}
