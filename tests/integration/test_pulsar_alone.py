"""Producers that are alone on their topic (PIP-68), on a real broker, beside the official client's: who is refused, who is fenced, and what
comes back after a lost connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, new_topic, pulsar, theirs
from patience import LONG, until
from wireproto.errors import OptionError
from wireproto.pulsar.codes import ProducerBusy, ProducerFenced

SECONDS = 20.0
MODE = pulsar.ProducerAccessMode
pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


def stored(client: Any, topic: str) -> list[bytes]:
    with client.reader(topic, stop=wireproto.LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


def test_it_is_alone_or_refused(client: Any, judge: Any, topic: str) -> None:
    with client.producer(topic, access_mode="exclusive") as out:
        out.send(b"alone").position(SECONDS)
        with pytest.raises(ProducerBusy):
            client.producer(topic)
        with pytest.raises(ProducerFenced):
            client.producer(topic, access_mode="exclusive")
        with pytest.raises(pulsar.ProducerBusy):
            judge.create_producer(PREFIX + topic)
    official = judge.create_producer(PREFIX + topic)
    with pytest.raises(ProducerFenced, match="shared"):
        client.producer(topic, access_mode="exclusive")
    official.close()
    official = judge.create_producer(PREFIX + topic, access_mode=MODE.Exclusive)
    with pytest.raises(ProducerBusy):
        client.producer(topic)
    official.close()
    assert stored(client, topic) == [b"alone"]


def test_who_takes_it_away_fences_whoever_was_there(client: Any, judge: Any, topic: str) -> None:
    """Ours by ours and by the official client's, and that one's by ours."""
    first = client.producer(topic, access_mode="exclusive")
    first.send(b"of the first").position(SECONDS)
    with client.producer(topic, access_mode="exclusive-with-fencing") as second:
        assert second.topic_epochs[-1] > first.topic_epochs[-1]
        with pytest.raises(ProducerFenced):
            first.send(b"of the fenced").position(LONG)
        second.send(b"of the second").position(SECONDS)
        official = judge.create_producer(PREFIX + topic, access_mode=MODE.ExclusiveWithFencing)
        official.send(b"of the official")
        with pytest.raises(ProducerFenced):
            second.send(b"of the fenced, too").position(LONG)
    with client.producer(topic, access_mode="exclusive-with-fencing") as third:
        third.send(b"of the third").position(SECONDS)
        with pytest.raises(pulsar.PulsarException):
            official.send(b"of the fenced official")
    first.close()
    assert stored(client, topic) == [b"of the first", b"of the second", b"of the official", b"of the third"]


def test_a_later_life_has_what_nobody_took_since(client: Any, topic: str) -> None:
    """Compare and set: by the epoch that an earlier life was told."""
    with client.producer(topic, access_mode="exclusive-with-fencing") as out:
        epoch = out.topic_epochs[-1]
    for _ in range(2):  # as often as it likes
        with client.producer(topic, access_mode="exclusive", topic_epoch=epoch) as out:
            assert out.topic_epochs == {-1: epoch}
            out.send(b"of the same").position(SECONDS)
    with client.producer(topic, access_mode="exclusive-with-fencing") as other:
        assert other.topic_epochs[-1] > epoch
    for mode in ("exclusive", "exclusive-with-fencing"):
        with pytest.raises(ProducerFenced, match="epoch"):
            client.producer(topic, access_mode=mode, topic_epoch=epoch)
    assert stored(client, topic) == [b"of the same"] * 2


@pytest.mark.parametrize("mode", ["exclusive", "exclusive-with-fencing"])
def test_it_comes_back_behind_a_lost_connection_and_an_unload(broker: Pulsar, client: Any, topic: str, mode: Any, fault_proxy: Any) -> None:
    through = wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses))
    with through, through.producer(topic, access_mode=mode) as out:
        before = out.topic_epochs
        for number in range(3):
            out.send(b"%d" % number).position(SECONDS)
            fault_proxy.cut()
        broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}/unload")
        out.send(b"3").position(SECONDS)
        assert out.topic_epochs == before
    assert stored(client, topic) == [b"0", b"1", b"2", b"3"]


def test_one_that_was_away_while_another_was_there_does_not_come_back(broker: Pulsar, client: Any, topic: str, fault_proxy: Any) -> None:
    through = wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses))
    with through, through.producer(topic, access_mode="exclusive") as out:
        out.send(b"one").position(SECONDS)
        fault_proxy.refuse()
        fault_proxy.cut()
        until(lambda: takes(client, topic), "the broker did not let the topic go", LONG)
        fault_proxy.heal()
        with pytest.raises(ProducerFenced):
            out.send(b"two").position(LONG)
    assert stored(client, topic) == [b"one", b"of the other"]


def takes(client: Any, topic: str) -> bool:
    """Whether another one was alone there meanwhile."""
    try:
        with client.producer(topic, access_mode="exclusive") as other:
            other.send(b"of the other").position(SECONDS)
    except ProducerFenced:
        return False
    return True


def test_epochs_are_of_partitions(broker: Pulsar, client: Any, topic: str) -> None:
    parts = new_topic(broker, 2)
    with client.producer(parts, access_mode="exclusive") as out:
        assert sorted(out.topic_epochs) == [0, 1]
    with client.producer(parts) as shared:
        assert shared.topic_epochs == {}
    with pytest.raises(OptionError, match="partition"):
        client.producer(parts, access_mode="exclusive", topic_epoch=3)
    with pytest.raises(OptionError, match="access_mode"):
        client.producer(topic, topic_epoch=3)
    with pytest.raises(OptionError, match="access_mode"):
        client.producer(topic, access_mode="waiting")
