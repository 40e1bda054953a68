"""A Produce that is prepared for one partition: the same bytes as an encoded one, and of the answers the plain one alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.kafka import wire
from wireproto.kafka.messages import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wireproto.kafka.messages.produce import BatchIndexAndErrorMessage
from wireproto.kafka.metadata import Topic
from wireproto.kafka.produce_template import FIRST, ProduceTemplate

NAME, ID, INDEX = "orders", bytes(range(16)), 70_000
VERSIONS = range(FIRST, ProduceRequest.MAX_VERSION + 1)
TOKEN = 0x01020304


def prepared(version: int) -> ProduceTemplate:
    link: Any = SimpleNamespace(context=SimpleNamespace(client_id=b"me"))
    return ProduceTemplate(link, {NAME: Topic(NAME, ID, 0, False, {}, ())}, (NAME, INDEX), version, -1, 30_000)


def answer(version: int, base: int, *, throttle: int = 0, token: int = TOKEN, **part: Any) -> bytes:
    facts = {"index": INDEX, "error_code": 0, "base_offset": base, "log_start_offset": 3, "record_errors": ()} | part
    told = TopicProduceResponse(name=NAME, topic_id=ID, partition_responses=(PartitionProduceResponse(**facts),))
    return token.to_bytes(4) + b"\0" + ProduceResponse(responses=(told,), throttle_time_ms=throttle).encode(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 61, 126, 127, 128, 16_382, 16_383, 16_384, 2_100_000])
def test_a_prepared_request_is_the_encoded_one(version: int, size: int) -> None:
    records = bytes(size)
    data = TopicProduceData(name=NAME, topic_id=ID, partition_data=(PartitionProduceData(index=INDEX, records=records),))
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=(data,))
    encoded = b"".join(map(bytes, wire.frame(message, version, TOKEN, b"me")))
    assert b"".join(map(bytes, prepared(version).request(TOKEN, records))) == encoded


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plain_answer_is_read_without_the_decoder(version: int) -> None:
    ready = prepared(version)
    for base in (0, 1, 255, 1 << 40):
        assert ready.base(answer(version, base)) == base
        assert ready.base(answer(version, base, log_append_time_ms=1_700_000_000_000)) == base


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_answer_is_left_to_the_decoder(version: int) -> None:
    ready, plain = prepared(version), answer(version, 5)
    bad = (BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no"),)
    others = [
        answer(version, -1, error_code=6),
        answer(version, 5, error_code=6),
        answer(version, 5, throttle=1),
        answer(version, 5, index=INDEX + 1),
        answer(version, 5, record_errors=bad),
        answer(version, 5, error_message="no"),
        answer(version, -1),
        plain[:-1],
        plain + b"\0",
        plain[:4] + b"\1" + plain[5:],
        b"",
    ]
    assert [ready.base(frame) for frame in others] == [-1] * len(others)
