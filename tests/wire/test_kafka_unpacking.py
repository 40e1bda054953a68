"""Sections of several packed batches, unpacked by several threads: the same records, order, bounds and errors as with one."""

from __future__ import annotations

import functools
import os
import random
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import crc32c
import pytest

from peers import kafka_batch
from wireproto._codec import Columns, decode_kafka
from wireproto.compression import ahead
from wireproto.errors import ChecksumMismatch, DecompressionError

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ROWS, BATCHES = 700, 6


@pytest.fixture(params=[0, 1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    usual = ahead.threads()
    yield ahead.threads(request.param)
    ahead.threads(usual)


def decode(section: bytes, fetch_offset: int = 0, **options: object) -> tuple[Columns, int]:
    return decode_kafka(section, topic="t", partition=3, fetch_offset=fetch_offset, **options)


def rows_of(number: int) -> list[tuple]:
    rng = random.Random(number)
    return [(n, n, b"%d" % n, rng.randbytes(150) + bytes(100), []) for n in range(ROWS)]


def batches_of(codec: str) -> list[bytes]:
    return [kafka_batch("kafka-python", 2, CODECS[codec], rows_of(n), base=n * ROWS) for n in range(BATCHES)]


PACKED = {codec: batches_of(codec) for codec in CODECS}
VALUES = [[row[3] for row in rows_of(n)] for n in range(BATCHES)]


def seal(batch: bytearray) -> bytes:
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_in_order_whoever_unpacks(codec: str, threads: int) -> None:
    section = b"".join(PACKED[codec])
    for records in (section, memoryview(section)):  # a view: nobody else may keep it, so nobody else unpacks
        columns, following = decode(records)
        assert following == ROWS * BATCHES
        assert columns.positions() == list(range(ROWS * BATCHES))
        assert columns.values() == [value for values in VALUES for value in values]
    assert decode(section, ROWS + 5, stop=4 * ROWS + 5)[0].positions() == list(range(ROWS + 5, 4 * ROWS + 5))
    busy = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    assert not threads or codec not in ahead.SHARES or "wireproto-unpack" in busy


def test_packed_and_plain_batches_large_and_small_in_one_section(threads: int) -> None:
    rng = random.Random(8)
    section, values, base = b"", [], 0
    for _ in range(40):
        magic, codec = rng.choice(((2, "gzip"), (2, "zstd"), (2, "lz4"), (2, "snappy"), (2, ""), (1, "gzip"), (0, "snappy")))
        rows = rows_of(base)[: rng.choice((1, 30, ROWS))]
        if rng.random() < 0.3:
            rows = [(n, stamp, key, value * 4, headers) for n, stamp, key, value, headers in rows]
        section += kafka_batch("kafka-python", magic, CODECS.get(codec, 0), rows, base=base)
        values += [row[3] for row in rows]
        base += len(rows)
    columns, following = decode(section + kafka_batch("aiokafka", 2, 4, rows_of(1), base=base)[:5000])
    assert (following, columns.positions()) == (base, list(range(base)))
    assert columns.values() == values


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("broken", [0, 2, BATCHES - 1])
def test_errors_stay_at_their_place(codec: str, broken: int, threads: int) -> None:
    batches = list(PACKED[codec])
    wrong = bytearray(batches[broken])
    wrong[-9] ^= 0x55  # the CRC tells
    torn = bytearray(batches[broken][:-40])  # the CRC is right, the block is not
    torn[8:12] = struct.pack(">i", len(torn) - 12)
    for bad, error in ((bytes(wrong), ChecksumMismatch), (seal(torn), DecompressionError)):
        section = b"".join([*batches[:broken], bad, *batches[broken + 1 :]])
        if broken:
            columns, following = decode(section)
            assert (len(columns), following) == (broken * ROWS, broken * ROWS)
        with pytest.raises(error) as caught:
            decode(section, broken * ROWS)
        assert (caught.value.topic, caught.value.partition, caught.value.position) == ("t", 3, broken * ROWS)
        columns, following = decode(section, on_corrupt="skip")
        assert following == ROWS * BATCHES
        assert columns.values() == [value for n, values in enumerate(VALUES) for value in values if n != broken]
        assert [(type(why), why.position) for why in columns.skipped] == [(error, broken * ROWS)]


def test_filters_hold_for_what_was_unpacked_ahead(threads: int) -> None:
    marker = bytearray(
        kafka_batch("aiokafka", 2, 0, [(0, 1, struct.pack(">hh", 0, 0), bytes(6), [])], transactional=True, producer_id=7, base=3 * ROWS)
    )
    struct.pack_into(">h", marker, 21, 0x30)
    section, wanted = b"", []
    for n in range(BATCHES):
        mine = n % 2 == 0
        base = n * ROWS if n < 3 else n * ROWS + 1
        if n == 3:
            section += seal(marker)
        section += kafka_batch("kafka-python", 2, 4, rows_of(n), base=base, transactional=mine, producer_id=7 if mine else -1)
        if not mine or n > 3:
            wanted += range(base, base + ROWS)
    for aborted in ([], [(7, 0)]):
        columns, following = decode(section, isolation_committed=True, aborted=aborted)
        assert following == BATCHES * ROWS + 1
        assert columns.positions() == (wanted if aborted else [n for n in range(BATCHES * ROWS + 1) if n != 3 * ROWS])


@functools.cache
def bomb_of(codec: str) -> bytes:
    return kafka_batch("kafka-python", 2, CODECS[codec], [(0, 1, b"", bytes(24 << 20), [])])


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_are_refused_and_take_no_memory(codec: str, threads: int) -> None:
    bomb = [struct.pack(">q", n) + bomb_of(codec)[8:] for n in range(4)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    section = b"".join(bomb)
    with pytest.raises(DecompressionError, match="limit"):
        decode(section, limit=1 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10  # KiB
    columns, following = decode(section, limit=32 << 20)  # larger than what is unpacked ahead; columns stop at the limit
    assert (len(columns), following) == (2, 2)
    assert [len(value) for value in columns.values()] == [24 << 20] * 2


def test_a_child_process_unpacks_with_threads_of_its_own(threads: int) -> None:
    section = b"".join(PACKED["zstd"])
    assert len(decode(section)[0]) == ROWS * BATCHES
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if len(decode(section)[0]) == ROWS * BATCHES else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_the_interpreter_ends_at_once_with_threads_that_unpack() -> None:
    program = """
import atexit, random, threading
from peers import kafka_batch
from wireproto._codec import decode_kafka
from wireproto.compression import ahead
ahead.threads(2)
section = b""
for n in range(12):
    value = random.randbytes(900) if n % 2 else bytes(range(250)) * 40
    section += kafka_batch("aiokafka", 2, 1, [(k, k, b"", value, []) for k in range(700)], base=n * 700)
def work():
    return len(decode_kafka(section, topic="t", partition=0, fetch_offset=0)[0])
atexit.register(lambda: print(work()))
threading.Thread(target=lambda: [work() for _ in range(30)], daemon=True).start()
print(work())
"""
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", program], env=where, capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "8400\n8400\n", "")


def test_how_many_threads() -> None:
    usual = ahead.threads()
    assert 0 <= usual <= 3
    for wrong in (-1, 65):
        with pytest.raises(ValueError):
            ahead.threads(wrong)
    assert ahead.threads(2) == ahead.threads() == 2
    ahead.threads(usual)
