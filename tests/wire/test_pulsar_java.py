"""Pulsar's schema, messages and frames against the generated classes and Commands of pulsar-common 4.2.4 and 5.0.0-M1, in a JVM."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor as Kind

import pulsar
from brokers import java
from wireproto import wire
from wireproto._codec import crc32c
from wireproto.compression import compress
from wireproto.errors import AuthError, ChecksumMismatch
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import BY_CODE, error_of

pytestmark = pytest.mark.java
JAVA = "PulsarWire"
POMS = {"4.2.4": "pulsar-4.2.4", "5.0.0-M1": "pulsar-common-5.0.0-M1"}
NEWEST = "5.0.0-M1"
RENAMED = {("CommandNewTxn", "txnttlseconds"): "txnttlmillis"}  # 4.2.4's name; 5.0's tells the unit
UNJUDGED = {  # newer than 5.0.0-M1
    ("MessageMetadata", 33), ("MessageMetadata", 34), ("SegmentInfoProto", 12), ("CommandScalableTopicLookup", 3),
    ("ScalableAssignedSegment", 5),
}  # fmt: skip
TYPES = {
    "int": {Kind.TYPE_INT32, Kind.TYPE_UINT32},
    "long": {Kind.TYPE_INT64, Kind.TYPE_UINT64},
    "boolean": {Kind.TYPE_BOOL},
    "String": {Kind.TYPE_STRING},
    "byte[]": {Kind.TYPE_BYTES},
    "double": {Kind.TYPE_DOUBLE},
}
WIRES = {Kind.TYPE_DOUBLE: 1, Kind.TYPE_STRING: 2, Kind.TYPE_BYTES: 2, Kind.TYPE_MESSAGE: 2}
MESSAGES: dict[str, Any] = dict(api.DESCRIPTOR.message_types_by_name)
ENUMS: dict[str, Any] = dict(api.DESCRIPTOR.enum_types_by_name)
ENUMS.update({f"{name}${enum.name}": enum for name, message in MESSAGES.items() for enum in message.enum_types})
versions = pytest.mark.parametrize("version", POMS)


ASKED = {"schema": "schema", "random": "random 20261121 25", "frames": "frames 5 600", "more frames": "frames 8 200"}


@cache
def given(version: str) -> dict[str, list[dict[str, Any]]]:
    """All that one JVM of this version makes without input of ours."""
    lines = java.run(POMS[version], JAVA, *" then ".join(ASKED.values()).split())
    answers: list[list[dict[str, Any]]] = [[]]
    for line in lines:
        if "then" in line:
            answers.append([])
        else:
            answers[-1].append(line)
    return dict(zip(ASKED, answers, strict=True))


@cache
def schema(version: str) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, int]]]:
    """The jar's messages and enums."""
    lines = given(version)["schema"]
    return (
        {line["message"]: line["fields"] for line in lines if "message" in line},
        {line["enum"]: line["values"] for line in lines if "enum" in line},
    )


@versions
def test_every_message_field_and_enum_value_is_in_the_schema(version: str, oracle: Callable[..., None]) -> None:
    messages, enums = schema(version)
    assert set(messages) <= set(MESSAGES)
    assert set(enums) <= set(ENUMS)
    judged = set()
    for name, fields in messages.items():
        numbers = MESSAGES[name].fields_by_number
        order = [field["number"] for field in fields]
        assert order == [field.number for field in MESSAGES[name].fields if field.number in order], name  # the order of their bytes
        for field in fields:
            where = (name, field["name"])
            assert field["number"] in numbers, where
            check_field(numbers[field["number"]], field, where)
            judged.add((name, field["number"]))
    for name, values in enums.items():
        ours = {value.name: value.number for value in ENUMS[name].values}
        assert {key: ours.get(key) for key in values} == values, name
    if version == NEWEST:
        assert set(messages) == set(MESSAGES)
        assert {name: len(values) for name, values in enums.items()} == {name: len(enum.values) for name, enum in ENUMS.items()}
        assert {(name, number) for name, message in MESSAGES.items() for number in message.fields_by_number} - judged == UNJUDGED
    newer = sum(len(message.fields) for message in MESSAGES.values()) - len(judged)
    counts = {
        "messages": len(messages),
        "fields": len(judged),
        "enum_values": sum(map(len, enums.values())),
        "newer_fields_unjudged": newer,
    }
    oracle(f"pulsar-common {version}", **counts)


def label(field: Any) -> str:
    """Whatever the runtime calls it."""
    if not hasattr(field, "is_repeated"):
        return {1: "optional", 2: "required", 3: "repeated"}[field.label]
    return "repeated" if field.is_repeated else "required" if field.is_required else "optional"


