"""One of two RocketMQ brokers is silent to offset look-ups alone: what the other one has is read, and each call keeps its `timeout`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import KEPT, until
from wireproto.devbroker import DevBroker
from wireproto.errors import TransportError
from wireproto.position import EARLIEST, LATEST, AtTime, Where
from wireproto.rocketmq import member, new_queues, reader
from wireproto.rocketmq.client import RocketClient

ASKED = "GetMinOffset", "GetMaxOffset", "SearchOffsetByTimestamp"
REQUEST = r"Get(Min|Max)OffsetRequest|SearchOffsetByTimestampRequest"


class Scene:
    """Masters "calm", with partitions 0 and 1 of the topic t, which is silent to look-ups; and "dev", with 2 and 3. Each has a record."""

    def __init__(self, client: RocketClient, first: DevBroker, other: DevBroker) -> None:
        self.client, self.first = client, first
        self.faults, self.address = other.faults("rocketmq"), other.address("rocketmq", "broker")

    def send(self) -> None:
        with self.client.producer("t") as out:
            for partition in range(4):
                out.send(b"x", partition=partition).position(20.0)

    def silence(self) -> None:
        for name in ASKED:
            self.faults.drop(name, times=-1)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(new_queues, "SOON", 0.3)
    monkeypatch.setattr(reader, "ENOUGH", 0.5)
    monkeypatch.setattr(member, "ANSWER_TIMEOUT", 0.5)
    with DevBroker(["rocketmq"], auto_create=False) as first, DevBroker(["rocketmq"], auto_create=False) as other:
        first.call("rocketmq", "register", "calm", other.address("rocketmq", "broker"))
        with wireproto.connect(first.url("rocketmq"), timeout=20.0, request_timeout=5.0) as client:
            client.admin().create_topic("t", partitions=4)
            made = Scene(client, first, other)
            made.send()
            made.silence()
            yield made
            made.faults.clear()


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


@pytest.mark.parametrize("start", [EARLIEST, AtTime(1)], ids=["earliest", "time"])
@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_what_the_other_broker_has_is_read(scene: Scene, role: str, start: Where, caplog: pytest.LogCaptureFixture) -> None:
    """And the rest when the silent one answers."""
    opened: Any = scene.client.reader("t", start=start) if role == "reader" else scene.client.consumer("t", "g", start=start)
    with opened as read:
        assert took(read, 2) == [2, 3]
        warnings = [text for text in caplog.messages if "t[1]: broker calm does not tell where it begins" in text]
        assert warnings
        assert "OffsetRequest" in warnings[0] or "SearchOffsetByTimestampRequest" in warnings[0]
        assert scene.address in warnings[0]
        begin = time.monotonic()
        for _ in range(20):
            assert read.poll(0.0) is None
        assert time.monotonic() - begin < KEPT, "it waited in a poll"
        scene.faults.clear()
        assert took(read, 2) == [0, 1]


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_what_the_other_broker_gets_from_now_on_is_read(scene: Scene, role: str) -> None:
    begin = time.monotonic()
    opened: Any = scene.client.reader("t", start=LATEST) if role == "reader" else scene.client.consumer("t", "g", start=LATEST)
    assert time.monotonic() - begin < 2 * KEPT
    with opened as read:
        assert read.poll(0.0) is None
        scene.send()
        assert took(read, 2) == [2, 3]
        scene.faults.clear()
        assert took(read, 2) == [0, 1]


def test_a_group_where_no_broker_tells_its_ends_is_not_joined(scene: Scene) -> None:
    scene.first.faults("rocketmq").drop("GetMaxOffset", times=-1)
    begin = time.monotonic()
    with pytest.raises(TransportError) as failed:
        scene.client.consumer("t", "g", start=LATEST, timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert failed.value.peer in (scene.address, scene.first.address("rocketmq", "broker"))
    assert failed.value.topic == "t"
    assert failed.value.partition in range(4)


def test_a_reader_to_a_stop_names_the_broker_the_request_and_the_partition(scene: Scene) -> None:
    begin = time.monotonic()
    with pytest.raises(TransportError, match=REQUEST) as failed:
        scene.client.reader("t", start=EARLIEST, stop=LATEST, timeout=1.0)
    assert time.monotonic() - begin < 1.0 + KEPT
    assert (failed.value.peer, failed.value.topic) == (scene.address, "t")
    assert failed.value.partition in (0, 1)


@pytest.mark.parametrize("where", [EARLIEST, LATEST, AtTime(1)], ids=["earliest", "latest", "time"])
def test_a_seek_that_a_broker_does_not_answer_names_it_and_moves_nothing(scene: Scene, where: Where) -> None:
    scene.faults.clear()
    with scene.client.reader("t", start=EARLIEST) as read:
        assert took(read, 4) == [0, 1, 2, 3]
        before = read.positions
        scene.silence()
        begin = time.monotonic()
        with pytest.raises(TransportError, match=REQUEST) as failed:
            read.seek(where, timeout=1.0)
        assert time.monotonic() - begin < 1.0 + KEPT
        assert (failed.value.peer, failed.value.topic) == (scene.address, "t")
        assert failed.value.partition in (0, 1)
        assert read.positions == before
        scene.send()
        assert took(read, 4) == [0, 1, 2, 3]


def test_errors_of_lag_and_positions_name_the_broker_the_request_and_the_partition(scene: Scene) -> None:
    scene.faults.clear()
    with scene.client.consumer("t", "g", start=EARLIEST) as log:
        assert took(log, 4) == [0, 1, 2, 3]
        scene.silence()
        for ask in (log.lag, lambda timeout: scene.client.admin().positions("t", LATEST, timeout=timeout)):
            begin = time.monotonic()
            with pytest.raises(TransportError, match=REQUEST) as failed:
                ask(timeout=1.0)
            assert time.monotonic() - begin < 1.0 + KEPT
            assert (failed.value.peer, failed.value.topic) == (scene.address, "t")
            assert failed.value.partition in (0, 1)
            assert failed.value.known is not None
            assert {key[1] for key in failed.value.known} == {2, 3}
