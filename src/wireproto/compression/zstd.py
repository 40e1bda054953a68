"""Compresses and decompresses Zstandard (RFC 8878): Kafka, Pulsar and RocketMQ use one frame; Java writes it without content size.

    frame    28 b5 2f fd · descriptor · [window] · [dictionary id] · [content size] · blocks · [u32 checksum: descriptor & 4]
    block    u24: last (bit 0), type (bits 1-2: raw, run, compressed), size (bits 3-23); a run has one byte and plain size `size`
    skipped  50..5f 2a 4d 18 · u32 size · bytes                                                            (all little endian)

A compressed block unpacks to 128 KiB at most, so a walk over the block headers bounds the result before anything is unpacked.
"""

from __future__ import annotations

import cramjam

from wireproto._codec import ScratchBuffer
from wireproto.errors import DecompressionError

Data = bytes | bytearray | memoryview
_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK = 128 << 10
_DEFAULT_LEVEL = 3


def compress_zstd(data: Data, level: int | None) -> bytes:
    """Compress into one frame, at level 3 by default."""
    return bytes(cramjam.zstd.compress(data, level=_DEFAULT_LEVEL if level is None else level))


def _walk(view: memoryview, at: int) -> tuple[int, int]:
    """Check the frame at offset `at`; returns its end and a bound of its plain size."""
    size = len(view)
    if size - at >= 8 and view[at] & 0xF0 == 0x50 and bytes(view[at + 1 : at + 4]) == b"\x2a\x4d\x18":
        end = at + 8 + int.from_bytes(view[at + 4 : at + 8], "little")
        if end > size:
            raise DecompressionError("zstd: a skippable frame ends beyond the data")
        return end, 0
    if size - at < 6 or view[at : at + 4] != _MAGIC:
        raise DecompressionError("zstd: no frame begins here")
    descriptor = view[at + 4]
    single = bool(descriptor & 0x20)
    content = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    at += 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + content
    bound = 0
    while True:
        if size - at < 3:
            raise DecompressionError("zstd: the frame ends before its last block")
        head = int.from_bytes(view[at : at + 3], "little")
        kind, length = head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else length)
        if at > size or kind == 3 or length > _BLOCK:
            raise DecompressionError(f"zstd: a block of type {kind} and {length} bytes does not fit")
        bound += _BLOCK if kind == 2 else length
        if head & 1:
            break
    at += 4 if descriptor & 4 else 0
    if at > size:
        raise DecompressionError("zstd: the frame ends before its checksum")
    return at, bound


def decompress_zstd(data: Data, limit: int, size: int | None) -> ScratchBuffer:
    """Decompress all frames, with or without content size. Raises DecompressionError."""
    view = memoryview(data).cast("B")
    at = bound = 0
    while at < len(view) or at == 0:
        at, most = _walk(view, at)
        bound += most
    room = ScratchBuffer(min(bound, limit))
    try:
        return room.filled(cramjam.zstd.decompress_into(view, room))
    except cramjam.DecompressionError as why:
        text = f"more than the limit of {limit} bytes" if "whole buffer" in str(why) else str(why)
        raise DecompressionError(f"zstd: {text}") from why
