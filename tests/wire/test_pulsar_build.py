"""PulsarBatchBuilder: frames read by the protobuf runtime, by pulsar-client's batch parser, and by the slow codec."""

from __future__ import annotations

import base64
import random
import zlib
from typing import Any

import lz4.block
import pytest
import snappy
import zstandard
from crc32c import crc32c

import pulsar
import pulsar_slow as slow
from wireproto._codec import Columns, OutBatch, PulsarBatchBuilder, decode_pulsar, pulsar_properties, pulsar_receipt, split_columns
from wireproto.errors import OptionError, ValueUnsupported
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.frames import decode, encode, signed

CODECS = ("none", "lz4", "zlib", "zstd", "snappy")
THEIR_CODECS = {
    0: lambda data, size: data,
    1: lambda data, size: lz4.block.decompress(data, uncompressed_size=size),
    2: lambda data, size: zlib.decompress(data),
    3: lambda data, size: zstandard.decompress(data),
    4: lambda data, size: snappy.decompress(data),
}
ROWS = [
    (b"v0", b"k0", (("a", b"1"), ("b", b"")), 1_700_000_000_000),
    (b"", None, (), 0),
    (None, b"\xff\x00key", (), 7),
    (b"x" * 3000, b"", (("ü", "ö".encode() * 100),), 0),
    (b"last", "kü".encode(), (), 5),
]


def take_apart(frame: bytes) -> tuple:
    size = int.from_bytes(frame[:4], "big")
    command = api.BaseCommand.FromString(frame[4 : 4 + size])
    rest = frame[4 + size :]
    assert command.type == api.BaseCommand.SEND
    assert rest[:2] == b"\x0e\x01"
    assert int.from_bytes(rest[2:6], "big") == crc32c(rest[6:])
    length = int.from_bytes(rest[6:10], "big")
    meta = api.MessageMetadata.FromString(rest[10 : 10 + length])
    assert meta.IsInitialized()
    assert command.IsInitialized()
    return command.send, meta, THEIR_CODECS[meta.compression](rest[10 + length :], meta.uncompressed_size)


def split(payload: bytes) -> list[tuple]:
    found, at = [], 0
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        single = api.SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        at += 4 + size
        found.append((single, payload[at : at + single.payload_size]))
        at += single.payload_size
    return found


def fields(head: object, value: bytes) -> tuple:
    key = None
    if head.HasField("partition_key"):
        key = base64.b64decode(head.partition_key) if head.partition_key_b64_encoded else head.partition_key.encode()
    return (None if head.null_value else value, key, tuple((p.key, p.value.encode()) for p in head.properties), head.event_time)


def fill(rows: list[tuple], **options: object) -> PulsarBatchBuilder:
    builder = PulsarBatchBuilder("producer-ü", **options)
    for row in rows:
        assert builder.append(*row)
    return builder


@pytest.mark.parametrize("codec", CODECS)
def test_batches(codec: str) -> None:
    builder = fill(ROWS, compression=codec)
    assert len(builder) == 5
    send, meta, payload = take_apart(b"".join(builder.finish(9, 100, 1_800_000_000_000)))
    assert (send.producer_id, send.sequence_id, send.num_messages, send.highest_sequence_id) == (9, 100, 5, 104)
    assert (meta.producer_name, meta.sequence_id, meta.publish_time) == ("producer-ü", 100, 1_800_000_000_000)
    assert (meta.num_messages_in_batch, meta.highest_sequence_id, meta.partition_key) == (5, 104, "k0")
    assert (meta.compression, meta.uncompressed_size) == (CODECS.index(codec), 0 if codec == "none" else len(payload))
    parts = split(payload)
    assert [fields(*part) for part in parts] == ROWS
    assert [part[0].sequence_id for part in parts] == [100, 101, 102, 103, 104]
    assert (len(builder), builder.size) == (0, 0)


@pytest.mark.parametrize("codec", CODECS)
def test_single_messages(codec: str) -> None:
    builder = PulsarBatchBuilder("p", compression=codec, batched=False)
    for n, row in enumerate(ROWS):
        assert builder.append(*row)
        assert not builder.append(b"")
        send, meta, payload = take_apart(b"".join(builder.finish(9, n, 1)))
        assert (send.sequence_id, send.num_messages, meta.sequence_id) == (n, 1, n)
        assert not meta.HasField("num_messages_in_batch")
        assert fields(meta, payload) == row


