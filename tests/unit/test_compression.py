"""Compression codecs beside other implementations, on broken input, and against bombs."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import struct
import tracemalloc
import zlib

import cramjam
import lz4.block
import lz4.frame
import pytest
import snappy as python_snappy
import zstandard

from peers import kafka_codec as kafka_python
from wireproto._codec import memory_pool
from wireproto.compression import NAMES, compress, decompress
from wireproto.errors import DecompressionError, OptionError

PLAINS = {
    "empty": b"",
    "byte": b"x",
    "text": b"".join(b'{"id":%d,"name":"flight %d"}' % (n, n * 7) for n in range(3000)),
    "noise": os.urandom(70_000),
    "large": bytes(range(256)) * 6000,
}
PACKED = tuple(name for name in NAMES if name != "none")
LIMIT = 8 << 20
POOL = memory_pool()["limit"]


def their_lz4_frame(data: bytes, **options: object) -> bytes:
    return lz4.frame.compress(data, **options)


THEIR_COMPRESS = {
    "gzip": [gzip.compress, kafka_python.gzip_encode],
    "zlib": [zlib.compress],
    "snappy": [kafka_python.snappy_encode, python_snappy.compress],
    "snappy-raw": [python_snappy.compress],
    "lz4": [
        their_lz4_frame,
        kafka_python.lz4_encode,
        lambda data: their_lz4_frame(data, content_checksum=True, block_checksum=True, store_size=False),
        lambda data: their_lz4_frame(data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ],
    "lz4-v0": [kafka_python.lz4_encode_old_kafka],
    "lz4-block": [lambda data: lz4.block.compress(data, store_size=False)],
    "zstd": [
        zstandard.compress,
        lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
        lambda data: zstandard.ZstdCompressor(level=19, write_checksum=True).compress(data),
    ],
}


def their_zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


THEIR_DECOMPRESS = {
    "gzip": gzip.decompress,
    "zlib": zlib.decompress,
    "snappy": kafka_python.snappy_decode,
    "snappy-raw": python_snappy.decompress,
    "lz4": lz4.frame.decompress,
    "lz4-v0": kafka_python.lz4_decode_old_kafka,
    "lz4-block": lambda data: lz4.block.decompress(data, uncompressed_size=LIMIT),
    "zstd": their_zstd,
}


@pytest.mark.parametrize("plain", PLAINS)
@pytest.mark.parametrize("name", PACKED)
def test_reads_what_others_wrote(name: str, plain: str) -> None:
    for pack in THEIR_COMPRESS[name]:
        assert decompress(name, pack(PLAINS[plain]), LIMIT) == PLAINS[plain]


@pytest.mark.parametrize("plain", PLAINS)
@pytest.mark.parametrize("name", PACKED)
def test_others_read_what_we_wrote(name: str, plain: str) -> None:
    packed = compress(name, PLAINS[plain])
    if name == "snappy" and not PLAINS[plain]:
        return  # a header without a block: kafka-python refuses it, Java and we read it as empty
    assert THEIR_DECOMPRESS[name](packed) == PLAINS[plain]
    assert decompress(name, memoryview(bytearray(packed)), LIMIT) == PLAINS[plain]


def test_lz4_frames_have_independent_blocks_and_no_checksums() -> None:
    for size, block in ((10, 65536), (100_000, 262144), (1_000_000, 1048576), (5_000_000, 4194304)):
        info = lz4.frame.get_frame_info(compress("lz4", bytes(size)))
        assert (info["block_linked"], info["content_checksum"], info["block_size"]) == (False, False, block)


def test_lz4_v0_differs_in_the_header_checksum_alone() -> None:
    ours, right = compress("lz4-v0", PLAINS["text"]), compress("lz4", PLAINS["text"])
    assert [n for n in range(len(right)) if ours[n] != right[n]] == [6]
    assert decompress("lz4", ours, LIMIT) == PLAINS["text"]


def lz4_samples(rng: random.Random) -> bytes:
    """Data of many kinds and sizes, those round a format's limits among them."""
    size = rng.choice((rng.randrange(40), rng.randrange(2000), 65536 + rng.randrange(-20, 20), rng.randrange(200_000)))
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return bytes([rng.randrange(256)]) * size
    if kind == 2:
        return bytes(rng.choices(b"ab", k=min(size, 3000)))
    words = [rng.randbytes(rng.randrange(1, 30)) for _ in range(rng.randrange(1, 50))]
    made = bytearray()
    while len(made) < size:
        made += rng.choice(words) + (rng.randbytes(rng.randrange(20)) if kind == 4 else b"")
        if kind == 5 and rng.random() < 0.01:
            made += rng.randbytes(rng.choice((14, 15, 16, 269, 270, 271, 66_000)))  # literals at each change of a length's form
    return bytes(made[:size])


