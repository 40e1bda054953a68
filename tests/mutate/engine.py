"""Faults in the engine's loop, which is Cython: by lines, since no parser of ours reads it.

What it is: the operators of conditions.py and statements.py that a line's text is enough for. A line that does not compile with its fault
in is no mutant: the judge says so and the sample takes another. Must not: touch declarations, comments, docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .source import Edit, Mutant, Source, digest

_FUNCTION = re.compile(r"^( *)(?:cdef|cpdef|def)\b[^=#]*?(\w+)\(.*:\s*(?:#.*)?$")
_CALL = re.compile(r"^\s+[\w.]+\([^#]*\)\s*$")
_KEEPS = re.compile(r"^\s+[\w.]+\.\w+ (?:[+-]?=) [^#]+$")
_PASSED = re.compile(r"^\s*(#|@|\"\"\"|(cdef|cpdef|def|class|import|from|raise|with|try|finally|else|global|assert)\b)")
_NUMBER = re.compile(r"^(cdef double [A-Z_]+ = )([\d.e-]+)")
_CLOCK = re.compile(r"\b(now|clock|deadline|until|when|X)\b|_at\b")
_SWAPS = (
    *((r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" \+ 1\b", ""), (r" - 1\b", "")),
    *((r" and ", " or "), (r" or ", " and ")),
)


def changes(source: Source) -> Iterator[Mutant]:
    """Every mutant of one of the engine's files."""
    scope, inside, quoted = "-", "", False
    for number, line in enumerate(source.data.decode().splitlines(), 1):
        if line.count('"""') == 1:
            quoted = not quoted
            continue
        if quoted:
            continue
        found = _FUNCTION.match(line)
        if found:
            scope, inside = found[2], ""
        for operator, changed in _line(line):
            start = source.starts[number - 1]
            yield Mutant(
                key=source.named(scope, operator, line, changed),
                group="engine",
                operator=operator,
                edits=(Edit(source.path, start, start + len(line.encode()), changed, number, number),),
                before=line.strip(),
                after=changed.strip(),
                within=digest(f"{inside}\n{line}"),
            )
        inside = line


def _line(line: str) -> Iterator[tuple[str, str]]:
    constant = _NUMBER.match(line)
    if constant:
        yield "times", line.replace(constant[0], f"{constant[1]}10 * {constant[2]}", 1)
        return
    if _PASSED.match(line) or not line.strip():
        return
    code = line.split("  #")[0]
    for old, new in _SWAPS:
        for place in re.finditer(old, code):
            operator = "either" if old in (r" and ", r" or ") else "bound"
            if operator == "bound" and _CLOCK.search(code):
                continue
            yield operator, line[: place.start()] + new + line[place.end() :]
    test = re.match(r"^(\s+(?:el)?if )(.*)(:\s*)$", code)
    if test:
        yield "negate", f"{test[1]}not ({test[2]}){test[3]}"
    blank = line[: len(line) - len(line.lstrip())]
    if _CALL.match(code):
        yield "drop", f"{blank}pass"
    if _KEEPS.match(code):
        yield "forget", f"{blank}pass"
    for word, other in (("True", "False"), ("False", "True")):
        if re.search(rf"= {word}\s*$", code):
            yield "flip", line.replace(f"= {word}", f"= {other}", 1)
