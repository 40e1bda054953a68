"""Spark, the command line and the dev broker come into an adapter by its public rooms: what they lack becomes part of the roles.

Public are what makes clients and roles, the roles, options, messages with their numbers, and formats that are no adapter's business alone.
What is not so yet stands in LEFT, one line an import: a new one fails the test, and so does a line that is true no more.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "wireproto"
ADAPTERS = ("kafka", "pulsar", "rocketmq", "zookeeper")
ROLES = ("client", "producer", "reader", "consumer", "queue", "admin", "tree", "protocol", "options")
MESSAGES = ("messages", "codes", "forms", "PulsarApi_pb2")
FORMATS = ("topics", "multi", "files", "frames", "fastjson", "lists")
"""Pure: names of topics, bodies of a multi and their list, a server's files, commands as bytes, fastjson's text."""
LEFT: dict[str, set[str]] = {
    "spark/kafka.py": {"kafka.positions", "kafka.fetcher", "kafka.metadata", "kafka.cluster"},  # a range on a kept connection, topic ids
    "spark/kafka_versions.py": {"kafka.versions", "kafka.wire"},  # what a broker offers
    "spark/pulsar.py": {"pulsar.positions"},  # places of some partitions of a topic
    "spark/pulsar_hold.py": {"pulsar.cluster", "pulsar.feed", "pulsar.subscription"},  # a subscription that is held
    "spark/rocketmq.py": {"rocketmq.homes", "rocketmq.remoting", "rocketmq.times", "rocketmq.route"},  # queues by name
    "spark/zookeeper_sink.py": {"zookeeper.link"},  # ConnectionLoss
    "devbroker/recording.py": {"rocketmq.remoting"},  # which commands are answers
}


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


@pytest.mark.parametrize("user", ["spark", "cli", "devbroker"])
def test_adapters_are_used_by_their_public_rooms(user: str) -> None:
    public = {f"{adapter}.{name}" for adapter in ADAPTERS for name in (*ROLES, *MESSAGES, *FORMATS)}
    private: dict[str, set[str]] = {}
    for path in sorted((SRC / user).rglob("*.py")):
        if strange := rooms(path) - public:
            private[str(path.relative_to(SRC))] = strange
    assert private == {name: left for name, left in LEFT.items() if name.startswith(f"{user}/")}


def test_rooms_are_seen_however_they_are_imported() -> None:
    file = SRC / "spark" / "kafka.py"
    assert {"kafka.fetcher", "kafka.codes", "kafka.client"} <= rooms(file), "modules, names of modules, types"
    assert "zookeeper.files" in rooms(SRC / "cli" / "zookeeper.py"), "within functions"
