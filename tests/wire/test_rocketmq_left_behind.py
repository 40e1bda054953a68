"""RocketMQ's reader while one of two brokers is silent, or down: what the other one has is read, and the rest when that answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import wireproto
from brokers.proxy import FaultProxy
from patience import until
from wireproto.devbroker import DevBroker
from wireproto.errors import TransportError
from wireproto.position import EARLIEST, LATEST, AtTime, Where
from wireproto.rocketmq import new_queues, reader
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.reader import RocketReader


def down(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


FAULTS: dict[str, Callable[[FaultProxy], None]] = {"silent": FaultProxy.stall, "down": down}


class Scene:
    """Masters "calm", with partitions 0 and 1 of the topic t, behind a proxy; and "dev", with 2 and 3. Each has a record."""

    def __init__(self, client: RocketClient, proxy: FaultProxy, address: str) -> None:
        self.client, self.proxy, self.address = client, proxy, address

    def send(self) -> None:
        with self.client.producer("t") as out:
            for partition in range(4):
                out.send(b"x", partition=partition).position(20.0)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(new_queues, "SOON", 0.3)
    monkeypatch.setattr(reader, "ENOUGH", 0.5, raising=False)
    with DevBroker(["rocketmq"], auto_create=False) as first, DevBroker(["rocketmq"], auto_create=False) as other, FaultProxy() as proxy:
        address = other.address("rocketmq", "broker")
        first.call("rocketmq", "register", "calm", address)
        with wireproto.connect(first.url("rocketmq"), address_map={address: proxy.through(address)}, timeout=4.0) as client:
            client.admin().create_topic("t", partitions=4)
            made = Scene(client, proxy, address)
            made.send()
            yield made
            proxy.heal()


def took(role: RocketReader, count: int) -> list[int]:
    """The partitions of so many records, sorted."""
    found: list[int] = []

    def enough() -> bool:
        batch = role.poll(0.2)
        found.extend([batch.partition] * len(batch) if batch is not None else [])
        return len(found) >= count

    until(enough, f"{count} records")
    return sorted(found)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("start", [EARLIEST, AtTime(1)], ids=["earliest", "time"])
def test_a_reader_hands_out_what_other_brokers_have(scene: Scene, start: Where, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    FAULTS[fault](scene.proxy)
    with scene.client.reader("t", start=start) as read:
        assert took(read, 2) == [2, 3]
        assert "t[1]: broker calm does not tell where it begins, and it is read as soon as it does" in caplog.text
        scene.proxy.heal()
        assert took(read, 2) == [0, 1]


def test_a_reader_from_now_on_gets_what_a_silent_broker_was_sent_since(scene: Scene) -> None:
    scene.proxy.stall()
    with scene.client.reader("t", start=LATEST) as read:
        scene.proxy.heal()
        scene.send()
        assert took(read, 4) == [0, 1, 2, 3]


def test_a_reader_to_a_stop_names_the_broker_that_is_silent(scene: Scene) -> None:
    scene.proxy.stall()
    with pytest.raises(TransportError) as failed:
        scene.client.reader("t", start=EARLIEST, stop=LATEST, timeout=1.5)
    assert failed.value.peer == scene.address
