"""Which call or channel a frame belongs to, by its first bytes, for the four protocols."""

from __future__ import annotations

import itertools
import json
import struct

import pytest

from wireproto import _net
from wireproto._net import _match, consumer_channel, producer_channel
from wireproto.pulsar import PulsarApi_pb2 as api


def pulsar(payload: bytes = b"", **fields: object) -> bytes:
    command = api.BaseCommand(**fields)
    data = command.SerializeToString()
    return struct.pack(">I", len(data)) + data + payload


T = api.BaseCommand.Type


def test_kafka_and_zookeeper() -> None:
    assert _match("kafka", struct.pack(">i", 7) + b"rest") == ("reply", 7)
    assert _match("kafka", struct.pack(">i", -5)) == ("reply", -5)
    assert _match("kafka", b"\0\0\0") == ("unreadable", None)
    assert _match("zookeeper", struct.pack(">iqi", 9, 1, 0)) == ("reply", 9)
    assert _match("zookeeper", struct.pack(">iqi", -1, -1, 0)) == ("push", _net.WATCHES)
    assert _match("zookeeper", struct.pack(">iqi", -2, -1, 0)) == ("push", _net.SERVICE)
    assert _match("zookeeper", struct.pack(">i", -2)) == ("drop", None)
    assert _match("zookeeper", struct.pack(">iqi", -2, -1, -124)) == ("push", _net.SERVICE)
    assert _match("zookeeper", struct.pack(">iqi", -4, -1, 0)) == ("reply", -4)
    assert _match("zookeeper", b"") == ("unreadable", None)


def rocketmq(header: dict[str, object], body: bytes = b"") -> bytes:
    data = json.dumps(header).encode()
    return struct.pack(">I", len(data)) + data + body


def test_rocketmq_json() -> None:
    reply = {"code": 0, "flag": 1, "language": "JAVA", "opaque": 4711, "serializeTypeCurrentRPC": "JSON", "version": 1}
    assert _match("rocketmq", rocketmq(reply, b"body")) == ("reply", 4711)
    assert _match("rocketmq", rocketmq({**reply, "opaque": -3})) == ("reply", -3)
    assert _match("rocketmq", rocketmq({**reply, "flag": 0})) == ("push", _net.REQUESTS)
    tricky = {"extFields": {"opaque": 1, "flag": 0, "x": '{"opaque": 2}'}, "remark": 'a "quoted\\" {[ "opaque": 3', **reply}
    assert _match("rocketmq", rocketmq(tricky)) == ("reply", 4711)
    assert _match("rocketmq", rocketmq({"a": ["opaque", 5, {"flag": 0}], **reply})) == ("reply", 4711)


def test_rocketmq_json_in_whatever_order_and_with_other_names_as_long() -> None:
    fields = [("code", 6), ("flag", 1), ("opaque", 4711), ("extras", 5), ("size", 8)]
    for order in itertools.permutations(fields):
        assert _match("rocketmq", rocketmq(dict(order), b"7")) == ("reply", 4711)
        assert _match("rocketmq", rocketmq(dict(order) | {"flag": 2})) == ("push", _net.REQUESTS)


def test_rocketmq_json_texts_of_each_length_with_anything_at_each_place() -> None:
    """Texts are looked at in words."""
    for size in range(20):
        for place in range(size):
            for odd in '"\\\x00\x1f !\x7f\x80é世😀{}[],:':
                text = "t" * place + odd + "t" * (size - place - 1)
                for escaped in (True, False):
                    data = json.dumps({text: text, "flag": 1, "remark": text, "opaque": 7}, ensure_ascii=escaped).encode()
                    assert _match("rocketmq", struct.pack(">I", len(data)) + data) == ("reply", 7), data
                    cut = struct.pack(">I", len(data) - 1) + data[:-1]
                    assert _match("rocketmq", cut) == ("unreadable", None), cut


def test_rocketmq_binary() -> None:
    header = struct.pack(">hBhiii", 0, 0, 1, 88, 1, 0) + struct.pack(">i", 0)
    assert _match("rocketmq", struct.pack(">I", len(header) | 1 << 24) + header) == ("reply", 88)
    header = struct.pack(">hBhiii", 40, 0, 1, 88, 0, 0)
    assert _match("rocketmq", struct.pack(">I", len(header) | 1 << 24) + header) == ("push", _net.REQUESTS)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", struct.pack(">I", 9) + b"{}", struct.pack(">I", 2 << 24), struct.pack(">I", 1 << 24)])
def test_rocketmq_unreadable(frame: bytes) -> None:
    assert _match("rocketmq", frame) == ("unreadable", None)


