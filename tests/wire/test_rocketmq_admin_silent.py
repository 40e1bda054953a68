"""What RocketMQ's admin says while one of two brokers is silent: what the other one knows, and which one it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import wireproto
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker
from wireproto.errors import TransportError
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.client import RocketClient


class Scene:
    """Masters "calm", with partitions 0 and 1 of the topic t, which group g has read, behind a proxy; and "dev", with 2 and 3."""

    def __init__(self, client: RocketClient, proxy: FaultProxy, silent: str) -> None:
        self.client, self.proxy, self.silent = client, proxy, silent


@pytest.fixture
def scene() -> Iterator[Scene]:
    with DevBroker(["rocketmq"], auto_create=False) as first, DevBroker(["rocketmq"], auto_create=False) as other, FaultProxy() as proxy:
        address = other.address("rocketmq", "broker")
        first.call("rocketmq", "register", "calm", address)
        with wireproto.connect(first.url("rocketmq"), address_map={address: proxy.through(address)}) as client:
            client.admin().create_topic("t", partitions=4)
            with client.producer("t") as out, client.consumer("t", "g", start=EARLIEST) as member:
                for partition in range(4):
                    out.send(b"x", partition=partition).position(20.0)
                for _ in range(4):
                    while member.poll(1.0) is None:
                        pass
                member.commit()
            yield Scene(client, proxy, address)
            proxy.heal()


def test_groups_are_those_of_the_brokers_that_answer(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with scene.client.consumer("t", "h") as member:
        scene.proxy.stall()
        assert scene.client.admin().list_groups(timeout=1.0) == ["g", "h"]
        assert f"broker {scene.silent} does not answer, and what it knows is left out" in caplog.text
        found = scene.client.admin().describe_group("h", timeout=1.0)
        assert [one.member for one in found.members] == [member.member_id]
        assert found.details["silent"] == (scene.silent,)
        scene.proxy.heal()
    assert "silent" not in scene.client.admin().describe_group("h").details


def test_an_error_of_positions_names_the_broker_and_has_those_of_the_others(scene: Scene) -> None:
    admin = scene.client.admin()
    scene.proxy.stall()
    for look in (lambda: admin.positions("t", LATEST, timeout=1.5), lambda: admin.group_positions("g", "t", timeout=1.5)):
        with pytest.raises(TransportError) as failed:
            look()
        assert failed.value.peer == scene.silent
        assert failed.value.known is not None
        assert {key: place.offset for key, place in failed.value.known.items()} == {("t", 2): 1, ("t", 3): 1}
