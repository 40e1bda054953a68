"""The short look at the answer to a send: it says where the record is as the general codec does, or nothing."""

from __future__ import annotations

import random
import struct

import pytest

from wireproto._codec import RemotingCommand, rocket_send_reply
from wireproto.rocketmq.messages import SendMessageResponse

# as brokers 5.5.0 and 4.9.7 write them, as JSON and (4.9.7 to a binary request) as ROCKETMQ header
EXT = {"msgId": "7F00000100002A9F000000000001C5D4", "queueId": "3", "queueOffset": "640", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
JSON_5 = (
    b'{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F000000000001C5D4","queueOffset":"640"},"flag":1,"language":"JAVA","opaque":12,'
    b'"serializeTypeCurrentRPC":"JSON","version":503}'
)
FRAMES = (
    struct.pack(">I", len(JSON_5)) + JSON_5,
    b"".join(bytes(part) for part in RemotingCommand(0, 12, flag=1, ext=EXT, version=401, language=0, serializer=1).encode()),
)


def agrees(frame: bytes) -> bool:
    """Whether the short way took it; it then says what the general codec does."""
    place = rocket_send_reply(frame)
    if place < 0:
        return False
    reply = RemotingCommand.decode(frame)
    assert (reply.code, SendMessageResponse.from_ext(reply.ext | {"msgId": "", "queueId": "0"}).queue_offset) == (0, place), frame
    return True


@pytest.mark.parametrize("frame", FRAMES)
def test_the_usual_answer_is_taken_and_one_that_is_cut_is_not(frame: bytes) -> None:
    assert rocket_send_reply(frame) == 640
    assert [rocket_send_reply(frame[:cut]) for cut in range(len(frame))] == [-1] * len(frame)
    for cut in range(len(frame) - 4):  # the frame is whole, its header ends too soon
        assert not agrees(frame[:1] + cut.to_bytes(3, "big") + frame[4:])


@pytest.mark.parametrize("frame", FRAMES)
def test_mutations_are_left_to_the_general_codec_or_read_alike(frame: bytes) -> None:
    rng = random.Random(7)
    taken = 0
    for _ in range(20_000):
        mutant = bytearray(frame)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice([0, 255, 34, 92, 123, 125, 58, 44, 45, 48, rng.randrange(256)])
        taken += agrees(bytes(mutant))
    assert 1000 < taken < 19_000


@pytest.mark.parametrize("text", ["", "-1", "x", "1 ", "+1", "1_0", "9" * 19, "1.0", "true", "\u0663", 'a"b', "\\", "\x7f1"])
def test_a_place_that_is_no_plain_number_is_left_to_the_general_codec(text: str) -> None:
    for serializer in (0, 1):
        command = RemotingCommand(0, 1, flag=1, ext=EXT | {"queueOffset": text}, serializer=serializer)
        assert rocket_send_reply(b"".join(bytes(part) for part in command.encode())) == -1


@pytest.mark.parametrize("code", [1, 10, 11, 12, 14, -1])
def test_what_was_refused_or_stored_with_a_warning_is_left_to_the_general_codec(code: int) -> None:
    for serializer in (0, 1):
        frame = b"".join(bytes(part) for part in RemotingCommand(code, 1, flag=1, ext=EXT, serializer=serializer).encode())
        assert rocket_send_reply(frame) == -1
