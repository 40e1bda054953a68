"""What a recording keeps: each protocol's requests and replies by name, on the dev broker and through a proxy before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import wireproto
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import UsageError
from wireproto.zookeeper.multi import Delete, Set


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as broker:
        yield broker


def use(url: str, protocol: str) -> None:
    """Something of everything that a recording has to read."""
    with wireproto.connect(url, timeout=10) as client:
        if protocol == "zookeeper":
            tree = client.tree()
            path = tree.create("/recorded-", b"x", sequence=True)
            tree.multi([Set(path, b"y"), Delete(path)])
            assert tree.exists(path) is None
            return
        client.admin().create_topic("recorded", partitions=1, timeout=10)
        with client.producer("recorded") as producer:
            producer.send(b"value", key=b"key").position(10)
        with client.reader("recorded", start=wireproto.EARLIEST, stop=wireproto.LATEST) as reader:
            assert sum(len(batch) for batch in reader) == 1
        client.admin().delete_topic("recorded", timeout=10)


EXPECTED = {
    "kafka": {"ApiVersions", "Metadata", "CreateTopics", "Produce", "ListOffsets", "Fetch"},
    "pulsar": {"connect", "partitionMetadata", "lookupTopic", "producer", "send", "subscribe", "flow"},
    "rocketmq": {"GetRouteInfoByTopic", "PullMessage"},
    "zookeeper": {"createSession", "create", "multi", "exists", "closeSession"},
}


@pytest.mark.parametrize("protocol", sorted(EXPECTED))
def test_a_recording_reads_what_a_client_sends_and_is_told(broker: DevBroker, protocol: str) -> None:
    seen = broker.record(protocol)
    use(broker.url(protocol), protocol)
    names = {request.name for request in seen.requests()}
    assert names >= EXPECTED[protocol], names
    assert {reply.name for reply in seen.replies()} >= (names if protocol != "pulsar" else {"connected", "send_receipt", "message"})
    assert all(one.at <= two.at for one, two in zip(seen.all(), seen.all()[1:], strict=False))


@pytest.mark.parametrize("protocol", ["kafka", "zookeeper"])
def test_a_proxy_records_the_same(broker: DevBroker, protocol: str) -> None:
    with FaultProxy() as proxy:
        beside, before = broker.record(protocol), proxy.record(protocol)
        url = proxy.url(broker.url(protocol))
        with_map = f"{url}{'&' if '?' in url else '?'}address_map={broker.address(protocol)}={proxy.through(broker.address(protocol))}"
        use(with_map, protocol)
        shown = [(seen.name, seen.frame) for seen in before.requests()]
        assert shown
        assert sorted(shown) == sorted((seen.name, seen.frame) for seen in beside.requests())


def test_what_a_produce_request_said_can_be_asked(broker: DevBroker) -> None:
    seen = broker.record("kafka")
    use(broker.url("kafka"), "kafka")
    (produce,) = seen.requests("Produce")
    assert produce.message.acks == -1
    assert produce.message.topic_data[0].name == "recorded"
    (reply,) = seen.replies("Produce")
    assert reply.version == produce.version
    assert reply.message.responses[0].partition_responses[0].error_code == 0


def test_wait_returns_when_the_last_one_comes_and_fails_by_name_when_none_does() -> None:
    seen = Recording("pulsar")
    ping = bytes.fromhex("000000050812920100")  # its command is type 18 and an empty field 18
    carrier = object()
    with pytest.raises(AssertionError, match=r"0 of 1 ping within 0\.01 s; sent were: none"):
        seen.wait("ping", timeout=0.01)
    threading.Timer(0.05, lambda: [seen.note(carrier, True, ping) for _ in range(2)]).start()
    began = time.monotonic()
    assert [one.name for one in seen.wait("ping", 2, timeout=10)] == ["ping", "ping"]
    assert time.monotonic() - began < 9


def test_a_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="amqp"):
        Recording("amqp")


@pytest.mark.parametrize("protocol", sorted(EXPECTED))
def test_a_recording_that_begins_late_minds_no_connection_that_stood_before(broker: DevBroker, protocol: str) -> None:
    with wireproto.connect(broker.url(protocol), timeout=10) as older:
        look = older.tree().exists if protocol == "zookeeper" else lambda _: older.admin().list_topics()
        look("/")
        seen = broker.record(protocol)
        look("/")
        use(broker.url(protocol), protocol)
        look("/")
    assert {request.name for request in seen.requests()} >= EXPECTED[protocol]


def test_a_reply_to_what_was_not_seen_is_unknown(broker: DevBroker) -> None:
    seen = Recording("kafka")
    seen.note(object(), False, bytes(8))
    assert [(one.name, one.message) for one in seen.all()] == [("unknown", None)]
