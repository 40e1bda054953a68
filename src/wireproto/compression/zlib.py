"""Compresses and decompresses zlib (RFC 1950): Pulsar's ZLIB, and RocketMQ's default for bodies.

Pulsar's Java client ends its streams with a sync flush: no final block, no Adler-32. Such a stream is whole when all its input was
used; the protocol then has another check (Pulsar declares the length, RocketMQ has a CRC over the packed body).
"""

from __future__ import annotations

import zlib

from wireproto.errors import DecompressionError

Data = bytes | bytearray | memoryview


def compress_zlib(data: Data, level: int | None) -> bytes:
    """Compress into one finished stream, at level 6 by default."""
    return zlib.compress(data, 6 if level is None else level)


def decompress_zlib(data: Data, limit: int, size: int | None) -> bytes:
    """Decompress one stream, which is finished or ends at a sync flush. Raises DecompressionError."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit + 1)
        if len(plain) <= limit and not stream.eof and stream.unconsumed_tail:
            plain += stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as why:
        raise DecompressionError(f"zlib: {why}") from why
    if len(plain) > limit:
        raise DecompressionError(f"zlib: more than the limit of {limit} bytes")
    if not stream.eof and size is None and not bytes(data[-4:]) == b"\0\0\xff\xff":
        raise DecompressionError("zlib: the stream ends neither with its trailer nor at a flush")
    if stream.unused_data:
        raise DecompressionError(f"zlib: {len(stream.unused_data)} bytes after the end of the stream")
    return plain
