"""Operators on values: a time ten times too long, a flag the other way round, a message's field left at its default.

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
_TIMES = re.compile(
    r"(^|_)(timeout|interval|patience|pause|linger|age|wait|delay|backoff|suspend|seconds|every|after|max_poll|time_out)(_|s$|$)",
    re.IGNORECASE,
)


def times(node: ast.AST, place: Place) -> Found:
    """A time is ten times as long; a constant one also a tenth."""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_used_as_number(node, place):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if _TIMES.search(name) and not name[0].isupper():
            yield *place.source.span(node), f"({place.source.text(node)} * 10)"
    if isinstance(node, ast.Assign | ast.AnnAssign) and not place.functions and _is_number(node.value):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id.isupper() and (_TIMES.search(target.id) or isinstance(node.value.value, float)):  # type: ignore[union-attr]
            for factor in ("* 10", "/ 10"):
                yield *place.source.span(node.value), f"{place.source.text(node.value)} {factor}"  # type: ignore[arg-type]


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _is_used_as_number(node: ast.AST, place: Place) -> bool:
    above = place.parent
    if isinstance(above, ast.BinOp):
        return isinstance(above.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
    if isinstance(above, ast.Compare):
        return isinstance(above.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    if isinstance(above, ast.Call):
        return node is not above.func
    return isinstance(above, ast.keyword)


def flip(node: ast.AST, place: Place) -> Found:
    """True becomes False and the reverse: as an argument, a default, a value kept or returned."""
    kept = ast.keyword | ast.Assign | ast.AnnAssign | ast.Return | ast.Call | ast.arguments
    if isinstance(node, ast.Constant) and isinstance(node.value, bool) and isinstance(place.parent, kept):
        yield *place.source.span(node), str(not node.value)


def field(node: ast.AST, place: Place) -> Found:
    """A field of a message is left at its default."""
    if isinstance(node, ast.Call) and _root(node.func) in place.messages:
        for keyword in node.keywords:
            if keyword.arg is not None:
                begin, end = place.source.span(keyword)
                behind = re.match(rb"\s*,", place.source.data[end:])
                yield begin, end + (behind.end() if behind else 0), ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


OPERATORS: dict[str, Callable[[ast.AST, Place], Found]] = {"times": times, "flip": flip, "field": field}
