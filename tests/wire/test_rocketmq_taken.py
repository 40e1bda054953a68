"""What a producer takes: bytes-like alone, and nothing is sent of what is refused."""

from __future__ import annotations

import itertools
from array import array
from typing import Any

import pytest

from wireproto.errors import NotBytes, OptionError
from wireproto.position import LATEST
from wireproto.rocketmq.client import RocketClient

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
_numbers = itertools.count()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"taken-{next(_numbers)}"
    client.admin().create_topic(name, partitions=2)
    return name


def stored(client: RocketClient, topic: str) -> list[tuple[bytes, bytes | None]]:
    found: list[tuple[bytes, bytes | None]] = []
    with client.reader(topic, stop=LATEST) as reader:
        for batch in reader:
            found += [(record.value, record.key) for record in batch]
    return found


@pytest.mark.parametrize("wrong", [5, 0, True, 1.5, "text", {"a": 1}, [1, 2], (1,), object()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("where", ["value", "key", "header"])
def test_what_is_not_bytes_is_refused_and_nothing_is_sent(client: RocketClient, topic: str, where: str, wrong: Any) -> None:
    how: dict[str, Any] = {"value": b"v", "key": b"k", "headers": None}
    how |= {"headers": {"name": wrong}} if where == "header" else {where: wrong}
    with client.producer(topic) as out, pytest.raises(NotBytes):
        out.send(how.pop("value"), **how)
    assert stored(client, topic) == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array("B", data)])
def test_what_is_bytes_like_is_sent_as_its_bytes(client: RocketClient, topic: str, kind: Any) -> None:
    with client.producer(topic) as out:
        out.send(kind(b"value"), key=kind(b"key"), headers={"name": kind(b"text")})
    assert stored(client, topic) == [(b"value", b"key")]


@pytest.mark.parametrize("partition", [True, False, "0", 0.0])
def test_a_partition_is_an_int(client: RocketClient, topic: str, partition: Any) -> None:
    with client.producer(topic) as out, pytest.raises(OptionError):
        out.send(b"v", key=b"k", partition=partition)
    assert stored(client, topic) == []
