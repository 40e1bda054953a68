"""A Fetch that is prepared for one partition: the same bytes as an encoded one, and of the answers the plain ones alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wireproto._codec import KafkaBatchBuilder, kafka_section_end
from wireproto.flow.ahead import Ticket
from wireproto.kafka import wire
from wireproto.kafka.fetch import BY_ID, Cursor, SentFetch
from wireproto.kafka.fetch_template import FIRST, FetchTemplate, plain
from wireproto.kafka.messages import FetchableTopicResponse, FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic
from wireproto.kafka.messages.fetch import AbortedTransaction, FetchEpochEndOffset, FetchLeaderIdAndEpoch
from wireproto.kafka.metadata import Topic
from wireproto.kafka.sessions import NO_SESSION, Named

NAME, ID, INDEX = "orders", bytes(range(16)), 70_000
VERSIONS = range(FIRST, FetchRequest.MAX_VERSION + 1)
TOKEN = 0x01020304


def fetch(offset: int, epoch: int, **facts: Any) -> FetchRequest:
    part = FetchPartition(
        partition=INDEX, current_leader_epoch=9, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20
    )
    said = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": NO_SESSION, "rack_id": "r1"} | facts
    return FetchRequest(topics=(FetchTopic(topic=NAME, topic_id=ID, partitions=(part,)),), **said)


def asked(offset: int = 5, *, stop: int | None = None, session_epoch: int = NO_SESSION) -> SentFetch:
    cursor = Cursor(NAME, INDEX, offset, stop, 1 << 20)
    cursor.topic_id = ID
    ticket = Ticket(cursor, 1, offset, 1 << 20, 1 << 20, 0)
    cursor.out[offset] = ticket
    return SentFetch((ticket,), {ID: NAME}, {cursor: 9}, 1, Named(0, session_epoch, {}, {}, 1))


def lone(version: int, offset: int = 5, *, stop: int | None = None) -> FetchTemplate:
    link: Any = SimpleNamespace(context=SimpleNamespace(client_id=b"me"))
    return FetchTemplate(link, {NAME: Topic(NAME, ID, 0, False, {}, ())}, fetch(offset, 3), asked(offset, stop=stop), version)


def batch(count: int = 3) -> bytes:
    builder = KafkaBatchBuilder()
    for number in range(count):
        builder.append(b"%d" % number, None, (), 1_700_000_000_000)
    return bytes(builder.finish())


def answer(version: int, records: bytes | None, *, throttle: int = 0, token: int = TOKEN, session: int = 0, **part: Any) -> bytes:
    facts = {"partition_index": INDEX, "high_watermark": 40, "last_stable_offset": 30, "log_start_offset": 1, "records": records} | part
    told = FetchableTopicResponse(topic=NAME, topic_id=ID, partitions=(FetchPartitionData(**facts),))
    reply = FetchResponse(responses=(told,), throttle_time_ms=throttle, session_id=session)
    return token.to_bytes(4) + b"\0" + reply.encode(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_prepared_fetch_is_the_encoded_one(version: int) -> None:
    form = lone(version)
    for offset, epoch in [(0, -1), (5, 3), (1 << 40, 7), ((1 << 63) - 1, (1 << 31) - 1)]:
        encoded = b"".join(map(bytes, wire.frame(fetch(offset, epoch), version, TOKEN, b"me")))
        assert form.request(TOKEN, offset, epoch) == encoded


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("aborted", [None, ()])
def test_a_plain_answer_is_read_as_the_decoder_reads_it(version: int, aborted: Any) -> None:
    for count in (1, 3, 200):
        frame = answer(version, batch(count), aborted_transactions=aborted)
        part = FetchResponse.decode(frame, version, 5).responses[0].partitions[0]
        found = lone(version).read(frame)
        assert found is not None
        end, stable, records, following, epoch = found
        assert (end, stable, bytes(records)) == (part.high_watermark, part.last_stable_offset, bytes(part.records or b""))
        assert (following, epoch) == kafka_section_end(part.records)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_answer_is_left_to_the_decoder(version: int) -> None:
    form, some = lone(version), batch()
    good = answer(version, some)
    others = [
        answer(version, None),
        answer(version, b""),
        answer(version, some[:-1]),  # no whole batch
        answer(version, some, throttle=1),
        answer(version, some, session=7),
        answer(version, some, error_code=6),
        answer(version, some, partition_index=INDEX + 1),
        answer(version, some, preferred_read_replica=2),
        answer(version, some, aborted_transactions=(AbortedTransaction(producer_id=1, first_offset=5),)),
        answer(version, some, diverging_epoch=FetchEpochEndOffset(epoch=1, end_offset=2)),
        answer(version, some, current_leader=FetchLeaderIdAndEpoch(leader_id=1, leader_epoch=2)),
        good + b"\0",
        good[:4] + b"\1" + good[5:],
        b"",
    ]
    assert [form.read(frame) for frame in others] == [None] * len(others)
    assert form.read(good) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_cut_anywhere_is_none(version: int) -> None:
    form, good = lone(version), answer(version, batch(1))
    assert {form.read(good[:length]) for length in range(len(good))} == {None}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_changed_byte_is_read_as_the_decoder_reads_it_or_left_to_it(version: int) -> None:
    form, good = lone(version), answer(version, batch(1))
    left = 0
    for place in range(4, len(good)):
        for change in (1, 0x80, 0xFF):
            frame = good[:place] + bytes([good[place] ^ change]) + good[place + 1 :]
            found = form.read(frame)
            if found is None:
                left += 1
                continue
            reply = FetchResponse.decode(frame, version, 5)
            part = reply.responses[0].partitions[0]
            said = (reply.error_code, part.error_code, part.aborted_transactions or (), reply.throttle_time_ms, part.preferred_read_replica)
            assert said == (0, 0, (), 0, -1)
            assert (found[0], found[1], bytes(found[2])) == (part.high_watermark, part.last_stable_offset, bytes(part.records or b""))
    assert left > 90, "all in front of the watermarks, and the lengths behind them"


def test_what_ends_at_the_stop_or_tells_nothing_new_is_the_long_way_s() -> None:
    call: Any = SimpleNamespace(frame=answer(17, batch(3)))  # offsets 0 to 2
    assert lone(17, 3).chunk(call, committed=False) is None, "no offset that was not read"
    assert lone(17, 0, stop=3).chunk(call, committed=False) is None, "the stop is reached"
    chunk = lone(17, 0, stop=4).chunk(call, committed=False)
    assert chunk is not None
    assert (chunk.start, chunk.next, chunk.cursor.end) == (0, 3, 40)
    chunk = lone(17, 1).chunk(call, committed=True)
    assert chunk is not None
    assert (chunk.start, chunk.next, chunk.cursor.end) == (1, 3, 30)


def test_only_a_fetch_of_one_healthy_partition_has_a_form() -> None:
    assert plain(fetch(5, 3), asked(), 13)
    assert not plain(fetch(5, 3), asked(), BY_ID - 1), "there a topic has no id, and this one was read by one"
    assert not plain(fetch(5, 3), asked(), FIRST - 1)
    assert not plain(fetch(5, 3), asked(session_epoch=0), 17), "a session knows more than one Fetch"
    for name, value in {"replica": 2, "empty_responses": 1, "failures": 1, "topic_id": b"another"}.items():
        one = asked()
        setattr(one.tickets[0].cursor, name, value)
        assert not plain(fetch(5, 3), one, 17), name
    one = asked()
    two = SentFetch((one.tickets[0], asked(9).tickets[0]), one.names, one.epochs, 1, one.named)
    assert not plain(fetch(5, 3), two, 17)
