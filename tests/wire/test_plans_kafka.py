"""Kafka's control messages by plan, judged by kafka-python's codec, which reads Kafka's own schema files."""

import importlib
import json
import random
import re
from io import BytesIO
from pathlib import Path
from uuid import UUID

import kafka.protocol.api_message as kafka_python
import pytest

import kafka
from kafka_messages import fields, filled, within
from wireproto._codec import Message, Slice, message_spec
from wireproto.errors import Malformed, ProtocolError, Truncated, UnsupportedVersion, ValueUnsupported
from wireproto.kafka import messages

EACH = 4  # random messages for each version
THEIR_NAMES = {
    "generation_id_or_member_epoch": "generation_id",  # 4.4 renamed it
    "enable_2pc": "enable2_pc",
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}


def python_class(name):
    """kafka-python's class of a message, or None."""
    for module in ("metadata", "admin", "consumer", "producer", "sasl", "api_header"):
        try:
            found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def message_classes():
    return [cls for cls in (getattr(messages, name) for name in messages.__all__) if hasattr(cls, "MIN_VERSION") and python_class(cls.NAME)]


def theirs_of(cls):
    """(first version, last version, decode, encode) of kafka-python's class: its headers and bare data are coded a little differently."""
    their = python_class(cls.NAME)
    if cls.NAME.endswith("Header"):
        first = 1 if cls.NAME == "RequestHeader" else 0
        read_header = lambda data, version: their.decode(BytesIO(data), flexible=version > first)  # noqa: E731
        return first, first + 1, read_header, lambda m, v: m.encode(flexible=v > first)
    if not cls.NAME.endswith(("Request", "Response")):
        struct = their._struct  # without the version in front
        coded = {"compact": False, "tagged": False}
        read_data = lambda data, version: struct.decode(BytesIO(data), version=version, data_class=their, **coded)  # noqa: E731
        return their.min_version, their.max_version, read_data, lambda m, v: struct.encode(m, version=v, **coded)

    def encode(message, version):
        message._header = None
        return message.encode(version)

    return their.min_version, their.max_version, their.decode, encode


def span(text):
    """Version range of Kafka's own schema files."""
    if text == "none":
        return (1, 0)
    first, _, last = text.partition("-")
    return (int(text[:-1]), 32767) if text.endswith("+") else (int(first), int(last or first))


def their_names(fields, version, structs):
    """Vendor's names of a version's fields in wire order, nested ones beneath."""
    shown = []
    for field in fields:
        first, last = span(field["versions"])
        if first <= version <= last:
            inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), {}).get("fields")
            shown.append((field["name"].lower(), their_names(inner, version, structs) if inner else None))
    return shown


def our_names(cls, version):
    shown = []
    for field in cls.FIELDS:
        if field.versions[0] <= version <= field.versions[1]:
            child = getattr(messages, field.type.strip("[]"), None)
            shown.append((field.vendor.lower(), our_names(child, version) if child else None))
    return shown


CLASSES = message_classes()


def test_every_message_that_kafka_python_has_is_judged():
    folder = Path(kafka_python.__file__).parent / "schemas" / "resources"
    assert {cls.NAME for cls in CLASSES} == {path.stem for path in folder.glob("*.json")}
    assert len(CLASSES) >= 108


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_every_version_round_trips(cls):
    rng = random.Random(cls.NAME)
    first, last = message_spec(cls)[1:3]
    for version in range(first, last + 1):
        for _ in range(3):
            message = filled(cls, version, rng, unknown_tags=True)
            data = message.encode(version)
            again = cls.decode(b"head" + data, version, start=4)
            assert again == message
            assert again.frozen
            assert again.encode(version) == data
            assert b"".join(bytes(part) for part in message.encode_parts(version)) == data
            assert cls.decode_from(data + b"tail", version)[1] == len(data)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_kafka_python_reads_and_writes_the_same(cls, oracle):
    """Their decoder finds our values in our bytes, and their encoder makes the same bytes of them."""
    rng = random.Random(cls.NAME)
    first, last, decode, encode = theirs_of(cls)
    versions = range(max(message_spec(cls)[1], first), min(message_spec(cls)[2], last) + 1)
    for version in versions:
        for _ in range(EACH):
            message = filled(cls, version, rng, nan=True)
            if cls.NAME == "ApiVersionsResponse":
                message.error_code = 0  # they read an error reply of any version as version 0
            data = message.encode(version)
            theirs = decode(data, version)
            assert values_of(theirs, message, version) == values_of(message, message, version), version
            assert encode(theirs, version) == data, version
    count = EACH * len(versions)
    oracle(f"kafka-python {kafka.__version__}", messages=1, versions=len(versions), vectors=count, exact=count)


