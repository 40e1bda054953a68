"""Writes the Python blocks of README and docs/ as modules below tests/typing/pages, where mypy and pyright check them.

    python tests/doc_blocks.py    before mypy and basedpyright, by tests/run.py's lint

A block is a module with the imports of the blocks before it on its page. Its lines have the numbers that they have on the page, so that a
checker's error names the page and its line: ``pages/kafka_7.py:9`` is line 9 of docs/kafka.md, in the block that begins behind line 7.

What it is: a program. May assume: the standard library. Must not: run a block.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

CLONE = Path(__file__).resolve().parents[1]
FOLDER = CLONE / "tests" / "typing" / "pages"
NAMES = {
    "spark.md": "spark = rows = _cast(_Any, None); servers = service = admin = name_server = hosts = checkpoint = str()",
    "rocketmq.md": "import wireproto.rocketmq; database = _cast(_Any, None); client = wireproto.rocketmq.connect('')",
    "asyncio.md": "database = _cast(_Any, None)",
}
"""What a page's text says that the reader has: names that its blocks use and do not make."""
_FENCE = re.compile(r"^```(\w*)[^\n]*$")


def blocks(page: str) -> Iterator[tuple[int, list[str]]]:
    """Find the Python blocks of a page: each with the number of the line that its first line follows."""
    begin, language, found = 0, "", list[str]()
    for number, line in enumerate(page.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not begin:
            begin, language, found = number, fence[1], []
        elif line == "```":
            if language == "python":
                yield begin, found
            begin = 0
        elif begin:
            found.append(line)


def imports(lines: list[str]) -> list[str]:
    """Write the imports of a block, each as one line."""
    found = ast.parse("\n".join(lines)).body
    return [ast.unparse(node) for node in found if isinstance(node, (ast.Import, ast.ImportFrom))]


def modules(name: str, page: str) -> Iterator[tuple[str, str]]:
    """Make the modules of a page: name and text."""
    before = ["from typing import Any as _Any, cast as _cast", NAMES[name]] if name in NAMES else []
    for begin, lines in blocks(page):
        assert begin > 1, f"{name}: a page begins with its title"
        yield f"{name.removesuffix('.md').lower()}_{begin}", "\n".join(["; ".join(before), *[""] * (begin - 1), *lines, ""])
        before += [line for line in imports(lines) if line not in before]


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for path in (CLONE / "README.md", *sorted((CLONE / "docs").glob("*.md"))):
        for module, text in modules(path.name, path.read_text()):
            (FOLDER / f"{module}.py").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
