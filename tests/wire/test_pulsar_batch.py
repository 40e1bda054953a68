"""Pulsar entries: frames made by the protobuf runtime, by the slow codec in Python, and read by pulsar-client."""

from __future__ import annotations

import base64
import random
import resource
import zlib
from typing import Any

import lz4.block
import pyarrow as pa
import pytest
import snappy
import zstandard
from crc32c import crc32c

import pulsar_slow as slow
from wireproto._codec import Columns, decode_pulsar
from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, Truncated
from wireproto.pulsar import PulsarApi_pb2 as api

THEIR_CODECS = {
    0: lambda data: data,
    1: lambda data: lz4.block.compress(data, store_size=False),
    2: lambda data: (lambda z: z.compress(data) + z.flush(zlib.Z_SYNC_FLUSH))(zlib.compressobj()),
    3: zstandard.compress,
    4: snappy.compress,
}
ROWS = [  # value, key, properties, event time
    (b"v0", b"k0", [("a", "1"), ("b", "")], 1_700_000_000_000),
    (b"", None, [], 0),
    (None, b"\xff\x00key", [], 7),
    (b"x" * 3000, b"", [("ü", "ö" * 100)], 0),
    (b"last", "kü".encode(), [], 5),
]
PUBLISHED = 1_800_000_000_000


def head_of(head: Any, row: tuple) -> Any:
    value, key, properties, event_time = row
    if key is not None:
        try:
            head.partition_key = key.decode()
        except UnicodeDecodeError:
            head.partition_key = base64.b64encode(key).decode()
            head.partition_key_b64_encoded = True
    for name, text in properties:
        head.properties.add(key=name, value=text)
    if event_time:
        head.event_time = event_time
    if value is None:
        head.null_value = True
    return head


def frame(
    payload: bytes,
    meta: Any,
    *,
    ledger: int = 5,
    entry: int = 6,
    ack_set: tuple[int, ...] = (),
    checksum: bool = True,
    broker: Any = None,
) -> bytes:
    """A MESSAGE frame by the protobuf runtime."""
    message = api.CommandMessage(
        consumer_id=1, message_id=api.MessageIdData(ledgerId=ledger, entryId=entry), redelivery_count=2, ack_set=ack_set
    )
    command = api.BaseCommand(type=api.BaseCommand.MESSAGE, message=message).SerializeToString()
    head = meta.SerializeToString()
    body = len(head).to_bytes(4, "big") + head + payload
    if checksum:
        body = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    if broker is not None:
        text = broker.SerializeToString()
        body = b"\x0e\x02" + len(text).to_bytes(4, "big") + text + body
    return len(command).to_bytes(4, "big") + command + body


def metadata(**fields: Any) -> Any:
    return api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=PUBLISHED, **fields)


def batch_payload(rows: list[tuple]) -> bytes:
    payload = b""
    for n, row in enumerate(rows):
        head = head_of(api.SingleMessageMetadata(payload_size=len(row[0] or b""), sequence_id=n), row).SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + (row[0] or b"")
    return payload


def batch(rows: list[tuple], codec: int = 0, **options: Any) -> bytes:
    payload = batch_payload(rows)
    meta = metadata(num_messages_in_batch=len(rows), compression=codec, uncompressed_size=len(payload))
    return frame(THEIR_CODECS[codec](payload), meta, **options)


def decode(*frames: bytes, **options: Any) -> tuple[Columns, list]:
    return decode_pulsar(frames, topic="t", partition=0, **options)


def rows_of(columns: Columns) -> list[tuple]:
    return list(zip(columns.positions(), columns.timestamps(), columns.keys(), columns.values(), columns.headers(), strict=True))


def expected(rows: list[tuple], ledger: int = 5, entry: int = 6, single: bool = False) -> list[tuple]:
    return [
        ((ledger, entry, -1 if single else n), time or PUBLISHED, key, value, tuple((k, v.encode()) for k, v in properties))
        for n, (value, key, properties, time) in enumerate(rows)
    ]


@pytest.mark.parametrize("codec", THEIR_CODECS)
def test_batches_of_every_codec(codec: int) -> None:
    columns, (entry,) = decode(batch(ROWS, codec))
    assert entry.error is None
    assert rows_of(columns) == expected(ROWS)
    assert (entry.ledger, entry.entry, entry.redelivery_count, entry.permits, entry.batch_size) == (5, 6, 2, 5, 5)
    assert (entry.publish_time, entry.start, entry.stop, entry.broker_index) == (PUBLISHED, 0, 5, -1)
    pa.record_batch(columns).validate(full=True)


@pytest.mark.parametrize("codec", THEIR_CODECS)
def test_single_messages_of_every_codec(codec: int) -> None:
    for row in ROWS:
        value = row[0] or b""
        meta = head_of(metadata(compression=codec, uncompressed_size=len(value)), row)
        columns, (entry,) = decode(frame(THEIR_CODECS[codec](value), meta))
        assert entry.error is None
        assert rows_of(columns) == expected([row], single=True)
        assert (entry.permits, entry.batch_size) == (1, 0)


