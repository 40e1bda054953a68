"""Pulsar's Java client and classes as judges: hashes, partitions by key, and the schema's numbers."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from brokers import java
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, drain, new_topic, ours
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.routing import java_string_hash, murmur3_hash

POM = "pulsar-4.2.4"
RENAMED = {("CommandNewTxn", "TXN_TTL_SECONDS"): "txn_ttl_millis"}  # the name of 5.0, which tells the unit
pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)


def keys(count: int) -> list[str]:
    chance = random.Random(4)
    letters = "abcXYZ09-_ éßЖ漢字😀\x00"
    return ["", "a", "😀", *("".join(chance.choices(letters, k=chance.randint(1, 40))) for _ in range(count))]


def as_input(texts: list[str]) -> list[dict[str, str]]:
    return [{"key": base64.b64encode(text.encode()).decode()} for text in texts]


def test_both_hashes_agree_with_java(broker: Pulsar) -> None:
    texts = keys(2000)
    found = java.run(POM, "PulsarJudge", "hash", input=as_input(texts))
    assert [line["java"] for line in found] == [java_string_hash(text) for text in texts]
    assert [line["murmur3"] for line in found] == [murmur3_hash(text) for text in texts]


@pytest.mark.parametrize(("scheme", "hashing"), [("JavaStringHash", "java"), ("Murmur3_32Hash", "murmur3")])
def test_a_key_goes_where_java_sends_it(broker: Pulsar, scheme: str, hashing: str) -> None:
    texts = [text for text in dict.fromkeys(keys(60)) if text]
    topic = new_topic(broker, partitions=7)
    lines = java.run(POM, "PulsarJudge", "produce", broker.service, PREFIX + topic, scheme, input=as_input(texts))
    theirs = {text: line["partition"] for text, line in zip(texts, lines, strict=True)}
    with ours(broker) as client:
        with client.producer(topic, hashing=hashing) as producer:
            for text in texts:
                producer.send(b"ours", key=text.encode())
        records = drain(client.reader(topic), 2 * len(texts))
    mine = {record.key.decode(): record.partition for record in records if record.value == b"ours"}
    sent = {record.key.decode(): record.partition for record in records if record.value != b"ours"}
    assert sent == theirs
    assert mine == theirs


def test_the_schema_has_every_number_of_the_brokers_classes(broker: Pulsar) -> None:
    wires = {1: 1, 2: 5, 3: 0, 4: 0, 5: 0, 8: 0, 9: 2, 11: 2, 12: 2, 13: 0, 14: 0}
    ours_fields: dict[tuple[str, str], tuple[int, int]] = {}
    values: dict[tuple[str, str], int] = {}

    def add(message: Any, prefix: str = "") -> None:
        name = prefix + message.name
        for field in message.fields:
            ours_fields[name, _plain(field.name)] = (field.number, wires[field.type])
        for kind in message.enum_types:
            values.update(((f"{name}${kind.name}", value.name), value.number) for value in kind.values)

    for message in api.DESCRIPTOR.message_types_by_name.values():
        add(message)
    for kind in api.DESCRIPTOR.enum_types_by_name.values():
        values.update(((kind.name, value.name), value.number) for value in kind.values)
    checked = 0
    for line in java.run(POM, "PulsarJudge", "schema"):
        name, numbers = line["name"], line["numbers"]
        if name.startswith(("Markers", "ReplicatedSubscriptions", "ClusterMessageId", "MarkerType")):
            continue  # another schema: replication between clusters
        for constant, number in numbers.items():
            if constant.endswith("_FIELD_NUMBER"):
                field = constant.removeprefix("_").removesuffix("_FIELD_NUMBER")
                tag = numbers[f"_{field}_TAG"]
                field = RENAMED.get((name, field), field)
                assert ours_fields[name, _plain(field)] == (number, tag & 7), (name, field)
                checked += 1
            elif line["enum"] and constant.endswith("_VALUE"):
                assert values[name, constant.removesuffix("_VALUE")] == number, (name, constant)
                checked += 1
    assert checked > 500


def _plain(name: str) -> str:
    """Names without case and underscores: the classes keep neither."""
    return name.replace("_", "").lower()
