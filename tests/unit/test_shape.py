"""The shape of the house: small files, a light import, a core that knows nothing above it, generated files that are current."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
PACKAGE = CLONE / "src" / "wireproto"
BUDGET = 620  # lines of a file written by hand, docstrings aside: "about 600"
WHOLE = 1000  # … with them: a docstring of a role's method explains each argument
HAND_WRITTEN = ("*.py", "*.pyx", "*.pxd", "*.pyi", "*.c", "*.h", "*.java", "*.wire")
GENERATED = re.compile(r"/(messages|plans|codes|option_types)\.py$|/kafka/messages/|_pb2\.pyi?$|/src/wireproto/_(codec|net)\.c$")


def hand_written() -> list[Path]:
    """As git lists them, or all there are, where it is not a git clone or there is no git."""
    try:
        found = subprocess.run(["git", "ls-files", *HAND_WRITTEN], cwd=CLONE, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        found = []
    paths = [CLONE / name for name in found] or [
        path
        for folder in ("src", "tests", "proto", "examples", "benchmarks")
        for shape in HAND_WRITTEN
        for path in (CLONE / folder).rglob(shape)
    ]
    return [path for path in paths if path.exists() and not GENERATED.search(str(path))]


def docstring_lines(path: Path) -> int:
    """Lines of the docstrings of a Python file."""
    if path.suffix != ".py":
        return 0
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, documented)]
    first = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
    texts = [value for value in first if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in texts)


def test_files_stay_small() -> None:
    lengths = {str(path.relative_to(CLONE)): (len(path.read_bytes().splitlines()), docstring_lines(path)) for path in hand_written()}
    assert len(lengths) > 50
    assert {name: length for name, (length, _) in lengths.items() if length > WHOLE} == {}
    assert {name: length - texts for name, (length, texts) in lengths.items() if length - texts > BUDGET} == {}


def stray_texts(path: Path) -> list[str]:
    """Find texts that stand alone as a statement: what a missing bracket cut off from the text above. Docstrings have three quotes."""
    source = path.read_text()
    lines = source.splitlines()
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr)]
    texts = [one for one in statements if isinstance(one.value, ast.JoinedStr) or isinstance(getattr(one.value, "value", None), str)]
    return [f"{path}:{one.lineno}" for one in texts if '"""' not in lines[one.lineno - 1]]


def test_no_text_is_cut_off_from_the_one_above(tmp_path: Path) -> None:
    cut = tmp_path / "cut.py"
    cut.write_text('WHY = "this is; "\n"that is"\n')
    assert stray_texts(cut) == [f"{cut}:2"]
    assert [found for path in PACKAGE.rglob("*.py") for found in stray_texts(path)] == []


def test_package_files_only_gather_names() -> None:
    """An __init__ says what there is; what it does lies in files of its own."""
    long = {}
    for path in PACKAGE.rglob("__init__.py"):
        length = len(path.read_text().splitlines())
        if length > 120:
            long[str(path.relative_to(CLONE))] = length
    assert long == {}


@pytest.mark.parametrize(("module", "limit"), [("wireproto", 60.0), ("wireproto.kafka", 80.0)])
def test_import_is_light(module: str, limit: float) -> None:
    """It takes under that many ms beyond the interpreter's own start: CPU time, of which a busy machine may take twice as much, though not
    each time."""
    code = f"import time; t = time.process_time(); import {module}; print((time.process_time() - t) * 1000)"
    environment = dict(os.environ) | {"PYTHONPATH": str(CLONE / "src"), "PYTHONDONTWRITEBYTECODE": ""}

    def once() -> float:
        return float(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout)

    once()  # writes the byte code
    took = [once()]
    while min(took) >= limit and len(took) < 30:
        took.append(once())
    assert min(took) < limit


@pytest.mark.parametrize("heavy", ["numpy", "pyarrow", "pandas", "pyspark", "google.protobuf", "asyncio", "cramjam"])
def test_import_brings_nothing_heavy(heavy: str) -> None:
    code = f"import sys, wireproto; sys.exit({heavy!r} in sys.modules)"
    environment = dict(os.environ) | {"PYTHONPATH": str(CLONE / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


@pytest.mark.parametrize("part", ["_codec", "_net"])
def test_the_extensions_know_nothing_above_them(part: str) -> None:
    """The core may know errors, times, positions, record rules, and find codecs; the engine the core's framer and its own Python half."""
    core = {"errors", "deadlines", "position", "message", "compression", "_codec", "_codec_parts"}
    allowed = {"_codec": core, "_net": core | {"_net", "_net_parts", "net"}}[part]
    wrong = []
    for path in [PACKAGE / f"{part}.pyx", *(PACKAGE / f"{part}_parts").glob("*.p[yx][xd]")]:
        for line in path.read_text().splitlines():
            found = re.match(r"\s*(?:from|c?import)\s+(?:wireproto\.|\.)(\w*)", line)
            if found and found.group(1) and found.group(1) not in allowed:
                wrong.append(f"{path.name}: {line.strip()}")
    assert wrong == []


def test_every_protocol_has_the_same_file_names() -> None:
    """The same role lies in a file of the same name, wherever it exists."""
    roles = {"producer", "reader", "consumer", "queue", "admin", "client", "options"}
    for protocol in ("kafka", "pulsar", "rocketmq", "zookeeper"):
        names = {path.stem for path in (PACKAGE / protocol).glob("*.py")}
        near = {name for name in names for role in roles if name == f"{role}s" or name == f"{protocol}_{role}"}
        assert near == set()


JOBS = {
    "__init__": "the adapter's door",
    "protocol": "its descriptor",
    "acl": "what access rules look like on the wire",
    "client": "makes roles",
    "cluster": "what roles use",
    "codes": "generated",
    "plans": "generated",
    "messages": "generated",
    "option_types": "generated",
    "options": "options",
    "peer_names": "what to use in place of other clients' options",
    "errors": "errors that are no code",
    "forms": "messages for `wire`",
    "sending": "batches to requests, answers to verdicts",
    "positions": "where places lie in a log",
    "reset": "where reading goes on when a place is gone",
    "request": "any message of a user's",
    "outgoing": "the batches that it sends",
    "transactional": "sending in transactions",
    "transactions": "their coordinators, and what is asked of them",
    "fetch": "what to fetch next (RocketMQ's fetches, too)",
    **dict.fromkeys(("producer", "reader", "consumer", "queue", "admin"), "the role"),
}
"""What lies in a file of a name that several adapters have."""


def test_a_file_name_that_adapters_share_is_known_for_one_job() -> None:
    names = [path.stem for protocol in ("kafka", "pulsar", "rocketmq", "zookeeper") for path in (PACKAGE / protocol).glob("*.py")]
    assert {name for name in names if names.count(name) > 1} == set(JOBS)
