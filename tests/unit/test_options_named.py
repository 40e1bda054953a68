"""Every option of every client and role is set, by name, in some test: what no test sets may be ignored without anybody noticing.

Read from the code: fields of the options dataclasses and keyword parameters of the roles' makers. Read from the tests, by their syntax:
keywords of calls, keys of dictionaries, and names in URLs' queries. Whether a test would notice is not seen here; seeded faults tell that.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from wireproto.kafka.client import KafkaClient
from wireproto.kafka.options import KafkaOptions
from wireproto.net.options import CommonOptions
from wireproto.pulsar.client import PulsarClient
from wireproto.pulsar.options import PulsarOptions
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.options import RocketOptions
from wireproto.zookeeper.client import ZooKeeperClient
from wireproto.zookeeper.options import ZooKeeperOptions
from wireproto.zookeeper.producer import QueueProducer
from wireproto.zookeeper.queue import QueueWorker
from wireproto.zookeeper.reader import QueueReader

TESTS = Path(__file__).resolve().parents[1]
LEFT_OUT = {TESTS / "spark", TESTS / "fuzz", TESTS / "mutate", Path(__file__).resolve()}
CLIENTS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "kafka": (KafkaOptions, KafkaClient, ()),
    "pulsar": (PulsarOptions, PulsarClient, ()),
    "rocketmq": (RocketOptions, RocketClient, ()),
    "zookeeper": (ZooKeeperOptions, ZooKeeperClient, (QueueProducer, QueueReader, QueueWorker)),
}
MAKERS = ("producer", "reader", "consumer", "queue", "admin", "tree", "request")
MAKES = ("Options", "Client", "Producer", "Reader", "Consumer", "Queue", "Worker")
"""How the names of classes end whose keywords are options; those of others are fields of messages and the like."""
IN_A_URL = re.compile(r"[?&]([a-z_][a-z_-]*)=")


def keywords(of: Any) -> set[str]:
    """Keyword-only parameters."""
    return {name for name, parameter in inspect.signature(of).parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def options(protocol: str) -> set[str]:
    """What may be set on a protocol's client and roles; what all four share is one matter, see `common`."""
    kind, client, roles = CLIENTS[protocol]
    found = {field.name for field in dataclasses.fields(kind)} - common()
    for maker in (*(getattr(client, name) for name in MAKERS if hasattr(client, name)), *roles):
        found |= keywords(maker)
    return found - common()


@functools.cache
def common() -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(CommonOptions))


class Names(ast.NodeVisitor):
    """The names that one file sets."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        is_class = called[:1].isupper() and not called.endswith(MAKES)
        if not is_class and not called.startswith(("decode", "encode", "compress", "decompress")):
            self.found |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        self.found |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found |= {name.replace("-", "_") for name in IN_A_URL.findall(node.value)}


@functools.cache
def set_by_tests() -> list[tuple[str, frozenset[str]]]:
    """Each file's path, in which its protocol is named, and what it sets."""
    files = []
    for path in sorted(TESTS.rglob("*.py")):
        if path in LEFT_OUT or LEFT_OUT & set(path.parents):
            continue
        names = Names()
        names.visit(ast.parse(path.read_text()))
        files.append((str(path.relative_to(TESTS)), frozenset(names.found)))
    return files


@pytest.mark.parametrize("protocol", CLIENTS)
def test_every_option_of_a_protocol_is_set_by_a_test(protocol: str) -> None:
    named = set().union(*(names for path, names in set_by_tests() if protocol.removesuffix("mq") in path))
    missing = sorted(options(protocol) - named)
    assert not missing, f"no test sets these options of {protocol}: {', '.join(missing)}"


def test_every_option_that_all_clients_have_is_set_by_a_test() -> None:
    named = set().union(*(names for _, names in set_by_tests()))
    missing = sorted(common() - named)
    assert not missing, f"no test sets these options: {', '.join(missing)}"


def test_names_are_found_where_options_are_set() -> None:
    names = Names()
    names.visit(
        ast.parse("connect('kafka://h/t?acks=1&max-wait=2', linger=1, **{'rack': 'a'}), ProduceRequest(facts=1), decode_x(columns=1)")
    )
    assert names.found == {"acks", "max_wait", "linger", "rack"}
    assert {"acks", "isolation", "version"} <= options("kafka")
    assert {"priority", "delivery_timeout", "operation"} <= options("zookeeper")
    assert "timeout" in common()


@pytest.mark.parametrize("protocol", CLIENTS)
def test_type_checkers_take_any_option_away(protocol: str) -> None:
    """What a generated module says of each role: every keyword may be left out."""
    module = importlib.import_module(f"wireproto.{protocol}.option_types")
    made = [kind for kind in vars(module).values() if typing.is_typeddict(kind)]
    assert len(made) >= 3
    for kind in made:
        assert kind.__required_keys__ == frozenset(), kind
        assert kind.__optional_keys__ or not kind.__annotations__
