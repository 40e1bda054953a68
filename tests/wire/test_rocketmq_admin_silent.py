"""What RocketMQ's admin says while one of two brokers is silent: what the other one knows, and which one it is; and while both are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import wireproto
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import TimedOut, TransportError
from wireproto.net.task import Steps
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq.bodies import ClusterInfo
from wireproto.rocketmq.client import RocketClient


class Scene:
    """Masters "calm", with partitions 0 and 1 of the topic t, which group g has read, behind a proxy; and "dev", with 2 and 3."""

    def __init__(self, client: RocketClient, proxy: FaultProxy, silent: str, faults: tuple[Faults, Faults]) -> None:
        self.client, self.proxy, self.silent, self.faults = client, proxy, silent, faults


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
            yield Scene(client, proxy, address, (first.faults("rocketmq"), other.faults("rocketmq")))
            proxy.heal()


def test_groups_are_those_of_the_brokers_that_answer(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with scene.client.consumer("t", "h") as member:
        scene.proxy.stall()
        assert scene.client.admin().list_groups(timeout=1.0) == ["g", "h"]
        assert f"broker {scene.silent} does not answer; the result is without its part" in caplog.text
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


def lists(scene: Scene) -> None:
    assert scene.client.admin().list_groups(timeout=20.0) == ["g"]


def describes(scene: Scene) -> None:
    with scene.client.consumer("t", "h") as member:
        found = scene.client.admin().describe_group("h", timeout=20.0)
        assert ([one.member for one in found.members], "silent" in found.details) == ([member.member_id], False)


ASKED = {"GetAllSubscriptionGroupConfig": lists, "GetConsumerConnectionList": describes}


@pytest.mark.parametrize("message", ASKED)
def test_brokers_are_asked_again_where_none_has_answered(scene: Scene, message: str) -> None:
    for faults in scene.faults:
        faults.disconnect(message, times=3)
    ASKED[message](scene)
    assert sum(faults.seen(message) for faults in scene.faults) >= 2 + 2


def test_a_broker_that_hangs_up_once_is_not_left_out(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    order = scene.faults[1].disconnect("GetAllSubscriptionGroupConfig")
    lists(scene)
    assert order.times == 0
    assert "the result is without its part" not in caplog.text


def test_where_no_broker_answers_in_time_the_error_names_them_all(scene: Scene) -> None:
    for faults in scene.faults:
        faults.drop("GetAllSubscriptionGroupConfig", times=-1)
    with pytest.raises(TimedOut) as failed:
        scene.client.admin().list_groups(timeout=1.0)
    text = str(failed.value)
    assert "none of 2 brokers answers" in text
    assert all(str(address) in text for address in scene.client.admin().brokers().values())


def test_a_broker_whose_master_is_away_is_named(scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = scene.client.cluster
    asked = cluster.info

    def slave_alone(until: float) -> Steps[ClusterInfo]:
        info = yield from asked(until)
        dev = info.brokers["dev"]
        return replace(info, brokers={**info.brokers, "dev": replace(dev, broker_addrs={1: dev.broker_addrs[0]})})

    monkeypatch.setattr(cluster, "info", slave_alone)
    assert scene.client.admin().list_groups() == ["g"]
    assert "broker dev does not answer; the result is without its part: it has no master now" in caplog.text
    assert scene.client.admin().describe_group("g").details["silent"] == ("dev",)
