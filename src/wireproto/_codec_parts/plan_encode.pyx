# Messages to bytes by plan.
#
# Built messages are mutable, and encoding may run foreign code (a buffer's export, a deleter), so each slot is read with a reference of
# our own, and list items too. Numbers must be int (or a subclass), text str, arrays tuple or list: no duck typing, no `__index__`.
# What the version cannot carry raises ValueUnsupported with message, version and path; nothing was sent then.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.list cimport PyList_Check, PyList_GET_SIZE
from cpython.long cimport PyLong_Check
from cpython.object cimport PyObject_TypeCheck
from cpython.ref cimport PyObject, Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport INT32_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wireproto._codec_parts.endian cimport put_f64, put_u16, put_u32, put_u64
from wireproto._codec_parts.varint cimport write_varint32, write_varint64

cdef extern from "Python.h":
    """
    /* ints whose value is at hand without a call */
    #if PY_VERSION_HEX >= 0x030C0000
    #define wp_int_is_small(o) (PyLong_CheckExact(o) && PyUnstable_Long_IsCompact((PyLongObject *)(o)))
    #define wp_int_small(o) ((int64_t)PyUnstable_Long_CompactValue((PyLongObject *)(o)))
    #else
    #define wp_int_is_small(o) (PyLong_CheckExact(o) && Py_SIZE(o) >= -1 && Py_SIZE(o) <= 1)
    #define wp_int_small(o) (Py_SIZE(o) ? (int64_t)Py_SIZE(o) * (int64_t)((PyLongObject *)(o))->ob_digit[0] : 0)
    #endif
    #define wp_text_is_ascii(o) (PyUnicode_CheckExact(o) && PyUnicode_IS_COMPACT_ASCII(o))
    #define wp_text_data(o) ((const char *)PyUnicode_DATA(o))
    #define wp_exactly(o, type) (Py_TYPE(o) == (type))
    /* the next n bytes of a buffer, NULL when they are not there */
    static inline uint8_t *wp_next_bytes(uint8_t *data, Py_ssize_t *size, Py_ssize_t room, Py_ssize_t n) {
        uint8_t *p = data + *size;
        if (room - *size < n) return NULL;
        *size += n;
        return p;
    }
    """
    uint8_t *next_bytes "wp_next_bytes"(uint8_t *data, Py_ssize_t *size, Py_ssize_t room, Py_ssize_t n) noexcept
    long long long_and_overflow "PyLong_AsLongLongAndOverflow"(object v, int *overflow) except? -1
    const char *utf8_of "PyUnicode_AsUTF8AndSize"(PyObject *text, Py_ssize_t *n)            # NULL: checked by hand
    bint int_is_small "wp_int_is_small"(PyObject *v)
    int64_t int_small "wp_int_small"(PyObject *v)
    bint text_is_ascii "wp_text_is_ascii"(PyObject *v)
    const char *text_data "wp_text_data"(PyObject *v)
    Py_ssize_t text_length "PyUnicode_GET_LENGTH"(PyObject *v)
    bint exactly "wp_exactly"(PyObject *v, PyTypeObject *type)
    bint is_exact_bytes "PyBytes_CheckExact"(PyObject *v)
    bint is_exact_tuple "PyTuple_CheckExact"(PyObject *v)
    const char *bytes_data "PyBytes_AS_STRING"(PyObject *v)
    Py_ssize_t bytes_length "PyBytes_GET_SIZE"(PyObject *v)

cdef int64_t[13] LEAST
cdef int64_t[13] MOST
LEAST[:] = [0, -128, -32768, -2147483648, INT64_MIN, 0, 0, 0, 0, 0, -2147483648, INT64_MIN, 0]
MOST[:] = [1, 127, 32767, 2147483647, 9223372036854775807, 255, 65535, 4294967295, 0, 0, 2147483647, 9223372036854775807, 4294967295]


cdef object unsupported(Writer *w, Op *op, str text):
    return ValueUnsupported(text, message=(<Spec> w.path.spec).name, version=w.path.version, path=path_text(&w.path, op))


cdef int refuse(Writer *w, Op *op, object value, str wanted) except -1:
    if value is None:
        raise unsupported(w, op, "null where this version has none")
    raise unsupported(w, op, f"{wanted} expected, got {type(value).__name__}")


