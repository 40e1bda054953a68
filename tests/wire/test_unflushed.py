"""Records that nobody waited for are told with their number: at the program's end, when their producer goes, when the client closes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
SENDS = {"kafka": "Produce", "pulsar": "send", "rocketmq": None, "zookeeper": "create"}
PROGRAM = """
import gc, sys
import wireproto
client = wireproto.connect(sys.argv[1])
out = client.producer(sys.argv[2])
for number in range(3):
    out.send(b"%d" % number)
"""
ENDS = {
    "exit": "",
    "exception": "raise SystemExit(0)",
    "collected": "del out; gc.collect()",
    "collected with the client": "del out, client; gc.collect()",
    "flushed": "out.flush(60.0)",
    "receipts": "out.send(b'3').position(60.0)",
    "closed": "client.close(60.0)",
}
_numbers = itertools.count()


@pytest.fixture
def topic(broker: DevBroker, protocol: str) -> Iterator[str]:
    name = f"unflushed-{next(_numbers)}"
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic(name, **({} if protocol == "zookeeper" else {"partitions": 1}))
        if protocol == "zookeeper":
            client.producer(name).close()
    yield name
    broker.faults(protocol).clear()
    broker.kick(protocol)


def run(broker: DevBroker, protocol: str, topic: str, end: str) -> str:
    """What a program says that sends three records and ends so; it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end], broker.url(protocol), topic], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def silence(broker: DevBroker, protocol: str) -> None:
    """What is sent gets no answer."""
    faults = broker.faults(protocol)
    if protocol == "rocketmq":
        for name in ("SendMessage", "SendMessageV2", "SendBatchMessage"):
            faults.drop(name, times=-1)
    else:
        faults.drop(SENDS[protocol], times=-1)


@pytest.mark.parametrize("end", ["exit", "exception", "collected", "collected with the client"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_had_no_answer_is_told_with_its_number(broker: DevBroker, topic: str, protocol: str, end: str) -> None:
    silence(broker, protocol)
    said = run(broker, protocol, topic, end)
    assert said.count("UnflushedWarning: 3 records for") == 1, said
    assert f"'{topic}' had no answer when " in said


@pytest.mark.parametrize("end", ["flushed", "receipts", "closed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_waited_hears_nothing(broker: DevBroker, topic: str, protocol: str, end: str) -> None:
    assert run(broker, protocol, topic, end) == ""
    with wireproto.connect(broker.url(protocol)) as client:
        read = [value for batch in client.reader(topic, stop=wireproto.LATEST) for value in batch.values()]
    assert read[:3] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_s_close_sends_what_its_producers_hold(broker: DevBroker, topic: str, protocol: str) -> None:
    client: Any = wireproto.connect(broker.url(protocol))
    receipts = [client.producer(topic).send(b"%d" % number) for number in range(3)]
    client.close(60.0)
    assert all(receipt.done for receipt in receipts)
    with wireproto.connect(broker.url(protocol)) as again:
        read = [value for batch in again.reader(topic, stop=wireproto.LATEST) for value in batch.values()]
    assert sorted(read) == [b"0", b"1", b"2"]
