"""`wire.decode` and `wire.encode` of RocketMQ's frames and batches: an exact reverse, whoever wrote them."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import Any

import pytest

from wireproto import wire
from wireproto._codec import RemotingCommand
from wireproto.errors import Malformed, Truncated, ValueUnsupported, WireprotoError

FOREIGN = [
    b'{"opaque":7, "code":11,\n"extFields":{"topic":"T","queueId":"3","x":"unknown"},"flag":0}',  # order, blanks, no version
    b'{"code":11,"extFields":{"a":"1","a":"2"},"language":"KLINGON","opaque":1,"version":5}',  # a name twice, a language of nobody's
    b'{"code":11,"extFields":{},"opaque":1,"extra":[{"deep":null}],"serializeTypeCurrentRPC":"JSON"}',
    b'{"code":11,"extFields":{"s":"\\u6807\\/\\u000B"},"remark":null,"opaque":-1}',  # other escapes
    b'{"code":11,"extFields":{"n":12,"b":true,"none":null}}',  # values that are no text
]


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def binary(*pairs: tuple[bytes, bytes], remark: bytes = b"") -> bytes:
    ext = b"".join(struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in pairs)
    return struct.pack(">hBhiii", 11, 3, 409, 1, 0, len(remark)) + remark + struct.pack(">i", len(ext)) + ext


FRAMES = [frame(header, body) for header in FOREIGN for body in (b"", b"\x00\xff", b'{"a":1}')]
FRAMES += [frame(binary((b"topic", b"T"), (b"unknown", b"x")), b"b", 1), frame(binary((b"a", b"1"), (b"a", b"")), b"", 1)]


@pytest.mark.parametrize("data", FRAMES)
@pytest.mark.parametrize("name", ["Frame", "PullMessageRequest", "PullMessageResponse"])
def test_a_frame_of_any_writer_comes_back_to_the_byte(name: str, data: bytes) -> None:
    shown = json.loads(json.dumps(wire.decode("rocketmq", name, 0, data)))
    assert wire.encode("rocketmq", name, 0, shown) == data


def test_what_is_changed_is_written_whatever_the_header_was() -> None:
    shown = wire.decode("rocketmq", "Frame", 0, FRAMES[0])
    assert "header" in shown
    shown["extFields"]["topic"] = "Other"
    again = RemotingCommand.decode(wire.encode("rocketmq", "Frame", 0, shown)[4:])
    assert again.ext == {"topic": "Other", "queueId": "3", "x": "unknown"}
    assert (again.code, again.opaque) == (11, 7)


def test_our_own_frames_need_no_header() -> None:
    for serializer in (0, 1):
        command = RemotingCommand(11, 5, ext={"topic": "标\x01\x02", "queueId": "3"}, body=b"x", serializer=serializer)
        rest = b"".join(bytes(part) for part in command.encode())
        data = struct.pack(">i", len(rest)) + rest
        shown = wire.decode("rocketmq", "PullMessageRequest", 0, data)
        assert "header" not in shown
        assert shown["extFields"] == {"topic": "标\x01\x02", "queueId": 3}
        assert wire.encode("rocketmq", "PullMessageRequest", 0, shown) == data


@pytest.mark.parametrize("text", ["007", "+7", "--7", "7.0", "9" * 5000, "-0", "", "七"])
def test_a_number_that_is_written_otherwise_stays_text(text: str) -> None:
    data = frame(json.dumps({"code": 11, "extFields": {"queueId": text}}).encode())
    shown = wire.decode("rocketmq", "PullMessageRequest", 0, data)
    assert shown["extFields"]["queueId"] == text
    assert wire.encode("rocketmq", "PullMessageRequest", 0, shown) == data


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"header": "no base64"}, Malformed),
        ({"header": base64.b64encode(b"{").decode()}, Malformed),
        ({"header": base64.b64encode(b"x" * (1 << 24)).decode()}, ValueUnsupported),
        ({"nothing": 1}, Malformed),
        ({"code": None}, Malformed),
        ({"code": 1 << 31}, ValueUnsupported),
        ({"extFields": {"a": []}}, Malformed),
    ],
)
def test_fields_that_make_no_frame(change: dict[str, Any], kind: type[WireprotoError]) -> None:
    shown = wire.decode("rocketmq", "Frame", 0, FRAMES[0]) | change
    with pytest.raises(kind):
        wire.encode("rocketmq", "Frame", 0, shown)


ENTRY = struct.pack(">iiiii", 31, 0, 0, 9, 4) + b"body" + struct.pack(">h", 5) + b"a\x01b\x02c"
OPEN = struct.pack(">iiiii", 29, 0, 0, -1, 4) + b"body" + struct.pack(">h", 3) + b"a\x01b"


def test_batches_both_ways() -> None:
    shown = wire.decode("rocketmq", "MessageBatch", 0, ENTRY + OPEN)
    first, second = shown["messages"]
    assert (first["flag"], first["bodyText"], first["properties"]) == (9, "body", "a\x01b\x02c")
    assert (second["flag"], second["bodyText"], second["properties"], second["propertiesOpen"]) == (-1, "body", {"a": "b"}, True)
    assert wire.encode("rocketmq", "MessageBatch", 0, shown) == ENTRY + OPEN
    assert wire.decode("rocketmq", "MessageBatch", 0, b"") == {"messages": []}
    for cut in range(1, len(OPEN)):
        with pytest.raises(Truncated):
            wire.decode("rocketmq", "MessageBatch", 0, ENTRY + OPEN[:cut])


def test_mutations_end_in_the_same_bytes_or_an_error_of_ours() -> None:
    rng = random.Random(11)
    seeds = [("Frame", data) for data in FRAMES] + [("MessageBatch", ENTRY + OPEN)]
    refused = 0
    for _ in range(4000):
        name, data = rng.choice(seeds)
        mutant = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice([0, 255, 34, 92, 123, 125, 58, 44, 1, 2, rng.randrange(256)])
        try:
            shown = wire.decode("rocketmq", name, 0, bytes(mutant))
        except WireprotoError:
            refused += 1
            continue
        assert wire.encode("rocketmq", name, 0, shown) == bytes(mutant)
    assert 500 < refused < 4000
