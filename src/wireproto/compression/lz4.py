"""Compresses and decompresses LZ4: frames as Kafka and RocketMQ use them, raw blocks as Pulsar does.

    frame    04 22 4d 18 · FLG · BD · [u64 content size: FLG & 8] · [u32 dictionary: FLG & 1] · HC
             { u32 size (top bit: stored plain) · bytes · [u32 block checksum: FLG & 16] }* · u32 0 · [u32 content checksum: FLG & 4]
             BD: 4..7 in bits 4-6 mean blocks of up to 64 KiB, 256 KiB, 1 MiB, 4 MiB. All little endian.
    HC       second byte of xxHash32 over FLG .. dictionary. In Kafka's message sets v0 over the magic as well (KIP-57): accepted, too.

Kafka's Java client reads frames with independent blocks (FLG & 32) only, so these are written, by the codec core. One byte of a block
unpacks to 255 at most.
"""

from __future__ import annotations

import struct

import cramjam

from wireproto._codec import ScratchBuffer, lz4_block, lz4_frame
from wireproto.errors import DecompressionError

Data = bytes | bytearray | memoryview
_MAGIC = b"\x04\x22\x4d\x18"
_U32 = struct.Struct("<I")
_PLAIN = 0x80000000
_MASK = 0xFFFFFFFF


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _header_checksum(data: bytes) -> int:
    """Return the second byte of xxHash32, over the 2 to 19 bytes of a frame descriptor."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    at = 0
    if len(data) >= 16:
        lanes = [(p1 + p2) & _MASK, p2, 0, (-p1) & _MASK]
        for n in range(4):
            lanes[n] = _rotate((lanes[n] + _U32.unpack_from(data, 4 * n)[0] * p2) & _MASK, 13) * p1 & _MASK
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        at = 16
    else:
        value = p5
    value = (value + len(data)) & _MASK
    while at + 4 <= len(data):
        value = _rotate((value + _U32.unpack_from(data, at)[0] * p3) & _MASK, 17) * p4 & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotate((value + byte * p5) & _MASK, 11) * p1 & _MASK
    value = (value ^ (value >> 15)) * p2 & _MASK
    value = (value ^ (value >> 13)) * p3 & _MASK
    return ((value ^ (value >> 16)) >> 8) & 0xFF


def compress_lz4(data: Data, level: int | None) -> bytes:
    """Compress into a frame, for Kafka from message format v1 on, and for RocketMQ."""
    return lz4_frame(data)


def compress_lz4_v0(data: Data, level: int | None) -> bytes:
    """Compress into a frame for Kafka's message sets v0, with that format's header checksum (KIP-57)."""
    return lz4_frame(data, over_magic=True)


def compress_lz4_block(data: Data, level: int | None) -> bytes:
    """Compress into one raw block; its plain length is kept elsewhere."""
    return lz4_block(data)


def _walk(view: memoryview) -> tuple[int, int, int, int]:
    """Check the frame at the start of `view`; returns its end, a bound of its plain size, the offset of HC, and the right HC."""
    size = len(view)
    if size < 7 or view[:4] != _MAGIC:
        if size >= 8 and bytes(view[1:4]) == b"\x2a\x4d\x18" and view[0] & 0xF0 == 0x50:  # skippable frame
            end = 8 + int(_U32.unpack_from(view, 4)[0])
            if end <= size:
                return end, 0, 0, view[0]
        raise DecompressionError("lz4: no frame begins here")
    flags, kind = view[4], view[5] >> 4
    at = 6 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    if flags >> 6 != 1 or not 4 <= kind <= 7 or flags & 1:
        raise DecompressionError(f"lz4: frame descriptor {flags:02x} {view[5]:02x} is not one that can be read")
    if at >= size:
        raise DecompressionError("lz4: the frame ends within its header")
    right = _header_checksum(bytes(view[4:at]))
    if view[at] not in (right, _header_checksum(bytes(view[:at]))):
        raise DecompressionError("lz4: the header checksum is wrong")
    checksum_at = at
    at += 1
    most, bound = 256 << (2 * kind), 0
    while True:
        if size - at < 4:
            raise DecompressionError("lz4: the frame ends before its end mark")
        (length,) = _U32.unpack_from(view, at)
        at += 4
        if length == 0:
            break
        plain = bool(length & _PLAIN)
        length &= ~_PLAIN
        if length + (4 if flags & 16 else 0) > size - at:
            raise DecompressionError(f"lz4: a block of {length} bytes where {size - at} are left")
        if plain and length > most:
            raise DecompressionError(f"lz4: a plain block of {length} bytes in a frame of blocks up to {most}")
        bound += length if plain else min(most, 255 * length)
        at += length + (4 if flags & 16 else 0)
    if flags & 4:
        at += 4
        if at > size:
            raise DecompressionError("lz4: the frame ends before its checksum")
    return at, bound, checksum_at, right


def decompress_lz4(data: Data, limit: int, size: int | None) -> ScratchBuffer:
    """Decompress all frames, with either header checksum. Raises DecompressionError."""
    view = memoryview(data).cast("B")
    at = bound = 0
    fixed: bytearray | None = None
    while at < len(view) or at == 0:
        end, most, checksum_at, right = _walk(view[at:])
        if view[at + checksum_at] != right:
            fixed = bytearray(view) if fixed is None else fixed
            fixed[at + checksum_at] = right
        bound += most
        at += end
    packed: Data = view if fixed is None else fixed
    room = ScratchBuffer(min(bound, limit))
    try:
        return room.filled(cramjam.lz4.decompress_into(packed, room))
    except cramjam.DecompressionError as why:
        raise DecompressionError(f"lz4: {_reason(why, limit)}") from why


decompress_lz4_v0 = decompress_lz4


def decompress_lz4_block(data: Data, limit: int, size: int | None) -> ScratchBuffer:
    """Decompress one raw block, into a buffer no longer than it can unpack to. Raises DecompressionError."""
    most = min(limit, 255 * len(data) + 16)
    room = ScratchBuffer(most)
    try:
        return room.filled(cramjam.lz4.decompress_block_into(data, room, output_len=most))
    except cramjam.DecompressionError as why:
        raise DecompressionError(f"lz4: {why}") from why


def _reason(why: Exception, limit: int) -> str:
    return f"more than the limit of {limit} bytes" if "whole buffer" in str(why) else str(why)
