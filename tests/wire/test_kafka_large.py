"""Long Kafka batches, whose CRC is summed while their records are read: nothing of a broken one gets out, whatever breaks first."""

from __future__ import annotations

import random

import crc32c
import pytest

from peers import kafka_batch
from wireproto._codec import Columns, decode_kafka
from wireproto.errors import ChecksumMismatch, Malformed

STEP = 32768  # so much is summed at a time


def decode(section: bytes, fetch_offset: int = 0, **options: object) -> tuple[Columns, int]:
    return decode_kafka(section, topic="t", partition=3, fetch_offset=fetch_offset, **options)


def seal(batch: bytearray) -> bytes:
    """Put the right CRC into a batch."""
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def long_batch(base: int, size: int = 100, count: int = 2000) -> bytes:
    rows = [(n, 1000 + n, b"key %d" % n, bytes([n & 255]) * size, [("h", b"%d" % n)] if n % 100 == 0 else []) for n in range(count)]
    return kafka_batch("aiokafka", 2, 0, rows, base=base)


SIZES = {"copied": (100, 2000), "views": (1000, 300)}


@pytest.mark.parametrize("kind", SIZES)
def test_long_batches_are_read_whole(kind: str) -> None:
    size, count = SIZES[kind]
    section = long_batch(0, size, count) + long_batch(count, size, count)
    assert len(section) > 4 * STEP
    columns, following = decode(section)
    assert following == 2 * count
    assert columns.positions() == list(range(2 * count))
    assert columns.values() == [bytes([n & 255]) * size for n in range(count)] * 2
    assert columns.keys() == [b"key %d" % n for n in range(count)] * 2
    assert columns.timestamps() == [1000 + n for n in range(count)] * 2
    assert decode(section, check_crc=False)[0] == columns
    assert decode(section, count + 7, stop=count + 9)[0].positions() == [count + 7, count + 8]
    assert decode(section, columns=("value",))[0].values() == columns.values()


@pytest.mark.parametrize("kind", SIZES)
def test_a_changed_byte_of_a_long_batch_is_a_crc_error_whatever_else_it_breaks(kind: str) -> None:
    good, bad, last = (long_batch(base, *SIZES[kind]) for base in (0, 2000, 4000))
    count = SIZES[kind][1]
    edges = [21 + STEP * n + off for n in range(1, len(bad) // STEP + 1) for off in (-2, -1, 0, 1, 2)]
    for at in [*range(61, 90), *edges, *range(4000, len(bad), 9973), len(bad) - 2, len(bad) - 1]:
        if at >= len(bad):
            continue
        for flip in (1, 0xFF):
            changed = bytearray(bad)
            changed[at] ^= flip
            with pytest.raises(ChecksumMismatch) as caught:
                decode(bytes(changed), 2000)
            assert (caught.value.position, caught.value.offset) == (2000, 0)
        columns, following = decode(good + bytes(changed) + last)
        assert (len(columns), following) == (count, count)
        columns, following = decode(good + bytes(changed) + last, on_corrupt="skip")
        assert columns.positions() == [*range(count), *range(4000, 4000 + count)]
        assert [type(error) for error in columns.skipped] == [ChecksumMismatch]
        assert columns.values() == decode(good)[0].values() + decode(last)[0].values()
        assert columns.headers() == decode(good)[0].headers() + decode(last)[0].headers()


@pytest.mark.parametrize("kind", SIZES)
def test_lies_in_a_long_batch_under_a_right_crc_are_refused(kind: str) -> None:
    batch = long_batch(0, *SIZES[kind])
    for field, form in ((57, 1), (57, -1), (23, -1)):  # one record more, one less, a last offset too small
        lie = bytearray(batch)
        lie[field : field + 4] = (int.from_bytes(lie[field : field + 4], "big") + form).to_bytes(4, "big")
        with pytest.raises(Malformed) as caught:
            decode(seal(lie))
        assert not isinstance(caught.value, ChecksumMismatch)
    for cut in (STEP, 2 * STEP, 3 * STEP - 1):
        short = bytearray(batch[:cut])
        short[8:12] = (cut - 12).to_bytes(4, "big")
        with pytest.raises(ChecksumMismatch):
            decode(bytes(short))
        with pytest.raises(Malformed):
            decode(seal(short))


def test_the_crc_counts_for_batches_that_are_passed_over() -> None:
    bad = bytearray(long_batch(0))
    bad[-5] ^= 1  # of the last value
    with pytest.raises(ChecksumMismatch):
        decode(bytes(bad), 5000)
    with pytest.raises(ChecksumMismatch):
        decode(bytes(bad), stop=0)
    assert decode(bytes(bad), 1999, check_crc=False)[0].positions() == [1999]


def outcome(section: bytes, **options: object) -> object:
    try:
        columns, following = decode(section, **options)
    except Malformed as why:
        return type(why), str(why)
    return columns, following, [(type(why), why.position, str(why)) for why in columns.skipped]


@pytest.mark.parametrize("kind", SIZES)
def test_changed_bytes_under_a_right_crc_are_read_as_without_one(kind: str) -> None:
    rng = random.Random(kind)
    size, count = SIZES[kind]
    batch, behind = long_batch(0, size, count), long_batch(100_000, 10, 3)
    for _ in range(300):
        changed = bytearray(batch)
        edge = 21 + STEP * rng.randrange(1, len(batch) // STEP)
        for at in (rng.randrange(23, len(batch)), rng.randrange(edge - 12, edge + 12))[: rng.choice((1, 2))]:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        section = seal(changed) + behind
        on_corrupt = rng.choice(("raise", "skip"))
        assert outcome(section, on_corrupt=on_corrupt) == outcome(section, on_corrupt=on_corrupt, check_crc=False)
