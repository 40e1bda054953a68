# Bytes to messages by plan.
#
# A decoded message is frozen: it is taken out of the garbage collector's sight (which is also how we know that it is frozen), holds only
# immutable values, and can be part of no cycle. Slots are filled by offset; a slot is NULL until then and the object is not yet visible.
# No allocation is sized by a length or count that was not checked against the bytes left.

from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from wireproto._codec_parts.endian cimport get_f64, get_i16, get_i32, get_i64, get_u16, get_u32
from wireproto._codec_parts.varint cimport read_varint32, read_varint64

cdef extern from "Python.h":
    """
    #define WP_SLOT(o, offset) (*(PyObject **)((char *)(o) + (offset)))
    #define WP_SET_SLOT(o, offset, value) (WP_SLOT(o, offset) = (value))
    static inline PyObject *wp_bare(PyTypeObject *type) {
        /* a zeroed object that the collector has not seen; without slots there is nothing to hide */
        PyObject *o;
        if (!PyType_IS_GC(type)) return type->tp_alloc(type, 0);
        o = _PyObject_GC_New(type);
        if (o) memset((char *)o + sizeof(PyObject), 0, type->tp_basicsize - sizeof(PyObject));
        return o;
    }
    """
    PyObject *slot "WP_SLOT"(PyObject *o, Py_ssize_t offset)
    void set_slot "WP_SET_SLOT"(PyObject *o, Py_ssize_t offset, PyObject *value)      # takes the reference
    object bare_object "wp_bare"(PyTypeObject *type)
    PyObject *new_long "PyLong_FromLong"(long v) except NULL
    PyObject *new_long_long "PyLong_FromLongLong"(long long v) except NULL
    PyObject *new_unsigned "PyLong_FromUnsignedLong"(unsigned long v) except NULL
    PyObject *new_float "PyFloat_FromDouble"(double v) except NULL
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *p, Py_ssize_t n) except NULL
    PyObject *new_text "PyUnicode_DecodeUTF8"(const char *p, Py_ssize_t n, const char *errors)     # NULL: checked by hand
    object new_tuple "PyTuple_New"(Py_ssize_t n)
    void set_item "PyTuple_SET_ITEM"(PyObject *t, Py_ssize_t i, PyObject *v)
    PyObject *get_item "PyTuple_GET_ITEM"(PyObject *t, Py_ssize_t i)
    void untrack "PyObject_GC_UnTrack"(void *o)
    void clear_error "PyErr_Clear"()
    void incref "Py_INCREF"(PyObject *o)
    void decref "Py_DECREF"(PyObject *o)
    void xdecref "Py_XDECREF"(PyObject *o)
    PyObject *none_pointer "Py_None"
    PyObject *true_pointer "Py_True"
    PyObject *false_pointer "Py_False"

cdef object EMPTY = ()
cdef object UNICODE_ERROR = UnicodeDecodeError


cdef inline PyObject *ref(PyObject *o) noexcept:
    incref(o)
    return o


cdef PyObject *read_text(Cursor *c, Op *op, Py_ssize_t n) except NULL:
    cdef PyObject *text
    if n > c.end - c.p:
        return short_of(c, op, n)
    text = new_text(<const char *> c.p, n, NULL)
    if text is NULL:
        text = read_odd_text(c, op, n)
    c.p += n
    return text


