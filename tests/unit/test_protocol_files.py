"""Which test files a session on one protocol's brokers leaves out by their names alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokers import plugin


def config(protocols: list[str], brokers: list[str]) -> Any:
    """A pytest configuration with these values of --protocol and --broker."""
    given = {"protocol": protocols, "broker": brokers}
    return SimpleNamespace(getoption=given.get)


@pytest.mark.parametrize(
    "case",
    [
        ("test_kafka_faults.py", ["zookeeper"], ["real"], True),
        ("test_kafka_faults.py", ["kafka"], ["real"], None),
        ("test_kafka_faults.py", ["zookeeper", "kafka"], ["dev"], None),
        ("test_kafka_faults.py", ["zookeeper"], ["none"], None),
        ("test_kafka_faults.py", [], ["real"], None),
        ("test_consumer.py", ["zookeeper"], ["real"], None),
        ("kafka_tools.py", ["zookeeper"], ["real"], None),
    ],
)
def test_a_file_named_after_another_protocol_is_left_out(case: tuple[str, list[str], list[str], bool | None]) -> None:
    name, protocols, brokers, expected = case
    assert plugin.pytest_ignore_collect(Path("tests/integration", name), config(protocols, brokers)) is expected


def test_a_test_that_needs_another_protocol_than_its_file_names_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "names", lambda item: ("zookeeper-3.9.5",))
    item: Any = SimpleNamespace(path=Path("test_kafka_faults.py"), nodeid="test_kafka_faults.py::test_x", stash={})
    options = {"protocol": [], "broker": [], "except": [], "soak": "no", "nightly": "no"}
    with pytest.raises(pytest.UsageError, match="needs another protocol"):
        plugin.pytest_collection_modifyitems(SimpleNamespace(getoption=options.get), [item])  # type: ignore[arg-type]
