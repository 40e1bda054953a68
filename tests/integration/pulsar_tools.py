"""What the Pulsar tests share: a client of ours, the official one, a topic of the test's own."""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import wireproto
from brokers.pulsar import Pulsar
from patience import until
from wireproto import EARLIEST, LATEST

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pulsar

_numbers = itertools.count()
PREFIX = "persistent://public/default/"


@contextmanager
def ours(broker: Pulsar, **options: Any) -> Iterator[Any]:
    client = wireproto.connect(broker.url, **options)
    try:
        yield client
    finally:
        client.close(timeout=10.0)


@contextmanager
def theirs(broker: Pulsar, **options: Any) -> Iterator[Any]:
    client = pulsar.Client(broker.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options)
    try:
        yield client
    finally:
        client.close()


def new_topic(broker: Pulsar, partitions: int = 0) -> str:
    """A new topic's short name; 0: without partitions."""
    name = f"p-{os.getpid()}-{next(_numbers)}"
    path = f"/admin/v2/persistent/public/default/{name}"
    broker.call("PUT", path + ("/partitions" if partitions else ""), partitions or None)
    return name


def unload_kept(broker: Pulsar, topic: str, group: str) -> None:
    """Unload a topic once what this group has committed outlives that: its first mark waits for the ledger of its cursor."""
    path = "/admin/v2/" + (topic if "://" in topic else PREFIX + topic).replace("://", "/")
    until(lambda: json.loads(broker.call("GET", f"{path}/internalStats"))["cursors"][group]["state"] == "Open", "the cursor has no ledger")
    broker.call("PUT", f"{path}/unload")


def drain(role: Any, wanted: int, *, seconds: float = 20.0) -> list[Any]:
    """Records of a reader or consumer until there are `wanted`, or nothing more comes for `seconds`."""
    found: list[Any] = []
    while len(found) < wanted:
        batch = role.poll(seconds)
        if batch is None:
            break
        found += batch
    return found


@contextmanager
def loses_nothing(broker: Pulsar) -> Iterator[Callable[[], None]]:
    """That a crash loses nothing of a topic with two partitions: its producer sends what was not acknowledged again, its reader goes on,
    and all is stored. To be killed in the block, where what is given sends records to the broker that is down, and started again."""
    topic = new_topic(broker, partitions=2)
    with (
        ours(broker) as client,
        client.producer(topic, delivery_timeout=300.0) as producer,  # a broker may take minutes to boot
        client.reader(topic, start=EARLIEST) as reader,
    ):
        before = [producer.send(b"a%d" % number, partition=number % 2) for number in range(100)]
        producer.flush()
        assert len(drain(reader, 100)) == 100
        during: list[Any] = []

        def sends() -> None:
            during.extend(producer.send(b"b%d" % number, partition=number % 2) for number in range(100))
            assert not any(receipt.done for receipt in during)

        yield sends
        producer.flush(300.0)
        assert len(during) == 100
        assert all(receipt.done for receipt in before + during)
        wanted = {b"b%d" % number for number in range(100)}
        got: set[bytes] = set()
        while not got >= wanted and (more := drain(reader, 1, seconds=60.0)):
            got |= {record.value for record in more}
        assert got == wanted
        whole = [record.value for batch in client.reader(topic, stop=LATEST) for record in batch]
    assert set(whole) == {b"%s%d" % (kind, number) for kind in (b"a", b"b") for number in range(100)}


def read_theirs(client: Any, topic: str) -> list[Any]:
    """All messages there are, by the official client's reader."""
    reader = client.create_reader(PREFIX + topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000))
    reader.close()
    return found
