"""What clients tell the log, line by line, on the embedded broker: see docs/logging.md."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from wireproto import LATEST, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError
from wireproto.kafka.metadata import Node

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
LONG = 30.0
_numbers = itertools.count()


class Lines(logging.Handler):
    """Lines of a logger as they come; a test waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[tuple[float, str, str]] = []
        self._news = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._news:
            self.all.append((time.monotonic(), record.levelname, record.getMessage()))
            self._news.notify_all()

    def wait(self, pattern: str) -> str:
        """The first line that matches, which may be still to come."""
        deadline = time.monotonic() + LONG
        with self._news:
            while True:
                for _, level, text in self.all:
                    if re.search(pattern, f"{level} {text}"):
                        return text
                if not self._news.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no line {pattern!r} among {self.texts()}")

    def texts(self) -> list[str]:
        return [f"{level} {text}" for _, level, text in self.all]


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


@pytest.fixture
def lines(protocol: str) -> Iterator[Lines]:
    logger, handler = logging.getLogger(f"wireproto.{protocol}"), Lines()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.fixture
def client(broker: DevBroker, lines: Lines, protocol: str) -> Iterator[Any]:
    with wireproto.connect(broker.url(protocol)) as made:
        yield made
        broker.faults(protocol).clear()


@pytest.fixture
def topic(client: Any) -> str:
    name = f"told-{next(_numbers)}"
    client.admin().create_topic(name, **({} if client.protocol == "zookeeper" else {"partitions": 1}))
    return name


def refusing(client: Any) -> Callable[[], object]:
    """A call that is tried again until its time is over."""
    if client.protocol == "zookeeper":
        return lambda: client.tree().exists("/x", timeout=0.2)
    return lambda: client.admin().list_topics(timeout=0.2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_its_end_and_the_next_one_are_told(broker: DevBroker, client: Any, topic: str, lines: Lines, protocol: str) -> None:
    peer = r"[\d.]+:\d+"
    lines.wait(f"INFO {peer}: connected")
    lines.all.clear()
    broker.kick(protocol)
    lines.wait(f"INFO {peer}: the connection ended: .*peer")
    with client.producer(topic) as out:
        out.send(b"x").position(LONG)
    lines.wait(f"INFO {peer}: connected")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_that_nobody_is_there_is_told_and_a_storm_is_a_line_a_second(
    broker: DevBroker, client: Any, topic: str, lines: Lines, protocol: str
) -> None:
    broker.pause(protocol)
    began = time.monotonic()
    try:
        stop = began + 2.5
        while time.monotonic() < stop:
            with pytest.raises(WireprotoError):
                refusing(client)()
        line = lines.wait("WARNING .*: no connection: .*connection refused")
    finally:
        broker.resume(protocol)
    cause = line.partition(" (and")[0]
    times = [at for at, _, text in lines.all if text.startswith(cause)]
    assert len(times) >= 2
    assert len(times) - 1 <= time.monotonic() - began, "not by when they were written: the first one may have been late"


@pytest.mark.parametrize(("protocol", "request_name", "code"), [("kafka", "Metadata", 5), ("pulsar", "lookupTopic", 6)])
def test_what_is_tried_again_is_told_with_its_cause(
    broker: DevBroker, client: Any, topic: str, lines: Lines, protocol: str, request_name: str, code: int
) -> None:
    broker.faults(protocol).error(request_name, code, times=1)
    client.producer(topic).close()
    lines.wait("INFO tried again, while there is time: ")


STORES = [("kafka", "Produce", 87), ("rocketmq", "SendMessageV2", 13)]


@pytest.mark.parametrize(("protocol", "request_name", "code"), STORES)
def test_records_that_are_not_stored_are_told_with_their_number(
    broker: DevBroker, client: Any, topic: str, lines: Lines, protocol: str, request_name: str, code: int
) -> None:
    with client.producer(topic) as out:
        broker.faults(protocol).error(request_name, code, times=1)
        out.send(b"x")
        with pytest.raises(WireprotoError):
            out.flush(LONG)
    lines.wait("WARNING 1 records were not stored: ")


@pytest.mark.parametrize("protocol", ["kafka"])
def test_records_that_are_sent_again_are_told_with_the_cause(broker: DevBroker, client: Any, topic: str, lines: Lines) -> None:
    with client.producer(topic) as out:
        broker.faults("kafka").error("Produce", 7, times=1)  # REQUEST_TIMED_OUT
        out.send(b"x").position(LONG)
    lines.wait(r"INFO \('told-\d+', 0\): 1 records are sent again: REQUEST_TIMED_OUT")


@pytest.mark.parametrize("protocol", ["kafka", "pulsar", "rocketmq"])
def test_the_share_of_a_member_is_told(client: Any, topic: str, lines: Lines, protocol: str) -> None:
    with client.consumer(topic, "group") as member:
        deadline = time.monotonic() + LONG
        while not member.assignment and time.monotonic() < deadline:
            member.poll(0.1)
        lines.wait(rf"INFO group group: took .*{topic}\[-?\d\], gave up nothing")


@pytest.mark.parametrize("protocol", ["zookeeper"])
def test_the_states_of_a_session_are_told(broker: DevBroker, client: Any, topic: str, lines: Lines) -> None:
    lines.wait("INFO session 0x[0-9a-f]+: CONNECTED")
    lines.all.clear()
    broker.kick("zookeeper")
    lines.wait("INFO session 0x[0-9a-f]+: SUSPENDED")
    lines.wait("INFO session 0x[0-9a-f]+: CONNECTED")


@pytest.mark.parametrize("protocol", ["kafka"])
def test_batches_that_are_passed_over_are_told_with_their_place(broker: DevBroker, client: Any, topic: str, lines: Lines) -> None:
    with client.producer(topic, linger=0) as out:
        for value in (b"good" * 10, b"spoilt" * 10):
            out.send(value).position(LONG)
    broker.faults("kafka").corrupt("Fetch", at=-12)
    with client.reader(topic, stop=LATEST, on_corrupt="skip") as reader:
        assert [value for batch in reader for value in batch.values()] == [b"good" * 10]
    lines.wait(rf"WARNING {topic}\[0\]: skipped at 1: .*CRC")


@pytest.mark.parametrize("protocol", ["rocketmq"])
def test_records_that_are_gone_unread_are_told_with_their_range(broker: DevBroker, client: Any, topic: str, lines: Lines) -> None:
    with client.producer(topic) as out:
        for number in range(6):
            out.send(b"%d" % number).position(LONG)
    with client.reader(topic, start=LogOffset(topic, 0, 1), reset="earliest") as reader:
        broker.call("rocketmq", "remove_while_read", topic, 0, 4)
        assert reader.poll(LONG).values()[0] == b"4"
    lines.wait(rf"WARNING {topic}\[0\]: offset 1 does not exist, reading continues at 4: what lay between is gone, unread")


@pytest.mark.parametrize("protocol", ["kafka"])
def test_a_leader_that_moves_is_told(broker: DevBroker, client: Any, topic: str, lines: Lines) -> None:
    client.producer(topic).close()
    host, _, port = broker.address("kafka").partition(":")
    (old,) = client.cluster.metadata.nodes
    assert client.cluster.hint(topic, 0, 77, 1000, [Node(77, host, int(port), None)])
    lines.wait(rf"INFO {topic}\[0\]: the leader is node 77 now, not {old}")
