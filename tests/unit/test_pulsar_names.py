"""Topic names, keys, properties and the choice of a partition."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from wireproto._codec import KeyRouter, key_hash, pulsar_properties
from wireproto.errors import OptionError, ValueUnsupported
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.topics import parse_topic, short, without_partition


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("a/b/t/u", "persistent://a/b/t/u"),
        ("non-persistent://a/b/t", "non-persistent://a/b/t"),
    ],
)
def test_topic_names_are_completed(given: str, full: str) -> None:
    assert str(parse_topic(given)) == full


@pytest.mark.parametrize("given", ["", "a/b", "topic://a/b/c", "a//c", "persistent://a/b", "/a/b"])
def test_a_bad_topic_name_is_refused(given: str) -> None:
    with pytest.raises(OptionError):
        parse_topic(given)


def test_partitions_of_a_topic() -> None:
    topic = parse_topic("t")
    assert topic.partition == -1
    assert topic.of_partition(-1) == str(topic)
    third = topic.of_partition(3)
    assert third == "persistent://public/default/t-partition-3"
    assert parse_topic(third).partition == 3
    assert without_partition(third) == str(topic)
    assert short(third) == "t-partition-3"
    assert short("persistent://a/b/c") == "persistent://a/b/c"
    assert parse_topic("t-partition-x").partition == -1


def test_murmur3_of_known_keys() -> None:
    # computed by the other clients: the numbers that their own tests hold
    known = {"k1": 2110152746, "k2": 1479966664, "key1": 462881061, "key2": 1936800180, "key01": 39696932, "key02": 751761803}
    assert {key: key_hash("murmur3", key.encode()) for key in known} == known
    assert key_hash("murmur3", b"") == 0


def test_java_hash_of_known_keys() -> None:
    known = {"keykeykeykeykey1": 434058482, "keykeykey2": 42978643, "": 0, "hello": 0x5E918D2, "test": 0x364492, "é": 233}
    assert {key: key_hash("java", key.encode()) for key in known} == known


@pytest.mark.parametrize("hashing", ["java", "murmur3"])
@pytest.mark.parametrize("key", [b"\xff", b"\xff\x00", b"\xff\x00k", b"\xfe" * 10, b"plain \xff and more of it"])
def test_a_key_that_is_no_text_is_hashed_as_it_travels(hashing: str, key: bytes) -> None:
    assert key_hash(hashing, key) == key_hash(hashing, b64encode(key))


@pytest.mark.parametrize("hashing", ["java", "murmur3"])
def test_a_router_goes_by_the_hash(hashing: str) -> None:
    router = KeyRouter(hashing, 2)
    router.know(7, False)
    keys = [b"", b"k", b"key", b"a longer key of text", "schlüssel".encode(), b"\xff\x00"]
    assert [router.of(key) for key in keys] == [key_hash(hashing, key) % 7 for key in keys]
    assert [router.of(None) for _ in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [router.in_turn(3), router.in_turn(1), router.of(None), router.in_turn(5)] == [(3, 2), (4, 1), 4, (5, 2)]
    assert [router.in_turn(9), router.of(None)] == [(6, 2), 0]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("headers", [{"a": None}, [("a", b"1"), ("a", b"2")], {"a": b"\xff"}, {"\ud800": b""}, {"a": "text"}, {1: b""}])
def test_headers_that_properties_cannot_be_are_refused(batched: bool, headers: Any) -> None:
    with pytest.raises(ValueUnsupported):
        pulsar_properties(batched, headers)


@pytest.mark.parametrize(("batched", "tag"), [(True, b"\x0a"), (False, b"\x22")])
def test_headers_keep_their_order(batched: bool, tag: bytes) -> None:
    pairs = [("b", b"1"), ("a", b"")]
    texts = [api.KeyValue(key=name, value=text.decode()).SerializeToString() for name, text in pairs]
    assert pulsar_properties(batched, pairs) == b"".join(tag + bytes([len(text)]) + text for text in texts)
    assert pulsar_properties(batched, dict(pairs)) == pulsar_properties(batched, pairs)
    assert pulsar_properties(batched, []) is None
