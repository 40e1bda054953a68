# Cursor: a pointer and an end over one frame, with the path of fields for errors.
#
# Every read checks the end. The path costs a store per array item and nothing per scalar; it becomes text only when something is raised.
# Errors are raised in cold functions, which fill in message, version, path and offset.

from cpython.ref cimport PyObject, Py_XDECREF
from libc.stdint cimport int16_t, int32_t, uint8_t, uint32_t

from wireproto._codec_parts.endian cimport get_i16, get_i32
from wireproto._codec_parts.varint cimport read_uvarint32

from wireproto.errors import Malformed, Truncated, UnsupportedVersion, ValueUnsupported

cdef struct Path:
    Op *op[20]                             # MAX_DEPTH and some
    Py_ssize_t index[20]                   # -1: not an array
    int depth
    int version
    PyObject *spec                         # the message, borrowed

cdef struct Cursor:
    const uint8_t *begin                   # of the frame; offsets in errors count from here
    const uint8_t *p
    const uint8_t *end
    PyObject *owner                        # what slices keep alive, borrowed
    const uint8_t *memo_bytes              # the last array of integers: equal bytes give the same tuple
    Py_ssize_t memo_size
    int memo_code
    PyObject *memo                         # owned
    Path path


cdef str path_text(Path *path, Op *last):
    cdef int i
    cdef str text = ""
    cdef Op *op
    for i in range(path.depth):
        op = path.op[i]
        text += ("." if text else "") + <str> op.name
        if path.index[i] >= 0:
            text += f"[{path.index[i]}]"
    if last is not NULL and (path.depth == 0 or path.op[path.depth - 1] is not last):
        text += ("." if text else "") + <str> last.name
    return text or None


cdef object decode_error(Cursor *c, Op *op, const uint8_t *at, kind, str text):
    return kind(text, message=(<Spec> c.path.spec).name, version=c.path.version, path=path_text(&c.path, op), offset=at - c.begin)


cdef PyObject *short_of(Cursor *c, Op *op, Py_ssize_t need) except NULL:
    raise decode_error(c, op, c.p, Truncated, f"{need} bytes needed, {c.end - c.p} left")


cdef PyObject *broken(Cursor *c, Op *op, str text) except NULL:
    raise decode_error(c, op, c.p, Malformed, text)


cdef int read_compact(Cursor *c, Op *op, uint32_t *n) except -1:
    """An unsigned varint of at most 32 bits."""
    cdef int r
    if c.p < c.end and c.p[0] < 0x80:
        n[0] = c.p[0]
        c.p += 1
        return 0
    r = read_uvarint32(&c.p, c.end, n)
    if r == 0:
        raise decode_error(c, op, c.p, Truncated, f"the bytes end inside a varint, {c.end - c.p} left")
    if r < 0:
        raise decode_error(c, op, c.p, Malformed, "varint of more than 32 bits")
    return 0


cdef Py_ssize_t read_length(Cursor *c, Op *op, int kind) except -2:
    """A length or count; -1 is null. Negative ones are refused here, what is too long by the caller."""
    cdef Py_ssize_t n
    cdef uint32_t u
    if kind == L_COMPACT:
        read_compact(c, op, &u)
        return <Py_ssize_t> u - 1
    if kind == L_INT16:
        if c.end - c.p < 2:
            short_of(c, op, 2)
        n = get_i16(c.p)
        if n < -1:
            broken(c, op, f"length {n}")
        c.p += 2
        return n
    if c.end - c.p < 4:
        short_of(c, op, 4)
    n = get_i32(c.p)
    if n < -1:
        broken(c, op, f"length {n}")
    c.p += 4
    return n