def test_pulsar_client_parses_our_batches() -> None:
    _, meta, payload = take_apart(b"".join(fill(ROWS).finish(1, 0, 1)))
    ident = pulsar.MessageId(-1, 5, 6, -1)
    messages = list(pulsar.MessageBatch().with_message_id(ident).parse_from(payload, meta.num_messages_in_batch))
    for message, (value, key, properties, event_time) in zip(messages, ROWS, strict=True):
        assert message.data() == (value or b"")
        assert message.event_timestamp() == event_time
        assert message.properties() == {name: text.decode() for name, text in properties}
        if key == b"\xff\x00key":
            key = base64.b64encode(key)
        assert message.partition_key() == (key or b"").decode()


def test_we_read_our_own_frames_as_the_slow_codec_does() -> None:
    rng = random.Random(2)
    for _ in range(30):
        rows = [
            (
                rng.choice((None, rng.randbytes(rng.randrange(300)))),
                rng.choice((None, b"key", rng.randbytes(5))),
                (("a", b"b"),)[: rng.randrange(2)],
                rng.randrange(3),
            )
            for _ in range(rng.randrange(1, 30))
        ]
        sent = b"".join(fill(rows, compression=rng.choice(CODECS)).finish(1, 7, 99))
        message = api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=1, entryId=2))
        command = api.BaseCommand(type=api.BaseCommand.MESSAGE, message=message).SerializeToString()
        frame = len(command).to_bytes(4, "big") + command + sent[4 + int.from_bytes(sent[:4], "big") :]
        ours, _ = decode_pulsar([frame], topic="t", partition=0)
        theirs, _ = slow.decode(frame)
        assert theirs == list(zip(ours.positions(), ours.timestamps(), ours.keys(), ours.values(), ours.headers(), strict=True))
        assert ours.values() == [row[0] for row in rows]


def columns_of(rows: list[tuple]) -> Columns:
    return Columns.from_rows([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], [r[3] or None for r in rows])