def values_of(theirs, ours, version):
    """The values of a message of theirs (or of ours), read by the names of ours; as text, so that NaN is NaN."""
    shown = {}
    for field in fields(type(ours)):
        if within(version, field.versions):
            name = field.name if hasattr(theirs, field.name) else THEIR_NAMES[field.name]
            shown[field.name] = plain(getattr(theirs, name), getattr(ours, field.name), version)
    return shown


def plain(theirs, ours, version):
    if isinstance(ours, (list, tuple)):
        assert len(theirs) == len(ours)
        return [plain(*pair, version) for pair in zip(theirs, ours, strict=True)]
    if theirs is None and ours == (type(ours)() if isinstance(ours, Message) else -(2**31)):
        theirs = ours  # a tagged struct that was not sent; a bit set that was not asked for
    if isinstance(theirs, set):
        theirs = int.from_bytes(sum(1 << bit for bit in theirs).to_bytes(4, "big"), "big", signed=True)
    if ours is None or theirs is None:
        return theirs
    if isinstance(ours, Message):
        return values_of(theirs, ours, version)
    if isinstance(theirs, UUID):
        return repr(theirs.bytes)
    return repr(bytes(theirs) if isinstance(theirs, (bytes, memoryview, Slice)) else theirs)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.NAME)
def test_names_and_order_are_those_of_kafkas_schema(cls):
    folder = Path(kafka_python.__file__).parent / "schemas" / "resources"
    text = (folder / f"{cls.NAME}.json").read_text()
    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    structs = {struct["name"]: struct for struct in schema.get("commonStructs", ())}
    first, last = span(schema["validVersions"])
    for version in range(max(first, message_spec(cls)[1]), min(last, message_spec(cls)[2]) + 1):
        theirs = their_names(schema["fields"], version, structs)
        if cls.NAME == "TxnOffsetCommitRequest":
            theirs = [("generationidormemberepoch", inner) if name == "generationid" else (name, inner) for name, inner in theirs]
        assert our_names(cls, version) == theirs, version


@pytest.mark.parametrize("name", ["MetadataResponse", "FetchResponse", "ApiVersionsResponse", "JoinGroupRequest", "ProduceRequest"])
def test_every_cut_is_truncated(name):
    cls = getattr(messages, name)
    rng = random.Random(7)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        data = filled(cls, version, rng).encode(version)
        for cut in range(len(data)):
            with pytest.raises(Truncated) as caught:
                cls.decode(data[:cut], version)
            assert caught.value.offset <= cut
            assert caught.value.message == name
            assert caught.value.version == version


