"""Pulsar's commands as frames: whole, cut at every byte, mutated, and from a newer broker."""

from __future__ import annotations

import random

import pytest

from wireproto.errors import Malformed, OptionError, ProtocolError, Truncated
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.codes import PulsarError, ServiceNotReady
from wireproto.pulsar.frames import body, command_name, command_type, decode, encode, message_id, reply_body, signed

COMMANDS = [
    api.CommandLookupTopic(topic="persistent://public/default/t", request_id=7, authoritative=True),
    api.CommandSubscribe(topic="t", subscription="s", subType="Key_Shared", consumer_id=1, request_id=2),
    api.CommandSendReceipt(producer_id=1, sequence_id=2**63, message_id=api.MessageIdData(ledgerId=5, entryId=2**64 - 1)),
    api.CommandPing(),
    api.CommandAckResponse(consumer_id=3, request_id=9, error="MetadataError", message="wörds"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.DESCRIPTOR.name)
def test_a_command_comes_back(command: object) -> None:
    base = decode(encode(command))  # type: ignore[arg-type]
    assert body(base) == command


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.DESCRIPTOR.name)
def test_a_cut_frame_is_refused_at_every_byte(command: object) -> None:
    frame = encode(command)  # type: ignore[arg-type]
    for end in range(len(frame)):
        with pytest.raises(Truncated):
            decode(frame[:end], "h:1")


def test_mutated_frames_decode_or_raise_a_protocol_error() -> None:
    chance = random.Random(20261121)
    refused: list[str | None] = []
    for command in COMMANDS * 400:
        frame = bytearray(encode(command))
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            base = decode(bytes(frame), "h:1")
            if command_name(base) is not None:
                encode(base)
        except ProtocolError as why:
            refused.append(why.peer)
    assert set(refused) == {"h:1"}
    assert len(refused) > 200


def test_unknown_types_and_fields_are_passed_over() -> None:
    newer = b"\x08\xff\x01" + b"\xfa\x0f\x02hi"
    base = decode(len(newer).to_bytes(4, "big") + newer)
    assert command_name(base) is None
    with pytest.raises(Malformed):
        body(base)


def test_a_type_without_its_body_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(b"\x00\x00\x00\x02\x08\x07")


def test_a_missing_required_field_is_named() -> None:
    with pytest.raises(OptionError, match="subscription"):
        encode(api.CommandSubscribe(topic="t", subType="Shared", consumer_id=1, request_id=1))
    with pytest.raises(Malformed, match="messagePermits"):
        decode(b"\x00\x00\x00\x06\x08\x0b\x5a\x02\x08\x01")


def test_an_error_in_a_reply_is_raised_with_what_is_known() -> None:
    refused = api.CommandError(request_id=4, error="ServiceNotReady", message="starting")
    with pytest.raises(ServiceNotReady) as caught:
        reply_body(encode(refused), "h:1", topic="t", partition=2)
    assert caught.value.retriable
    assert caught.value.refresh
    assert "starting" in str(caught.value)
    assert "t[2]" in str(caught.value)
    stats = api.CommandConsumerStatsResponse(request_id=1, error_code="ConsumerNotFound", error_message="gone")
    with pytest.raises(PulsarError, match="gone"):
        reply_body(encode(stats))


def test_no_command_is_named() -> None:
    with pytest.raises(OptionError):
        encode(api.KeyValue(key="a", value="b"))
    with pytest.raises(OptionError):
        command_type("CommandNone")
    assert command_type("CommandSeek") is api.CommandSeek


def test_ids_are_unsigned_on_the_wire_and_signed_here() -> None:
    first = message_id(-1, -1)
    assert (first.ledgerId, first.entryId) == (2**64 - 1, 2**64 - 1)
    assert (signed(first.ledgerId), signed(7)) == (-1, 7)
    # as pulsar-client writes the id (-1, 5, 7, 3): ledger 5, entry 7, batch index 3
    assert message_id(5, 7, 3).SerializeToString() == bytes.fromhex("080510072003")
