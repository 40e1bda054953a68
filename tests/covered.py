"""`make coverage`: lines and branches of src/ that the tests run, part after part, and the page docs/coverage.md.

    make coverage                                   every part that is missing or whose sources or tests have changed since
    make coverage ARGS="--parts unit wire"          these parts, anew
    make coverage ARGS="--report"                   what is known; --write: into docs/coverage.md, too
    make coverage ARGS="--parts cython"             the core's and the engine's lines: a build with line tracing, in a copy of the tree

A part is one pytest run under coverage; its data stay in .cache/covered, so that a run can be ended at any time and goes on. Programs that
tests start in Python, Spark's workers among them, count too. Generated modules are left out. May assume: `make` has made .venv.
Must not: judge the tests; a part with failures says so in the table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import time
import unittest.mock
from pathlib import Path
from typing import Any

import coverage

from mutate.source import digest
from mutate.tree import Tree

CLONE = Path(__file__).resolve().parents[1]
DATA = CLONE / ".cache" / "covered"
PYTHON = str(CLONE / ".venv/bin/python")
PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
HALF = (*PROTOCOLS, "flow", "aio", "net", "auth")
PARTS: dict[str, list[str]] = {
    "unit": ["tests/unit"],
    "wire": ["tests/wire"],
    "conformance": ["tests/conformance", "--broker", "dev"],
    **{f"integration-{one}": [f"tests/integration/test_{one}*.py"] for one in PROTOCOLS},
    **{f"real-{one}": ["tests/conformance", "--broker", "real", "--protocol", one] for one in PROTOCOLS},
    "spark": ["tests/spark"],
    "cython": ["tests/unit", "tests/wire"],
}
TIMED = ["test_shape.py", "test_docs.py"]  # they measure how long an import takes, which tracing makes longer


def settings(part: str) -> Path:
    """coverage's configuration of a part: pyproject.toml's, and programs that are started; for Cython its plugin and no branches."""
    lines = ["[run]", "relative_files = true", "source = src", "parallel = true"]
    lines += ["plugins = Cython.Coverage"] if part == "cython" else ["branch = true", "patch = subprocess"]
    file = DATA / f"{part}.ini"
    file.write_text("\n".join(lines) + "\n")
    return file


def current(arguments: list[str]) -> str:
    """Digest of the sources and of the part's tests."""
    folders = [CLONE / one if not one.endswith("*.py") else CLONE / Path(one).parent for one in arguments if one.startswith("tests/")]
    files = sorted(
        {path for folder in [CLONE / "src", *folders] for path in folder.rglob("*.py*") if path.suffix in (".py", ".pyx", ".pxd")}
    )
    return digest("".join(digest(path.read_bytes()) for path in files))


def run(part: str) -> None:
    """One part, under coverage. What an earlier run of it left goes away only when this one has ended."""
    root = CLONE
    if part == "cython":
        root = traced()
    before = current(PARTS[part])
    data = DATA / f"{part}.new"
    for old in DATA.glob(f"{part}.new*"):
        old.unlink()
    files = [str(path.relative_to(root)) for one in PARTS[part] if "*" in one for path in sorted(root.glob(one))]
    arguments = [one for one in PARTS[part] if "*" not in one] + files
    command = [
        PYTHON,
        "-m",
        "coverage",
        "run",
        f"--rcfile={settings(part)}",
        f"--data-file={data}",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-p", "unswitched", "-k", "not storm"] if part == "cython" else []
    command += [*arguments, *(f"--ignore-glob=*/{name}" for name in TIMED)]
    paths = f"{root / 'src'}{os.pathsep}{root / 'tests'}"
    began = time.monotonic()
    code = subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": paths}, check=False).returncode
    if code not in (0, 1):  # 1: tests failed, which the page says
        sys.exit(f"{part}: pytest ended with {code}")
    combined = coverage.Coverage(data_file=str(DATA / f"{part}.data"), config_file=str(settings(part)))
    combined.combine([str(path) for path in DATA.glob(f"{part}.new.*")], strict=True)
    combined.save()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=CLONE, capture_output=True, text=True, check=False).stdout.strip()
    facts = {"digest": before, "commit": commit, "green": code == 0, "minutes": round((time.monotonic() - began) / 60, 1)}
    (DATA / f"{part}.json").write_text(json.dumps(facts | {"date": time.strftime("%Y-%m-%d")}))


def traced() -> Path:
    """A copy of the tree whose extensions tell their lines."""
    tree = Tree(CLONE, DATA / "tree")
    tree.sync()
    command = [PYTHON, "setup.py", "-q", "build_ext", "--inplace", "--force"]
    subprocess.run(command, cwd=tree.root, env=os.environ | {"WIREPROTO_LINETRACE": "1", "WIREPROTO_OPTIMISE": "-O1 -g0"}, check=True)
    return tree.root


def facts(part: str) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads((DATA / f"{part}.json").read_text())
    except (OSError, ValueError):
        return {}
    return kept