def check_field(ours: Any, theirs: dict[str, Any], where: tuple[str, str]) -> None:
    name = theirs["name"].replace("_", "").lower()
    assert ours.name.replace("_", "").lower() == RENAMED.get((where[0], name), name), where
    assert theirs["wire"] == WIRES.get(ours.type, 0), where
    assert theirs["label"] == label(ours), where
    if ours.message_type is not None:
        assert theirs["type"] == ours.message_type.name, where
        return
    if ours.enum_type is not None:
        assert ENUMS[theirs["type"]] is ours.enum_type, where
    else:
        assert ours.type in TYPES[theirs["type"]], where
    if theirs["label"] == "repeated":
        return
    default = ours.default_value
    if ours.enum_type is not None:
        default = ours.enum_type.values_by_number[default].name
    elif isinstance(default, bytes):
        default = base64.b64encode(default).decode()
    if theirs["default"] is None:  # a getter that throws: 4.2's of required fields, whatever their default, and 5.0's of enums without one
        assert theirs["label"] == "required" or not ours.has_default_value, where
    else:
        assert theirs["default"] == default, where


def test_every_server_error_is_a_class_with_its_flags(oracle: Callable[..., None]) -> None:
    _, enums = schema(NEWEST)
    errors = enums["ServerError"]
    assert {kind.name: code for code, kind in BY_CODE.items()} == errors
    retriable = {name for name, code in errors.items() if error_of(code, "").retriable}
    refresh = {name for name, code in errors.items() if error_of(code, "").refresh}
    assert refresh - {"UnknownError"} <= retriable == {
        "MetadataError", "PersistenceError", "ServiceNotReady", "ProducerBlockedQuotaExceededError", "ChecksumError", "ConsumerNotFound",
        "TooManyRequests", "TransactionCoordinatorNotFound",
    }  # fmt: skip
    assert "UnknownError" in refresh, "so that it is tried a few times while a role is opened"
    assert [name for name, code in errors.items() if error_of(code, "").fenced] == ["ProducerFenced"]
    assert [name for name, code in errors.items() if isinstance(error_of(code, ""), AuthError)] == [
        "AuthenticationError",
        "AuthorizationError",
    ]
    assert all(kind.__doc__ for kind in BY_CODE.values())
    oracle(f"pulsar-common {NEWEST}", error_codes=len(errors))


# ---- messages ---------------------------------------------------------------------------------------------------------------------


def numbered(descriptor: Any, shown: dict[str, Any]) -> dict[str, Any]:
    """What `wire.decode` shows, as the judge shows it: by field number, numbers signed."""
    assert "unknown_fields" not in shown
    found = {}
    for name, value in shown.items():
        field = descriptor.fields_by_name[name]
        items = [scalar(field, item) for item in value] if label(field) == "repeated" else scalar(field, value)
        found[str(field.number)] = items
    return found


def scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return numbered(field.message_type, value)
    if field.type == Kind.TYPE_UINT64 and value >= 1 << 63:
        return value - (1 << 64)
    if field.type == Kind.TYPE_UINT32 and value >= 1 << 31:
        return value - (1 << 32)
    return value


@versions
def test_what_java_writes_is_read_and_written_again_to_the_byte(version: str, oracle: Callable[..., None]) -> None:
    vectors = given(version)["random"]
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        decoded = wire.decode("pulsar", vector["message"], 0, data)
        assert numbered(MESSAGES[vector["message"]], decoded) == vector["value"], vector["message"]
        assert wire.encode("pulsar", vector["message"], 0, json.loads(json.dumps(decoded, allow_nan=False))) == data, vector["message"]
    names = {vector["message"] for vector in vectors}
    commands = {vector["value"]["1"] for vector in vectors if vector["message"] == "BaseCommand"}
    messages, enums = schema(version)
    assert names == set(messages)
    assert commands == set(enums["BaseCommand$Type"])
    oracle(f"pulsar-common {version}", commands=len(commands), vectors=len(vectors), exact_in_both_directions=len(vectors))


