"""What RocketMQ's clients tell the log of troubles that no call raises, on the embedded broker: see docs/logging.md."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
from patience import until
from wireproto.devbroker import DevBroker, Faults
from wireproto.position import LATEST, LogOffset
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import SystemBusy
from wireproto.rocketmq.messages import InvokeBrokerToResetOffsetRequest

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
CLIENT = {"request_timeout": 0.5, "heartbeat_interval": 0.2, "rebalance_interval": 0.2, "pull_suspend": 1.0, "route_age": 0.2}
_numbers = itertools.count()


@pytest.fixture
def topic(client: RocketClient) -> str:
    name = f"told-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Waits until a line is there that matches; `while_` is done meanwhile."""
    caplog.set_level(logging.INFO, "wireproto.rocketmq")

    def told(pattern: str, while_: Callable[[], object] = lambda: None) -> None:
        def there() -> bool:
            while_()
            return any(re.fullmatch(pattern, f"{record.levelname} {record.getMessage()}") for record in caplog.records)

        until(there, f"no line {pattern!r}")

    return told


def put(client: RocketClient, topic: str, count: int) -> None:
    with client.producer(topic) as out:
        for number in range(count):
            out.send(b"%d" % number)


def test_a_queue_that_cannot_be_read_is_told(client: RocketClient, topic: str, faults: Faults, told: Any) -> None:
    with client.reader(topic) as reader:
        faults.error("PullMessage", SystemBusy.code, times=-1)
        told(rf"WARNING {topic}\[0\] has not been read for [\d.]+ s: SYSTEM_BUSY.*", lambda: reader.poll(0.05))


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("HeartBeat", r"INFO group g-{0}: no heartbeat to 127.0.0.1:\d+: SYSTEM_BUSY.*"),
        ("GetConsumerListByGroup", r"INFO group g-{0}: tried again: the broker refuses requests for the moment.*"),
        ("UpdateConsumerOffset", r"INFO group g-{0}: tried again: SYSTEM_BUSY.*{0}\[0\].*"),
    ],
)
def test_what_a_member_s_broker_refuses_is_told(client: RocketClient, topic: str, faults: Faults, told: Any, asked: str, line: str) -> None:
    with client.consumer(topic, f"g-{topic}", auto_commit=True, auto_commit_interval=0.0) as member:
        put(client, topic, 3)
        until(lambda: member.poll(0.1) is not None)
        faults.error(asked, SystemBusy.code, times=-1)
        told(line.format(topic), lambda: member.poll(0.05))
        faults.clear()


@pytest.mark.parametrize(("offset", "level"), [(2, "INFO"), (395, "WARNING")])
@pytest.mark.parametrize("by", ["a pull", "a push"])
def test_that_a_group_was_set_is_told(client: RocketClient, topic: str, told: Any, by: str, offset: int, level: str) -> None:
    """Forth is a warning, with the range that is passed over."""
    put(client, topic, 10)
    with client.consumer(topic, f"g-{topic}") as member:
        until(lambda: (member.poll(0.1), member.lag()[topic, 0] == 0)[1])
        put(client, topic, 0 if offset == 2 else 390)
        end = client.admin().positions(topic, LATEST)[topic, 0].offset  # one that was answered late was sent twice
        before = end if offset == 2 else r"\d+"
        if by == "a push":
            member._assignment.member.reset({(topic, "dev", 0): offset})
        else:
            reset = InvokeBrokerToResetOffsetRequest(topic=topic, group=f"g-{topic}", timestamp=0, is_force=True, queue_id=0, offset=offset)
            client.request(reset, to=(topic, 0))
        told(rf"{level} {topic}\[0\]: the group was set from {before} to {offset}", lambda: member.poll(0.0))


def test_a_master_that_moved_is_told(client: RocketClient, topic: str, broker: DevBroker, told: Any) -> None:
    here = broker.address("rocketmq", "broker")
    with DevBroker(["rocketmq"]) as heir, client.consumer(topic, f"g-{topic}") as member:
        there = heir.address("rocketmq", "broker")
        try:
            broker.call("rocketmq", "register", "dev", there)
            told(rf"INFO broker dev: its master is {there} now, not {here}", lambda: member.poll(0.05))
        finally:
            broker.call("rocketmq", "register", "dev", here)


def test_records_that_are_not_there_are_told(client: RocketClient, topic: str, told: Any) -> None:
    put(client, topic, 2)
    with client.reader(topic, start=LogOffset(topic, 0, 1000), reset="earliest") as reader:
        assert reader.poll(30.0).values() == [b"0", b"1"]
    told(rf"WARNING {topic}\[0\]: offset 1000 does not exist, reading continues at 0")


def test_records_that_cannot_be_read_are_told(client: RocketClient, topic: str, broker: DevBroker, told: Any) -> None:
    client.producer(topic).send(bytes(2000), partition=0).position(30.0)
    broker.faults("rocketmq").corrupt("PullMessage", at=-1000)
    with client.reader(topic, stop=LATEST, on_corrupt="skip") as reader:
        list(reader)
    told(rf"WARNING {topic}\[0\]: skipped at .*0: .*")


def test_what_is_sent_again_is_told(client: RocketClient, topic: str, faults: Faults, told: Any) -> None:
    """With the number of its queue."""
    with client.producer(topic) as out:
        faults.error("SendMessageV2", SystemBusy.code)
        out.send(b"x", partition=0).position(30.0)
    told(r"INFO 0: 1 records are sent again: SYSTEM_BUSY.*")


def test_who_takes_and_gives_up_queues_tells_so(client: RocketClient, topic: str, broker: DevBroker, told: Any) -> None:
    """Of four queues two go to whoever comes; a single one goes by the order of the members' names."""
    name = f"{topic}-four"
    client.admin().create_topic(name, partitions=4)
    with client.consumer(name, f"g-{topic}") as member:
        told(rf"INFO group g-{topic}: took .*{name}\[0\].*, gave up nothing", lambda: member.poll(0.05))
        with wireproto.connect(broker.url("rocketmq"), **CLIENT) as other, other.consumer(name, f"g-{topic}"):
            told(rf"INFO group g-{topic}: took nothing, gave up .*{name}\[\d\].*", lambda: member.poll(0.05))
