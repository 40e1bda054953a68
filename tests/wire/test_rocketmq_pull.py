"""Pulls and the heads of their replies by the short way: what it takes reads as the general codec reads it, all else is left to that."""

import json
import random
import struct

import pytest

from wireproto._codec import RemotingCommand, RepeatedCommand, rocket_pull_reply
from wireproto.errors import ProtocolError, ValueUnsupported
from wireproto.rocketmq.messages import PullMessageRequest, PullMessageResponse

# as brokers 5.5.0 and 4.9.7 write them, as JSON and (4.9.7 to a binary request) as ROCKETMQ header
JSON_5 = (
    b'{"code":0,"extFields":{"maxOffset":"100000","topicSysFlag":"0","groupSysFlag":"0","suggestWhichBrokerId":"0","minOffset":"7",'
    b'"nextBeginOffset":"64"},"flag":1,"language":"JAVA","opaque":12,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":503}'
)
JSON_4 = (
    b'{"code":19,"extFields":{"nextBeginOffset":"9","maxOffset":"9","suggestWhichBrokerId":"0","minOffset":"0"},"flag":1,'
    b'"language":"JAVA","opaque":3,"remark":"OFFSET_OVERFLOW_ONE","serializeTypeCurrentRPC":"JSON","version":401}'
)
FIELDS = {"nextBeginOffset": "64", "minOffset": "7", "maxOffset": "100000", "suggestWhichBrokerId": "0", "offsetDelta": "0"}
BODY = b"stored messages"


def framed(header: bytes, body: bytes = BODY) -> bytes:
    return struct.pack(">I", len(header)) + header + body


def binary(code: int = 0, ext: dict[str, str] = FIELDS, remark: str | None = "FOUND", body: bytes = BODY) -> bytes:
    command = RemotingCommand(code, 12, flag=1, ext=ext, remark=remark, body=body, version=401, language=0, serializer=1)
    return b"".join(bytes(part) for part in command.encode())


def general(frame: bytes) -> tuple[int, int, int, int, bytes]:
    """What the general codec says of it; raises ProtocolError."""
    reply = RemotingCommand.decode(frame)
    fields = PullMessageResponse.from_ext(reply.ext)
    return reply.code, fields.next_begin_offset, fields.min_offset, fields.max_offset, bytes(reply.body)


def agrees(frame: bytes) -> bool:
    """Whether the short way took it; it then says what the general codec does."""
    found = rocket_pull_reply(frame)
    if found is None:
        return False
    *numbers, body = found
    assert (*numbers, bytes(body)) == general(frame)
    return True


FRAMES = (framed(JSON_5), framed(JSON_4, b""), binary(), binary(20, remark=None, body=b""))


@pytest.mark.parametrize("frame", FRAMES)
def test_usual_replies_are_taken(frame: bytes) -> None:
    assert agrees(frame)


def test_a_reply_s_numbers_and_body() -> None:
    code, following, low, high, body = rocket_pull_reply(framed(JSON_5)) or (None,) * 5
    assert (code, following, low, high, bytes(body or b"")) == (0, 64, 7, 100000, BODY)
    assert general(FRAMES[1])[:4] == (19, 9, 0, 9)


@pytest.mark.parametrize("frame", FRAMES)
def test_cut_anywhere_it_is_left_to_the_general_codec_or_read_alike(frame: bytes) -> None:
    size = int.from_bytes(frame[1:4], "big")
    for cut in range(len(frame)):
        assert agrees(frame[:cut]) == (cut >= 4 + size)  # the body may have any length
    for cut in range(size):  # the frame is whole, its header ends too soon
        assert not agrees(frame[:1] + cut.to_bytes(3, "big") + frame[4:])


@pytest.mark.parametrize("frame", FRAMES)
def test_mutations_are_left_to_the_general_codec_or_read_alike(frame: bytes) -> None:
    rng = random.Random(5)
    taken = refused = 0
    for _ in range(20_000):
        mutant = bytearray(frame)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice([0, 255, 34, 92, 123, 125, 58, 44, 45, 48, rng.randrange(256)])
        if agrees(bytes(mutant)):
            taken += 1
            continue
        refused += 1
    assert taken > 1000
    assert refused > 1000