REPLIES = {
    T.SUCCESS: {"success": api.CommandSuccess(request_id=300)},
    T.ERROR: {"error": api.CommandError(request_id=300, error=0, message="x" * 200)},
    T.PRODUCER_SUCCESS: {"producer_success": api.CommandProducerSuccess(request_id=300, producer_name="p", last_sequence_id=-1)},
    T.PARTITIONED_METADATA_RESPONSE: {
        "partitionMetadataResponse": api.CommandPartitionedTopicMetadataResponse(partitions=4, request_id=300)
    },
    T.LOOKUP_RESPONSE: {"lookupTopicResponse": api.CommandLookupTopicResponse(brokerServiceUrl="pulsar://x", response=1, request_id=300)},
    T.CONSUMER_STATS_RESPONSE: {"consumerStatsResponse": api.CommandConsumerStatsResponse(request_id=300, msgRateOut=1.5)},
    T.GET_LAST_MESSAGE_ID_RESPONSE: {
        "getLastMessageIdResponse": api.CommandGetLastMessageIdResponse(
            last_message_id=api.MessageIdData(ledgerId=1, entryId=2), request_id=300
        )
    },
    T.GET_TOPICS_OF_NAMESPACE_RESPONSE: {
        "getTopicsOfNamespaceResponse": api.CommandGetTopicsOfNamespaceResponse(request_id=300, topics=["a", "b"])
    },
    T.GET_SCHEMA_RESPONSE: {"getSchemaResponse": api.CommandGetSchemaResponse(request_id=300)},
    T.GET_OR_CREATE_SCHEMA_RESPONSE: {"getOrCreateSchemaResponse": api.CommandGetOrCreateSchemaResponse(request_id=300)},
    T.ACK_RESPONSE: {"ackResponse": api.CommandAckResponse(consumer_id=5, request_id=300)},
}


@pytest.mark.parametrize("kind", REPLIES, ids=T.Name)
def test_pulsar_replies(kind: int) -> None:
    assert _match("pulsar", pulsar(type=kind, **REPLIES[kind])) == ("reply", 300)


def test_pulsar_every_response_of_the_schema_is_known() -> None:
    """Commands that the broker sends with a request_id, by the vendor's schema, against what the matcher takes for a reply."""
    sent_by_clients = {"CLOSE_PRODUCER", "CLOSE_CONSUMER"}
    for field in api.BaseCommand.DESCRIPTOR.fields:
        if field.message_type is None or "request_id" not in field.message_type.fields_by_name:
            continue
        name = T.Name(field.number)
        if not (name.endswith(("RESPONSE", "SUCCESS")) or name == "ERROR") or name in sent_by_clients:
            continue
        message = api.BaseCommand(type=field.number)
        inner = getattr(message, field.name)
        for required in field.message_type.fields:
            if required.is_required and required.name != "request_id" and required.cpp_type != required.CPPTYPE_MESSAGE:
                setattr(inner, required.name, "7" if required.cpp_type == required.CPPTYPE_STRING else 0)
        inner.request_id = 12345
        data = message.SerializePartialToString()
        assert _match("pulsar", struct.pack(">I", len(data)) + data) == ("reply", 12345), name


def test_pulsar_channels() -> None:
    mid = api.MessageIdData(ledgerId=1, entryId=2)
    receipt = pulsar(type=T.SEND_RECEIPT, send_receipt=api.CommandSendReceipt(producer_id=6, sequence_id=9, message_id=mid))
    assert _match("pulsar", receipt) == ("push", producer_channel(6))
    message = pulsar(b"\x0e\x01payload", type=T.MESSAGE, message=api.CommandMessage(consumer_id=6, message_id=mid))
    assert _match("pulsar", message) == ("push", consumer_channel(6))
    closed = pulsar(type=T.CLOSE_CONSUMER, close_consumer=api.CommandCloseConsumer(consumer_id=6, request_id=1))
    assert _match("pulsar", closed) == ("push", consumer_channel(6))
    closed = pulsar(type=T.CLOSE_PRODUCER, close_producer=api.CommandCloseProducer(producer_id=6, request_id=1))
    assert _match("pulsar", closed) == ("push", producer_channel(6))
    change = pulsar(type=T.ACTIVE_CONSUMER_CHANGE, active_consumer_change=api.CommandActiveConsumerChange(consumer_id=6, is_active=True))
    assert _match("pulsar", change) == ("push", consumer_channel(6))
    end = pulsar(type=T.REACHED_END_OF_TOPIC, reachedEndOfTopic=api.CommandReachedEndOfTopic(consumer_id=6))
    assert _match("pulsar", end) == ("push", consumer_channel(6))
    for kind, channel in ((0, producer_channel(6)), (1, consumer_channel(6))):
        moved = api.CommandTopicMigrated(resource_id=6, resource_type=kind, brokerServiceUrl="pulsar://green")  # type: ignore[arg-type]
        assert _match("pulsar", pulsar(type=T.TOPIC_MIGRATED, topicMigrated=moved)) == ("push", channel)
    assert _match("pulsar", pulsar(type=T.CONNECTED, connected=api.CommandConnected(server_version="x"))) == ("push", _net.SERVICE)
    assert _match("pulsar", pulsar(type=T.AUTH_CHALLENGE, authChallenge=api.CommandAuthChallenge())) == ("push", _net.SERVICE)
    assert _match("pulsar", pulsar(type=T.PING, ping=api.CommandPing())) == ("ping", None)
    assert _match("pulsar", pulsar(type=T.PONG, pong=api.CommandPong())) == ("drop", None)


def test_pulsar_cut_at_each_byte_reads_nothing_beyond() -> None:
    whole = pulsar(type=T.LOOKUP_RESPONSE, **REPLIES[T.LOOKUP_RESPONSE])
    for cut in range(len(whole)):
        assert _match("pulsar", whole[:cut]) == ("unreadable", None)
        shorter = struct.pack(">I", max(0, cut - 4)) + whole[4:cut]
        assert _match("pulsar", shorter)[0] in ("unreadable", "reply", "push")
