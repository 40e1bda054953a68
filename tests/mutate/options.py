"""Faults that are in every sample: each option ignored, each keyword of a role's method ignored.

What it is: for an adapter, one mutant a field of its options class that writes the field's default wherever the field is read, all places
at once, and one a keyword of a public method that sets it to its default first. A field of the common options that only net/ reads is
dropped where the adapter hands its options to net/. Must not: touch how options are read from text: an option that is parsed and then
ignored is the fault.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .source import Edit, Mutant, Source, digest
from .walk import head

HOLDERS = {"options", "_options"}
ROLES = re.compile(r"(Client|Producer|Reader|Consumer|Queue|QueueConsumer|Admin|Tree)$")
OPENING = {"producer", "reader", "consumer", "queue", "admin", "tree", "request", "broker_info", "close"}  # what of a client is for users
READERS = {"__post_init__", "from_mapping", "from_url", "for_role"}  # methods of options that make options
COMMON = "src/wireproto/net/options.py"


@dataclass(frozen=True)
class Field:
    name: str
    default: str


@dataclass(frozen=True)
class Site:
    """Where an option is read."""

    path: str
    start: int
    stop: int
    first: int
    last: int


def fields(source: Source) -> list[Field]:
    """The fields of the options class in an options module, with the text of their defaults."""
    classes = [node for node in source.tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Options")]
    return [
        Field(one.target.id, _default(source, one.value))
        for node in classes
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None
        if not source.text(one.annotation).startswith("ClassVar")
    ]


def _default(source: Source, value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return next((source.text(keyword.value) for keyword in value.keywords if keyword.arg == "default"), "None")
    return source.text(value)


def sites(source: Source, name: str) -> Iterator[Site]:
    """Where a file reads this option: of something named options, or in an options class of its own self."""
    known = _reads.get(id(source))
    if known is None or known[0] is not source:
        known = _reads[id(source)] = source, list(_attributes(source))
    own = source.path.endswith("/options.py")
    for node, holder, lines, functions in known[1]:
        if node.attr == name and ((holder in HOLDERS and not own) or (own and holder == "self" and not READERS & functions)):
            yield Site(source.path, *source.span(node), *lines)


Read = tuple[ast.Attribute, str, tuple[int, int], frozenset[str]]
_reads: dict[int, tuple[Source, list[Read]]] = {}


def _attributes(source: Source) -> Iterator[Read]:
    """Every attribute that is read, the last name of what it is read of, its statement's lines, and the functions around."""
    for node, statement, functions in _expressions(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id if isinstance(node.value, ast.Name) else ""
            yield node, holder, _lines(node, statement), frozenset(functions)


def _expressions(
    node: ast.AST, statement: ast.AST | None = None, functions: tuple[str, ...] = ()
) -> Iterator[tuple[ast.AST, ast.AST, tuple[str, ...]]]:
    """Every node below with the statement that it stands in and the functions around."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            continue  # CPython 3.11 does not tell where its parts stand; a text for people is no fault
        inner = child if isinstance(child, ast.stmt) else statement
        yield child, inner or child, functions
        yield from _expressions(child, inner, (*functions, child.name) if isinstance(child, ast.FunctionDef) else functions)


def _lines(node: ast.AST, statement: ast.AST) -> tuple[int, int]:
    return head(node if hasattr(statement, "body") else statement)


def dropped(group: str, files: Sequence[Source], net: Sequence[Source]) -> Iterator[Mutant]:
    """One mutant for each option of an adapter, its own and the common ones; `net`: the modules that adapters share."""
    module = next(source for source in files if source.path.endswith(f"/{group}/options.py"))
    common = next(source for source in net if source.path == COMMON)
    for one in fields(module):
        yield from _ignored(group, one, [site for source in files for site in sites(source, one.name)], files)
    for one in fields(common):
        found = [site for source in files for site in sites(source, one.name)]
        found += [site for source in net if source.path != COMMON for site in sites(source, one.name)]
        found += sites(common, one.name)
        yield from _ignored(group, one, found, [*files, *net])


def _ignored(group: str, option: Field, found: list[Site], files: Sequence[Source]) -> Iterator[Mutant]:
    if not found:
        return
    texts = {source.path: source for source in files}
    default = option.default if option.name not in ("address_map",) else "None"
    seen = "; ".join(sorted({texts[site.path].lines(site.first, site.last).strip().splitlines()[0] for site in found}))
    yield Mutant(
        key=f"{group} option {option.name} ignored",
        group=group,
        operator="option",
        edits=tuple(Edit(site.path, site.start, site.stop, f"({default})", site.first, site.last) for site in found),
        before=f"options.{option.name} in {len(found)} places",
        after=f"({default})",
        within=digest(seen),
        always=True,
    )


def keywords(group: str, files: Sequence[Source]) -> Iterator[Mutant]:
    """One mutant for each keyword with a default of a public method of a role."""
    for source in files:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and ROLES.search(node.name) and not node.name.startswith("_"):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and _is_for_users(node.name, method.name):
                        yield from _keywords_of(group, source, node.name, method)


def _is_for_users(owner: str, method: str) -> bool:
    if owner.startswith("Partition") or (owner.endswith("Client") and method not in OPENING):
        return False
    return not method.startswith("_")


def _keywords_of(group: str, source: Source, owner: str, method: ast.FunctionDef) -> Iterator[Mutant]:
    body = [one for one in method.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if not body or (len(body) == 1 and isinstance(body[0], ast.Raise)):
        return
    positional = method.args.args[len(method.args.args) - len(method.args.defaults) :]
    given = [*zip(positional, method.args.defaults, strict=True), *zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)]
    names = {node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name)}
    for argument, default in given:
        if default is None or argument.arg not in names:
            continue
        begin = source.span(body[0])[0]
        text = f"{argument.arg} = {source.text(default)}\n{' ' * body[0].col_offset}"
        first, last = head(body[0])
        yield Mutant(
            key=f"{group} {owner}.{method.name} keyword {argument.arg} ignored",
            group=group,
            operator="keyword",
            edits=(Edit(source.path, begin, begin, text, first, last),),
            before=source.lines(first, first).strip(),
            after=text.strip(),
            within=digest(source.text(method)),
            always=True,
        )