@pytest.mark.parametrize("batched", [True, False])
def test_columns_encode_as_rows_do(batched: bool) -> None:
    many = (b"many", b"\x80", tuple((f"name-{n}", b"%d" % n) for n in range(100)), 9)
    rows = [*ROWS, many, *((b"v", rng_key, (), 1) for rng_key in (b"\xff", b"\xff\xfe", b"\xff\xfe\xfd", b"\xff\xfe\xfd\xfc"))]
    columns = columns_of(rows)
    if not batched:
        for n, row in enumerate(rows):
            builder = PulsarBatchBuilder("producer-ü", batched=False)
            assert builder.append_columns(columns, n, len(rows)) == 1
            assert builder.finish(1, 2, 3) == fill([row], batched=False).finish(1, 2, 3)
        return
    builder = PulsarBatchBuilder("producer-ü")
    builder.check_columns(columns)
    assert builder.append_columns(columns[1:], 0, len(rows) - 1) == len(rows) - 1
    assert builder.finish(1, 2, 3) == fill(rows[1:]).finish(1, 2, 3)
    small = PulsarBatchBuilder("p", max_records=2)
    assert small.append_columns(columns, 0, 3) == 2
    near = PulsarBatchBuilder("p")
    assert near.append_columns(columns, 0, 5, 200) == 3  # the fourth has 3,000 bytes
    assert near.append_columns(columns, 3, 5, 200) == 0
    first = PulsarBatchBuilder("p")
    assert first.append_columns(columns, 3, 5, 100) == 1


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ((b"v", None, (("a", None),), 0), "null"),
        ((b"v", None, (("a", b"1"), ("b", b"\xff")), 0), "UTF-8"),
        ((b"v", None, (("a", b"1"), ("b", b"2"), ("a", b"1")), 0), "twice"),
        ((b"v", None, tuple((f"name-{n % 99}", b"") for n in range(100)), 0), "twice"),
        ((b"v", None, tuple((f"name-{n}", None if n == 80 else b"") for n in range(100)), 0), "null"),
        ((b"v", None, tuple((f"name-{n}", b"\xff") for n in range(100)), 0), "UTF-8"),
        ((b"v", None, (), -1), "event time"),
        ((b"v" * 9000, None, (), 0), "9000"),
        ((b"v", None, (("a", b"x" * 9000),), 0), "fit"),
        ((b"v", b"\xff" * 6000, (), 0), "fit"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(bad: tuple, text: str) -> None:
    builder = PulsarBatchBuilder("p", max_size=8000)
    columns = columns_of([(b"ok", b"k", (), 1), bad, (b"ok", b"k", (), 1)])
    with pytest.raises(ValueUnsupported, match=f"row 1: .*{text}"):
        builder.check_columns(columns)
    builder.check_columns(columns[:1])
    with pytest.raises(ValueUnsupported, match=text):
        builder.append_columns(columns, 0, 3)
    _, _, payload = take_apart(b"".join(builder.finish(1, 1, 1)))
    assert [value for _, value in split(payload)] == [b"ok"]


class Queue:
    key = "t[0]"


def out_batch(builder: PulsarBatchBuilder) -> OutBatch:
    return OutBatch(Queue(), 1, 0.0, builder, None, None, None)


def test_a_batch_takes_records_as_the_builder_does() -> None:
    batch = out_batch(PulsarBatchBuilder("producer-ü"))
    for number, (value, key, properties, time) in enumerate(ROWS):
        assert batch.add(value, key, pulsar_properties(True, properties), time, 10) == number
    assert (batch.count, batch.size, batch.full) == (len(ROWS), 10 * len(ROWS), False)
    frame = batch.builder.seal(1, 2, 3)
    assert frame == fill(ROWS).finish(1, 2, 3)
    assert batch.builder.seal(7, 8, 9) is frame, "what is sent again is the same"
    assert batch.add(b"late", None, None, 0, 10) == -1
    batch.builder.drop()
    assert batch.builder.seal(1, 2, 3) == []


def test_a_batch_is_full_at_its_limits() -> None:
    few = out_batch(PulsarBatchBuilder("p", max_records=3))
    assert [(few.add(b"v", None, None, 0, 1), few.full) for _ in range(4)] == [(0, False), (1, False), (2, True), (-1, True)]
    alone = out_batch(PulsarBatchBuilder("p", batched=False))
    assert (alone.add(b"v", None, None, 0, 1), alone.full, alone.add(b"v", None, None, 0, 1)) == (0, True, -1)
    small = out_batch(PulsarBatchBuilder("p", limit=300))
    taken = 0
    while small.add(b"0123456789", None, None, 0, 1) >= 0:
        taken += 1
    assert 2 < taken < 7
    assert small.builder.size < 300
    large = out_batch(PulsarBatchBuilder("p", limit=300))
    assert (large.add(b"v" * 1000, None, None, 0, 1), large.full) == (0, True), "a first one is taken all the same"
    with pytest.raises(ValueUnsupported, match="100 bytes that fit a frame"):
        out_batch(PulsarBatchBuilder("p", max_size=100)).add(b"v" * 100, None, None, 0, 1)


def test_rows_count_in_a_batch() -> None:
    batch = out_batch(PulsarBatchBuilder("producer-ü", max_records=len(ROWS)))
    columns = columns_of(ROWS)
    taken, used, last = batch.add_rows(columns, None, 0, 2, 0)
    assert (taken, last, batch.count, batch.size) == (2, 1, 2, used)
    taken, more, last = batch.add_rows(columns, None, 2, len(ROWS), 0)
    assert (taken, last, batch.size, batch.full) == (len(ROWS) - 2, len(ROWS) - 1, used + more, True)
    assert batch.builder.seal(1, 2, 3) == fill(ROWS).finish(1, 2, 3)
    assert batch.add_rows(columns, None, 0, 1, 0)[0] == 0


def receipt_frame(**place: Any) -> bytes:
    named = api.MessageIdData(**place)
    return encode(api.CommandSendReceipt(producer_id=3, sequence_id=1 << 40, message_id=named, highest_sequence_id=(1 << 40) + 9))


def test_a_receipt_is_read_as_protobuf_reads_it() -> None:
    assert pulsar_receipt(receipt_frame(ledgerId=7, entryId=300)) == (3, 1 << 40, 7, 300)
    assert pulsar_receipt(receipt_frame(ledgerId=2**64 - 1, entryId=2**64 - 1)) == (3, 1 << 40, -1, -1), "a duplicate"
    assert pulsar_receipt(receipt_frame(ledgerId=7, entryId=0, partition=2, batch_index=4, batch_size=9)) == (3, 1 << 40, 7, 0)
    assert pulsar_receipt(receipt_frame(ledgerId=7, entryId=0, ack_set=[1], partition=-1)) == (3, 1 << 40, 7, 0)


def test_what_is_no_usual_receipt_is_left_to_the_decoder() -> None:
    usual = receipt_frame(ledgerId=7, entryId=300)
    for size in range(len(usual)):
        assert pulsar_receipt(usual[:size]) is None
    assert pulsar_receipt(usual + b"\0") is None
    for other in (
        api.CommandSendReceipt(producer_id=3, sequence_id=5),
        api.CommandSendError(producer_id=3, sequence_id=5, error="UnknownError", message="no"),
        api.CommandCloseProducer(producer_id=3, request_id=5),
        api.CommandSendReceipt(
            producer_id=3,
            sequence_id=5,
            message_id=api.MessageIdData(ledgerId=1, entryId=2, first_chunk_message_id=api.MessageIdData(ledgerId=1, entryId=1)),
        ),
    ):
        assert pulsar_receipt(encode(other)) is None
    rng = random.Random(1)
    for _ in range(20_000):
        broken = bytearray(usual)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        found = pulsar_receipt(bytes(broken))
        if found is not None:
            told = decode(bytes(broken)).send_receipt
            assert found == (told.producer_id, told.sequence_id, signed(told.message_id.ledgerId), signed(told.message_id.entryId))


def test_rows_are_split_by_partition_in_their_order() -> None:
    rng = random.Random(5)
    rows = [(rng.choice((None, b"%d" % n)), rng.choice((None, b"key")), (("n", b"%d" % n),)[: n % 2], n) for n in range(500)]
    columns = columns_of(rows)
    numbers = [rng.randrange(7) for _ in rows]
    found = split_columns(columns[3:], numbers[3:], 9)
    assert [number for number, _ in found] == sorted(set(numbers))
    for number, part in found:
        assert part == columns_of([row for row, wanted in zip(rows[3:], numbers[3:], strict=True) if wanted == number])
    assert split_columns(columns, [4] * 500, 5) == [(4, columns)]
    assert split_columns(columns[:0], [], 5) == []
    for bad in ([0] * 499, [5] * 500, [-1] * 500):
        with pytest.raises(IndexError):
            split_columns(columns, bad, 5)


def test_the_limits_hold() -> None:
    builder = PulsarBatchBuilder("p", max_size=1000)
    taken = 0
    while builder.append(b"v" * 90, b"k"):
        taken += 1
    assert taken >= 7
    assert builder.size <= 1000
    assert len(take_apart(b"".join(builder.finish(1, 2**40, 1)))[2]) <= 1000
    with pytest.raises(ValueUnsupported, match="2000"):
        builder.append(b"v" * 2000)
    with pytest.raises(ValueUnsupported):
        builder.append(b"v", None, (("p", b"x" * 2000),))
    counted = PulsarBatchBuilder("p", max_records=3)
    assert [counted.append(b"v") for _ in range(4)] == [True, True, True, False]


def test_what_pulsar_cannot_carry_is_refused_and_leaves_no_trace() -> None:
    builder = fill(ROWS)
    for bad, kind in (
        (("text",), TypeError),
        ((b"v", None, (("a", None),)), ValueUnsupported),
        ((b"v", None, (("a", b"1"), ("b", b"\xff"))), ValueUnsupported),
        ((b"v", None, (), -1), ValueUnsupported),
        ((b"v", None, (("\ud800", b""),)), ValueUnsupported),
    ):
        with pytest.raises(kind):
            builder.append(*bad)
    assert builder.finish(1, 1, 1) == fill(ROWS).finish(1, 1, 1)
    with pytest.raises(ValueUnsupported):
        builder.finish(1, 1, 1)
    with pytest.raises(OptionError):
        PulsarBatchBuilder("p", compression="gzip")


@pytest.mark.parametrize("key", [None, b"k", b"\xff"])
def test_a_record_alone_never_exceeds_the_limit_however_large_its_numbers(key: bytes | None) -> None:
    taken = []
    for size in range(900, 1000):
        builder = PulsarBatchBuilder("p", max_size=1000)
        try:
            builder.append(b"v" * size, key, (), 2**63 - 1)
        except ValueUnsupported:
            continue
        taken.append(size)
        assert len(take_apart(b"".join(builder.finish(1, 2**63 - 1, 1)))[2]) <= 1000
    assert max(taken) > 940