cdef int write_integer(Writer *w, Op *op, object value) except -1:
    cdef int overflow = 0
    cdef int64_t n
    cdef int code = op.code
    if not PyLong_Check(value):
        refuse(w, op, value, "bool" if code == C_BOOL else "int")
    n = long_and_overflow(value, &overflow)
    if code == C_BOOL:
        writer_need(w, 1)[0] = n != 0
        return 0
    if overflow or n < LEAST[code] or n > MOST[code]:
        raise unsupported(w, op, f"{value} does not fit: {LEAST[code]} to {MOST[code]}")
    if code == C_INT32 or code == C_UINT32:
        put_u32(writer_need(w, 4), <uint32_t> n)
    elif code == C_INT16 or code == C_UINT16:
        put_u16(writer_need(w, 2), <unsigned short> n)
    elif code == C_INT64:
        put_u64(writer_need(w, 8), <uint64_t> n)
    elif code == C_UVARINT:
        writer_compact(w, <uint32_t> n)
    elif code == C_VARINT:
        w.size = write_varint32(writer_need(w, 5), <int32_t> n) - w.data
    elif code == C_VARLONG:
        w.size = write_varint64(writer_need(w, 10), n) - w.data
    else:
        writer_need(w, 1)[0] = <uint8_t> n
    return 0


cdef int write_uuid(Writer *w, Op *op, object value) except -1:
    if not PyBytes_Check(value):
        value = getattr(value, "bytes", value)             # uuid.UUID
        if not PyBytes_Check(value):
            refuse(w, op, value, "16 bytes or uuid.UUID")
    if PyBytes_GET_SIZE(value) != 16:
        raise unsupported(w, op, f"a uuid has 16 bytes, not {len(value)}")
    memcpy(writer_need(w, 16), PyBytes_AS_STRING(value), 16)
    return 0


cdef int write_sized_bytes(Writer *w, Op *op, const void *p, Py_ssize_t n) except -1:
    if n > (32767 if op.length == L_INT16 else INT32_MAX):
        raise unsupported(w, op, f"{n} bytes do not fit a length of {16 if op.length == L_INT16 else 32} bits")
    writer_length(w, op.length, n)
    return writer_bytes(w, p, n)


cdef int write_text(Writer *w, Op *op, object value) except -1:
    cdef Py_ssize_t n
    cdef const char *p
    if not PyUnicode_Check(value):
        refuse(w, op, value, "str")
    p = utf8_of(<PyObject *> value, &n)
    if p is NULL:
        clear_error()
        value = value.encode("utf-8", "surrogatepass")
        p = PyBytes_AS_STRING(value)
        n = PyBytes_GET_SIZE(value)
    return write_sized_bytes(w, op, p, n)