cdef PyObject *read_odd_text(Cursor *c, Op *op, Py_ssize_t n) except NULL:
    """Not UTF-8: a pair of surrogates is the character it stands for (jute's encoder in Java writes it so, as 6 bytes), a lone one is
    kept, anything else is refused."""
    clear_error()
    cdef PyObject *text = new_text(<const char *> c.p, n, b"surrogatepass")
    if text is NULL:
        clear_error()
        return broken(c, op, f"text of {n} bytes is not UTF-8")
    try:
        joined = (<object> text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    finally:
        decref(text)
    return ref(<PyObject *> joined)


cdef PyObject *read_fixed(Cursor *c, Op *op) except NULL:
    cdef const uint8_t *p = c.p
    cdef int code = op.code
    if c.end - p < FIXED_SIZE[code]:
        return short_of(c, op, FIXED_SIZE[code])
    c.p = p + FIXED_SIZE[code]
    if code == C_INT32:
        return new_long(get_i32(p))
    if code == C_INT16:
        return new_long(get_i16(p))
    if code == C_INT64:
        return new_long_long(get_i64(p))
    if code == C_BOOL:
        return ref(true_pointer if p[0] else false_pointer)
    if code == C_INT8:
        return new_long(<signed char> p[0])
    if code == C_UUID:
        return new_bytes(<const char *> p, 16)
    if code == C_FLOAT64:
        return new_float(get_f64(p))
    if code == C_UINT32:
        return new_unsigned(get_u32(p))
    if code == C_UINT16:
        return new_long(get_u16(p))
    return new_long(p[0])


cdef PyObject *read_sized(Cursor *c, Op *op, bint null_allowed) except NULL:
    """Text, bytes or a slice."""
    cdef Py_ssize_t n = read_length(c, op, op.length)
    cdef PyObject *value
    if n < 0:
        if not null_allowed:
            return broken(c, op, "null where this version has none")
        return ref(none_pointer)
    if op.code == C_STRING:
        return read_text(c, op, n)
    if n > c.end - c.p:
        return short_of(c, op, n)
    if op.code == C_BYTES:
        value = new_bytes(<const char *> c.p, n)
    else:
        value = slice_pointer(c, n)
    c.p += n
    return value


cdef PyObject *slice_pointer(Cursor *c, Py_ssize_t n) except NULL:
    cdef Slice view = new_slice(<object> c.owner, c.p - c.begin, c.p - c.begin + n)
    return ref(<PyObject *> view)


cdef PyObject *read_varint(Cursor *c, Op *op) except NULL:
    cdef int32_t small
    cdef int64_t large
    cdef uint32_t plain
    cdef int r
    if op.code == C_UVARINT:
        read_compact(c, op, &plain)
        return new_unsigned(plain)
    if op.code == C_VARINT:
        r = read_varint32(&c.p, c.end, &small)
        if r > 0:
            return new_long(small)
    else:
        r = read_varint64(&c.p, c.end, &large)
        if r > 0:
            return new_long_long(large)
    if r == 0:
        raise decode_error(c, op, c.p, Truncated, f"the bytes end inside a varint, {c.end - c.p} left")
    return broken(c, op, "varint of too many bits")


cdef PyObject *read_value(Cursor *c, Op *op) except NULL:
    cdef PyObject *value
    cdef uint32_t there
    if op.array:
        return read_array(c, op)
    if op.code <= LAST_FIXED:
        return read_fixed(c, op)
    if op.code == C_STRUCT:
        if op.nullable and op.tag >= 0:
            read_compact(c, op, &there)    # before a tagged struct: uvarint 1, or 0 for null
            if there == 0:
                return ref(none_pointer)
        elif op.nullable:
            if c.p >= c.end:
                return short_of(c, op, 1)
            c.p += 1
            if <signed char> (c.p - 1)[0] < 0:
                return ref(none_pointer)
        c.path.op[c.path.depth] = op
        c.path.index[c.path.depth] = -1
        c.path.depth += 1
        value = read_struct(c, op.child)
        c.path.depth -= 1
        return value
    if op.code <= C_UVARINT:
        return read_varint(c, op)
    return read_sized(c, op, op.reads_null)


cdef PyObject *read_array(Cursor *c, Op *op) except NULL:
    cdef Py_ssize_t n = read_length(c, op, op.count)
    cdef Py_ssize_t i, size = 0
    cdef object items
    cdef PyObject *value
    cdef const uint8_t *first
    cdef bint integers = op.code <= C_INT64 and op.code != C_BOOL
    if n <= 0:
        if n < 0 and not op.reads_null:
            return broken(c, op, "null where this version has none")
        return ref(<PyObject *> EMPTY if n == 0 else none_pointer)
    if n > (c.end - c.p) // op.item_size:
        raise decode_error(c, op, c.p, Truncated, f"{n} items of at least {op.item_size} bytes, {c.end - c.p} left")
    first = c.p
    if integers:
        size = n * FIXED_SIZE[op.code]
        if size == c.memo_size and op.code == c.memo_code and memcmp(c.memo_bytes, c.p, size) == 0:
            c.p += size
            return ref(c.memo)
    items = new_tuple(n)                   # an object, so that an error on the way lets it go
    c.path.op[c.path.depth] = op
    c.path.depth += 1
    for i in range(n):
        c.path.index[c.path.depth - 1] = i
        if op.code == C_STRUCT:
            value = read_struct(c, op.child)
        elif op.code <= LAST_FIXED:
            value = read_fixed(c, op)
        elif op.code <= C_UVARINT:
            value = read_varint(c, op)
        else:
            value = read_sized(c, op, op.item_null)
        set_item(<PyObject *> items, i, value)
    c.path.depth -= 1
    untrack(<PyObject *> items)
    if integers:
        xdecref(c.memo)
        c.memo = ref(<PyObject *> items)
        c.memo_bytes = first
        c.memo_size = size
        c.memo_code = op.code
    return ref(<PyObject *> items)


cdef PyObject *read_struct(Cursor *c, Plan *plan) except NULL:
    cdef object message = bare_object(plan.type)
    cdef PyObject *o = <PyObject *> message
    cdef Op *op = plan.ops
    cdef Op *stop = op + plan.count
    while op < stop:
        set_slot(o, op.offset, read_value(c, op))
        op += 1
    op = plan.absent
    stop = op + plan.absent_count
    while op < stop:
        set_slot(o, op.offset, ref(op.default))
        op += 1
    if plan.flexible:
        read_tags(c, plan, o)
    elif plan.unknown >= 0:
        set_slot(o, plan.unknown, ref(<PyObject *> EMPTY))
    return ref(o)


cdef int read_tags(Cursor *c, Plan *plan, PyObject *o) except -1:
    """The section of tagged fields: uvarint count, then per field uvarint tag, uvarint size, bytes."""
    cdef uint32_t count, tag, size
    cdef int i
    cdef Op *op
    cdef const uint8_t *end = c.end
    cdef const uint8_t *at
    cdef list unknown = None
    cdef object kept = EMPTY
    read_compact(c, NULL, &count)
    while count:
        count -= 1
        at = c.p
        read_compact(c, NULL, &tag)
        read_compact(c, NULL, &size)
        if size > end - c.p:
            raise decode_error(c, NULL, at, Truncated, f"tag {tag} of {size} bytes, {end - c.p} left")
        op = NULL
        for i in range(plan.tag_count):
            if <uint32_t> plan.tags[i].tag == tag:
                op = &plan.tags[i]
        if op is NULL:
            if unknown is None:
                unknown = []
            elif any([tag == seen for seen, _ in unknown]):
                raise decode_error(c, NULL, at, Malformed, f"tag {tag} twice")
            unknown.append((tag, (<const char *> c.p)[:size]))
            c.p += size
            continue
        if slot(o, op.offset) is not NULL:
            raise decode_error(c, op, at, Malformed, f"tag {tag} twice")
        c.end = c.p + size
        set_slot(o, op.offset, read_value(c, op))
        if c.p != c.end:
            broken(c, op, f"{c.end - c.p} bytes left over in tag {tag}")
        c.end = end
    for i in range(plan.tag_count):
        op = &plan.tags[i]
        if slot(o, op.offset) is NULL:
            set_slot(o, op.offset, ref(op.default))
    if plan.unknown >= 0:
        if unknown is not None:
            kept = tuple(sorted(unknown))
            for pair in kept:
                untrack(<PyObject *> pair)
            untrack(<PyObject *> kept)
        set_slot(o, plan.unknown, ref(<PyObject *> kept))
    return 0


cdef object decode_message(object cls, object frame, int version, Py_ssize_t start, Py_ssize_t *stop):
    """One message at `start`; `stop` takes where it ended."""
    cdef Spec spec = spec_of(cls)
    cdef Plan *plan
    cdef Cursor c
    cdef PyObject *o
    cdef object owner = frame_owner(frame)
    cdef Py_ssize_t size = owner_size(owner)
    plan = message_plan(spec, version)
    if not 0 <= start <= size:
        raise Truncated(f"a message at byte {start}, the frame has {size}", message=spec.name, version=version, offset=size)
    memset(&c, 0, sizeof(Cursor))
    c.begin = owner_data(owner)
    c.p = c.begin + start
    c.end = c.begin + size
    c.owner = <PyObject *> owner
    c.path.version = version
    c.path.spec = <PyObject *> spec
    try:
        o = read_struct(&c, plan)
    finally:
        xdecref(c.memo)
    stop[0] = c.p - c.begin
    cdef object message = <object> o
    decref(o)
    return message
