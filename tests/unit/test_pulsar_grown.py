"""Partitions that a Pulsar topic gets while a role reads it: what was sent to them before the role heard of them is read, too."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.pulsar import PulsarApi_pb2 as api

TOPIC = "persistent/public/default/t"


def partitions(broker: DevBroker, method: str, count: int) -> None:
    url = f"http://{broker.address('pulsar', 'admin')}/admin/v2/{TOPIC}/partitions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(count).encode(), method=method), timeout=20):
        pass


def values(role: Any, count: int, seconds: float = 30.0) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        got = role.receive(1.0) if hasattr(role, "receive") else role.poll(1.0)
        if got is not None:
            found += [got.value] if hasattr(got, "ack") else got.values()
    return found


def send(client: Any, topic: str, values: list[bytes]) -> None:
    with client.producer(topic) as out:
        for value in values:
            out.send(value)


@pytest.mark.parametrize("role", ["reader", "consumer", "queue"])
def test_what_a_new_partition_got_before_the_role_heard_of_it_is_read(role: str) -> None:
    """Also by a role that began at the end: that end is none of a partition that was not there."""
    with DevBroker(["pulsar"]) as broker, wireproto.connect(broker.url("pulsar"), metadata_max_age=0.1) as client:
        partitions(broker, "PUT", 1)
        send(client, "t", [b"old"])
        opened = {
            "reader": lambda: client.reader("t", start=wireproto.LATEST),
            "consumer": lambda: client.consumer("t", "group", start=wireproto.LATEST),
            "queue": lambda: client.queue("t", "group"),
        }[role]()
        with opened:
            broker.faults("pulsar").error("partitionMetadata", api.ServiceNotReady, times=-1)  # it does not hear of them …
            partitions(broker, "POST", 3)
            for number in (1, 2):
                send(client, f"t-partition-{number}", [b"%d-%d" % (number, n) for n in range(5)])
            broker.faults("pulsar").clear()  # … until now
            wanted = {b"%d-%d" % (number, n) for number in (1, 2) for n in range(5)}
            got = values(opened, len(wanted) + (role == "queue"))
            assert sorted(got) == sorted(wanted | ({b"old"} if role == "queue" else set()))