def measured(parts: list[str]) -> coverage.Coverage:
    """All parts' data as one."""
    found = coverage.Coverage(data_file=str(DATA / "all.data"), config_file=str(CLONE / "pyproject.toml"))
    found.combine([str(DATA / f"{part}.data") for part in parts], strict=True, keep=True)
    return found


def table(found: coverage.Coverage) -> dict[str, tuple[int, int, int, int]]:
    """Of each module its lines, those that ran, its branches and those taken."""
    found.json_report(outfile=str(DATA / "all.json"))
    files = json.loads((DATA / "all.json").read_text())["files"]
    rows = {}
    for name, one in files.items():
        told = one["summary"]
        rows[name] = (told["num_statements"], told["covered_lines"], told["num_branches"], told["covered_branches"])
    return rows


def share(row: tuple[int, ...]) -> float:
    """Lines and branches that ran, of all, in percent, as coverage counts."""
    return 100 * (row[1] + row[3]) / (row[0] + row[2]) if row[0] + row[2] else 100.0


def added(rows: list[tuple[int, int, int, int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0, 0)


def page(rows: dict[str, tuple[int, int, int, int]], parts: list[str], cython: str) -> str:
    """docs/coverage.md."""
    lines = [
        "# What the tests run",
        "",
        "Lines and branches of `src/` (hand-written Python), by `make coverage`; generated modules are left out.",
        "",
    ]
    lines += ["| folder | lines | run | branches | taken | both |", "|---|---|---|---|---|---|"]
    folders: dict[str, list[tuple[int, int, int, int]]] = {}
    for name, row in rows.items():
        inner = name.split("/")
        folders.setdefault(inner[2] if len(inner) > 3 else "(top)", []).append(row)
    for folder, kept in [*sorted(folders.items()), ("**all**", list(rows.values()))]:
        total = added(kept)
        lines.append(
            f"| {folder} | {total[0]:,} | {100 * total[1] / max(1, total[0]):.1f} % | {total[2]:,} | "
            f"{100 * total[3] / max(1, total[2]):.1f} % | {share(total):.1f} % |"
        )
    low = sorted(
        (share(row), name) for name, row in rows.items() if name.split("/")[2:3] and name.split("/")[2] in HALF and share(row) < 90
    )
    lines += [
        "",
        f"Modules of the client half ({', '.join(f'`{one}/`' for one in HALF)}) under 90 % of lines and branches: {len(low) or 'none'}.",
        "",
    ]
    lines += [f"- `{name.removeprefix('src/wireproto/')}` {value:.1f} %" for value, name in low]
    lines += ["", "| part | commit | date | minutes | |", "|---|---|---|---|---|"]
    for part in parts:
        told = facts(part)
        lines.append(
            f"| {part} | {told['commit']} | {told['date']} | {told['minutes']} | {'green' if told['green'] else '**with failures**'} |"
        )
    lines += ["", cython] if cython else []
    return "\n".join(lines) + "\n"


def cython_lines() -> str:
    """A table of the Cython sources, when that part was run."""
    if not (DATA / "cython.data").exists():
        return ""
    text = io.StringIO()
    there = [str(DATA / "tree" / "src"), *(path for path in sys.path if not Path(path).is_relative_to(CLONE / "src"))]
    with (
        unittest.mock.patch.object(sys, "path", there),
        contextlib.chdir(DATA / "tree"),
    ):  # where the C sources are, by names that are relative to it
        found = coverage.Coverage(data_file=str(DATA / "cython.data"), config_file=str(settings("cython")))
        found.load()
        for plugin in found._plugins.file_tracers:  # it learns of included files from the module's own, which nobody else names
            for module in ("_codec", "_net"):
                getattr(plugin, "plugin", plugin)._read_source_lines(f"src/wireproto/{module}.c", f"src/wireproto/{module}.pyx")  # type: ignore[union-attr]
        found.report(file=text, include=["*.pyx", "*.pxd"], omit=[], show_missing=False, ignore_errors=True)
    rows = [line.split() for line in text.getvalue().splitlines() if line.startswith("src/")]
    out = [
        "Cython, by lines, of a build with line tracing (unit and wire only; no branches; declarations count as not run):",
        "",
    ]
    out += ["| file | lines | run |", "|---|---|---|"]
    total = [0, 0]
    for name, lines, missed, *_ in rows:
        total = [total[0] + int(lines), total[1] + int(missed)]
        out.append(f"| {name.removeprefix('src/wireproto/')} | {lines} | {100 * (1 - int(missed) / max(1, int(lines))):.1f} % |")
    out.append(f"| **all** | {total[0]:,} | {100 * (1 - total[1] / max(1, total[0])):.1f} % |")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    if not given.report:
        wanted = given.parts or [part for part, arguments in PARTS.items() if facts(part).get("digest") != current(arguments)]
        for part in wanted:
            run(part)
    parts = [part for part in PARTS if facts(part) and part != "cython"]
    text = page(table(measured(parts)), parts, cython_lines())
    print(text)
    if given.write:
        (CLONE / "docs/coverage.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