@versions
def test_what_we_write_is_read_and_written_again_by_java(version: str, oracle: Callable[..., None]) -> None:
    chance = random.Random(77)
    messages, enums = schema(version)
    known = {name: {field["number"] for field in fields} for name, fields in messages.items()}
    sent = []
    for name in [*messages] * 6:
        if name == "BaseCommand":
            continue
        sent.append((name, dict(random_fields(chance, MESSAGES[name], known, enums, 0))))
    for kind, number in enums["BaseCommand$Type"].items():
        field = MESSAGES["BaseCommand"].fields_by_number[number]
        sent.append(("BaseCommand", {"type": kind, field.name: dict(random_fields(chance, field.message_type, known, enums, 0))}))
    written = [wire.encode("pulsar", name, 0, fields) for name, fields in sent]
    asked = [{"message": name, "hex": data.hex()} for (name, _), data in zip(sent, written, strict=True)]
    for (name, fields), data, line in zip(sent, written, java.run(POMS[version], JAVA, "reread", input=asked), strict=True):
        assert line["value"] == numbered(MESSAGES[name], fields), name
        assert line["hex"] == data.hex(), name
    oracle(f"pulsar-common {version}", ours_read_by_Java=len(sent))


def random_fields(chance: random.Random, descriptor: Any, known: Any, enums: Any, depth: int) -> Iterator[tuple[str, Any]]:
    chosen = {oneof.name: chance.choice(list(oneof.fields)).number for oneof in descriptor.oneofs}
    for field in descriptor.fields:
        if field.number not in known[descriptor.name]:
            continue
        if field.containing_oneof is not None and chosen[field.containing_oneof.name] != field.number:
            continue
        make = lambda field=field: random_value(chance, field, known, enums, depth)  # noqa: E731
        if label(field) == "repeated":
            if count := 0 if depth > 2 else chance.randrange(4):
                yield field.name, [make() for _ in range(count)]
        elif label(field) == "required" or (chance.random() < 0.7 and (field.message_type is None or depth < 3)):
            yield field.name, make()


def random_value(chance: random.Random, field: Any, known: Any, enums: Any, depth: int) -> Any:
    if field.message_type is not None:
        return dict(random_fields(chance, field.message_type, known, enums, depth + 1))
    if field.enum_type is not None:
        return chance.choice(list(enums[next(name for name, enum in ENUMS.items() if enum is field.enum_type)]))
    if field.type == Kind.TYPE_BOOL:
        return chance.random() < 0.5
    if field.type == Kind.TYPE_DOUBLE:
        return chance.choice([0.5, -1e300, "Infinity", math.pi])
    if field.type == Kind.TYPE_BYTES:
        return base64.b64encode(chance.randbytes(chance.randrange(300))).decode()
    if field.type == Kind.TYPE_STRING:
        return "".join(chance.choices("aZ/-:\0 éЖ漢😀", k=chance.randrange(200)))
    bits = 32 if field.type in (Kind.TYPE_INT32, Kind.TYPE_UINT32) else 64
    low = 0 if field.type == Kind.TYPE_UINT64 else -(1 << bits - 1)
    high = low + (1 << bits) - 1  # of a uint32 too: Java keeps an int
    return chance.choice([low, high, 0, 1, chance.randint(low, high)])


# ---- frames -----------------------------------------------------------------------------------------------------------------------


@versions
def test_frames_of_javas_commands_are_read_and_written_again_to_the_byte(version: str, oracle: Callable[..., None]) -> None:
    vectors = given(version)["frames"]
    seen: set[tuple[Any, ...]] = set()
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        shown = wire.decode("pulsar", "Frame", 0, data)
        assert ("broker_entry_metadata" in shown, "checksum" in shown) == (vector["stamped"], vector["checksum"])
        assert numbered(MESSAGES["MessageMetadata"], shown["metadata"]) == vector["metadata"]
        assert base64.b64decode(shown["payload"]).hex() == vector["payload"]
        if vector["batch"] and not vector["encrypted"]:
            ours = [
                {"metadata": numbered(MESSAGES["SingleMessageMetadata"], m["metadata"]), "payload": m["payload"]} for m in shown["messages"]
            ]
            assert ours == vector["messages"]
        else:
            assert "messages" not in shown
            assert "messages_error" not in shown
        again = json.loads(json.dumps(shown))
        assert wire.encode("pulsar", "Frame", 0, again) == data
        seen.add((vector["codec"], vector["batch"], vector["stamped"], vector["checksum"], shown["command"]["type"]))
        if vector["checksum"]:
            broken = data[:-1] + bytes([data[-1] ^ 1])
            with pytest.raises(ChecksumMismatch):
                wire.decode("pulsar", "Frame", 0, broken)
    assert len(seen) == 5 * 2 * (2 + 2 + 2)  # SEND has no stamp
    oracle(f"Commands of Pulsar {version}", frames=len(vectors), exact_in_both_directions=len(vectors), kinds=len(seen))


