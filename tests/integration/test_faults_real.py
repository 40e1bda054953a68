"""A sample of docs/faults.md on real brokers: a record is sent while its connection meets a fault, and becomes what the page says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import patience
import wireproto
from brokers import Broker
from steps.cells import OPTIONS
from steps.peer import Peer, saying
from wireproto import EARLIEST, LATEST
from wireproto.errors import BrokerError, Malformed, TimedOut

BROKERS = ["kafka-4.3.1", "pulsar-4.2.4", "rocketmq-5.5.0", "zookeeper-3.9.5"]
LONG = 30.0
PATIENT = {"kafka": {"request_timeout": 2.0}, "pulsar": {"operation_timeout": 2.0}, "rocketmq": {"request_timeout": 2.0}}
_numbers = itertools.count()
pytestmark = pytest.mark.parametrize("broker", BROKERS, indirect=True)


def reset(proxy: Any, receipt: Callable[[], Any]) -> None:
    proxy.cut()
    receipt()


def end_of_stream(proxy: Any, receipt: Callable[[], Any]) -> None:
    proxy.half_close()
    receipt()


def silence(proxy: Any, receipt: Callable[[], Any]) -> None:
    """Nothing is read and nothing said; then all of it passes."""
    proxy.stall()
    unanswered(receipt)
    proxy.heal()


def half_open(proxy: Any, receipt: Callable[[], Any]) -> None:
    """What is sent is thrown away, as by a peer that is gone; connections that are made later are good."""
    before = proxy.connections
    proxy.drop()
    unanswered(receipt)
    patience.until(lambda: proxy.connections > before)
    proxy.heal()


def slow_bytes(proxy: Any, receipt: Callable[[], Any]) -> None:
    proxy.slow(2_000)
    receipt()


def unanswered(receipt: Callable[[], Any]) -> None:
    with pytest.raises(TimedOut):
        receipt().position(0.5)


def made(broker: Broker) -> str:
    """A new topic."""
    topic = f"fault-{next(_numbers)}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(topic, timeout=LONG)
    return topic


def stored(broker: Broker, topic: str) -> list[bytes | None]:
    with wireproto.connect(broker.url) as client, client.reader(topic, start=EARLIEST, stop=LATEST) as reader:
        return [record.value for batch in reader for record in batch]


@pytest.mark.parametrize("fault", [reset, end_of_stream, silence, half_open, slow_bytes], ids=lambda fault: str(fault.__name__))
@pytest.mark.no_rerun
def test_a_record_is_stored_whatever_its_connection_meets(broker: Broker, fault_proxy: Any, fault: Callable[..., None]) -> None:
    topic = made(broker)
    given = (
        OPTIONS[broker.protocol]
        | PATIENT.get(broker.protocol, {})
        | {"address_map": fault_proxy.address_map(broker.addresses), "connect_timeout": 5.0}
    )
    with wireproto.connect(fault_proxy.url(broker.url), **given) as client, client.producer(topic, delivery_timeout=LONG) as out:
        out.send(b"before").position(LONG)
        sent: list[Any] = []

        def receipt() -> Any:
            if not sent:
                sent.append(out.send(b"under it"))
            return sent[0]

        fault(fault_proxy, receipt)
        sent[0].position(LONG)
        fault_proxy.heal()
    found = stored(broker, topic)
    if broker.protocol != "kafka":  # which alone tells a record from its repeat here: it may be there twice, never not at all
        found = list(dict.fromkeys(found))
    assert found == [b"before", b"under it"]


def test_garbage_is_told_at_once(broker: Broker) -> None:
    """Of the page: first request, a frame of zeros."""
    address = broker.addresses[0]
    host, _, port = address.rpartition(":")
    peer = Peer((host, int(port)), saying((12).to_bytes(4, "big") + bytes(12)), 1)
    try:
        with pytest.raises(Malformed), wireproto.connect(f"{broker.protocol}://{peer.address}", timeout=LONG) as client:
            client.producer("any").send(b"x").position(LONG)
    finally:
        peer.close()


def test_a_code_of_the_broker_is_its_own_error(broker: Broker) -> None:
    """A topic that is there is not made again."""
    topic = made(broker)
    with wireproto.connect(broker.url) as client, pytest.raises(BrokerError):
        client.admin().create_topic(topic, timeout=LONG)
