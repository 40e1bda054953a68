"""Both CRCs, in each kernel that this machine has, against zlib and the crc32c package."""

import random
import zlib

import crc32c
import pytest

from wireproto import _codec


@pytest.fixture(params=["table", "sse42", "vpclmul", "avx512", "arm"])
def kernel(request):
    before = _codec._crc_kernel()
    try:
        _codec._crc_kernel(request.param)
    except ValueError:
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    _codec._crc_kernel(before)


def test_known_values(kernel):
    assert _codec.crc32c(b"123456789") == 0xE3069283
    assert _codec.crc32(b"123456789") == 0xCBF43926
    assert _codec.crc32c(b"") == _codec.crc32(b"") == 0
    assert _codec.crc32c(bytes(32)) == 0x8A9136AA


def test_every_length_and_alignment(kernel):
    data = random.Random(1).randbytes(9000)
    for size in [*range(600), 767, 768, 1023, 1024, 3071, 3072, 3073, 4096, 8191, 8990]:
        for start in (0, 1, 7):
            piece = data[start : start + size]
            assert _codec.crc32c(piece) == crc32c.crc32c(piece), size
            assert _codec.crc32(piece) == zlib.crc32(piece), size


def test_going_on_from_a_value(kernel):
    data = random.Random(2).randbytes(70_000)
    for cut in (0, 1, 100, 511, 4096, 69_999, 70_000):
        assert _codec.crc32c(data[cut:], _codec.crc32c(data[:cut])) == crc32c.crc32c(data)
        assert _codec.crc32(memoryview(data)[cut:], _codec.crc32(bytearray(data[:cut]))) == zlib.crc32(data)