def test_mutations_end_in_a_message_or_a_protocol_error():
    rng = random.Random(11)
    outcomes = {"decoded": 0, "refused": 0}
    for name in ("MetadataResponse", "FetchResponse", "DescribeGroupsResponse", "ApiVersionsResponse"):
        cls = getattr(messages, name)
        for version in (cls.MIN_VERSION, cls.MAX_VERSION):
            data = bytearray(filled(cls, version, rng).encode(version))
            for _ in range(1500):
                mutant = bytearray(data)
                for _ in range(rng.choice([1, 1, 2, 5])):
                    mutant[rng.randrange(len(mutant))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
                try:
                    cls.decode(bytes(mutant), version).encode(version)
                except ProtocolError:
                    outcomes["refused"] += 1
                else:
                    outcomes["decoded"] += 1
    assert min(outcomes.values()) > 100


def test_trailing_bytes_unknown_versions_and_wrong_values_are_refused():
    header = messages.RequestHeader(request_api_key=3, request_api_version=12, correlation_id=7, client_id="c")
    with pytest.raises(Malformed, match="1 bytes left over"):
        messages.RequestHeader.decode(header.encode(2) + b"\0", 2)
    with pytest.raises(UnsupportedVersion, match="version 99"):
        header.encode(99)
    for value, complaint in ((40000, "does not fit"), (None, "null"), ("3", "int expected"), (3.0, "int expected")):
        with pytest.raises(ValueUnsupported, match=complaint) as caught:
            header.replace(request_api_key=value).encode(2)
        assert caught.value.path == "request_api_key"
    with pytest.raises(UnsupportedVersion, match="part of other"):
        messages.MetadataRequestTopic(name="x").encode(0)


def test_client_id_keeps_its_short_length_in_a_flexible_header():
    header = messages.RequestHeader(request_api_key=3, request_api_version=12, correlation_id=7, client_id="ab")
    assert header.encode(2).hex() == "0003000c000000070002616200"
    assert header.encode(1).hex() == "0003000c0000000700026162"


def test_value_that_a_version_cannot_carry():
    topic = messages.MetadataRequestTopic(name="t", topic_id=bytes(range(16)))
    request = messages.MetadataRequest(topics=[topic], include_topic_authorized_operations=True)
    with pytest.raises(ValueUnsupported, match="no such field") as caught:
        request.encode(7)
    assert caught.value.path == "include_topic_authorized_operations"
    with pytest.raises(ValueUnsupported, match="null"):
        messages.MetadataRequest(topics=None).encode(0)
    assert messages.MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"


def test_unknown_tags_survive_in_order():
    data = messages.ApiVersionsRequest(client_software_name="a", client_software_version="b").encode(3)[:-1]
    data += b"\x02" + b"\x05\x01x" + b"\x09\x02yz"
    message = messages.ApiVersionsRequest.decode(data, 3)
    assert message.unknown_tags == ((5, b"x"), (9, b"yz"))
    assert message.encode(3) == data
    assert message.replace(client_software_name="c").unknown_tags == message.unknown_tags
    with pytest.raises(Malformed, match="twice"):
        messages.ApiVersionsRequest.decode(data[:-4] + b"\x05\x02yz", 3)


def test_decoded_is_frozen_and_shares_equal_arrays():
    part = messages.MetadataResponsePartition(replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
    data = messages.MetadataResponse(topics=[messages.MetadataResponseTopic(name="t", partitions=[part, part])]).encode(9)
    message = messages.MetadataResponse.decode(data, 9)
    one, two = message.topics[0].partitions
    assert one.replica_nodes is one.isr_nodes is two.isr_nodes
    with pytest.raises(AttributeError, match="frozen"):
        one.leader_id = 5
    changed = one.replace(leader_id=5)
    changed.leader_id = 6
    assert (one.leader_id, changed.leader_id) == (0, 6)


def test_records_are_views_and_keep_null_apart_from_empty():
    for records in (None, b"", b"abc"):
        part = messages.PartitionProduceData(index=0, records=records)
        request = messages.ProduceRequest(topic_data=[messages.TopicProduceData(name="t", partition_data=[part])])
        got = messages.ProduceRequest.decode(request.encode(9), 9).topic_data[0].partition_data[0].records
        assert got == records
        assert records is None or isinstance(got, Slice)


def test_large_records_are_gathered_not_copied():
    records = bytearray(5000)
    part = messages.PartitionProduceData(index=0, records=records)
    request = messages.ProduceRequest(topic_data=[messages.TopicProduceData(name="t", partition_data=[part])])
    parts = request.encode_parts(9)
    assert parts[1] is records
    assert b"".join(parts) == request.encode(9)


def test_lone_surrogates_round_trip_and_other_bad_text_is_malformed():
    data = messages.RequestHeader(client_id="abc").encode(1).replace(b"abc", b"\xed\xa0\xbd")
    header = messages.RequestHeader.decode(data, 1)
    assert header.client_id == "\ud83d"
    assert header.encode(1) == data
    with pytest.raises(Malformed, match="UTF-8") as caught:
        messages.RequestHeader.decode(data.replace(b"\xed\xa0\xbd", b"\xff\xfe\xfd"), 1)
    assert caught.value.path == "client_id"


def test_the_first_controlled_shutdown_has_the_header_without_a_client_id():
    cls = messages.ControlledShutdownRequest
    assert [cls.header_version(version) for version in range(4)] == [0, 1, 1, 2]
    header = messages.RequestHeader(request_api_key=7, request_api_version=0, correlation_id=5, client_id="ignored")
    assert header.encode(0) == bytes.fromhex("0007000000000005")


def test_secrets_are_marked():
    """Passwords, tokens and what SASL says; and settings' values where they may be passwords. `repr` leaves them out."""
    marked = {f"{name}.{field.name}" for name in messages.__all__ for field in fields(getattr(messages, name)) if field.secret}
    assert marked == {
        "SaslAuthenticateRequest.auth_bytes",
        "SaslAuthenticateResponse.auth_bytes",
        "CreateDelegationTokenResponse.hmac",
        "RenewDelegationTokenRequest.hmac",
        "ExpireDelegationTokenRequest.hmac",
        "DescribedDelegationToken.hmac",
        "ScramCredentialUpsertion.salt",
        "ScramCredentialUpsertion.salted_password",
        "AlterConfigsAlterableConfig.value",
        "IncrementalAlterConfigsAlterableConfig.value",
        "UserScramCredentialRecord.salt",
        "UserScramCredentialRecord.stored_key",
        "UserScramCredentialRecord.server_key",
        "ConfigRecord.value",
    }
    names = re.compile("hmac|salt|password|auth_bytes|stored_key|server_key")
    assert {each for each in marked if names.search(each)} == {
        f"{name}.{field.name}" for name in messages.__all__ for field in fields(getattr(messages, name)) if names.search(field.name)
    }
    assert "pass" not in repr(messages.SaslAuthenticateRequest(auth_bytes=b"pass"))