cdef int write_blob(Writer *w, Op *op, object value) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t n
    if PyBytes_Check(value) and (not w.gather or PyBytes_GET_SIZE(value) < GATHER_FROM):
        return write_sized_bytes(w, op, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    if value is None or PyUnicode_Check(value):
        refuse(w, op, value, "bytes or another buffer")
    try:
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        refuse(w, op, value, "bytes or another contiguous buffer")
    try:
        n = view.len
        if not w.gather or n < GATHER_FROM:
            return write_sized_bytes(w, op, view.buf, n)
        if n > INT32_MAX:
            raise unsupported(w, op, f"{n} bytes do not fit a length of 32 bits")
        writer_length(w, op.length, n)
        (<list> w.cuts).append((w.size, value))
        w.outside += n
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int write_item(Writer *w, Op *op, object value) except -1:
    """One value that is not an array; None was dealt with."""
    cdef int code = op.code
    if code == C_STRING:
        return write_text(w, op, value)
    if code == C_STRUCT:
        if not PyObject_TypeCheck(value, op.child.type):
            refuse(w, op, value, (<Spec> op.child.spec).name)
        return write_struct(w, op.child, <PyObject *> value)
    if code == C_BYTES or code == C_BLOB:
        return write_blob(w, op, value)
    if code == C_UUID:
        return write_uuid(w, op, value)
    if code == C_FLOAT64:
        if not isinstance(value, (float, int)):
            refuse(w, op, value, "float")
        try:
            put_f64(writer_need(w, 8), value)
        except OverflowError:
            raise unsupported(w, op, f"{value} does not fit a float64") from None
        return 0
    return write_integer(w, op, value)


cdef inline int write_quick(Writer *w, Op *op, PyObject *value) noexcept:
    """Writes a value of the usual exact type, and gives 1; 0 for all others, for those that do not fit and when the writer must grow. Runs no
    foreign code, so `value` may be borrowed from a slot."""
    cdef int code = op.code
    cdef int64_t n
    cdef Py_ssize_t size
    cdef const char *data
    cdef uint8_t *room
    if C_INT8 <= code <= C_UINT32:
        if not int_is_small(value):
            return 0
        n = int_small(value)
        if n < LEAST[code] or n > MOST[code]:
            return 0
        room = next_bytes(w.data, &w.size, w.room, FIXED_SIZE[code])
        if room is NULL:
            return 0
        if code == C_INT32 or code == C_UINT32:
            put_u32(room, <uint32_t> n)
        elif code == C_INT64:
            put_u64(room, <uint64_t> n)
        elif code == C_INT16 or code == C_UINT16:
            put_u16(room, <unsigned short> n)
        else:
            room[0] = <uint8_t> n
        return 1
    if code == C_STRING:
        if not text_is_ascii(value):
            return 0
        size = text_length(value)
        data = text_data(value)
    elif code == C_BYTES or code == C_BLOB:
        if not is_exact_bytes(value) or (w.gather and bytes_length(value) >= GATHER_FROM):
            return 0
        size = bytes_length(value)
        data = bytes_data(value)
    elif code == C_BOOL:
        if value is not true_pointer and value is not false_pointer:
            return 0
        room = next_bytes(w.data, &w.size, w.room, 1)
        if room is NULL:
            return 0
        room[0] = value is true_pointer
        return 1
    elif code == C_UUID:
        if not is_exact_bytes(value) or bytes_length(value) != 16:
            return 0
        room = next_bytes(w.data, &w.size, w.room, 16)
        if room is NULL:
            return 0
        memcpy(room, bytes_data(value), 16)
        return 1
    else:
        return 0
    if op.length == L_INT32:
        room = next_bytes(w.data, &w.size, w.room, 4 + size) if size <= INT32_MAX else NULL
        if room is NULL:
            return 0
        put_u32(room, <uint32_t> size)
        room += 4
    elif op.length == L_INT16:
        room = next_bytes(w.data, &w.size, w.room, 2 + size) if size <= 32767 else NULL
        if room is NULL:
            return 0
        put_u16(room, <unsigned short> size)
        room += 2
    else:
        room = next_bytes(w.data, &w.size, w.room, 1 + size) if size < 127 else NULL
        if room is NULL:
            return 0
        room[0] = <uint8_t> (size + 1)
        room += 1
    memcpy(room, data, size)
    return 1


cdef int write_array(Writer *w, Op *op, object value) except -1:
    cdef Py_ssize_t i, n
    cdef object item
    cdef PyObject *at
    cdef bint listed = PyList_Check(value)
    if not listed and not PyTuple_Check(value):
        refuse(w, op, value, "tuple or list")
    if listed:
        value = tuple(value) if type(value) is list else tuple(list.__iter__(value))     # a snapshot: foreign code may change the list
    n = PyTuple_GET_SIZE(value)
    if n > INT32_MAX:
        raise unsupported(w, op, f"{n} items")
    writer_length(w, op.count, n)
    w.path.op[w.path.depth] = op
    w.path.depth += 1
    for i in range(n):
        w.path.index[w.path.depth - 1] = i
        at = get_item(<PyObject *> value, i)           # kept alive by the tuple, which we hold
        if op.code == C_STRUCT:
            if exactly(at, op.child.type):
                write_struct(w, op.child, at)
                continue
        elif write_quick(w, op, at):
            continue
        item = <object> at
        if item is None and op.item_null:
            writer_length(w, op.length, -1)
        else:
            write_item(w, op, item)
    w.path.depth -= 1
    return 0


cdef int write_value(Writer *w, Op *op, object value) except -1:
    if value is None:
        if not op.nullable:
            refuse(w, op, value, "")
        if op.array:
            return writer_length(w, op.count, -1)
        if op.code == C_STRUCT:
            writer_need(w, 1)[0] = 255 if op.tag < 0 else 0
            return 0
        if op.code <= C_UVARINT:
            refuse(w, op, value, "")
        return writer_length(w, op.length, -1)
    if op.array:
        return write_array(w, op, value)
    if op.code != C_STRUCT:
        return write_item(w, op, value)
    if op.nullable:
        writer_need(w, 1)[0] = 1
    w.path.op[w.path.depth] = op
    w.path.index[w.path.depth] = -1
    w.path.depth += 1
    write_item(w, op, value)
    w.path.depth -= 1
    return 0


cdef inline object slot_value(Writer *w, Op *op, PyObject *o):
    cdef PyObject *value = slot(o, op.offset)
    if value is NULL:
        raise unsupported(w, op, "the attribute was deleted")
    return <object> value


cdef bint is_default(object value, PyObject *default) except -1:
    if <PyObject *> value is default:
        return True
    if default == <PyObject *> EMPTY:
        return isinstance(value, (tuple, list)) and not value
    if value is None or default == none_pointer:
        return False
    return bool(value == <object> default)


cdef int write_struct(Writer *w, Plan *plan, PyObject *o) except -1:
    """A message that the caller holds."""
    cdef Op *op = plan.ops
    cdef Op *stop = op + plan.count
    cdef PyObject *value
    cdef object held
    while op < stop:
        value = slot(o, op.offset)
        if value is NULL:
            slot_value(w, op, o)
        elif op.array:
            held = <object> value
            if is_exact_tuple(value):
                write_array(w, op, held)
            else:
                write_value(w, op, held)
        elif op.code == C_STRUCT and not op.nullable and exactly(value, op.child.type):
            held = <object> value
            w.path.op[w.path.depth] = op
            w.path.index[w.path.depth] = -1
            w.path.depth += 1
            write_struct(w, op.child, value)
            w.path.depth -= 1
        elif not write_quick(w, op, value):
            write_value(w, op, slot_value(w, op, o))
        op += 1
    op = plan.absent
    stop = op + plan.absent_count
    while op < stop:
        if slot(o, op.offset) is not op.default and not op.ignorable and not is_default(slot_value(w, op, o), op.default):
            raise unsupported(w, op, "this version has no such field")
        op += 1
    if plan.flexible:
        write_tags(w, plan, o)
    elif plan.unknown >= 0 and slot(o, plan.unknown) is not <PyObject *> EMPTY and <object> slot(o, plan.unknown):
        raise unsupported(w, NULL, "unknown_tags in a version without tagged fields")
    return 0


cdef int write_tags(Writer *w, Plan *plan, PyObject *o) except -1:
    """Known tags that differ from their default, and unknown ones, by number."""
    cdef int i
    cdef Py_ssize_t at
    cdef int gather = w.gather
    cdef Op *op
    cdef object value
    cdef list tags = None
    for i in range(plan.tag_count):
        op = &plan.tags[i]
        if slot(o, op.offset) is op.default:
            continue
        value = slot_value(w, op, o)
        if not is_default(value, op.default):
            if tags is None:
                tags = []
            tags.append((op.tag, i, value))
    if plan.unknown >= 0 and slot(o, plan.unknown) is not <PyObject *> EMPTY:
        if slot(o, plan.unknown) is NULL:
            raise unsupported(w, NULL, "unknown_tags was deleted")
        tags = merge_tags(w, plan, tags or [], <object> slot(o, plan.unknown))
    if tags is None:
        writer_need(w, 1)[0] = 0
        return 0
    writer_compact(w, <uint32_t> len(tags))
    w.gather = 0                            # a tag's size stands in front of it: its bytes are copied
    for number, index, value in tags:
        writer_compact(w, number)
        at = w.size
        writer_need(w, 1)
        i = index
        if i < 0:
            writer_bytes(w, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        else:
            write_value(w, &plan.tags[i], value)
        writer_close_sized(w, at)
    w.gather = gather
    return 0


cdef list merge_tags(Writer *w, Plan *plan, list tags, object unknown):
    known = {plan.tags[i].tag for i in range(plan.tag_count)}
    for pair in unknown:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], int) and isinstance(pair[1], bytes)):
            raise unsupported(w, NULL, "unknown_tags holds (tag, bytes) pairs")
        if pair[0] in known or not 0 <= pair[0] <= INT32_MAX:
            raise unsupported(w, NULL, f"tag {pair[0]} in unknown_tags")
        known.add(pair[0])
        tags.append((pair[0], -1, pair[1]))
    tags.sort(key=first_of)
    return tags


