"""A producer's leader that takes records and never answers, as a node does that is stopped: its connection stands, and nothing fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import wireproto
from kafka_nodes import SecondNode
from kafka_relay import Relay
from patience import soon, until
from wireproto import LATEST
from wireproto.devbroker import DevBroker, Faults

SOON, ENOUGH = 20.0, 20.0
"""Seconds for what takes three and a little; without a look it takes `request_timeout`, 30 s."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def faults(broker: DevBroker) -> Iterator[Faults]:
    given = broker.faults("kafka")
    given.clear()
    yield given
    given.clear()


@pytest.fixture
def topic(broker: DevBroker) -> str:
    name = f"silent-{next(_numbers)}"
    with wireproto.connect(broker.url("kafka")) as client:
        client.admin().create_topic(name, partitions=2)
    return name


def values(client: Any, topic: str) -> list[bytes | None]:
    """What there is, in the order of the log."""
    with client.reader(topic, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


@pytest.mark.parametrize("idempotence", [True, False])
@pytest.mark.parametrize("fault", ["stall", "drop"])
def test_records_on_their_way_to_a_silent_leader_go_to_the_next_one(
    broker: DevBroker, topic: str, faults: Faults, monkeypatch: pytest.MonkeyPatch, fault: str, idempotence: bool
) -> None:
    """Long before it would have to answer, in order, and once even where it has taken them (`drop`): the connection is closed first."""
    host, _, port = broker.address("kafka").rpartition(":")
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic, idempotence=idempotence) as producer:
        producer.send(b"before", partition=1).position(SOON)
        getattr(faults, fault)("Produce")
        stuck = [producer.send(b"stuck", partition=1)]
        seen.wait("Produce", 2, timeout=SOON)
        stuck.append(producer.send(b"behind", partition=1))
        SecondNode(monkeypatch).later(topic, 1, host, int(port))
        first, second = [receipt.position(ENOUGH).offset for receipt in stuck]
        written = [b"before", b"stuck", b"behind"]
        if fault == "drop" and not idempotence:  # nobody can tell that it is there
            written.insert(1, b"stuck")
        assert values(client, topic) == written
        assert (first, second) == (len(written) - 2, len(written) - 1)


def test_what_shares_a_request_with_a_partition_that_moved_is_sent_again_too(
    broker: DevBroker, topic: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = broker.address("kafka").rpartition(":")
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic, linger=0.2) as producer:
        faults.stall("Produce")
        receipts = [producer.send(b"x", partition=number) for number in range(2)]
        sent = seen.wait("Produce", timeout=SOON)[0].message
        assert [len(data.partition_data) for data in sent.topic_data] == [2], "one request"
        SecondNode(monkeypatch).later(topic, 1, host, int(port))
        assert [receipt.position(ENOUGH).offset for receipt in receipts] == [0, 0]
        assert values(client, topic) == [b"x", b"x"]


def test_a_leader_that_takes_long_is_asked_for_elsewhere_and_waited_for(broker: DevBroker, topic: str, faults: Faults) -> None:
    """A follower may hold it up. Nobody else leads, so nothing is sent twice."""
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as producer:
        producer.send(b"before", partition=1).position(SOON)
        asked = len(seen.requests("Metadata"))
        faults.delay("Produce", 5.0)
        assert producer.send(b"slow", partition=1).position(ENOUGH).offset == 1
        looked = len(seen.requests("Metadata")) - asked
        assert 1 <= looked <= 4, "once a second from the third on"
        assert len(seen.requests("Produce")) == 2


def test_a_producer_that_waits_for_nothing_looks_at_nothing(broker: DevBroker, topic: str) -> None:
    with wireproto.connect(broker.url("kafka")) as client, client.producer(topic) as producer:
        producer.send(b"x", partition=1).position(SOON)
        sender = producer._sending
        assert sender._watching, "it looks once more"
        idle = threading.Event()
        client.loop.call_at(soon(1.5), idle.set)
        assert idle.wait(SOON)
        assert not sender._watching


def test_records_without_a_key_pass_by_a_leader_that_keeps_silent(broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share would gather in the producer until there is room for nothing else."""
    with (
        closing(Relay(broker.address("kafka"), silent=True)) as stopped,
        wireproto.connect(broker.url("kafka")) as client,
        client.producer(topic, linger=0.0, batch_size=1) as producer,  # each record to another partition, where there is one
    ):
        SecondNode(monkeypatch)(client.cluster.metadata, topic, 1, "127.0.0.1", stopped.port)
        stuck = producer.send(b"stuck", partition=1)
        until(lambda: producer._sending._unresponsive.silent, limit=ENOUGH)
        receipts = [producer.send(b"%d" % number) for number in range(20)]
        assert {receipt.position(SOON).partition for receipt in receipts[1:]} == {0}, "the first one's place may have been chosen before"
        monkeypatch.undo()  # the one that there is leads again
        assert stuck.position(ENOUGH).partition == 1
        assert {receipt.position(ENOUGH).partition for receipt in [producer.send(b"after") for _ in range(4)]} == {0, 1}


@pytest.mark.parametrize("how", ["keeps silent", "cannot be reached"])
def test_small_records_without_a_key_leave_a_leader_that_stands_still(
    broker: DevBroker, topic: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Though the partition that they stick to has room for thousands of them."""
    with (
        closing(Relay(broker.address("kafka"), silent=True)) as stopped,
        wireproto.connect(broker.url("kafka")) as client,
        client.producer(topic, linger=0.0) as producer,
    ):
        where = producer.send(b"here").position(SOON).partition
        assert producer.send(b"here").position(SOON).partition == where, "they stick to it"
        if how == "cannot be reached":
            stopped.close()
        SecondNode(monkeypatch)(client.cluster.metadata, topic, where, "127.0.0.1", stopped.port)
        stuck = producer.send(b"stuck", partition=where)
        sending = producer._sending
        until(lambda: sending._unresponsive.silent if how == "keeps silent" else sending._unreached, limit=ENOUGH)
        assert {producer.send(b"%d" % number).position(SOON).partition for number in range(20)} == {1 - where}
        monkeypatch.undo()  # the one that there is leads again
        assert stuck.position(ENOUGH).partition == where
