# Writer: a growing byte buffer with back-patching, which can leave large blobs out and hand them over beside its own bytes.
#
# Starts on the stack; goes to the heap when full. In gather mode a blob of GATHER_FROM bytes or more is not copied but noted with its
# position, so that `take_parts` gives [bytes, blob, bytes, …] for a gathered send.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from wireproto._codec_parts.endian cimport put_u16, put_u32
from wireproto._codec_parts.varint cimport uvarint_size, write_uvarint32

cdef enum:
    WRITER_STACK = 1024
    GATHER_FROM = 1024

cdef struct Writer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    int gather                             # 0 while blobs are to be copied
    Py_ssize_t outside                     # bytes of blobs left out
    PyObject *cuts                         # list of (position, blob), borrowed; NULL if not gathering
    Path path
    uint8_t stack[WRITER_STACK]


cdef inline void writer_init(Writer *w) noexcept:
    w.data = w.stack
    w.size = 0
    w.room = WRITER_STACK
    w.gather = 0
    w.outside = 0
    w.cuts = NULL
    w.path.depth = 0


cdef inline void writer_free(Writer *w) noexcept:
    if w.data != w.stack:
        free(w.data)


cdef int writer_grow(Writer *w, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = w.room
    cdef uint8_t *data
    while room - w.size < more:
        room = room * 2 if room < 1 << 26 else room + max(more, 1 << 26)
    if w.data == w.stack:
        data = <uint8_t *> malloc(room)
        if data is not NULL:
            memcpy(data, w.data, w.size)
    else:
        data = <uint8_t *> realloc(w.data, room)
    if data is NULL:
        raise MemoryError()
    w.data = data
    w.room = room
    return 0


cdef inline uint8_t *writer_need(Writer *w, Py_ssize_t n) except NULL:
    """Room for n more bytes; returns where they go and counts them."""
    if w.room - w.size < n:
        writer_grow(w, n)
    w.size += n
    return w.data + w.size - n


cdef inline int writer_bytes(Writer *w, const void *p, Py_ssize_t n) except -1:
    memcpy(writer_need(w, n), p, n)
    return 0


cdef inline int writer_compact(Writer *w, uint32_t n) except -1:
    cdef uint8_t *p = writer_need(w, 5)
    w.size = write_uvarint32(p, n) - w.data
    return 0


cdef inline int writer_length(Writer *w, int kind, Py_ssize_t n) except -1:
    """A length or count; -1 is null. The caller has checked that it fits."""
    if kind == L_COMPACT:
        return writer_compact(w, <uint32_t> (n + 1))
    if kind == L_INT16:
        put_u16(writer_need(w, 2), <unsigned short> <short> n)
    else:
        put_u32(writer_need(w, 4), <uint32_t> <int32_t> n)
    return 0


cdef int writer_close_sized(Writer *w, Py_ssize_t at) except -1:
    """The bytes from `at` get their size in front, as an unsigned varint; `at` was the place of one spare byte before them."""
    cdef uint32_t size = <uint32_t> (w.size - at - 1)
    cdef int width = uvarint_size(size)
    if width > 1:
        writer_need(w, width - 1)
        memmove(w.data + at + width, w.data + at + 1, size)
    write_uvarint32(w.data + at, size)
    return 0


cdef bytes writer_take(Writer *w):
    return PyBytes_FromStringAndSize(<const char *> w.data, w.size)


cdef list writer_take_parts(Writer *w):
    cdef Py_ssize_t done = 0, at
    parts = []
    for position, blob in <list> w.cuts:
        at = position
        if at > done:
            parts.append(PyBytes_FromStringAndSize(<const char *> w.data + done, at - done))
        parts.append(blob)
        done = at
    if w.size > done or not parts:
        parts.append(PyBytes_FromStringAndSize(<const char *> w.data + done, w.size - done))
    return parts
