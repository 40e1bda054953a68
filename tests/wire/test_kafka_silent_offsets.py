"""One of three Kafka brokers is silent to ListOffsets alone: what the others lead is read, and each call keeps its `timeout`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from patience import KEPT, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import TimedOut, TransportError
from wireproto.kafka import positions
from wireproto.position import EARLIEST, LATEST, AtTime, LogOffset

PROTOCOL = "kafka"
BROKER = {"nodes": {"kafka.nodes": 3}}
LISTENERS = {1: "main", 2: "node-2", 3: "node-3"}
SILENT = 2
REQUEST = "ListOffsets"
_numbers = itertools.count()


@pytest.fixture
def client(broker: DevBroker, dial: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(positions, "ENOUGH", 0.5, raising=False)
    return dial(f"kafka://{broker.address('kafka', LISTENERS[1])}", timeout=20.0, max_wait=0.05)


@pytest.fixture
def peer(broker: DevBroker) -> str:
    return broker.address("kafka", LISTENERS[SILENT])


@pytest.fixture
def topic(broker: DevBroker, client: Any, faults: Faults) -> Iterator[str]:
    """One whose partitions 0 to 2 are led by nodes 1 to 3, with a record each; node 2 is silent to ListOffsets."""
    name = f"t{next(_numbers)}"
    client.admin().create_topic(name, partitions=3)
    for number in range(3):
        if broker.call("kafka", "leader", name, number) != number + 1:
            broker.call("kafka", "move_leader", name, number, number + 1)
    send(client, name)
    faults.drop(REQUEST, times=-1, when=lambda facts: facts["node"] == SILENT)
    return name


def send(client: Any, topic: str) -> None:
    """A record to each partition."""
    with client.producer(topic) as out:
        for number in range(3):
            out.send(b"x", partition=number, timestamp=1000).position(20.0)


def took(role: Any, count: int) -> list[int]:
    """The partitions of so many records, sorted; no poll takes longer than it may."""
    found: list[int] = []

    def enough() -> bool:
        begin = time.monotonic()
        batch = role.poll(0.1)
        assert time.monotonic() - begin < 0.1 + KEPT
        found.extend([batch.partition] * len(batch) if batch is not None else [])
        return len(found) >= count

    until(enough, f"{count} records")
    return sorted(found)


def opened(client: Any, role: str, topic: str, start: Any) -> Any:
    if role == "reader":
        return client.reader(topic, start=start)
    return client.consumer(topic, f"g-{topic}", start=start)


@pytest.mark.parametrize("start", [EARLIEST, AtTime(500)], ids=["earliest", "time"])
@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_what_other_brokers_lead_is_read(
    client: Any, faults: Faults, topic: str, peer: str, role: str, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And the rest when the silent one answers."""
    with opened(client, role, topic, start) as read:
        assert took(read, 2) == [0, 2]
        assert [text for text in caplog.messages if f"{topic}[1]" in text and REQUEST in text and peer in text]
        begin = time.monotonic()
        for _ in range(20):
            assert read.poll(0.0) is None
        assert time.monotonic() - begin < KEPT, "it waited in a poll"
        faults.clear()
        assert took(read, 1) == [1]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_what_other_brokers_lead_is_read_from_now_on(client: Any, faults: Faults, topic: str, role: str) -> None:
    with opened(client, role, topic, LATEST) as read:
        until(lambda: read.poll(0.05) is None and {key[1] for key in read.positions} == {0, 2}, "two partitions are read")
        send(client, topic)
        assert took(read, 2) == [0, 2]
        faults.clear()
        until(lambda: read.poll(0.05) is None and len(read.positions) == 3)
        send(client, topic)
        assert took(read, 3) == [0, 1, 2]


def test_a_reader_to_a_stop_names_the_broker_the_request_and_the_partition(client: Any, topic: str, peer: str) -> None:
    begin = time.monotonic()
    with pytest.raises(TimedOut, match=REQUEST) as failed:
        client.reader(topic, start=EARLIEST, stop=LATEST, timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert (failed.value.peer, failed.value.topic, failed.value.partition) == (peer, topic, 1)


def test_a_reader_of_the_silent_broker_s_partition_alone_is_not_made(client: Any, topic: str, peer: str) -> None:
    begin = time.monotonic()
    with pytest.raises(TimedOut, match=REQUEST) as failed:
        client.reader(topic, start=EARLIEST, partitions=[1], timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert (failed.value.peer, failed.value.topic, failed.value.partition) == (peer, topic, 1)


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_seek_moves_the_partitions_whose_brokers_answer(client: Any, faults: Faults, topic: str, role: str) -> None:
    silence = faults.drop(REQUEST, times=0)
    faults.clear()
    with opened(client, role, topic, EARLIEST) as read:
        assert took(read, 3) == [0, 1, 2]
        silence = faults.drop(REQUEST, times=-1, when=lambda facts: facts["node"] == SILENT)
        begin = time.monotonic()
        read.seek(EARLIEST, timeout=15.0)
        assert time.monotonic() - begin < KEPT
        assert took(read, 2) == [0, 2]
        faults.clear()
        assert silence.times
        assert took(read, 1) == [1]


def test_an_error_of_lag_has_what_the_others_answered(client: Any, faults: Faults, topic: str, peer: str) -> None:
    with client.consumer(topic, f"g-{topic}", start=EARLIEST) as log:
        assert took(log, 2) == [0, 2]
        for begun in (False, True):
            if begun:
                faults.clear()
                assert took(log, 1) == [1]
                faults.drop(REQUEST, times=-1, when=lambda facts: facts["node"] == SILENT)
            begin = time.monotonic()
            with pytest.raises(TransportError, match=REQUEST) as failed:
                log.lag(timeout=1.0)
            assert time.monotonic() - begin < 1.0 + KEPT
            assert (failed.value.peer, failed.value.topic, failed.value.partition) == (peer, topic, 1)
            assert failed.value.known == {(topic, 0): 0, (topic, 2): 0}


def test_an_error_of_positions_has_what_the_others_answered(client: Any, topic: str, peer: str) -> None:
    with pytest.raises(TransportError, match=REQUEST) as failed:
        client.admin().positions(topic, LATEST, timeout=1.0)
    assert (failed.value.peer, failed.value.topic, failed.value.partition) == (peer, topic, 1)
    assert failed.value.known == {(topic, number): LogOffset(topic, number, 1) for number in (0, 2)}
