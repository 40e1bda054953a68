"""Where a Pulsar producer cuts rows into batches by their size, and `seal`, against a scripted broker that takes 1 MiB."""

from __future__ import annotations

from typing import Any

import pytest

import wireproto
from pulsar_server import PulsarServer
from wireproto._codec import Columns, PulsarBatchBuilder, decode_pulsar
from wireproto.errors import ValueUnsupported
from wireproto.pulsar import PulsarApi_pb2 as api

LARGEST = 4 << 20
NEVER = 3600.0


def sends(server: PulsarServer) -> list[tuple[int, int, int]]:
    """(first sequence id, last, messages) of each SEND."""
    return [(send.sequence_id, send.highest_sequence_id, send.num_messages) for send in server.commands("send")]


def fill(rows: Columns, limit: int, **options: Any) -> list[tuple[int, Any]]:
    """(rows, frame) of each batch that a builder makes of the rows."""
    builder, start, found = PulsarBatchBuilder("p", max_records=1000, **options), 0, []
    while start < len(rows):
        taken = builder.append_columns(rows, start, len(rows), limit)
        assert taken > 0
        found.append((taken, b"".join(builder.finish(1, start, 5))))
        start += taken
    return found


def values_of(frame: bytes) -> list[bytes]:
    """By the decoder, from what a broker would make of the SEND."""
    message = api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=1, entryId=2))
    head = api.BaseCommand(type="MESSAGE", message=message).SerializeToString()
    columns, (entry,) = decode_pulsar(
        [len(head).to_bytes(4, "big") + head + frame[4 + int.from_bytes(frame[:4], "big") :]], topic="t", partition=0
    )
    assert entry.error is None
    return columns.values()


@pytest.mark.parametrize("size", [9_000, LARGEST // 2, LARGEST - 200, LARGEST + 1])
def test_rows_are_cut_below_the_limit_and_at_the_same_places_each_time(size: int) -> None:
    rows = Columns.from_rows([bytes([n & 255]) * (size + n % 7) for n in range(max(3, 3 * LARGEST // size))])
    batches = fill(rows, LARGEST)
    assert batches == fill(rows, LARGEST)
    at = 0
    for count, frame in batches:
        assert values_of(frame) == rows.values()[at : at + count]
        assert count == 1 or len(frame) <= LARGEST + 200
        at += count
        if at < len(rows):  # one more would have been too many
            assert len(frame) + size > LARGEST - 40 * (count + 1)


def test_no_batch_is_larger_than_the_broker_takes() -> None:
    most = 5 << 20
    for size in (0, 10, 1000, 100_000, most // 2, most - 100):
        rows = Columns.from_rows([b"v" * size] * min(5000, max(2, 2 * most // max(size, 1))))
        for count, frame in fill(rows, 2**31 - 1, max_size=most):
            assert len(frame) <= most + 10240  # what a broker allows for the command and metadata round its limit
            assert len(values_of(frame)) == count
    builder = PulsarBatchBuilder("p", max_size=most)
    with pytest.raises(ValueUnsupported, match="fit a frame"):
        builder.append_columns(Columns.from_rows([b"v" * most]), 0, 1)


def test_a_cut_for_size_leaves_the_rest_open_until_it_is_sealed() -> None:
    rows = Columns.from_rows([b"%05d" % n * 1800 for n in range(100)])  # 9 kB each
    with (
        PulsarServer() as server,
        wireproto.connect(server.url) as client,
        client.producer("t", linger=NEVER, batch_records=1000, batch_size=256 << 10, first_sequence=5 << 40) as producer,
    ):
        receipts = producer.send_batch(rows)
        for receipt in receipts[:-1]:
            receipt.position(5)
        first = 5 << 40
        counts = [number for _, _, number in sends(server)]
        assert len(counts) == len(receipts) - 1 == 3
        assert all((256 << 10) // 9100 <= count <= (256 << 10) // 9000 for count in counts)
        assert not receipts[-1].done
        producer.seal()
        receipts[-1].position(5)
        counts = [number for _, _, number in sends(server)]
        assert sum(counts) == 100
        begins = [first + sum(counts[:n]) for n in range(4)]
        assert sends(server) == [(begin, begin + count - 1, count) for begin, count in zip(begins, counts, strict=True)]


def test_seal_sends_what_is_open_and_nothing_else() -> None:
    with (
        PulsarServer() as server,
        wireproto.connect(server.url) as client,
        client.producer("t", linger=NEVER, batch_records=1000, first_sequence=0) as producer,
    ):
        producer.seal()  # nothing is open
        for group in (3, 1, 2):
            receipts = [producer.send(b"x") for _ in range(group)]
            assert not receipts[-1].done
            producer.seal()
            producer.seal()
            assert [receipt.position(5).index for receipt in receipts] == list(range(group))
        assert sends(server) == [(0, 2, 3), (3, 3, 1), (4, 5, 2)]


def test_the_same_rows_are_cut_alike_however_they_were_handed_over() -> None:
    """A whole batch of rows, sealed: what a sink that is run again relies on."""
    rows = Columns.from_rows([b"v" * (n * 7919 % 30_000) for n in range(300)])
    seen = []
    for pieces in ([rows], [rows[:100], rows[100:101], rows[101:]]):
        with (
            PulsarServer() as server,
            wireproto.connect(server.url) as client,
            client.producer("t", linger=NEVER, batch_records=100, batch_size=512 << 10, first_sequence=0) as producer,
        ):
            table = Columns.concat(pieces)
            for start in range(0, len(table), 100):
                producer.send_batch(table[start : start + 100])
                producer.seal()
            producer.flush(10)
            seen.append(sends(server))
    assert seen[0] == seen[1]
    assert sum(count for _, _, count in seen[0]) == 300
    assert len(seen[0]) > 6