@pytest.mark.parametrize("serializer", [0, 1])
@pytest.mark.parametrize("name", [name for name in FIELDS if name != "offsetDelta"])
def test_a_reply_without_a_field_is_left_to_the_general_codec(serializer: int, name: str) -> None:
    ext = {key: value for key, value in FIELDS.items() if key != name}
    frame = b"".join(bytes(part) for part in RemotingCommand(0, 1, flag=1, ext=ext, serializer=serializer).encode())
    assert rocket_pull_reply(frame) is None
    with pytest.raises(ProtocolError, match=name):
        general(frame)


@pytest.mark.parametrize("serializer", [0, 1])
@pytest.mark.parametrize("value", ["", "-", "x", "1 ", "+1", "1_0", "9" * 19, "1.0", "true", "٣"])
def test_a_field_that_is_no_plain_number_is_left_to_the_general_codec(serializer: int, value: str) -> None:
    for name in FIELDS:
        frame = b"".join(bytes(part) for part in RemotingCommand(0, 1, flag=1, ext=FIELDS | {name: value}, serializer=serializer).encode())
        assert rocket_pull_reply(frame) is None or (name == "offsetDelta" and not value and agrees(frame))


@pytest.mark.parametrize("code", [1, 2, 16, 17, 22, 24, 26, -1])
def test_errors_are_left_to_the_general_codec(code: int) -> None:
    assert rocket_pull_reply(binary(code)) is None
    assert rocket_pull_reply(framed(JSON_5.replace(b'"code":0', b'"code":%d' % code))) is None
    assert rocket_pull_reply(framed(JSON_5.replace(b'"code":0,', b""))) is None


@pytest.mark.parametrize(
    "header",
    [
        JSON_5.replace(b":", b" : "),
        JSON_5 + b" ",
        JSON_5.replace(b'"FOUND"', rb'"a \"quote\""'),
        JSON_5.replace(b'"FOUND"', '"ü"'.encode()),
        JSON_5.replace(b'"FOUND"', b'{"deep":[1]}'),
        JSON_5.replace(b'"FOUND"', b"null"),
        b"[]",
        b"",
    ],
)
def test_json_written_otherwise_is_left_to_the_general_codec(header: bytes) -> None:
    assert rocket_pull_reply(framed(header)) is None


def test_of_two_equal_names_the_last_wins_as_in_the_general_codec() -> None:
    doubled = JSON_5.replace(b'"minOffset":"7"', b'"minOffset":"7","minOffset":"8"').replace(b'"code":0', b'"code":20,"code":0')
    assert agrees(framed(doubled))
    assert general(framed(doubled))[:3] == (0, 64, 8)


@pytest.mark.parametrize("serializer", [0, 1])
@pytest.mark.parametrize("topic", ["topic", 'a "quoted" \\ name', "ü\n", '"},"flag":0,'])
def test_a_repeated_command_reads_as_the_general_codec_writes_it(serializer: int, topic: str) -> None:
    message = PullMessageRequest(
        consumer_group="TOOLS_CONSUMER", topic=topic, queue_id=3, queue_offset=5, max_msg_nums=6, sys_flag=4, commit_offset=0,
        suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
    )  # fmt: skip
    repeated = RepeatedCommand(11, message.to_ext(), "queueOffset", "maxMsgNums", serializer)
    for opaque, offset, count in ((1, 0, 1), (0x7FFFFFFF, (1 << 63) - 1, 32), (12, 999, 0)):
        ext = message.to_ext() | {"queueOffset": str(offset), "maxMsgNums": str(count)}
        wanted = RemotingCommand(11, opaque, ext=ext, serializer=serializer)
        frame = repeated.encode(opaque, offset, count)
        assert RemotingCommand.decode(frame) == wanted
        theirs = b"".join(bytes(part) for part in wanted.encode())
        assert frame[0] == theirs[0] == serializer
        if serializer == 0:
            assert json.loads(frame[4:]) == json.loads(theirs[4:])
        else:
            assert sorted(frame) == sorted(theirs)


def test_a_repeated_command_that_is_too_long_is_refused() -> None:
    for serializer in (0, 1):
        with pytest.raises(ValueUnsupported):
            RepeatedCommand(11, {"topic": "t" * (1 << 24)}, "a", "b", serializer)
        just = RepeatedCommand(11, {"topic": "t" * ((1 << 24) - 150)}, "a" * 100, "b", serializer)
        with pytest.raises(ValueUnsupported):
            just.encode(1, 1 << 60, 1 << 60)