def test_lz4_is_read_by_two_decoders_whatever_the_data() -> None:
    rng = random.Random(12)
    for _ in range(400):
        plain = lz4_samples(rng)
        block = compress("lz4-block", plain)
        assert len(block) <= len(plain) + len(plain) // 255 + 16
        assert lz4.block.decompress(block, uncompressed_size=len(plain)) == plain
        assert bytes(cramjam.lz4.decompress_block(block, output_len=len(plain))) == plain
        frame = compress("lz4", plain)
        assert len(frame) <= 15 + len(plain) + 4 * (len(plain) // 65536)
        assert lz4.frame.decompress(frame) == plain
        assert bytes(cramjam.lz4.decompress(frame)) == plain


def test_lz4_matches_of_every_length_and_distance() -> None:
    noise = random.Random(13).randbytes(70_000)
    for length in (*range(4, 170), 273, 274, 275, 528, 529, 65_000):  # compared in words, then 64 bytes at a time
        for distance in (length, length + 1, 65_534, 65_535, 65_536):
            if length <= distance:
                plain = noise[:distance] + noise[:length] + b"!" * 13
                assert lz4.block.decompress(compress("lz4-block", plain), uncompressed_size=len(plain)) == plain
    for period in (*range(1, 40), 65_535, 65_536):
        plain = noise[:period] * (200_000 // period)
        assert lz4.block.decompress(compress("lz4-block", plain), uncompressed_size=len(plain)) == plain


def test_lz4_compresses_as_well_as_its_makers_own() -> None:
    for plain in (PLAINS["text"], PLAINS["large"], PLAINS["text"][:3000], PLAINS["text"][:300]):
        assert len(compress("lz4-block", plain)) <= 1.1 * len(lz4.block.compress(plain, store_size=False)) + 8


def test_a_wrong_lz4_header_checksum_is_refused() -> None:
    packed = bytearray(compress("lz4", b"hello"))
    packed[6] ^= 0x55
    with pytest.raises(DecompressionError, match="header checksum"):
        decompress("lz4", packed, LIMIT)


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_concatenated_blocks_are_all_read(name: str) -> None:
    first, second = compress(name, b"one" * 50), compress(name, b"two" * 70)
    assert decompress(name, first + second, LIMIT) == b"one" * 50 + b"two" * 70


def test_gzip_ignores_zero_padding_but_not_rubbish() -> None:
    packed = gzip.compress(b"hello")
    assert decompress("gzip", packed + bytes(20), LIMIT) == b"hello"
    with pytest.raises(DecompressionError):
        decompress("gzip", packed + b"rubbish", LIMIT)


def test_zlib_streams_that_end_at_a_sync_flush_are_whole() -> None:
    packer = zlib.compressobj()
    packed = packer.compress(PLAINS["text"]) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert decompress("zlib", packed, LIMIT) == PLAINS["text"]
    assert decompress("zlib", packed, LIMIT, size=len(PLAINS["text"])) == PLAINS["text"]
    with pytest.raises(DecompressionError):
        decompress("zlib", packed[:-9], LIMIT)


@pytest.mark.parametrize(
    ("name", "packed"),
    [  # as RocketMQ's Java classes write 64 times 'x'
        ("lz4", "04224d186070730b0000001f7801002750787878787800000000"),
        ("zstd", "28b52ffd00584400001078780100930016010000"),
        ("zlib", "785eaba8a00c0000cf6d1e01"),
    ],
)
def test_reads_rocketmqs_vectors(name: str, packed: str) -> None:
    assert decompress(name, bytes.fromhex(packed), 64) == b"x" * 64


@pytest.mark.parametrize("name", PACKED)
def test_every_cut_is_refused(name: str) -> None:
    plain = PLAINS["text"][:600]
    packed = compress(name, plain)
    for cut in range(len(packed)):
        if name == "snappy" and cut == 16:
            continue  # xerial header alone: no block, no bytes
        with pytest.raises(DecompressionError):
            decompress(name, packed[:cut], LIMIT, size=len(plain) if name == "lz4-block" else None)


@pytest.mark.parametrize("name", PACKED)
def test_changed_bytes_give_an_error_or_bounded_output(name: str) -> None:
    rng = random.Random(name)
    packed = compress(name, PLAINS["text"][:5000])
    for _ in range(400):
        bad = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        with contextlib.suppress(DecompressionError):
            assert len(decompress(name, bad, 20_000)) <= 20_000


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_is_kept_to_the_byte(name: str) -> None:
    plain = PLAINS["text"]
    packed = compress(name, plain)
    assert decompress(name, packed, len(plain)) == plain
    with pytest.raises(DecompressionError):
        decompress(name, packed, len(plain) - 1)
    with pytest.raises(DecompressionError):
        decompress(name, packed, LIMIT, size=len(plain) + 1)
    with pytest.raises(DecompressionError):
        decompress(name, packed, 10, size=len(plain))


def bomb(name: str, size: int) -> bytes:
    if name in ("gzip", "zlib"):
        packer = zlib.compressobj(9, zlib.DEFLATED, 31 if name == "gzip" else 15)
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
    if name == "zstd":
        packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
        return b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
    return compress(name, bytes(size))


@pytest.mark.parametrize("name", PACKED)
def test_bombs_stop_at_the_limit(name: str) -> None:
    packed = bomb(name, 64 << 20)
    memory_pool(0)  # empty: what is taken from now on is seen when it is given back
    memory_pool(POOL)
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(name, packed, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        assert memory_pool()["held"] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["snappy", "snappy-raw"])
def test_snappy_does_not_believe_its_declared_length(name: str) -> None:
    for lie in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x07" + bytes(10)):
        with pytest.raises(DecompressionError, match="cannot hold"):
            decompress(name, lie, 1 << 40)
    block = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(DecompressionError):
        decompress("snappy", block, 1 << 40)


def test_lz4_linked_blocks_of_the_package_are_read() -> None:
    assert decompress("lz4", bytes(cramjam.lz4.compress(PLAINS["large"])), LIMIT) == PLAINS["large"]


def test_unknown_names_are_an_option_error() -> None:
    for call in (lambda: compress("brotli", b""), lambda: decompress("brotli", b"", 1)):
        with pytest.raises(OptionError, match="brotli"):
            call()
