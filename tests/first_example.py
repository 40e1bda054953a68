"""Runs the README's first example as printed, with the wireproto that is installed. No dependency: wheels are tested with it."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def source() -> str:
    """Its text."""
    found = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"{README} has no example")
    return found[1]


if __name__ == "__main__":
    exec(compile(source(), "README.md", "exec"))
