"""Compresses and decompresses Snappy: raw blocks, and the xerial framing that Java's Kafka clients write.

    raw block   varint plain length · elements
    xerial      82 "SNAPPY" 00 · int32 version · int32 oldest compatible version · { int32 length · raw block }*     (big endian)

A raw block's best element, a copy, makes 64 bytes of 3, so a larger declared length is refused.
"""

from __future__ import annotations

import struct

import cramjam

from wireproto._codec import ScratchBuffer
from wireproto.errors import DecompressionError

Data = bytes | bytearray | memoryview
_MAGIC = b"\x82SNAPPY\0"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_BLOCK = 32 << 10
_INT32 = struct.Struct(">i")


def compress_snappy(data: Data, level: int | None) -> bytes:
    """Compress into xerial framing, in blocks of 32 KiB."""
    view = memoryview(data)
    parts = [_HEADER]
    for start in range(0, len(view), _BLOCK):
        block = compress_snappy_raw(view[start : start + _BLOCK], None)
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def compress_snappy_raw(data: Data, level: int | None) -> bytes:
    """Compress into one raw block."""
    return bytes(cramjam.snappy.compress_raw(data))


def _declared(block: memoryview) -> int:
    """Return the plain length that a raw block declares. Raises DecompressionError if a block of its size cannot have that length."""
    length = shift = 0
    for at, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            if length > (len(block) - at - 1) * 22:
                raise DecompressionError(f"snappy: {len(block)} bytes cannot hold the {length} that they declare")
            return length
        shift += 7
    raise DecompressionError("snappy: the block ends within its length")


def _unpack(blocks: list[tuple[memoryview, int]], total: int) -> ScratchBuffer:
    """Decompress raw blocks, given with their declared lengths, into one buffer of `total` bytes."""
    room, at = ScratchBuffer(total), 0
    try:
        with memoryview(room) as view:
            for block, length in blocks:
                at += cramjam.snappy.decompress_raw_into(block, view[at : at + length])
    except cramjam.DecompressionError as why:
        raise DecompressionError(f"snappy: {why}") from why
    if at != total:
        raise DecompressionError(f"snappy: {at} bytes where {total} were declared")
    return room.filled(total)


def decompress_snappy_raw(data: Data, limit: int, size: int | None) -> ScratchBuffer:
    """Decompress one raw block. Raises DecompressionError."""
    block = memoryview(data).cast("B")
    length = _declared(block)
    if length > limit:
        raise DecompressionError(f"snappy: declares {length} bytes, more than the limit of {limit}")
    return _unpack([(block, length)], length)


def decompress_snappy(data: Data, limit: int, size: int | None) -> ScratchBuffer:
    """Decompress xerial framing if the data begin with its magic, else one raw block. Raises DecompressionError.

    A raw block cannot begin with the magic: the copy behind its length would reach back before the block's start.
    """
    view = memoryview(data).cast("B")
    if view[:8] != _MAGIC:
        return decompress_snappy_raw(data, limit, size)
    blocks: list[tuple[memoryview, int]] = []
    at, total = len(_HEADER), 0
    if len(view) < at:
        raise DecompressionError("snappy: the block ends within the xerial header")
    while at < len(view):
        if len(view) - at < 4:
            raise DecompressionError("snappy: the data ends within a block's length")
        (length,) = _INT32.unpack_from(view, at)
        at += 4
        if not 0 < length <= len(view) - at:
            raise DecompressionError(f"snappy: a block of {length} bytes where {len(view) - at} are left")
        block = view[at : at + length]
        plain = _declared(block)
        blocks.append((block, plain))
        total += plain
        at += length
        if total > limit:
            raise DecompressionError(f"snappy: declares more than the limit of {limit} bytes")
    return _unpack(blocks, total)
