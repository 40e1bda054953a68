"""Topic names, keys, properties and the choice of a partition."""

from __future__ import annotations

import pytest

from wireproto.errors import OptionError, ValueUnsupported
from wireproto.pulsar.keys import properties, wire_key
from wireproto.pulsar.partitioner import java_string_hash, key_hasher, murmur3_hash
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
    assert {key: murmur3_hash(key) for key in known} == known
    assert murmur3_hash("") == 0


def test_java_hash_of_known_keys() -> None:
    known = {"keykeykeykeykey1": 434058482, "keykeykey2": 42978643, "": 0, "hello": 0x5E918D2, "test": 0x364492, "é": 233}
    assert {key: java_string_hash(key) for key in known} == known


def test_a_key_that_is_no_text_is_hashed_as_it_travels() -> None:
    assert wire_key(b"plain") == ("plain", False)
    assert wire_key(b"\xff\x00") == ("/wA=", True)
    assert key_hasher("java")(b"\xff\x00") == java_string_hash("/wA=")


@pytest.mark.parametrize("headers", [{"a": None}, [("a", b"1"), ("a", b"2")], {"a": b"\xff"}, {"\ud800": b""}])
def test_headers_that_properties_cannot_be_are_refused(headers: object) -> None:
    with pytest.raises(ValueUnsupported):
        properties(headers)  # type: ignore[arg-type]


def test_headers_keep_their_order() -> None:
    assert properties([("b", b"1"), ("a", b"")]) == (("b", b"1"), ("a", b""))
    assert properties(None) == ()