def test_a_batch_of_one_is_a_batch() -> None:
    assert decode(batch(ROWS[:1]))[0].positions() == [(5, 6, 0)]


def test_frames_captured_from_pulsar_client() -> None:
    meta = metadata(num_messages_in_batch=1)
    assert decode(frame(bytes.fromhex("0000000418034000") + b"one", meta))[0].values() == [b"one"]


def test_broker_metadata_and_missing_checksums() -> None:
    broker = api.BrokerEntryMetadata(broker_timestamp=123, index=77)
    for checksum in (True, False):
        columns, (entry,) = decode(batch(ROWS, broker=broker, checksum=checksum))
        assert rows_of(columns) == expected(ROWS)
        assert (entry.broker_timestamp, entry.broker_index) == (123, 77)
    bad = bytearray(batch(ROWS, broker=broker))
    bad[-1] ^= 1
    assert isinstance(decode(bad)[1][0].error, ChecksumMismatch)  # also behind broker metadata
    assert decode(bad, check_crc=False)[1][0].error is None


def test_acked_rows_of_a_batch_are_left_out() -> None:
    rows = [(b"%d" % n, None, [], 1) for n in range(130)]
    words = (2**64 - 1, 0b1010, 1)
    columns, (entry,) = decode(batch(rows, ack_set=tuple(w - 2**64 if w >= 2**63 else w for w in words)))
    kept = [n for n in range(130) if words[n >> 6] >> (n & 63) & 1]
    assert [p[2] for p in columns.positions()] == kept
    assert (entry.permits, entry.batch_size) == (len(kept), 130)
    assert decode(batch(rows, ack_set=(0b1,)))[0].values() == [b"0"]  # words that are not there are acked
    assert len(decode(batch(rows))[0]) == 130


def test_compacted_batches() -> None:
    payload = b""
    for n in range(4):
        head = api.SingleMessageMetadata(payload_size=0 if n in (1, 2) else 1, compacted_out=n in (1, 2)).SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + (b"" if n in (1, 2) else b"%d" % n)
    columns, (entry,) = decode(frame(payload, metadata(num_messages_in_batch=4)))
    assert (columns.values(), [p[2] for p in columns.positions()], entry.permits) == ([b"0", b"3"], [0, 3], 4)
    survivors = batch_payload([(b"0", None, [], 0), (b"3", None, [], 0)])
    for meta in (metadata(num_messages_in_batch=4), metadata(num_messages_in_batch=2)):
        meta.compacted_batch_indexes.extend([0, 3])
        columns, (entry,) = decode(frame(survivors, meta))
        assert (columns.values(), [p[2] for p in columns.positions()]) == ([b"0", b"3"], [0, 3])
    meta = metadata(num_messages_in_batch=4)
    meta.compacted_batch_indexes.extend([3, 0])
    assert isinstance(decode(frame(survivors, meta))[1][0].error, Malformed)


def test_rows_after_and_before() -> None:
    frames = [batch(ROWS, entry=entry) for entry in (1, 2, 3)] + [frame(b"single", metadata(), entry=4)]
    places = [(5, entry, n) for entry in (1, 2, 3) for n in range(5)] + [(5, 4, -1)]
    for after in (None, (5, 1, -1), (5, 2, 1), (4, 9, 9), (5, 4, -1), (6, 0, 0), (5, 3, 4)):
        for before in (None, (5, 2, 3), (5, 3, -1), (5, 4, -1), (6, 0, 0)):
            wanted = [
                p
                for p in places
                if (after is None or not (p <= after or (after[2] < 0 and p[:2] <= after[:2])))
                and (before is None or not (p[:2] > before[:2] or (p[:2] == before[:2] and (before[2] < 0 or p[2] >= before[2]))))
            ]
            assert decode(*frames, after=after, before=before)[0].positions() == wanted


def test_markers_give_no_rows() -> None:
    columns, (entry,) = decode(frame(b"x", metadata(marker_type=10)))
    assert (len(columns), entry.error, entry.permits) == (0, None, 1)


def test_null_keys_and_broken_base64() -> None:
    columns, _ = decode(frame(b"v", metadata(partition_key="", null_partition_key=True)))
    assert columns.keys() == [None]
    _, (entry,) = decode(frame(b"v", metadata(partition_key="!!", partition_key_b64_encoded=True)))
    assert isinstance(entry.error, Malformed)
    for size in range(20):
        key = bytes(range(250, 250 - size, -1))
        meta = metadata(partition_key=base64.b64encode(key).decode(), partition_key_b64_encoded=True)
        assert decode(frame(b"v", meta))[0].keys() == [key]


