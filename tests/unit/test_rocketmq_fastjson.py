"""JSON as fastjson writes it."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wireproto.errors import Malformed, ProtocolError, Truncated
from wireproto.rocketmq import fastjson
from wireproto.rocketmq.fastjson import ObjectKey

# bodies of real servers: code 106 of 4.9.7 and 5.5.0, code 202, code 43
CLUSTER = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:20911"},"brokerName":"broker-a","cluster":"DefaultCluster"}},'
    b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)
STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":2,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
    b'{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":1}}}'
)
OFFSETS = b'{"offsetTable":{"T@g":{0:12,1:-1,10:9223372036854775807}}}'


def test_numbers_as_keys_read_as_text() -> None:
    assert fastjson.loads(CLUSTER)["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "127.0.0.1:20911"}
    assert fastjson.loads(OFFSETS) == {"offsetTable": {"T@g": {"0": 12, "1": -1, "10": 9223372036854775807}}}


def test_objects_as_keys() -> None:
    table = fastjson.loads(STATS)["offsetTable"]
    assert table[ObjectKey({"topic": "T", "queueId": 0, "brokerName": "broker-a"})]["maxOffset"] == 9
    assert [dict(key)["queueId"] for key in table] == [2, 0]


def test_object_keys_nest_and_the_last_of_equal_ones_wins() -> None:
    assert fastjson.loads('{{"a":{1:2}}:1,{"a":{1:2}}:{{"b":0}:[]}}') == {ObjectKey({"a": {"1": 2}}): {ObjectKey({"b": 0}): []}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{name:'x',b:[1,2,],}", {"name": "x", "b": [1, 2]}),
        (r"['\x41\u00e9\n\'\/\0']", ["Aé\n'/\0"]),
        (r"['\ud83d\ude00']", ["😀"]),
        ("[1L, 2.5D, -1e3, null, undefined, true,]", [1, 2.5, -1000.0, None, None, True]),
        ("{1.5:1}", {"1.5": 1}),
        (" \n{ } ", {}),
    ],
)
def test_loose_forms(text: str, value: object) -> None:
    assert fastjson.loads(text) == value


@pytest.mark.parametrize("text", ["{1:2} x", "{1 2}", "{:1}", "[a]", "{1:2 3:4}", "['\\xg1']", "{1:1.2.3}", "}"])
def test_what_is_no_json_is_malformed_with_its_place(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        fastjson.loads(text)
    assert caught.value.offset is not None


@pytest.mark.parametrize("body", [CLUSTER, STATS, OFFSETS, rb"{a:'\u00e9\x41'}"])
def test_cut_anywhere_is_truncated(body: bytes) -> None:
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            fastjson.loads(body[:end])
    with pytest.raises(Truncated):
        fastjson.loads(body[:-1])


def test_deep_nesting_is_refused_without_a_stack_overflow() -> None:
    for text in ("[" * 100_000, "{" * 100_000, "{1:" * 100_000, "[{" * 100_000):
        with pytest.raises(ProtocolError):
            fastjson.loads(text)


def nested(depth: int, kind: str) -> str:
    if kind == "key":
        text = "{}"
        for _ in range(depth - 1):
            text = "{" + text + ":1}"
        return text
    return {"array": "[", "object": "{a:"}[kind] * (depth - 1) + "[]" + {"array": "]", "object": "}"}[kind] * (depth - 1)


@pytest.mark.parametrize("kind", ["array", "object", "key"])
def test_bodies_are_read_to_their_greatest_depth_and_no_deeper(kind: str) -> None:
    assert fastjson._Reader(nested(fastjson.DEPTH + 1, kind)).whole()
    with pytest.raises(Malformed, match=f"deeper than {fastjson.DEPTH}"):
        fastjson._Reader(nested(fastjson.DEPTH + 2, kind)).whole()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{{{}:1}:2}", "{{{}:1}:2}"),
        ("{{{a:1,b:2}:{c:3,d:[4,{e:5}]}}:6}", "{{{b:2,a:1}:{d:[4,{e:5}],c:3}}:6}"),
        ("{{a:1,b:[]}:0}", "{{b:[],a:1.0}:0}"),
    ],
)
def test_equal_objects_as_keys_are_one_key_whatever_they_hold(one: str, other: str) -> None:
    """Other objects as their own keys, too, which no server sends and any peer may."""
    (first,), (second,) = fastjson.loads(one), fastjson.loads(other)
    assert isinstance(first, ObjectKey)
    assert (first, hash(first)) == (second, hash(second))
    assert fastjson.loads(one) == fastjson.loads(other)


@pytest.mark.parametrize("text", ["[%s]", "{1:%s}", "{%s:1}", "[-%s]", "[%sL]"])
@pytest.mark.parametrize("digits", [20, 309, 4301, 100_000])
def test_numbers_of_any_length_are_read_or_malformed(text: str, digits: int) -> None:
    """Python refuses to read very long ones as it likes."""
    with contextlib.suppress(Malformed):
        assert fastjson.loads(text % ("9" * digits))
        return
    assert digits > 400


def test_bytes_that_are_not_utf8_are_malformed() -> None:
    with pytest.raises(Malformed):
        fastjson.loads(b'{"a":"\xff"}')


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # how fast trees are made is the machine's affair
@given(TREES)
def test_standard_json_reads_as_the_standard_library_reads_it(tree: object) -> None:
    text = json.dumps(tree)
    assert fastjson._Reader(text).whole() == json.loads(text)
    assert json.loads(fastjson.dumps(tree)) == tree if _encodable(tree) else True


def _encodable(tree: object) -> bool:
    try:
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.binary(max_size=60), st.integers(0, 200), st.sampled_from([CLUSTER, STATS, OFFSETS]))
def test_mutated_bodies_give_a_value_or_a_protocol_error(junk: bytes, at: int, body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        fastjson.loads(body[:at] + junk + body[at + len(junk) :])


def test_writer_keeps_what_fastjson_needs() -> None:
    key = ObjectKey({"brokerName": "b", "queueId": 0, "topic": "T"})
    assert fastjson.dumps({key: 1}) == b'{{"brokerName":"b","queueId":0,"topic":"T"}:1}'
    assert fastjson.dumps({0: "a", 1: [True, None, "é"]}) == '{0:"a",1:[true,null,"é"]}'.encode()