def test_batches_of_java_read_alike_here_and_in_the_official_client(oracle: Callable[..., None]) -> None:
    """pulsar-client's MessageBatch (C++) as a second opinion."""
    count = 0
    for vector in given("4.2.4")["more frames"]:
        if not vector["batch"] or vector["encrypted"]:
            continue
        shown = wire.decode("pulsar", "Frame", 0, bytes.fromhex(vector["hex"]))
        batch = pulsar.MessageBatch().with_message_id(pulsar.MessageId(-1, 5, 6, -1))
        theirs = list(batch.parse_from(bytes.fromhex(vector["plain"]), len(vector["messages"])))
        for message, ours in zip(theirs, shown["messages"], strict=True):
            single = ours["metadata"]
            assert message.data() == base64.b64decode(ours["payload"])
            assert message.partition_key() == single.get("partition_key", "")
            assert message.event_timestamp() == single.get("event_time", 0)
            assert message.properties() == {pair["key"]: pair["value"] for pair in single.get("properties", ())}
            count += 1
    assert count > 150
    oracle("pulsar-client's MessageBatch", messages_alike=count)


CODECS = {"NONE": "none", "LZ4": "lz4-block", "ZLIB": "zlib", "ZSTD": "zstd", "SNAPPY": "snappy-raw"}


@versions
def test_frames_that_we_write_are_read_by_javas_commands(version: str, oracle: Callable[..., None]) -> None:
    chance = random.Random(6)
    messages, enums = schema(version)
    known = {name: {field["number"] for field in fields} for name, fields in messages.items()}
    sent: list[tuple[dict[str, Any], bytes]] = []
    for number in range(150):
        metadata = dict(random_fields(chance, MESSAGES["MessageMetadata"], known, enums, 0))
        metadata.pop("encryption_keys", None)
        fields: dict[str, Any] = {"metadata": metadata, "checksum": 0}
        metadata["compression"] = codec = list(CODECS)[number % 5]
        if number % 2:
            singles = [dict(random_fields(chance, MESSAGES["SingleMessageMetadata"], known, enums, 0)) for _ in range(chance.randint(1, 6))]
            payloads = [chance.randbytes(chance.randrange(200)) * 3 for _ in singles]
            for single, payload in zip(singles, payloads, strict=True):
                single["payload_size"] = len(payload)
            metadata["num_messages_in_batch"] = len(singles)
            fields["messages"] = [
                {"metadata": single, "payload": base64.b64encode(payload).decode()}
                for single, payload in zip(singles, payloads, strict=True)
            ]
            sizes = [wire.encode("pulsar", "SingleMessageMetadata", 0, single) for single in singles]
            metadata["uncompressed_size"] = sum(4 + len(head) + len(payload) for head, payload in zip(sizes, payloads, strict=True))
        else:
            metadata.pop("num_messages_in_batch", None)
            plain = chance.randbytes(100) * chance.randrange(9)
            metadata["uncompressed_size"] = len(plain)
            fields["payload"] = base64.b64encode(compress(CODECS[codec], plain)).decode()
            fields["plain"] = plain.hex()
        command: dict[str, Any] = {"type": "SEND", "send": {"producer_id": number, "sequence_id": 2**63 + number}}
        if number % 3:
            command = {"type": "MESSAGE", "message": {"consumer_id": 1, "message_id": {"ledgerId": 2**64 - 1, "entryId": 5}}}
            fields["broker_entry_metadata"] = {"broker_timestamp": 12, "index": 2**40}
        fields["command"] = command
        plain_hex = fields.pop("plain", "")
        sent.append((fields | {"plain": plain_hex}, wire.encode("pulsar", "Frame", 0, fields)))
    for (fields, data), line in zip(
        sent, java.run(POMS[version], JAVA, "reread-frames", input=[{"hex": d.hex()} for _, d in sent]), strict=True
    ):
        assert line["command"] == numbered(MESSAGES["BaseCommand"], fields["command"])
        assert line["metadata"] == numbered(MESSAGES["MessageMetadata"], fields["metadata"])
        assert line["checksum"] is True
        assert (line["broker"] is None) == ("broker_entry_metadata" not in fields)
        ours = [
            {"metadata": numbered(MESSAGES["SingleMessageMetadata"], m["metadata"]), "payload": m["payload"]}
            for m in fields.get("messages", ())
        ]
        assert line["messages"] == ours
        assert line["plain"] == fields["plain"]
        assert wire.encode("pulsar", "Frame", 0, wire.decode("pulsar", "Frame", 0, data)) == data
    assert crc32c(b"123456789") == 0xE3069283
    oracle(f"Commands of Pulsar {version}", ours_read_by_Java=len(sent))
