"""Spark, the command line and the dev broker come into an adapter by its public rooms: what they lack becomes part of the roles.

Public are what makes clients and roles, the roles, options, errors, messages with their numbers, and formats that are no adapter's business
alone; to the dev broker also the codecs of the wire. import-linter holds the same of what is imported at run time (pyproject.toml); here
types count too, and the attributes by which one gets into a private room without an import.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE = Path(__file__).resolve().parents[2]
SRC = CLONE / "src" / "wireproto"
ADAPTERS = ("kafka", "pulsar", "rocketmq", "zookeeper")
ROLES = (
    "client",
    "producer",
    "reader",
    "consumer",
    "queue",
    "admin",
    "tree",
    "transactions",
    "pinned_subscription",
    "protocol",
    "options",
    "errors",
)
MESSAGES = ("messages", "codes", "forms", "PulsarApi_pb2")
FORMATS = ("multi", "files")
"""Pure: what a multi is made of, a server's files."""
CODECS = ("frames", "topics", "fastjson", "lists", "remoting")
"""Pure: commands as bytes, names of topics, fastjson's text, the list of a multi, which commands are answers."""
PUBLIC = {"spark": (*ROLES, *MESSAGES, *FORMATS), "cli": (*ROLES, *MESSAGES, *FORMATS), "devbroker": (*ROLES, *MESSAGES, *FORMATS, *CODECS)}
OTHERS = {"client", "kafka", "admin", "reader", "producer", "tree", "pinned_subscription"}
"""What Spark and the command line call a client and its roles."""


def rooms(path: Path) -> set[str]:
    """The rooms of adapters that a file imports: ``kafka.fetcher``, or ``kafka`` alone for what its package itself offers."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = list(path.relative_to(SRC).parts[: -node.level]) if node.level else []
            words = [*base, *(node.module or "").split(".")] if node.level else (node.module or "").split(".")[1:]
            words = [word for word in words if word]
            if words and words[0] in ADAPTERS:
                names = [alias.name for alias in node.names] if len(words) == 1 else [words[1]]
                there = [name for name in names if (SRC / words[0] / f"{name}.py").exists() or (SRC / words[0] / name).is_dir()]
                found |= {f"{words[0]}.{name}" for name in there}
    return found


@pytest.mark.parametrize("user", sorted(PUBLIC))
def test_adapters_are_used_by_their_public_rooms(user: str) -> None:
    public = {f"{adapter}.{name}" for adapter in ADAPTERS for name in PUBLIC[user]}
    private: dict[str, set[str]] = {}
    for path in sorted((SRC / user).rglob("*.py")):
        if strange := rooms(path) - public:
            private[str(path.relative_to(SRC))] = strange
    assert private == {}


def behind(path: Path) -> Iterator[str]:
    """Where a file goes behind a client, or into a private attribute of a role."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and (node.attr in ("cluster", "loop") or node.attr.startswith("_")):
            owner = node.value.func if isinstance(node.value, ast.Call) else node.value  # client.admin()._cluster, too
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if name in OTHERS:
                yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("user", ["spark", "cli"])
def test_nobody_goes_behind_a_client(user: str) -> None:
    found = [place for path in sorted((SRC / user).rglob("*.py")) for place in behind(path)]
    assert found == []


def test_ways_behind_a_client_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "strange.py"
    file.write_text("client.cluster\nself.client.cluster\nclient.admin()._cluster\nself._client.admin().url\n")
    assert [place.partition(":")[2].split()[0] for place in behind(file)] == ["1", "2", "3"]


def test_import_linter_knows_the_same_rooms() -> None:
    contracts = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if "ignore_imports" in one)
    assert set(contract["source_modules"]) == {f"wireproto.{user}" for user in PUBLIC}
    assert set(contract["forbidden_modules"]) == {f"wireproto.{adapter}.*" for adapter in ADAPTERS}
    everybody = {f"wireproto.** -> wireproto.*.{name}" for name in (*ROLES, *MESSAGES, *FORMATS)}
    assert set(contract["ignore_imports"]) == everybody | {f"wireproto.devbroker.** -> wireproto.*.{name}" for name in CODECS}


def test_rooms_are_seen_however_they_are_imported() -> None:
    file = SRC / "spark" / "kafka.py"
    assert {"kafka.codes", "kafka.client", "kafka.messages"} <= rooms(file), "modules, names of modules, types"
    assert "zookeeper.files" in rooms(SRC / "cli" / "zookeeper.py"), "within functions"
