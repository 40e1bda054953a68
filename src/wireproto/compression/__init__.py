"""Compresses and decompresses, one codec a file, with a bound on the size of what is unpacked.

`compress(name, data)` and `decompress(name, data, limit)` serve every compressed block of the protocols. No codec allocates by a number
that the peer wrote before that number was checked, and none returns more than `limit` bytes. Blocks are whole, in memory; nothing is kept
between calls. A codec knows no more of a protocol than the framing that it needs.

    name         what is written                                        what is read
    none         the bytes                                              the bytes
    gzip         one member                                             any number of members, zero padding
    zlib         one stream                                             also streams that end at a sync flush (Pulsar's Java client)
    snappy       xerial blocks of 32 KiB, as Java's Kafka client        xerial or raw, told apart by the magic
    snappy-raw   one raw block (Pulsar, librdkafka)                     one raw block
    lz4          frame, blocks independent, as Kafka's Java demands     frames, blocks independent or linked, either header checksum
    lz4-v0       the same with the header checksum of message sets v0   the same as lz4
    lz4-block    one raw block without a size (Pulsar)                  one raw block; `size` says how long it must become
    zstd         one frame                                              any number of frames, with or without content size

The limit is kept as follows. gzip and zlib stream, and stop there. snappy declares its length, which is checked first, also against the
most that a block of that size can unpack to. lz4 frames and zstd are walked block by block without unpacking, which bounds the result; they
are unpacked into a buffer of that bound or of `limit` bytes, whichever is less, which fails when it overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from wireproto._codec import ScratchBuffer
from wireproto.errors import DecompressionError, OptionError

__all__ = ["DEFAULT_LIMIT", "NAMES", "compress", "decompress"]

Data = bytes | bytearray | memoryview
Plain = bytes | ScratchBuffer
"""The bytes that a block unpacked to, for a caller that reads them in place."""

DEFAULT_LIMIT: Final = 256 << 20
"""Bytes that one block may unpack to when the caller gives no limit."""

_MODULES: Final = {
    "gzip": "gzip",
    "zlib": "zlib",
    "snappy": "snappy",
    "snappy-raw": "snappy",
    "lz4": "lz4",
    "lz4-v0": "lz4",
    "lz4-block": "lz4",
    "zstd": "zstd",
}
NAMES: Final = ("none", *_MODULES)
"""Every name that `compress` and `decompress` know."""

_compressors: dict[str, Callable[[Data, int | None], bytes]] = {}
_decompressors: dict[str, Callable[[Data, int, int | None], Plain]] = {}


def _load(name: str) -> None:
    """Import a codec's module, at its first use. Raises OptionError for an unknown name."""
    if name not in _MODULES:
        raise OptionError(f"unknown compression {name!r}; known are {', '.join(NAMES)}")
    module = import_module(f".{_MODULES[name]}", __name__)
    suffix = name.replace("-", "_")
    _decompressors[name] = cast("Callable[[Data, int, int | None], Plain]", getattr(module, f"decompress_{suffix}"))
    _compressors[name] = cast("Callable[[Data, int | None], bytes]", getattr(module, f"compress_{suffix}"))


def compress(name: str, data: Data, level: int | None = None) -> bytes:
    """Compress `data`, and return the packed bytes.

    Args:
        name: one of `NAMES`.
        data: the plain bytes.
        level: the codec's own level; None: its usual one (gzip, zlib 6; zstd 3). lz4 and snappy have none.

    Raises:
        OptionError: unknown name.
    """
    if name == "none":
        return bytes(data)
    if name not in _compressors:
        _load(name)
    return _compressors[name](data, level)


def decompress(name: str, data: Data, limit: int = DEFAULT_LIMIT, size: int | None = None) -> bytes:
    """Decompress `data`, a whole block, and return the plain bytes.

    Args:
        name: one of `NAMES`.
        data: the packed bytes.
        limit: the most bytes the result may have.
        size: the exact length in bytes that the protocol declares beside the block, where it does (Pulsar).

    Raises:
        DecompressionError: broken, truncated, more than `limit` bytes, or not `size` bytes.
        OptionError: unknown name.
    """
    return bytes(unpack(name, data, limit, size))


def unpack(name: str, data: Data, limit: int = DEFAULT_LIMIT, size: int | None = None) -> Plain:
    """Decompress like `decompress`, but without copying: the result may lie in a pooled buffer."""
    if size is not None:
        if not 0 <= size <= limit:
            raise DecompressionError(f"{name}: declared size {size} is outside 0..{limit}")
        limit = size
    if name == "none":
        if len(data) > limit:
            raise DecompressionError(f"none: {len(data)} bytes, more than the limit of {limit}")
        plain: Plain = bytes(data)
    else:
        if name not in _decompressors:
            _load(name)
        plain = _decompressors[name](data, limit, size)
    if size is not None and len(plain) != size:
        raise DecompressionError(f"{name}: {len(plain)} bytes where {size} were declared")
    return plain
