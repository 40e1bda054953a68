"""Goes through a file and asks each operator what it would change there.

What it is: `changes(source)`, every fault of the Python operators in one file as mutants. What no fault of a client can be is passed by:
type annotations, docstrings, `__repr__`, `if TYPE_CHECKING`, asserts (they are for the type checker), stubs that only raise. Must not:
choose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import conditions, statements, values
from .source import Edit, Mutant, Source, digest

OPERATORS = {**conditions.OPERATORS, **statements.OPERATORS, **values.OPERATORS}
_SKIPPED = {"__repr__", "__str__", "__del__", "__reduce__"}


@dataclass
class Place:
    """Where the walk stands: names of the functions around, the nodes above, and the names that come from the messages' modules."""

    source: Source
    names: list[str] = field(default_factory=list)
    above: list[ast.AST] = field(default_factory=list)
    functions: list[ast.FunctionDef] = field(default_factory=list)
    messages: frozenset[str] = frozenset()

    @property
    def scope(self) -> str:
        return ".".join(self.names) or "-"

    @property
    def parent(self) -> ast.AST:
        return self.above[-1]

    @property
    def statement(self) -> ast.AST:
        """The innermost statement; of one that has a body only its head counts."""
        return next(node for node in reversed(self.above) if isinstance(node, ast.stmt))


def changes(source: Source, group: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    place = Place(source, messages=frozenset(message_names(source.tree)))
    yield from _visit(source.tree, place, group)


def message_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.rpartition(".")[2] in ("messages", "plans", "PulsarApi_pb2"):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names if alias.name == "PulsarApi_pb2")


def _visit(node: ast.AST, place: Place, group: str) -> Iterator[Mutant]:
    for operator, ask in OPERATORS.items():
        for start, stop, text in ask(node, place):
            yield make(place, node, group, operator, start, stop, text)
    names, functions = place.names, place.functions
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        place.names = [*names, node.name]
    if isinstance(node, ast.FunctionDef):
        place.functions = [*functions, node]
    place.above.append(node)
    for child in ast.iter_child_nodes(node):
        if not _passed_by(child, node):
            yield from _visit(child, place, group)
    place.above.pop()
    place.names, place.functions = names, functions


def make(place: Place, node: ast.AST, group: str, operator: str, start: int, stop: int, text: str) -> Mutant:
    """The mutant that writes `text` over the bytes `start` to `stop`."""
    source = place.source
    first, last = head(node if isinstance(node, ast.stmt | ast.ExceptHandler) else _nearest(node, place))
    before = source.data[start:stop].decode() or source.lines(first, first)
    function = place.functions[0] if place.functions else None
    inside = function is not None and node not in ast.walk(function.args)
    return Mutant(
        key=source.named(place.scope, operator, before, text),
        group=group,
        operator=operator,
        edits=(Edit(source.path, start, stop, text, first, last),),
        before=before,
        after=text,
        within=digest(source.text(function)) if function is not None else digest(source.lines(first, last)),
        top_level=not inside,
    )


def _nearest(node: ast.AST, place: Place) -> ast.AST:
    for above in reversed(place.above):
        if isinstance(above, ast.ExceptHandler | ast.stmt):
            # inside the head of a statement with a body, the expression's own lines say best who runs it
            return node if hasattr(above, "body") and hasattr(node, "lineno") else above
    return node


def head(node: ast.AST) -> tuple[int, int]:
    """First and last line of a statement, without its body."""
    body = getattr(node, "body", None)
    first = getattr(node, "lineno", 1)
    if isinstance(body, list) and body and not isinstance(node, ast.Module):
        return first, max(first, body[0].lineno - 1)
    return first, getattr(node, "end_lineno", first) or first


def _passed_by(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Global | ast.Nonlocal | ast.JoinedStr):
        return True  # CPython 3.11 does not tell where the parts of an f-string stand
    if isinstance(node, ast.FunctionDef):
        return node.name in _SKIPPED or _is_stub(node)
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    annotation = getattr(parent, "annotation", None) is node or getattr(parent, "returns", None) is node
    return annotation or (isinstance(parent, ast.FunctionDef | ast.ClassDef) and node in parent.decorator_list)


def _is_stub(node: ast.FunctionDef) -> bool:
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return not body or (len(body) == 1 and isinstance(body[0], ast.Raise) and not node.name.startswith("_"))
