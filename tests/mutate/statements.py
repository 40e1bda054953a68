"""Operators on statements: a call that is not made, a value that is not kept, work left half done, another error raised, one not caught.

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
SWAPS = {
    "TimedOut": "Disconnected",
    "Disconnected": "TimedOut",
    "ConnectError": "ProtocolError",
    "Closed": "Disconnected",
    "BufferFull": "Closed",
    "Malformed": "Disconnected",
    "Truncated": "Disconnected",
    "ProtocolError": "Disconnected",
    "OptionError": "Disconnected",
    "ValueUnsupported": "Disconnected",
    "Revoked": "TimedOut",
    "RoleUnsupported": "OptionError",
    "AuthError": "Disconnected",
    "TlsError": "AuthError",
    "ConcurrentUse": "Closed",
    "SessionExpired": "Disconnected",
}
_NOTES = re.compile(r"\b(debug|log|warn)\b")


def drop(node: ast.AST, place: Place) -> Found:
    """A call made for its effect is not made."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _NOTES.search(ast.unparse(node.value.func)):
        yield *place.source.span(node), "pass"


def forget(node: ast.AST, place: Place) -> Found:
    """Something is not noted: an attribute or a member of a mapping is not set, or not deleted."""
    if place.functions and place.functions[-1].name != "__init__":
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            yield *place.source.span(node), "pass"
        if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Subscript)):
            yield *place.source.span(node), "pass"


def leave(node: ast.AST, place: Place) -> Found:
    """A function that returns nothing ends before its last statement; one that says yes or no always says yes, or no."""
    if not isinstance(node, ast.FunctionDef) or node.name in ("__init__", "__post_init__"):
        return
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    nothing = isinstance(node.returns, ast.Constant) and node.returns.value is None
    if nothing and len(body) > 1 and not isinstance(body[-1], ast.Return | ast.Raise):
        yield from _before(body[-1], "return", place)
    if isinstance(node.returns, ast.Name) and node.returns.id == "bool" and body:
        first = body[0].value if isinstance(body[0], ast.Return) else None
        for word in (True, False):
            if not (isinstance(first, ast.Constant) and first.value is word):  # it says so already
                yield from _before(body[0], f"return {word}", place)


def _before(node: ast.stmt, text: str, place: Place) -> Found:
    begin = place.source.span(node)[0]
    yield begin, begin, f"{text}\n{' ' * node.col_offset}"


def swap(node: ast.AST, place: Place) -> Found:
    """Another class of error is raised."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
        other = SWAPS.get(node.exc.func.id)
        if other is not None:
            yield *place.source.span(node.exc.func), f'__import__("wireproto.errors", fromlist=["-"]).{other}'


def catch(node: ast.AST, place: Place) -> Found:
    """An error that was caught no longer is: each one of several, or the only one."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        for kind in kinds:
            yield *place.source.span(kind), "()"


OPERATORS: dict[str, Callable[[ast.AST, Place], Found]] = {"drop": drop, "forget": forget, "leave": leave, "swap": swap, "catch": catch}
