# LZ4, compression: raw blocks (Pulsar) and frames of independent blocks (Kafka, RocketMQ).
#
#     frame    04 22 4d 18 · 60 (version 1, blocks independent) · BD: 40, 50, 60 or 70 · HC
#              { u32 size (top bit: stored plain) · bytes }* · u32 0                                          all little endian
#     BD       blocks of up to 64 KiB, 256 KiB, 1 MiB, 4 MiB: as large as needed but no larger, since a reader allocates by it
#     HC       second byte of xxHash32 over 60 and BD; in Kafka's message sets v0 over the magic as well (KIP-57)
#
# May assume: contiguous buffers. Must not: write more than what it reserved: a block that does not shrink is stored as it is.

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from wireproto._codec_parts.endian cimport put_u32le
from wireproto._codec_parts.lz4 cimport LZ4_MOST, lz4_bound, lz4_write

cdef enum:
    LZ4_HEAD = 7
    LZ4_PLAIN = 1 << 31
    LZ4_SLACK = 32           # behind a block, so that one which just shrinks is not refused for what it may write over

cdef uint8_t *LZ4_HC = [0x82, 0xFB, 0x51, 0x73]              # by kind of block, from 64 KiB
cdef uint8_t *LZ4_HC_V0 = [0x1A, 0x77, 0xD6, 0x10]


cdef int64_t lz4_write_frame(const uint8_t *data, int64_t size, uint8_t *out, int kind, bint over_magic) noexcept nogil:
    """A frame into `out`, which has room for the plain bytes, 4 for each block and 4, head and slack; its size."""
    cdef uint8_t *to = out + LZ4_HEAD
    cdef int64_t step = <int64_t>65536 << 2 * kind
    cdef int64_t piece, packed
    put_u32le(out, 0x184D2204)
    out[4] = 0x60
    out[5] = <uint8_t>((4 + kind) << 4)
    out[6] = LZ4_HC_V0[kind] if over_magic else LZ4_HC[kind]
    while size > 0:
        piece = size if size < step else step
        packed = lz4_write(data, piece, to + 4, piece + LZ4_SLACK)
        if 0 < packed < piece:
            put_u32le(to, <uint32_t>packed)
        else:
            packed = piece
            put_u32le(to, <uint32_t>piece | <uint32_t>LZ4_PLAIN)
            memcpy(to + 4, data, piece)
        to += 4 + packed
        data += piece
        size -= piece
    put_u32le(to, 0)
    return to + 4 - out


cdef bytes lz4_framed(const uint8_t *data, int64_t size, Py_ssize_t before, bint over_magic):
    """A frame of independent blocks, in new bytes behind `before` others, which are not written."""
    cdef uint8_t *out
    cdef int64_t packed
    cdef int kind = 0
    cdef bytes result
    while kind < 3 and size > <int64_t>65536 << 2 * kind:
        kind += 1
    out = <uint8_t *>mem_take(LZ4_HEAD + size + 4 * ((size >> (16 + 2 * kind)) + 1) + 4 + LZ4_SLACK)
    if out == NULL:
        raise MemoryError("no memory for the LZ4 frame")
    try:
        if size < RELEASE_GIL_FROM:
            packed = lz4_write_frame(data, size, out, kind, over_magic)
        else:
            with nogil:
                packed = lz4_write_frame(data, size, out, kind, over_magic)
        result = PyBytes_FromStringAndSize(NULL, before + packed)
        memcpy(PyBytes_AS_STRING(result) + before, out, packed)
        return result
    finally:
        mem_give(out)


def lz4_frame(data, bint over_magic=False):
    """A frame of independent blocks, without content size and checksums.

    Args:
        data: any buffer.
        over_magic: the header checksum as Kafka's message sets v0 have it.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return lz4_framed(<const uint8_t *>view.buf, view.len, 0, over_magic)
    finally:
        PyBuffer_Release(&view)


def lz4_block(data):
    """One raw block; its plain length has to be known from elsewhere.

    Args:
        data: any buffer of up to LZ4's 2 GB less 32 MB.
    Raises:
        ValueError: more than that.
    """
    cdef Py_buffer view
    cdef uint8_t *out = NULL
    cdef int64_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > <int64_t>LZ4_MOST:
            raise ValueError(f"an LZ4 block of {view.len} bytes; {LZ4_MOST} is the most")
        size = lz4_bound(view.len) + LZ4_SLACK
        out = <uint8_t *>mem_take(size)
        if out == NULL:
            raise MemoryError("no memory for the LZ4 block")
        if view.len < RELEASE_GIL_FROM:
            size = lz4_write(<const uint8_t *>view.buf, view.len, out, size)
        else:
            with nogil:
                size = lz4_write(<const uint8_t *>view.buf, view.len, out, size)
        return PyBytes_FromStringAndSize(<char *>out, size)
    finally:
        mem_give(out)
        PyBuffer_Release(&view)
