"""Pulsar's Java client and classes as judges: hashes, and partitions by key."""

from __future__ import annotations

import base64
import random

import pytest

from brokers import java
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, drain, new_topic, ours
from wireproto._codec import key_hash

POM = "pulsar-4.2.4"
pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)


def keys(count: int) -> list[str]:
    chance = random.Random(4)
    letters = "abcXYZ09-_ éßЖ漢字😀\x00"
    return ["", "a", "😀", *("".join(chance.choices(letters, k=chance.randint(1, 40))) for _ in range(count))]


def as_input(texts: list[str]) -> list[dict[str, str]]:
    return [{"key": base64.b64encode(text.encode()).decode()} for text in texts]


def test_both_hashes_agree_with_java_and_a_key_goes_where_java_sends_it(broker: Pulsar) -> None:
    """One JVM hashes all keys, and sends some of them by either hash."""
    texts = [text for text in dict.fromkeys(keys(60)) if text]
    hashed = [*texts, *keys(2000)]
    topics = {scheme: new_topic(broker, partitions=7) for scheme in ("JavaStringHash", "Murmur3_32Hash")}
    asked = [word for scheme, topic in topics.items() for word in (scheme, PREFIX + topic)]
    found = java.run(POM, "PulsarJudge", "keys", broker.service, str(len(texts)), *asked, input=as_input(hashed))
    assert [line["java"] for line in found] == [key_hash("java", text.encode()) for text in hashed]
    assert [line["murmur3"] for line in found] == [key_hash("murmur3", text.encode()) for text in hashed]
    for number, (hashing, topic) in enumerate(zip(("java", "murmur3"), topics.values(), strict=True)):
        theirs = {text: line["partitions"][number] for text, line in zip(texts, found, strict=False)}
        assert len(theirs) == len(texts)
        with ours(broker) as client:
            with client.producer(topic, hashing=hashing) as producer:
                for text in texts:
                    producer.send(b"ours", key=text.encode())
            records = drain(client.reader(topic), 2 * len(texts))
        mine = {record.key.decode(): record.partition for record in records if record.value == b"ours"}
        sent = {record.key.decode(): record.partition for record in records if record.value != b"ours"}
        assert sent == theirs, hashing
        assert mine == theirs, hashing
