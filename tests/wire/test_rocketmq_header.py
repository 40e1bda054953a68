"""RocketMQ's header in both encodings, judged by vectors that the Java classes made and by the json module."""

import json
import random
import struct

import pytest

from wireproto._codec import RemotingCommand
from wireproto.errors import Malformed, ProtocolError, Truncated, ValueUnsupported

# made by the Java 4.9.8 classes (RemotingCommand.encode)
JAVA_REQUEST = bytes.fromhex("0000002d010000290069030191000000070000000000000000000000140005746f70696300000009546f70696354657374")
JAVA_REPLY = bytes.fromhex("000000230100001d00110001910000000700000003000000086e6f20726f757465000000007b7d")
JAVA_JSON = (
    b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"PYTHON","opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}'
)


def framed(buffers):
    data = b"".join(bytes(part) for part in buffers)
    return struct.pack(">i", len(data)) + data


def route_request(serializer):
    return RemotingCommand(105, 7, ext={"topic": "TopicTest"}, version=401, serializer=serializer)


def test_binary_request_as_java_writes_it():
    assert framed(route_request(1).encode()) == JAVA_REQUEST
    assert RemotingCommand.decode(JAVA_REQUEST[4:]) == route_request(1)


def test_binary_reply_as_java_writes_it():
    reply = RemotingCommand(17, 7, flag=3, remark="no route", body=b"{}", version=401, language=0, serializer=1)
    assert framed(reply.encode()) == JAVA_REPLY
    got = RemotingCommand.decode(JAVA_REPLY[4:])
    assert got == reply
    assert got.is_reply
    assert got.is_one_way
    assert bytes(got.body) == b"{}"


def test_json_request_as_java_writes_it():
    assert framed(route_request(0).encode()) == bytes.fromhex("0000008900000085") + JAVA_JSON
    assert RemotingCommand.decode(bytes.fromhex("00000085") + JAVA_JSON) == route_request(0)


TEXTS = ["", "x", 'quo"te', "back\\slash", "line\nend\x01\x02\x7f", "世界", "😀", "\ud83d", "a" * 5000, "/", "\u2028"]


@pytest.mark.parametrize("serializer", [0, 1])
def test_every_text_survives(serializer):
    ext = {f"k{i}{text[:3]}": text for i, text in enumerate(TEXTS)}
    command = RemotingCommand(10, -5, flag=1, remark='say "no"\n', ext=ext, body=b"body", serializer=serializer)
    got = RemotingCommand.decode(b"".join(command.encode()))
    if serializer == 1:
        ext = {name: text for name, text in ext.items() if text}  # an empty value would be read as null by brokers
    assert got.ext == ext
    assert (got.code, got.opaque, got.flag, got.remark, bytes(got.body)) == (10, -5, 1, 'say "no"\n', b"body")
    if serializer == 0:
        (size,) = struct.unpack(">i", command.encode()[0][:4])
        theirs = json.loads(command.encode()[0][4 : 4 + size])
        assert theirs["extFields"] == ext
        assert theirs["opaque"] == -5


def test_what_other_writers_put_into_json():
    header = b""" { "flag" : 1 , "remark":null,"extFields":{"n":12,"b":true,"none":null,"f":1.5e3,"s":"\\u4e16\\n"},
      "x":[1,{"opaque":9},"]"],"y":{"code":3}, "language":"KLINGON","opaque":2147483647,"code":0,"version":-1}"""
    got = RemotingCommand.decode(struct.pack(">i", len(header)) + header + b"tail")
    assert got.ext == {"n": "12", "b": "true", "f": "1.5e3", "s": "世\n"}
    assert (got.code, got.opaque, got.flag, got.remark, got.language, got.version) == (0, 2147483647, 1, None, 7, -1)
    assert bytes(got.body) == b"tail"


def test_a_code_beyond_int16_goes_out_as_json():
    data = RemotingCommand(200050, 1, serializer=1).encode()[0]
    assert data[0] == 0
    assert RemotingCommand.decode(data).code == 200050


@pytest.mark.parametrize("serializer", [0, 1])
def test_every_cut_of_frame_and_header_is_refused(serializer):
    data = b"".join(RemotingCommand(10, 7, remark="r", ext={"topic": "t", "other": "ü"}, serializer=serializer).encode())
    for cut in range(len(data)):
        with pytest.raises(Truncated):
            RemotingCommand.decode(data[:cut])
    for cut in range(len(data) - 4):  # the frame is whole, its header ends too soon
        short = struct.pack(">I", serializer << 24 | cut) + data[4 : 4 + cut]
        with pytest.raises(ProtocolError):
            RemotingCommand.decode(short)


@pytest.mark.parametrize("serializer", [0, 1])
def test_mutations_end_in_a_command_or_a_protocol_error(serializer):
    rng = random.Random(5)
    data = b"".join(RemotingCommand(10, 7, remark='r"', ext={"topic": "t", "n": "\n"}, body=b"b", serializer=serializer).encode())
    refused = 0
    for _ in range(20_000):
        mutant = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            mutant[rng.randrange(len(mutant))] = rng.choice([0, 255, 34, 92, 123, 125, 58, 44, rng.randrange(256)])
        try:
            RemotingCommand.decode(bytes(mutant))
        except ProtocolError as error:
            assert error.offset is not None  # noqa: PT017
            refused += 1
    assert 1000 < refused < 20_000


@pytest.mark.parametrize(
    "header", [b"{}", b"[]", b"", b'{"code":1', b'{"code":"1"}', b'{"code":1.5}', b'{"code":99999999999}', b'{"code":1}x']
)
def test_broken_json_headers(header):
    with pytest.raises(ProtocolError):
        RemotingCommand.decode(struct.pack(">i", len(header)) + header)
    deep = b'{"code":1,"x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with pytest.raises(Malformed, match="nested"):
        RemotingCommand.decode(struct.pack(">i", len(deep)) + deep)


def test_values_that_are_no_text_are_refused():
    for serializer in (0, 1):
        with pytest.raises(ValueUnsupported, match="str"):
            RemotingCommand(1, ext={"a": 3}, serializer=serializer).encode()
    with pytest.raises(ValueUnsupported, match="bytes in extFields"):
        RemotingCommand(1, ext={"a" * 40_000: "x"}, serializer=1).encode()


@pytest.mark.parametrize("name", ["code", "opaque", "flag", "version", "language"])
def test_a_number_beyond_32_bits_is_refused(name):
    for number in (2**31, -(2**31) - 1, 2**70):
        with pytest.raises(ValueUnsupported, match=name):
            RemotingCommand(**{"code": 1, name: number})
    assert getattr(RemotingCommand(**{"code": 1, name: -1}), name) == -1


@pytest.mark.parametrize("facts", [{"language": 256}, {"language": -1}, {"version": 2**15}])
def test_a_number_that_the_binary_header_would_cut_is_refused(facts):
    with pytest.raises(ValueUnsupported, match="binary header"):
        RemotingCommand(1, serializer=1, **facts).encode()
