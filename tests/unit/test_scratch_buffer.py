"""ScratchBuffer: memory that a decompressor fills and a decoder reads, handed over once."""

from __future__ import annotations

import gc

import cramjam
import pytest

from wireproto._codec import ScratchBuffer, memory_pool
from wireproto.compression import compress, decompress, unpack

PLAIN = b"%d, and so on. " * 20_000


def test_what_was_written_is_read_and_no_more_of_it() -> None:
    room = ScratchBuffer(10)
    with memoryview(room) as view:
        assert not view.readonly
        assert len(view) == 10
        view[:4] = b"four"
    assert room.filled(4) is room
    assert len(room) == 4
    assert bytes(room) == b"four"


def test_it_is_filled_once_and_read_only_from_then_on() -> None:
    room = ScratchBuffer(4)
    cramjam.snappy.decompress_raw_into(cramjam.snappy.compress_raw(b"four"), room)
    room.filled(4)
    assert memoryview(room).readonly
    with pytest.raises(TypeError):
        memoryview(room)[0] = 1
    with pytest.raises(BufferError):
        room.filled(4)


def test_it_is_not_filled_while_somebody_could_write() -> None:
    room = ScratchBuffer(4)
    with memoryview(room) as view, view[1:2], pytest.raises(BufferError):
        room.filled(4)
    assert len(room.filled(4)) == 4


@pytest.mark.parametrize("size", [-1, 5])
def test_more_than_there_is_or_less_than_nothing_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="of a room for 4"):
        ScratchBuffer(4).filled(size)
    with pytest.raises(ValueError, match="-1"):
        ScratchBuffer(-1)


def test_a_room_of_nothing() -> None:
    room = ScratchBuffer(0)
    with memoryview(room) as view:
        assert len(view) == 0
    assert bytes(room.filled(0)) == b""


@pytest.mark.parametrize("name", ["snappy", "snappy-raw", "lz4", "lz4-block", "zstd"])
def test_unpacking_again_and_again_takes_memory_from_the_pool(name: str) -> None:
    packed = compress(name, PLAIN)
    size = len(PLAIN) if name == "lz4-block" else None
    assert bytes(unpack(name, packed, size=size)) == PLAIN == decompress(name, packed, size=size)
    gc.collect()
    before = memory_pool()
    for _ in range(10):
        assert len(unpack(name, packed, size=size)) == len(PLAIN)
    after = memory_pool()
    assert (after["fresh"], after["again"] - before["again"]) == (before["fresh"], 10)
