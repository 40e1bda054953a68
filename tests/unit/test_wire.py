"""Every message by name to JSON and back to the same bytes; a cut one is Truncated; a walker of its own kind agrees with the core."""

import contextlib
import json
import random
import struct

import pytest
from google.protobuf import json_format

from fuzz.samples import filled, proto_filled
from wireproto import wire
from wireproto.errors import (
    ChecksumMismatch,
    FrameTooLarge,
    Malformed,
    ProtocolError,
    Truncated,
    UnknownMessage,
    UnsupportedVersion,
    ValueUnsupported,
    WireprotoError,
)
from wireproto.explain import explain
from wireproto.message import message_class
from wireproto.pulsar import PulsarApi_pb2 as api

BINARY = {"serializeTypeCurrentRPC": "ROCKETMQ"}


@pytest.mark.parametrize("protocol", ["kafka", "zookeeper"])
def test_every_message_and_version_goes_to_json_and_back_and_is_explained_alike(protocol):
    rng = random.Random(7)
    count = 0
    for name, (first, last) in wire.names(protocol).items():
        if name.startswith("Multi") and name != "MultiTxn" and name != "MultiHeader":
            continue
        cls = message_class(protocol, name)
        for version in range(first, last + 1):
            data = filled(cls, version, rng).encode(version)
            fields = wire.decode(protocol, name, version, data)
            again = json.loads(json.dumps(fields, allow_nan=False))
            assert wire.encode(protocol, name, version, again) == data, (name, version)
            walked, lines = explain(cls, version, data)
            fields.pop("encoding", None)  # ZooKeeper's, for text that jute would write otherwise
            assert walked == {key: fields[key] for key in walked}, (name, version)
            assert sorted(set(fields) - set(walked)) == [] or protocol == "kafka"
            assert [line.offset for line in lines] == sorted(line.offset for line in lines)
            assert b"".join(data[line.offset : line.stop] for line in lines) == data  # every byte once
            count += 1
            for cut in {0, 1, len(data) // 2, len(data) - 1} - {len(data)}:
                if 0 <= cut < len(data):
                    with pytest.raises(Truncated):
                        wire.decode(protocol, name, version, data[:cut])
                    with pytest.raises(Truncated):
                        explain(cls, version, data[:cut])
            with pytest.raises(Malformed):
                wire.decode(protocol, name, version, data + b"\0")
    assert count > {"kafka": 700, "zookeeper": 60}[protocol]


def test_zookeeper_multi_holds_any_operation_and_failed_results():
    request = {
        "operations": [
            {"header": {"type": 1, "done": False, "err": -1}, "record": {"path": "/a", "data": "AA==", "acl": None, "flags": 0}},
            {"header": {"type": 2, "done": False, "err": -1}, "record": {"path": "/b", "version": -1}},
        ],
        "end": {"type": -1, "done": True, "err": -1},
    }
    data = wire.encode("zookeeper", "MultiRequest", 0, request)
    assert data.hex() == (
        "0000000100ffffffff" "000000022f61" "0000000100" "ffffffff" "00000000"  # noqa: ISC001
        "0000000200ffffffff" "000000022f62" "ffffffff" "ffffffff01ffffffff"  # noqa: ISC001
    )  # fmt: skip
    assert wire.decode("zookeeper", "MultiRequest", 0, data) == request
    reply = bytes.fromhex("ffffffff00ffffff9b" "ffffff9b" "0000000200" "00000000" "ffffffff01ffffffff")  # noqa: ISC001  # fmt: skip
    fields = wire.decode("zookeeper", "MultiResponse", 0, reply)
    assert [item.get("record") for item in fields["results"]] == [{"err": -101}, None]
    assert wire.encode("zookeeper", "MultiResponse", 0, fields) == reply
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            wire.decode("zookeeper", "MultiRequest", 0, data[:cut])
        with pytest.raises(Truncated):
            wire.explain("zookeeper", "MultiRequest", 0, data[:cut])


def test_every_message_of_pulsars_proto_goes_to_json_and_back():
    rng = random.Random(3)
    names = [name for name in wire.names("pulsar") if name != "Frame"]
    assert len(names) > 90
    for name in names:
        message = proto_filled(api.DESCRIPTOR.message_types_by_name[name], rng)
        data = message.SerializeToString(deterministic=True)
        fields = wire.decode("pulsar", name, 0, data)
        assert wire.encode("pulsar", name, 0, json.loads(json.dumps(fields, allow_nan=False))) == data, name
        theirs = json_format.MessageToDict(message, preserving_proto_field_name=True)
        assert set(fields) - {"field_order"} == set(theirs), name  # the runtime writes CONNECT by number
        lines = wire.explain("pulsar", name, 0, data)
        assert b"".join(data[line.offset : line.stop] for line in lines) == data
        for cut in range(0, len(data), max(1, len(data) // 10)):
            with contextlib.suppress(Truncated):  # protobuf cannot tell a cut between optional fields
                wire.decode("pulsar", name, 0, data[:cut])


def test_a_pulsar_frame_shows_its_batch_and_checks_its_crc():
    from wireproto._codec import PulsarBatchBuilder

    for codec in ("none", "lz4", "zlib", "zstd", "snappy"):
        builder = PulsarBatchBuilder("p", compression=codec)
        builder.append(b"one", key=b"k", properties=(("a", b"b"),))
        builder.append(None)
        body = b"".join(bytes(part) for part in builder.finish(1, 2, 3))
        data = len(body).to_bytes(4, "big") + body
        fields = wire.decode("pulsar", "Frame", 0, data)
        assert fields["command"]["type"] == "SEND"
        assert [item["payload"] for item in fields["messages"]] == ["b25l", ""]
        assert fields["messages"][0]["metadata"]["partition_key"] == "k"
        assert wire.encode("pulsar", "Frame", 0, fields) == data
        if codec == "none":
            assert wire.encode("pulsar", "Frame", 0, {key: fields[key] for key in fields if key != "payload"}) == data
        lines = wire.explain("pulsar", "Frame", 0, data)
        assert b"".join(data[line.offset : line.stop] for line in lines) == data
        for cut in range(len(data)):
            with pytest.raises(Truncated):
                wire.decode("pulsar", "Frame", 0, data[:cut])
            with pytest.raises(Truncated):
                wire.explain("pulsar", "Frame", 0, data[:cut])
        broken = bytearray(data)
        broken[-1] ^= 1
        with pytest.raises(ChecksumMismatch):
            wire.decode("pulsar", "Frame", 0, bytes(broken))


def test_a_pulsar_command_cut_behind_its_type_is_truncated():
    for command in (api.BaseCommand(type=api.BaseCommand.PING, ping={}), api.BaseCommand(type=api.BaseCommand.FLOW)):
        if command.type == api.BaseCommand.FLOW:
            command.flow.consumer_id, command.flow.messagePermits = 7, 300
        data = command.SerializeToString()
        for end in range(len(data)):
            with pytest.raises(Truncated):
                wire.decode("pulsar", "BaseCommand", 0, data[:end])


def test_an_unsigned_number_that_java_wrote_as_a_negative_one_stays_that():
    permits = b"\x08\x0b\x5a\x0d\x08\x07\x10" + b"\xff" * 9 + b"\x01"
    fields = wire.decode("pulsar", "BaseCommand", 0, permits)
    assert fields["flow"] == {"consumer_id": 7, "messagePermits": -1}
    assert wire.encode("pulsar", "BaseCommand", 0, fields) == permits
    fields["flow"]["messagePermits"] = 2**32 - 1
    assert wire.encode("pulsar", "BaseCommand", 0, fields) == b"\x08\x0b\x5a\x08\x08\x07\x10" + b"\xff" * 4 + b"\x0f"


def test_unknown_pulsar_commands_and_fields_pass_unharmed():
    command = bytes.fromhex("0863" "9a0603616263" "a80601" "b5060a000000" "b9060b00000000000000")  # noqa: ISC001  # fmt: skip
    data = struct.pack(">ii", len(command) + 4, len(command)) + command
    fields = wire.decode("pulsar", "Frame", 0, data)
    assert [item["number"] for item in fields["command"]["unknown_fields"]] == [1, 99, 101, 102, 103]
    assert wire.encode("pulsar", "Frame", 0, fields) == data


@pytest.mark.parametrize("serializer", ["JSON", "ROCKETMQ"])
def test_rocketmq_frames_go_both_ways(serializer):
    fields = {
        "code": 310, "language": "JAVA", "version": 475, "opaque": 2**31 - 1, "flag": -1, "remark": "Grüße \"🛫\"",
        "extFields": {"b": "topic", "e": "3"}, "serializeTypeCurrentRPC": serializer, "body": "AP8=",
    }  # fmt: skip
    data = wire.encode("rocketmq", "Frame", 0, fields)
    assert wire.decode("rocketmq", "Frame", 0, data) == fields
    lines = wire.explain("rocketmq", "Frame", 0, data)
    assert b"".join(data[line.offset : line.stop] for line in lines) == data
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            wire.decode("rocketmq", "Frame", 0, data[:cut])
    typed = wire.decode("rocketmq", "SendMessageV2Request", 0, data)
    assert typed["extFields"] == {"b": "topic", "e": 3}
    assert wire.encode("rocketmq", "SendMessageV2Request", 0, typed) == data
    with pytest.raises(FrameTooLarge):
        wire.decode("rocketmq", "Frame", 0, b"\xff" + data[1:])
    for wrong in ({"code": 2**31}, {"code": 1, "opaque": "x"}, {"code": 1, "language": "COBOL"}, {"code": 1, "extFields": []}, {}):
        with pytest.raises((Malformed, ValueUnsupported)):
            wire.encode("rocketmq", "Frame", 0, wrong)


@pytest.mark.parametrize(("magic", "flags", "host"), [(-626843481, 0, "10.1.2.3:10911"), (-626843477, 0x30, "[2001:db8::1]:10911")])
def test_stored_rocketmq_messages_go_both_ways(magic, flags, host):
    from wireproto._codec import decode_rocketmq

    fields = {
        "magicCode": magic, "queueId": 3, "queueOffset": 2**40, "commitLogOffset": 2**41, "sysFlag": flags, "bornTimestamp": 1357034400000,
        "bornHost": host, "storeHost": host, "storeTimestamp": 5, "bodyText": "hello", "topic": "t", "properties": {"KEYS": "k", "a": "b"},
    }  # fmt: skip
    data = wire.encode("rocketmq", "StoredMessage", 0, fields)
    columns, _ = decode_rocketmq(data, topic="t", partition=0)  # the core reads what we wrote
    assert (columns.values(), columns.keys(), columns.timestamps()) == ([b"hello"], [b"k"], [1357034400000])
    shown = wire.decode("rocketmq", "StoredMessage", 0, data)
    assert {key: shown[key] for key in fields} == fields
    assert wire.encode("rocketmq", "StoredMessage", 0, shown) == data
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            wire.decode("rocketmq", "StoredMessage", 0, data[:cut])
    with pytest.raises(ChecksumMismatch):
        wire.decode("rocketmq", "StoredMessage", 0, data.replace(b"hello", b"jello"))


def test_wrong_bytes_are_typed_errors_whatever_they_are():
    rng = random.Random(5)
    seeds = [
        ("kafka", "FetchResponse", 12, filled(message_class("kafka", "FetchResponse"), 12, rng).encode(12)),
        ("kafka", "MetadataResponse", 12, filled(message_class("kafka", "MetadataResponse"), 12, rng).encode(12)),
        ("zookeeper", "GetChildren2Response", 0, filled(message_class("zookeeper", "GetChildren2Response"), 0, rng).encode()),
        ("rocketmq", "Frame", 0, wire.encode("rocketmq", "Frame", 0, {"code": 1, "extFields": {"a": "b"}, "remark": "r"})),
        ("rocketmq", "Frame", 0, wire.encode("rocketmq", "Frame", 0, {"code": 1, "extFields": {"a": "b"}, **BINARY})),
        ("rocketmq", "StoredMessage", 0, wire.encode("rocketmq", "StoredMessage", 0, {"topic": "t", "bodyText": "x"})),
        ("pulsar", "Frame", 0, wire.encode("pulsar", "Frame", 0, {"command": {"type": "PING", "ping": {}}})),
        ("pulsar", "CommandSubscribe", 0, proto_filled(api.CommandSubscribe.DESCRIPTOR, rng).SerializeToString()),
    ]
    for protocol, name, version, data in seeds:
        for _ in range(150):
            wrong = bytearray(data)
            for _ in range(rng.choice([1, 2, 5])):
                wrong[rng.randrange(len(wrong))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            for act in (wire.decode, wire.explain):
                with contextlib.suppress(ProtocolError):
                    act(protocol, name, version, bytes(wrong))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("smtp", "Helo", 0), UnknownMessage),
        (("kafka", "Metadata", 0), UnknownMessage),
        (("kafka", "MetadataRequest", 99), UnsupportedVersion),
        (("kafka", "MetadataRequest", "1"), UnsupportedVersion),
        (("zookeeper", "Stat", 1), UnsupportedVersion),
        (("pulsar", "Frame", 1), UnsupportedVersion),
    ],
)
def test_what_there_is_not_is_refused_both_ways(arguments, kind):
    for act, last in ((wire.decode, b""), (wire.encode, {}), (wire.explain, b"")):
        with pytest.raises(kind):
            act(*arguments, last)


@pytest.mark.parametrize(
    ("protocol", "message", "fields"),
    [
        ("kafka", "MetadataRequest", {"topics": [{"nam": "t"}]}),
        ("kafka", "MetadataRequest", {"topics": 5}),
        ("kafka", "MetadataRequest", []),
        ("pulsar", "CommandConnect", {"client_version": 5}),
        ("pulsar", "CommandConnect", {}),
        ("pulsar", "CommandConnect", {"client_version": "x", "nothing": 1}),
        ("pulsar", "BaseCommand", {"type": "NO_SUCH"}),
        ("pulsar", "BaseCommand", {"type": []}),
        ("pulsar", "BaseCommand", {"type": "\ud800"}),
        ("pulsar", "CommandUnsubscribe", {"consumer_id": 0, "request_id": 0, "force": 2**70}),
        ("pulsar", "CommandUnsubscribe", {"consumer_id": 2**64, "request_id": 0}),
        ("zookeeper", "MultiResponse", {"results": [], "end": {"done": False}}),
        ("zookeeper", "MultiResponse", {"results": [], "end": 5}),
        ("pulsar", "BaseCommand", {"type": "PING", "unknown_fields": 7}),
        ("pulsar", "Frame", {"command": 5}),
        ("pulsar", "Frame", {"command": {"type": "PING"}, "payload": 5}),
        ("zookeeper", "MultiRequest", {"operations": [{"header": {"type": 77}}]}),
        ("zookeeper", "MultiRequest", {"operations": [5]}),
        ("zookeeper", "MultiRequest", {"operations": [{"header": {"type": 2}, "record": 5}]}),
        ("rocketmq", "StoredMessage", {"bornHost": "x"}),
        ("rocketmq", "StoredMessage", {"queueId": 2**31}),
        ("rocketmq", "StoredMessage", {"sysFlag": "x"}),
        ("rocketmq", "StoredMessage", {"topic": 5, "properties": []}),
    ],
)
def test_wrong_fields_are_typed_errors(protocol, message, fields):
    with pytest.raises((Malformed, ValueUnsupported)) as caught:
        wire.encode(protocol, message, 0, fields)
    assert isinstance(caught.value, WireprotoError)
