"""Fills the option tables of docs/ from the option types: names, defaults, and what their docstrings say; writes docs/modules.md.

    python docs/build.py [--check]

A table stands between ``<!-- options:NAME -->`` and ``<!-- end -->``; NAME is ``common`` or a protocol. Between ``<!-- names:NAME -->`` and
``<!-- end -->`` stand other clients' options with what to use in place of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from wireproto.net.options import CommonOptions
from wireproto.protocols import find

HERE = Path(__file__).parent
_MARK = re.compile(r"(<!-- (options|names):(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def kind_of(name: str) -> type[CommonOptions]:
    """The options class of a protocol, or of all."""
    found: type[CommonOptions] = CommonOptions if name == "common" else find(name).option_class()
    return found


def own_fields(name: str) -> list[dataclasses.Field[Any]]:
    """The options that a page lists: those that are not common to all."""
    common = set() if name == "common" else {field.name for field in dataclasses.fields(CommonOptions)}
    return [field for field in dataclasses.fields(kind_of(name)) if field.init and field.name not in common]


def texts(name: str, known: set[str]) -> list[tuple[list[str], str]]:
    """Names and what is said about them, from the docstring's Attributes; names that share a sentence share a row."""
    doc = inspect.cleandoc(kind_of(name).__doc__ or "").partition("Attributes:")[2]
    said = " ".join(doc.split())
    marks = [found for found in re.finditer(r"((?:\b[a-z_0-9]+, )*\b[a-z_0-9]+): ", said) if set(found[1].split(", ")) <= known]
    ends = [mark.start() for mark in marks[1:]] + [len(said)]
    return [(mark[1].split(", "), said[mark.end() : end].strip().rstrip(";,")) for mark, end in zip(marks, ends, strict=True)]


def table(name: str) -> str:
    fields = {field.name: field for field in own_fields(name)}
    rows, seen = ["| option | default | |", "|---|---|---|"], set()
    for names, said in texts(name, set(fields)):
        defaults = [plain(fields[item]) for item in names]
        shown = defaults[0] if len(set(defaults)) == 1 else ", ".join(defaults)
        rows.append(f"| {', '.join(f'`{item}`' for item in names)} | {shown} | {said.replace('``', '`').replace('|', chr(92) + '|')} |")
        seen.update(names)
    rows += [f"| `{item}` | {plain(field)} | |" for item, field in fields.items() if item not in seen]
    return "\n".join(rows) + "\n"


def names(name: str) -> str:
    """Options of other clients of a protocol, and what to use in place of each; names with the same answer share a row."""
    rows: dict[str, list[str]] = {}
    for theirs, advice in kind_of(name).PEER_NAMES.items():
        rows.setdefault(advice, []).append(f"`{theirs}`")
    lines = [f"| {', '.join(theirs)} | {advice} |" for advice, theirs in rows.items()]
    return "\n".join(["| another client's option | here |", "|---|---|", *lines]) + "\n"


def plain(field: dataclasses.Field[Any]) -> str:
    """A default as a reader would write it."""
    value = field.default
    if value is None or value is dataclasses.MISSING:
        return ""
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, int) and value >= 4096 and value % 1024 == 0:
        return f"{value >> 20} M" if value % (1 << 20) == 0 else f"{value >> 10} k"
    return f"{value:g} s" if isinstance(value, float) else f"`{value}`" if value != "" else ""


def filled(page: str) -> str:
    made = {"options": table, "names": names}
    return _MARK.sub(lambda found: f"{found[1]}{made[found[2]](found[3])}{found[4]}", page)


def main() -> int:
    import modules

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is stale")
    check = parser.parse_args().check
    map_of_modules = HERE / "modules.md"
    pages = {path: filled(path.read_text()) for path in sorted(HERE.glob("*.md"))} | {map_of_modules: modules.page()}
    stale = {path: text for path, text in pages.items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{path.name} {'is stale: run python docs/build.py' if check else 'written'}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