def test_what_cannot_be_read_gives_no_rows_and_says_why() -> None:
    good = batch(ROWS, entry=1)
    encrypted = metadata()
    encrypted.encryption_keys.add(key="k", value=b"v")
    payload = batch_payload(ROWS)
    cases = [
        (frame(b"v", encrypted, entry=2), Malformed, "encrypted"),
        (frame(b"v", metadata(num_chunks_from_msg=3, chunk_id=0), entry=2), Malformed, "chunk"),
        (frame(b"v", metadata(compression=3, uncompressed_size=10), entry=2), DecompressionError, "zstd"),
        (frame(zlib.compress(b"v" * 11), metadata(compression=2, uncompressed_size=10), entry=2), DecompressionError, "zlib"),
        (frame(zlib.compress(b"v"), metadata(compression=2, uncompressed_size=2**32 - 1), entry=2), DecompressionError, "declared size"),
        (frame(payload, metadata(num_messages_in_batch=6), entry=2), Malformed, "batch"),
        (frame(payload, metadata(num_messages_in_batch=4), entry=2), Malformed, "longer"),
        (frame(payload, metadata(num_messages_in_batch=2**31 - 1), entry=2), Malformed, "count"),
        (frame(payload, metadata(num_messages_in_batch=-1), entry=2), Malformed, "counts below zero"),
        (frame(payload[:-1], metadata(num_messages_in_batch=5), entry=2), Malformed, "beyond"),
        (frame(b"v", metadata(), entry=2, checksum=False)[:-3], Truncated, "metadata"),
    ]
    for bad, kind, text in cases:
        columns, (first, second, third) = decode(good, bad, good)
        assert isinstance(second.error, kind), (text, second.error)
        assert text in str(second.error)
        assert (second.start, second.stop, first.error, third.error) == (5, 5, None, None)
        assert rows_of(columns) == expected(ROWS, entry=1) * 2
        assert (second.error.topic, second.error.partition, second.error.position) == ("t", 0, "5:2")


def test_a_frame_that_is_no_message_is_refused() -> None:
    ping = api.BaseCommand(type=api.BaseCommand.PING, ping=api.CommandPing()).SerializeToString()
    for bad in (b"", b"\0\0", b"\0\0\0\5abc", b"\0\0\0\3\xff\xff\xff", len(ping).to_bytes(4, "big") + ping):
        with pytest.raises(Malformed, match="MESSAGE"):
            decode(bad)


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_cuts_and_changes_never_get_past_the_types(codec: int) -> None:
    rng = random.Random(codec)
    whole = batch(ROWS, codec, ack_set=(0b11101,), broker=api.BrokerEntryMetadata(index=3))
    for cut in range(len(whole)):
        try:
            columns, (entry,) = decode(whole[:cut], check_crc=False, limit=1 << 20)
        except Malformed:
            continue
        assert entry.error is not None or len(columns) < 5
    for _ in range(3000):
        bad = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(rng.choice((60, len(bad))))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        try:
            columns, _ = decode(bad, check_crc=False, limit=1 << 20)
        except Malformed:
            continue
        pa.record_batch(columns).validate(full=True)


def test_equal_to_the_slow_codec() -> None:
    rng = random.Random(8)
    for _ in range(40):
        rows = [
            (
                rng.choice((None, rng.randbytes(rng.randrange(300)))),
                rng.choice((None, b"key", rng.randbytes(5))),
                [("a", "b")][: rng.randrange(2)],
                rng.randrange(3),
            )
            for _ in range(rng.randrange(1, 30))
        ]
        made = batch(rows, rng.randrange(5), ack_set=rng.choice(((), (rng.randrange(2**31),))))
        ours, (entry,) = decode(made)
        theirs, facts = slow.decode(made)
        assert rows_of(ours) == theirs
        assert (entry.error, facts.error, entry.start, entry.stop) == (None, None, 0, len(theirs))
        for name in ("ledger", "entry", "redelivery_count", "permits", "batch_size", "publish_time"):
            assert getattr(entry, name) == getattr(facts, name)
        broken = made[:-1] + bytes([made[-1] ^ 1])
        assert slow.decode(broken)[1].error == "checksum"
        assert isinstance(decode(broken)[1][0].error, ChecksumMismatch)


@pytest.mark.parametrize("told", ["truly", "less", "nothing"])
@pytest.mark.parametrize("codec", [codec for codec in THEIR_CODECS if codec])
def test_bombs_are_refused_and_take_no_memory(codec: int, told: str) -> None:
    """A payload that unpacks to more than the limit, whatever the metadata says of its size; the entries beside it are read."""
    size = 48 << 20
    packed = THEIR_CODECS[codec](bytes(size))
    said = {"truly": size, "less": 1000, "nothing": 0}[told]
    bomb = frame(packed, metadata(compression=codec, uncompressed_size=said), entry=7)
    good = batch(ROWS, codec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    columns, (first, middle, final) = decode(good, bomb, good, limit=1 << 20)
    assert isinstance(middle.error, DecompressionError)
    assert (first.error, final.error) == (None, None)
    assert len(columns) == 2 * len(ROWS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 24 << 10  # KiB
    if told == "truly":
        columns, (entry,) = decode(bomb, limit=size)
        assert entry.error is None
        assert len(columns.values()[0] or b"") == size
