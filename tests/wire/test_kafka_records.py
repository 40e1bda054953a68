"""Kafka record sections: what other clients wrote, the broker's rewriting, filters, and broken bytes."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
import threading

import crc32c
import lz4.frame
import pyarrow as pa
import pytest

from peers import kafka_batch
from wireproto._codec import decode_kafka, kafka_batches, kafka_section_end
from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LIBRARIES = ("kafka-python", "aiokafka")
FORMATS = [(magic, name) for magic in (0, 1, 2) for name in CODECS if magic == 2 or name != "zstd"]
ROWS = [
    (0, 1_700_000_000_000, b"k0", b"v0", [("h", b"1"), ("h", b""), ("ü", b"\xff")]),
    (1, 1_700_000_000_500, None, b"", []),
    (2, 1_699_999_999_999, b"", None, []),
    (3, 1_700_000_001_000, b"k" * 200, b"x" * 5000, []),
    (4, 1_700_000_001_000, b"k4", bytes(range(256)), [("", b"")]),
]


def decode(section: bytes, fetch_offset: int = 0, **options: object) -> tuple:
    return decode_kafka(section, topic="t", partition=3, fetch_offset=fetch_offset, **options)


def rows_of(columns: object) -> list[tuple]:
    return list(
        zip(columns.positions(), columns.timestamps(), columns.keys(), columns.values(), [list(h) for h in columns.headers()], strict=True)
    )


def expected(rows: list[tuple], magic: int, base: int = 0) -> list[tuple]:
    return [
        (base + delta, None if magic == 0 else timestamp, key, value, headers if magic == 2 else [])
        for delta, timestamp, key, value, headers in rows
    ]


def seal(batch: bytearray) -> bytes:
    """Put the right CRC into a v2 batch."""
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def patch(batch: bytes, at: int, form: str, value: int) -> bytes:
    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    return seal(data)


def marker(producer: int, base: int, kind: int) -> bytes:
    """A control batch as a coordinator writes it: kind 0 aborts, 1 commits."""
    batch = kafka_batch(
        "aiokafka", 2, 0, [(0, 1, struct.pack(">hh", 0, kind), b"\0\0\0\0\0\0", [])], base=base, transactional=True, producer_id=producer
    )
    return patch(batch, 21, ">h", 0x30)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_reads_what_others_wrote(library: str, magic: int, codec: str) -> None:
    batch = kafka_batch(library, magic, CODECS[codec], ROWS, base=1000)
    columns, following = decode(batch, 1000)
    assert rows_of(columns) == expected(ROWS, magic, 1000)
    assert following == 1005
    assert kafka_section_end(batch)[0] == 1005
    pa.record_batch(columns).validate(full=True)
    assert [r.offset for r in columns.records("t", 3)] == [1000, 1001, 1002, 1003, 1004]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_rows_outside_the_wanted_offsets_are_left_out(magic: int, codec: str) -> None:
    section = kafka_batch("aiokafka", magic, CODECS[codec], ROWS, base=10) + kafka_batch("aiokafka", magic, CODECS[codec], ROWS, base=15)
    for start in range(10, 21):
        for stop in (None, 12, 15, 17, 20):
            columns, following = decode(section, start, stop=stop)
            assert columns.positions() == list(range(start, 20 if stop is None else stop))
            assert following == max(20, start)
            assert rows_of(columns) == [r for r in expected(ROWS, magic, 10) + expected(ROWS, magic, 15) if r[0] in columns.positions()]


@pytest.mark.parametrize("seed", range(5))
def test_mixed_formats_in_one_section(seed: int) -> None:
    rng = random.Random(seed)
    section, wanted, base = b"", [], 5
    for _ in range(12):
        magic, codec = rng.choice(FORMATS)
        section += kafka_batch(rng.choice(LIBRARIES), magic, CODECS[codec], ROWS, base=base)
        wanted += expected(ROWS, magic, base)
        base += len(ROWS) + rng.randrange(3)
    columns, following = decode(section, 5)
    assert rows_of(columns) == wanted
    assert following == wanted[-1][0] + 1


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_a_cut_last_batch_is_no_error(magic: int, codec: str) -> None:
    first = kafka_batch("aiokafka", magic, CODECS[codec], ROWS, base=0)
    last = kafka_batch("aiokafka", magic, CODECS[codec], [(0, 1, b"k", b"v" * 40, [])], base=5)
    for cut in range(len(last)):
        columns, following = decode(first + last[:cut])
        assert (rows_of(columns), following) == (expected(ROWS, magic), 5)
        assert kafka_section_end(first + last[:cut])[0] == 5
    for cut in range(len(last)):
        columns, following = decode(last[:cut], 5)
        assert (len(columns), following, kafka_section_end(last[:cut])[0]) == (0, 5, -1)
    assert decode(first + last)[1] == 6


def test_nothing_fetched() -> None:
    for nothing in (None, b"", b"\0" * 10):
        columns, following = decode(nothing, 77)
        assert (len(columns), following, kafka_section_end(nothing)[0]) == (0, 77, -1)


def test_compacted_gaps_are_kept_and_the_end_is_the_batchs() -> None:
    rows = [(3, 10, b"a", b"1", []), (7, 11, b"b", b"2", [])]
    batch = patch(kafka_batch("kafka-python", 2, 0, rows, base=100), 23, ">i", 20)
    columns, following = decode(batch, 100)
    assert (columns.positions(), following, kafka_section_end(batch)[0]) == ([103, 107], 121, 121)
    empty = bytearray(batch[:61])
    struct.pack_into(">i", empty, 8, 49)
    struct.pack_into(">i", empty, 57, 0)
    columns, following = decode(seal(empty), 100)
    assert (len(columns), following) == (0, 121)


def test_v1_wrapper_offsets_are_relative_to_its_own() -> None:
    rows = [(0, 1, b"a", b"1", []), (4, 2, b"b", b"2", [])]  # compacted within
    for library in LIBRARIES:
        wrapper = kafka_batch(library, 1, 1, rows, base=50)
        assert decode(wrapper, 50)[0].positions() == [50, 54]
        assert decode(wrapper, 51)[0].positions() == [54]
        absolute = kafka_batch(library, 0, 1, rows, base=50)
        assert decode(absolute, 50)[0].positions() == [50, 54]


def test_log_append_time_wins() -> None:
    batch = patch(kafka_batch("aiokafka", 2, 0, ROWS), 21, ">h", 8)
    batch = patch(batch, 35, ">q", 1_800_000_000_000)
    assert decode(batch)[0].timestamps() == [1_800_000_000_000] * 5
    assert decode(batch, facts=True)[0].facts[0]["timestamp_type"] == "append"


def test_minus_one_is_no_timestamp() -> None:
    batch = kafka_batch("aiokafka", 2, 0, [(0, 0, None, b"v", [])])
    assert decode(patch(batch, 27, ">q", -1))[0].timestamps() == [None]


@pytest.mark.parametrize("order", [1, -1])
def test_aborted_transactions_and_markers(order: int) -> None:
    def data(producer: int, base: int, transactional: bool = True) -> bytes:
        return kafka_batch(
            "aiokafka", 2, 0, [(0, 1, None, b"%d@%d" % (producer, base), [])], base=base, transactional=transactional, producer_id=producer
        )

    section = (
        data(1, 0)
        + data(2, 1)
        + data(9, 2, False)
        + marker(1, 3, 0)
        + data(1, 4)
        + marker(2, 5, 1)
        + marker(1, 6, 1)
        + data(1, 7)
        + data(2, 8)
        + marker(1, 9, 0)
        + marker(2, 10, 1)
    )
    aborted = [(1, 0), (1, 7)][::order]
    committed = decode(section, aborted=aborted, isolation_committed=True)
    assert committed[0].values() == [b"2@1", b"9@2", b"1@4", b"2@8"]
    everything = decode(section, aborted=aborted)
    assert everything[0].values() == [b"1@0", b"2@1", b"9@2", b"1@4", b"1@7", b"2@8"]
    assert committed[1] == everything[1] == 11
    assert decode(marker(1, 30, 0), 30)[1] == 31

    class FromResponse:
        producer_id, first_offset = 1, 0

    assert decode(data(1, 0) + marker(1, 1, 0), aborted=[FromResponse()], isolation_committed=True)[0].values() == []


def test_a_marker_before_the_fetch_offset_still_ends_its_transaction() -> None:
    section = marker(1, 9, 0) + kafka_batch("aiokafka", 2, 0, [(0, 1, None, b"good", [])], base=10, transactional=True, producer_id=1)
    assert decode(section, 10, aborted=[(1, 5)], isolation_committed=True)[0].values() == [b"good"]


def test_facts_on_request() -> None:
    batch = kafka_batch("kafka-python", 2, 4, ROWS, base=7, transactional=True, producer_id=42, epoch=3, sequence=100)
    assert decode(batch)[0].facts == ()
    (fact,) = decode(batch, facts=True)[0].facts
    assert fact["offset"], fact["last_offset"] == (7, 11)
    assert (fact["codec"], fact["count"], fact["producer_id"], fact["producer_epoch"], fact["base_sequence"]) == ("zstd", 5, 42, 3, 100)
    assert (fact["transactional"], fact["control"], fact["magic"], fact["timestamp_type"]) == (True, False, 2, "create")
    assert kafka_batches(kafka_batch("aiokafka", 0, 0, ROWS[:1]))[0]["magic"] == 0


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_each_changed_byte_under_the_crc_is_noticed(magic: int, codec: str) -> None:
    batch = kafka_batch("aiokafka", magic, CODECS[codec], ROWS[: 2 if magic == 2 else 1], base=9)
    for at in range(17, len(batch)):
        bad = bytearray(batch)
        bad[at] ^= 0x10
        with pytest.raises(ChecksumMismatch) as caught:
            decode(bad, 9)
        assert (caught.value.topic, caught.value.partition, caught.value.position, caught.value.offset) == ("t", 3, 9, 0)


def test_good_batches_before_a_broken_one_are_handed_out_first() -> None:
    good, bad = kafka_batch("aiokafka", 2, 0, ROWS, base=0), bytearray(kafka_batch("aiokafka", 2, 0, ROWS, base=5))
    bad[-1] ^= 1
    columns, following = decode(good + bad)
    assert (len(columns), following) == (5, 5)
    with pytest.raises(ChecksumMismatch, match=r"t\[3\], position 5"):
        decode(good + bad, 5)
    last = kafka_batch("aiokafka", 2, 0, ROWS, base=10)
    columns, following = decode(good + bad + last, on_corrupt="skip")
    assert (columns.positions(), following) == ([*range(5), *range(10, 15)], 15)
    assert [error.position for error in columns.skipped] == [5]
    columns, following = decode(bad, 5, on_corrupt="skip")
    assert (len(columns), following) == (0, 10)
    assert decode(bad, 5, check_crc=False)[0].positions() == list(range(5, 10))
    with pytest.raises(ValueError):
        decode(good, on_corrupt="ignore")


def test_skipping_always_gets_on() -> None:
    lost = bytearray(kafka_batch("aiokafka", 2, 0, ROWS, base=5))
    lost[16] = 9  # unknown magic: where the next batch begins cannot be known
    columns, following = decode(lost, 5, on_corrupt="skip")
    assert (len(columns), following, len(columns.skipped)) == (0, 6, 1)
    with pytest.raises(Malformed, match="magic"):
        decode(lost, 5)
    odd = patch(kafka_batch("aiokafka", 2, 0, ROWS, base=5), 23, ">i", 2**31 - 1)  # a last offset that the count denies
    odd = odd[:-1] + bytes([odd[-1] ^ 1])
    assert decode(odd, 5, on_corrupt="skip")[1] == 6


LIES = {
    "count too large": (57, ">i", 2**31 - 1),
    "count negative": (57, ">i", -1),
    "count too small": (57, ">i", 4),
    "count one more": (57, ">i", 6),
    "last offset negative": (23, ">i", -1),
    "last offset too small": (23, ">i", 2),
    "unknown codec": (21, ">h", 7),
    "codec of another": (21, ">h", 2),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_under_a_right_crc_are_refused(lie: str) -> None:
    batch = patch(kafka_batch("aiokafka", 2, 0, ROWS, base=5), *LIES[lie])
    with pytest.raises((Malformed, DecompressionError)) as caught:
        decode(batch, 5)
    assert caught.value.position == 5
    columns, following = decode(batch + kafka_batch("aiokafka", 2, 0, ROWS, base=10), 5, on_corrupt="skip")
    assert (columns.positions(), following) == (list(range(10, 15)), 15)


def test_lying_batch_lengths() -> None:
    batch = bytearray(kafka_batch("aiokafka", 2, 0, ROWS, base=5))
    for length in (-1, 0, 13, 48, -(2**31)):
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(Malformed):
            decode(batch, 5)
        assert decode(batch, 5, on_corrupt="skip")[1] == 6
    struct.pack_into(">i", batch, 8, 2**31 - 1)
    assert len(decode(batch, 5)[0]) == 0


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 2**63 - 3])
def test_offsets_that_run_over_are_refused(offset: int) -> None:
    batch = bytearray(kafka_batch("aiokafka", 2, 0, ROWS))
    struct.pack_into(">q", batch, 0, offset)
    with pytest.raises(Malformed):
        decode(batch)


def plain_record(body: bytes) -> bytes:
    """A v2 batch with one raw record."""
    batch = bytearray(kafka_batch("aiokafka", 2, 0, [(0, 1, None, b"", [])])[:61]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return seal(batch)


@pytest.mark.parametrize(
    "body",
    [
        "00" * 8,
        "0200" + "00" * 7,
        "0e000000" + "030100",
        "0e000000" + "010300",
        "0e000000" + "01fffffffff000",
        "0e000000" + "ffffffff0f0100",
        "0e000000010102",
        "10000000010102fe",
        "140000000101020001" + "0000",
        "0e0000000101ff",
        "0c00000001010000",
        "0e000001010100",
        "0e000002010100",
        "12000000010102010000",
        "ffffffff0f000000010100",
        "0effffffffffffffffffff0101010100",
        "0e00000001010000",
    ],
)
def test_malformed_records_are_refused(body: str) -> None:
    with pytest.raises(Malformed):
        decode(plain_record(bytes.fromhex(body)))


def test_the_smallest_record_is_read() -> None:
    assert rows_of(decode(plain_record(bytes.fromhex("0c000000010100")))[0]) == [(0, 1, None, None, [])]


def test_header_names_that_are_no_utf8_are_replaced() -> None:
    body = bytes.fromhex("000000" + "0101" + "02") + b"\x08" + b"a\xff\xc3\xa4" + b"\x02x"
    assert decode(plain_record(bytes([len(body) * 2]) + body))[0].headers() == [(("a\ufffdä", b"x"),)]


def wrapper(magic: int, codec: int, inner: bytes, offset: int) -> bytes:
    """A packed message around any inner bytes."""
    import gzip
    import zlib

    value = {1: gzip.compress, 3: lambda data: lz4.frame.compress(data, block_linked=False)}[codec](inner)
    body = bytes([magic, codec]) + (struct.pack(">q", 5) if magic else b"") + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_broken_wrappers_are_refused() -> None:
    inner = kafka_batch("kafka-python", 1, 0, ROWS)
    assert decode(wrapper(1, 1, inner, 104), 100)[0].positions() == [100, 101, 102, 103, 104]
    for broken in (
        b"",
        inner[:-1],
        inner[:-3000],
        inner + b"\0",
        wrapper(1, 1, inner, 4),
        kafka_batch("kafka-python", 0, 0, ROWS),
        inner + inner,
        inner[:20] + b"\xff" + inner[21:],
        inner[:8] + b"\xff\xff\xff\xff" + inner[12:],
        inner[:8] + b"\x7f\xff\xff\xff" + inner[12:],
    ):
        with pytest.raises((Malformed, ChecksumMismatch)):
            decode(wrapper(1, 1, broken, 104), 100)
    with pytest.raises(Malformed):
        decode(wrapper(1, 1, inner, 3))  # its first message would lie before offset 0


def test_bombs_are_refused() -> None:
    for codec in (1, 2, 3, 4):
        batch = kafka_batch("aiokafka", 2, codec, [(0, 1, None, bytes(20 << 20), [])])
        with pytest.raises(DecompressionError) as caught:
            decode(batch, limit=1 << 20)
        assert (caught.value.topic, caught.value.partition, caught.value.position) == ("t", 3, 0)
        assert len(decode(batch, limit=32 << 20)[0]) == 1


def test_unpacking_stops_when_the_columns_hold_the_limit() -> None:
    section = b"".join(kafka_batch("aiokafka", 2, 4, [(0, 1, None, bytes(1 << 20), [])], base=n) for n in range(8))
    columns, following = decode(section, limit=3 << 20)
    assert (len(columns), following) == (3, 3)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_changed_bytes_never_get_past_the_types(magic: int, codec: str) -> None:
    rng = random.Random(f"{magic}{codec}")
    batch = kafka_batch("aiokafka", magic, CODECS[codec], ROWS[:3] + ROWS[4:], base=3)
    section = batch + kafka_batch("aiokafka", magic, CODECS[codec], ROWS, base=8)
    for _ in range(1500):
        bad = bytearray(section[: rng.randrange(len(section) + 1)] if rng.random() < 0.2 else section)
        for _ in range(rng.randrange(1, 4)):
            if bad:
                at = rng.randrange(min(len(bad), rng.choice((70, len(bad)))))
                bad[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        with contextlib.suppress(ProtocolError):
            columns, following = decode(bytes(bad), 3, check_crc=False, limit=1 << 20)
            assert following >= 3
            pa.record_batch(columns).validate(full=True)
        columns, following = decode(bytes(bad), 3, check_crc=rng.random() < 0.5, limit=1 << 20, on_corrupt="skip")
        assert following >= (4 if columns.skipped else 3)
        assert all(3 <= offset < following for offset in columns.positions())


def test_broken_input_does_not_leak() -> None:
    rng = random.Random(5)
    batch = kafka_batch("aiokafka", 2, 0, [(n, n, b"k%d" % n, bytes(1000), [("h", None), ("i", b"x" * 50)]) for n in range(200)])

    def rounds(count: int) -> int:
        for _ in range(count):
            bad = bytearray(batch)
            bad[rng.randrange(61, len(bad))] ^= 0xFF
            with contextlib.suppress(ProtocolError):
                pa.record_batch(decode(bad, check_crc=False)[0])
            bad[60] ^= 0xFF
            decode(bad, on_corrupt="skip")
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = rounds(300)
    assert rounds(1500) - before < 8 << 10  # KiB; each leaked table would be 200 KiB


def test_threads_decode_together() -> None:
    section = b"".join(kafka_batch("aiokafka", 2, 0, [(n, n, b"key", bytes(100), []) for n in range(200)], base=200 * b) for b in range(10))
    wanted = rows_of(decode(section)[0])
    found: list[bool] = []

    def work() -> None:
        found.extend(rows_of(decode(section)[0]) == wanted for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20
