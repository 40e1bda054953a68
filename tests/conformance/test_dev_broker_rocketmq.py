"""The dev broker's RocketMQ side against RocketMQ's own Java client, both lines, unchanged."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from brokers import judge
from wireproto.devbroker import DevBroker

LINES = ["4.9.7", "5.5.0"]

pytestmark = pytest.mark.broker("dev-rocketmq")


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["rocketmq"]) as started:
        yield started


def message(number: int, queue: int) -> dict[str, Any]:
    body = base64.b64encode(b"body %d \x00\xff" % number).decode()
    return {"body": body, "keys": f"k{number}", "tag": "TagA", "queue": queue, "properties": {"p": f"v{number}"}}


@pytest.mark.parametrize("line", LINES)
def test_java_creates_sends_and_pulls(broker: DevBroker, line: str) -> None:
    names, topic = broker.address("rocketmq"), line.replace(".", "_")
    judge.ask(line, "create", names, topic, "2", broker.address("rocketmq", "broker"))
    sent = [message(n, n % 2) for n in range(20)]
    judge.ask(line, "send", names, topic, input=sent)
    judge.ask(line, "batch", names, topic, input=[message(n, 0) for n in range(20, 25)])
    found = judge.ask(line, "pull", names, topic)
    bodies = sorted((item["keys"], item["body"], item["properties"]["p"]) for item in found)
    assert bodies == sorted((f"k{n}", message(n, 0)["body"], f"v{n}") for n in range(25))
    for queue in (0, 1):
        offsets = [item["offset"] for item in found if item["queue"] == queue]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("line", LINES)
def test_java_push_consumer_gets_every_message(broker: DevBroker, line: str) -> None:
    names, topic = broker.address("rocketmq"), f"push-{line.replace('.', '_')}"
    judge.ask(line, "create", names, topic, "4", broker.address("rocketmq", "broker"))
    judge.ask(line, "send", names, topic, input=[message(n, n % 4) for n in range(40)])
    found = judge.ask(line, "push", names, topic, f"group-{topic}", "40")
    assert sorted(item["keys"] for item in found) == sorted(f"k{n}" for n in range(40))


def test_java_push_consumer_reads_on_from_a_slave_and_by_the_name_server_that_is_left() -> None:
    """The master and a name server are away; the 4.9 line, whose slaves answer pulls as they are out of the box."""
    with DevBroker(["rocketmq"], auto_create=False, nodes={"rocketmq.slaves": 1, "rocketmq.name_servers": 2}) as broker:
        broker.call("rocketmq", "answer_as_old", True)
        names = f"{broker.address('rocketmq')};{broker.address('rocketmq', 'names-2')}"
        judge.ask("4.9.7", "create", names, "topic", "2", broker.address("rocketmq", "broker"))
        judge.ask("4.9.7", "send", names, "topic", input=[message(n, n % 2) for n in range(20)])
        broker.call("rocketmq", "synchronise")
        broker.pause("rocketmq", "broker")
        broker.pause("rocketmq", "main")
        found = judge.ask("4.9.7", "push", names, "topic", "group", "20")
        assert sorted(item["keys"] for item in found) == sorted(f"k{n}" for n in range(20))