cdef object first_of(tuple item):
    return item[0]


cdef int encode_into(Writer *w, object message, int version) except -1:
    """One whole message at the writer's end."""
    cdef Spec spec = spec_of(type(message))
    cdef Plan *plan = message_plan(spec, version)
    w.path.version = version
    w.path.spec = <PyObject *> spec
    w.path.depth = 0
    return write_struct(w, plan, <PyObject *> message)


cdef object encode_message(object message, int version, bint gather):
    """bytes, or with `gather` the list of parts."""
    cdef Writer w
    cdef list cuts
    writer_init(&w)
    try:
        if not gather:
            encode_into(&w, message, version)
            return writer_take(&w)
        cuts = []
        w.cuts = <PyObject *> cuts
        w.gather = 1
        encode_into(&w, message, version)
        return writer_take_parts(&w)
    finally:
        writer_free(&w)


def encode_frame(pairs, *, bint gather=False):
    """Messages behind one 4-byte length: the form in which they travel.

    Args:
        pairs: (message, version) in wire order, say a request header and a request. A message may also be bytes, with any version.
        gather: give a list of buffers in which large blobs stand as they are, for a gathered send.
    Returns:
        bytes, or the list of buffers.
    """
    cdef Writer w
    cdef list cuts = []
    writer_init(&w)
    w.cuts = <PyObject *> cuts
    w.gather = gather
    try:
        writer_need(&w, 4)
        for message, version in pairs:
            if PyBytes_Check(message):
                writer_bytes(&w, PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))
            else:
                encode_into(&w, message, version)
        if w.size + w.outside - 4 > INT32_MAX:
            raise ValueUnsupported(f"a frame of {w.size + w.outside} bytes")
        put_u32(w.data, <uint32_t> (w.size + w.outside - 4))
        return writer_take_parts(&w) if gather else writer_take(&w)
    finally:
        writer_free(&w)
