# Columns to Arrow, by hand and without pyarrow: schema, array and stream capsules.
#
# May assume: tables do not change. Must not: hold the interpreter's objects, so that a consumer may give arrays back on any thread.
# All that one export makes lies in one sheaf. Every array and schema (and each child, which a consumer may move away) holds a reference to
# its sheaf, and a sheaf of arrays one to the table. Rows are a struct:
#
#     field                       Arrow type                            format      nullable
#     offset | ledger, entry,     int64 (index int32)                   l, i        no
#       index | sequence
#     partition                   int32, only for rows to be sent       i           no
#     timestamp                   timestamp[ms, UTC]                    tsm:UTC     yes
#     key, value                  binary; large_binary, binary_view,    z Z vz      yes
#                                   string, large_string on request     u U
#     headers                     list<item: struct<name: string, value: binary>>   no
#     leader_epoch, producer_id, producer_epoch, sequence, transactional, timestamp_type     i l i i b i     no
#
# Columns that were not decoded are absent. A view column is exported as it is when a view is asked for; binary is copied from it on each export.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strcmp

cdef enum:
    WANT_BINARY = 0
    WANT_LARGE = 1
    WANT_VIEW = 2
    WANT_STRING = 3
    WANT_LARGE_STRING = 4
    OUT_OF_MEMORY = 12      # ENOMEM: the only way a stream of ours can fail

cdef const char **WANT_FORMATS = ["z", "Z", "vz", "u", "U"]

cdef struct Wishes:
    int key
    int value

cdef const char **EXTRA_FORMATS = ["i", "l", "i", "i", "b", "i"]
cdef const char **EXTRA_FIELDS = ["leader_epoch", "producer_id", "producer_epoch", "sequence", "transactional", "timestamp_type"]

cdef struct Sheaf:               # the nodes of one export, in one piece of memory behind this head
    int64_t references           # nodes that were not released yet
    Table *table                 # NULL: schemas
    uint8_t *at                  # where the next node goes

cdef struct Held:                # an array's private data: its sheaf, and what was made for this array alone
    Sheaf *sheaf
    const void *buffers[4]
    const void **more            # instead of buffers: those of views into several kept buffers, their sizes behind them
    int64_t view_sizes[1]
    void *made                   # starts or views
    void *made_data

cdef struct Streaming:
    Table *table
    Py_ssize_t start
    Py_ssize_t stop
    Wishes wishes
    bint done


# --- sheaves ------------------------------------------------------------------------------------------------------------------------

cdef Sheaf *sheaf_new(Table *t, int fields, int64_t node) noexcept nogil:
    """Room for the nodes of that size of a table with so many fields: itself, the fields, and what is below the headers."""
    cdef int64_t size = sizeof(Sheaf) + (fields + 4) * (node + sizeof(void *))
    cdef Sheaf *s = <Sheaf *>mem_take(size)
    if s != NULL:
        memset(s, 0, size)
        s.at = <uint8_t *>(s + 1)
        s.table = t
        if t != NULL:
            table_share(t)
    return s


cdef inline void *sheaf_take(Sheaf *s, int64_t size) noexcept nogil:
    """The next bytes, which are zero."""
    cdef void *taken = s.at
    s.at += size
    return taken


cdef void sheaf_release(Sheaf *s) noexcept nogil:
    """Give one reference back; the last one frees."""
    if atomic_add(&s.references, -1) == 0:
        table_release(s.table)
        mem_give(s)


# --- schema -------------------------------------------------------------------------------------------------------------------------

cdef void schema_release(ArrowSchema *schema) noexcept nogil:
    cdef int64_t n
    for n in range(schema.n_children):
        if schema.children[n].release != NULL:
            schema.children[n].release(schema.children[n])
    schema.release = NULL
    sheaf_release(<Sheaf *>schema.private_data)


cdef void schema_fill(Sheaf *s, ArrowSchema *schema, const char *format, const char *name, bint nullable, int children) noexcept nogil:
    """Fill one level (all texts are static) and make its children."""
    cdef int n
    schema.format = format
    schema.name = name
    schema.metadata = NULL
    schema.flags = ARROW_NULLABLE if nullable else 0
    schema.n_children = children
    schema.children = NULL
    schema.dictionary = NULL
    schema.private_data = s
    schema.release = schema_release
    s.references += 1
    if children:
        schema.children = <ArrowSchema **>sheaf_take(s, children * sizeof(ArrowSchema *))
        for n in range(children):
            schema.children[n] = <ArrowSchema *>sheaf_take(s, sizeof(ArrowSchema))


cdef int position_fields(Table *t) noexcept nogil:
    return 0 if t.kind == POSITION_NONE or not t.wanted & WANT_POSITION else 3 if t.kind == POSITION_MESSAGE else 1


cdef int field_count(Table *t) noexcept nogil:
    cdef int n, count = position_fields(t) + (t.partition != NULL)
    for n in range(1, 5 + EXTRAS):
        count += t.wanted >> n & 1
    return count


cdef bint table_schema(Table *t, Wishes *wishes, ArrowSchema *out) noexcept nogil:
    """The whole schema; on False there is none: no memory."""
    cdef int n = position_fields(t), extra, count = field_count(t)
    cdef ArrowSchema **fields
    cdef Sheaf *s = sheaf_new(NULL, count, sizeof(ArrowSchema))
    if s == NULL:
        return False
    schema_fill(s, out, "+s", "", False, count)
    fields = out.children
    if n == 3:
        schema_fill(s, fields[0], "l", "ledger", False, 0)
        schema_fill(s, fields[1], "l", "entry", False, 0)
        schema_fill(s, fields[2], "i", "index", False, 0)
    elif n == 1:
        schema_fill(s, fields[0], "l", "offset" if t.kind == POSITION_OFFSET else "sequence", False, 0)
    if t.partition != NULL:
        schema_fill(s, fields[n], "i", "partition", False, 0)
        n += 1
    if t.wanted & WANT_TIMESTAMP:
        schema_fill(s, fields[n], "tsm:UTC", "timestamp", True, 0)
        n += 1
    if t.wanted & WANT_KEY:
        schema_fill(s, fields[n], WANT_FORMATS[wishes.key], "key", True, 0)
        n += 1
    if t.wanted & WANT_VALUE:
        schema_fill(s, fields[n], WANT_FORMATS[wishes.value], "value", True, 0)
        n += 1
    if t.wanted & WANT_HEADERS:
        headers_schema(s, fields[n])
        n += 1
    for extra in range(EXTRAS):
        if t.wanted & (WANT_EXTRA << extra):
            schema_fill(s, fields[n], EXTRA_FORMATS[extra], EXTRA_FIELDS[extra], False, 0)
            n += 1
    return True


cdef void headers_schema(Sheaf *s, ArrowSchema *field) noexcept nogil:
    cdef ArrowSchema *item
    schema_fill(s, field, "+l", "headers", False, 1)
    item = field.children[0]
    schema_fill(s, item, "+s", "item", False, 2)
    schema_fill(s, item.children[0], "u", "name", False, 0)
    schema_fill(s, item.children[1], "z", "value", True, 0)


# --- arrays -------------------------------------------------------------------------------------------------------------------------

cdef void array_release(ArrowArray *array) noexcept nogil:
    cdef int64_t n
    cdef Held *held = <Held *>array.private_data
    for n in range(array.n_children):
        if array.children[n].release != NULL:
            array.children[n].release(array.children[n])
    array.release = NULL
    mem_give(held.made)
    mem_give(held.made_data)
    free(held.more)
    sheaf_release(held.sheaf)


cdef Held *array_fill(Sheaf *s, ArrowArray *array, int64_t offset, int64_t length, int64_t nulls, int buffers, int children) noexcept nogil:
    """Fill one level and make its children."""
    cdef Held *held = <Held *>sheaf_take(s, sizeof(Held))
    cdef int n
    array.length = length
    array.null_count = nulls
    array.offset = offset
    array.n_buffers = buffers
    array.n_children = children
    array.buffers = held.buffers
    array.children = NULL
    array.dictionary = NULL
    array.release = array_release
    array.private_data = held
    held.sheaf = s
    s.references += 1
    if children:
        array.children = <ArrowArray **>sheaf_take(s, children * sizeof(ArrowArray *))
        for n in range(children):
            array.children[n] = <ArrowArray *>sheaf_take(s, sizeof(ArrowArray))
    return held


cdef void fixed_array(Sheaf *s, ArrowArray *array, int64_t start, int64_t length, const void *data, const uint8_t *valid) noexcept nogil:
    cdef Held *held = array_fill(s, array, start, length, 0 if valid == NULL else -1, 2, 0)
    held.buffers[0] = valid
    held.buffers[1] = data if data != NULL else EMPTY_BYTES


cdef bint bytes_array(Sheaf *s, ArrowArray *array, Bytes *c, int64_t start, int64_t length, int wish) noexcept nogil:
    """Key, value or a part of headers, in the layout wished for."""
    cdef Held *held = array_fill(s, array, start, length, 0 if c.valid == NULL else -1, 4 if wish == WANT_VIEW else 3, 0)
    cdef Table *t = s.table
    cdef int64_t before
    held.buffers[0] = c.valid
    if c.viewed and wish == WANT_VIEW:
        return views_given(array, t, c, held)
    if not c.viewed:
        held.buffers[2] = c.data if c.data != NULL else EMPTY_BYTES
        if wish == WANT_BINARY or wish == WANT_STRING:
            held.buffers[1] = c.starts if c.starts != NULL else <int32_t *>EMPTY_BYTES
            return True
    # What is made for this array begins at the row whose validity bit begins a byte: at most 7 rows before the first one wanted.
    before = start & 7 if length else 0
    held.buffers[0] = c.valid + (start >> 3) if c.valid != NULL else NULL
    array.offset = before
    if wish == WANT_VIEW:
        return views_of(c, start - before, start + length, held)
    if c.viewed and not data_of(t, c, start - before, start + length, held):
        return False
    return starts_of(c, start - before, start + length, wish == WANT_LARGE or wish == WANT_LARGE_STRING, held)


cdef bint views_given(ArrowArray *array, Table *t, Bytes *c, Held *held) noexcept nogil:
    """The views as they lie, and all buffers that the table keeps."""
    cdef int n
    if array.length == 0:
        array.offset = 0
    held.buffers[1] = c.views if c.views != NULL else <View *>EMPTY_BYTES
    held.more = <const void **>calloc(3 + t.kept_count * 2, sizeof(void *))
    if held.more == NULL:
        return False
    held.more[0] = held.buffers[0]
    held.more[1] = held.buffers[1]
    held.more[2 + t.kept_count] = held.more + 3 + t.kept_count
    for n in range(t.kept_count):
        held.more[2 + n] = t.kept[n].data
        (<int64_t *>(held.more + 3 + t.kept_count))[n] = t.kept[n].size
    array.buffers = held.more
    array.n_buffers = 3 + t.kept_count
    return True


cdef bint data_of(Table *t, Bytes *c, int64_t start, int64_t stop, Held *held) noexcept nogil:
    """The bytes that views point to, one after the other."""
    cdef int64_t row, size
    cdef int64_t total = bytes_total(c, start, stop)
    cdef const uint8_t *data
    cdef uint8_t *to = <uint8_t *>mem_take(total)
    held.made_data = to
    held.buffers[2] = to
    if to == NULL:
        return False
    for row in range(start, stop):
        size = bytes_get(t, c, row, &data)
        if size > 0:
            memcpy(to, data, size)
            to += size
    return True


cdef bint starts_of(Bytes *c, int64_t start, int64_t stop, bint large, Held *held) noexcept nogil:
    """Starts of the width wished for."""
    cdef int64_t row, at = 0
    cdef void *made = mem_take((stop - start + 1) * (8 if large else 4))
    held.made = made
    held.buffers[1] = made
    if made == NULL:
        return False
    for row in range(start, stop + 1):
        if not c.viewed:
            at = c.starts[row]
        if large:
            (<int64_t *>made)[row - start] = at
        else:
            (<int32_t *>made)[row - start] = <int32_t>at
        if c.viewed and row < stop:
            at += c.views[row].size
    return True


cdef bint views_of(Bytes *c, int64_t start, int64_t stop, Held *held) noexcept nogil:
    """Views made of starts."""
    cdef View *view = <View *>mem_take((stop - start + 1) * sizeof(View))
    cdef int64_t row
    cdef int32_t size
    if view == NULL:
        return False
    held.made = view
    held.buffers[1] = view
    held.view_sizes[0] = c.used
    held.buffers[3] = held.view_sizes
    for row in range(start, stop):
        size = c.starts[row + 1] - c.starts[row]
        memset(view, 0, sizeof(View))
        view.size = size
        if size <= VIEW_INLINE:
            memcpy(&view.prefix, c.data + c.starts[row], size)
        else:
            memcpy(&view.prefix, c.data + c.starts[row], 4)
            view.at = c.starts[row]
        view += 1
    return True


cdef bint headers_array(Sheaf *s, ArrowArray *array, int64_t start, int64_t length) noexcept nogil:
    """list<struct<name, value>>: the list is sliced by its offset, what lies below is given whole."""
    cdef Table *t = s.table
    cdef Held *held = array_fill(s, array, start if t.header_at != NULL else 0, length, 0, 2, 1)
    cdef ArrowArray *item
    if t.header_at != NULL:
        held.buffers[1] = t.header_at
    else:
        held.made = mem_take((length + 1) * 4)
        if held.made == NULL:
            return False
        memset(held.made, 0, (length + 1) * 4)
        held.buffers[1] = held.made
    item = array.children[0]
    array_fill(s, item, 0, t.headers, 0, 1, 2)
    return (bytes_array(s, item.children[0], &t.name, 0, t.headers, WANT_BINARY)
            and bytes_array(s, item.children[1], &t.header_value, 0, t.headers, WANT_BINARY))


cdef bint table_array(Table *t, Py_ssize_t start, Py_ssize_t stop, Wishes *wishes, ArrowArray *out) noexcept nogil:
    """The rows as a struct array; on False `out` must be released if it has a release."""
    cdef int64_t length = stop - start
    cdef int n = position_fields(t), extra, count = field_count(t)
    cdef bint good = True
    cdef ArrowArray **fields
    cdef Sheaf *s = sheaf_new(t, count, sizeof(ArrowArray) + sizeof(Held))
    out.release = NULL
    if s == NULL:
        return False
    array_fill(s, out, 0, length, 0, 1, count)
    fields = out.children
    if n:
        fixed_array(s, fields[0], start, length, t.p0, NULL)
    if n == 3:
        fixed_array(s, fields[1], start, length, t.p1, NULL)
        fixed_array(s, fields[2], start, length, t.p2, NULL)
    if t.partition != NULL:
        fixed_array(s, fields[n], start, length, t.partition, NULL)
        n += 1
    if t.wanted & WANT_TIMESTAMP:
        fixed_array(s, fields[n], start, length, t.timestamp, t.timestamp_valid)
        n += 1
    if t.wanted & WANT_KEY:
        good = bytes_array(s, fields[n], &t.key, start, length, wishes.key)
        n += 1
    if good and t.wanted & WANT_VALUE:
        good = bytes_array(s, fields[n], &t.value, start, length, wishes.value)
        n += 1
    if good and t.wanted & WANT_HEADERS:
        good = headers_array(s, fields[n], start, length)
        n += 1
    for extra in range(EXTRAS):
        if good and t.wanted & (WANT_EXTRA << extra):
            if extra == EXTRA_TRANSACTIONAL:
                good = bits_array(s, fields[n], start, length, <uint8_t *>t.extra[extra])
            else:
                fixed_array(s, fields[n], start, length, t.extra[extra], NULL)
            n += 1
    return good


cdef bint bits_array(Sheaf *s, ArrowArray *array, int64_t start, int64_t length, const uint8_t *flags) noexcept nogil:
    """A bool array: a bit a row, made of a byte a row."""
    cdef Held *held = array_fill(s, array, 0, length, 0, 2, 0)
    cdef int64_t row
    cdef uint8_t *bits = <uint8_t *>mem_take((length >> 3) + 1)
    held.made = bits
    held.buffers[1] = bits
    if bits == NULL:
        return False
    memset(bits, 0, (length >> 3) + 1)
    for row in range(length):
        bits[row >> 3] |= <uint8_t>((flags[start + row] != 0) << (row & 7))
    return True


# --- stream -------------------------------------------------------------------------------------------------------------------------

cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept nogil:
    cdef Streaming *s = <Streaming *>stream.private_data
    return 0 if table_schema(s.table, &s.wishes, out) else OUT_OF_MEMORY


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept nogil:
    cdef Streaming *s = <Streaming *>stream.private_data
    out.release = NULL
    if s.done:
        return 0
    if not table_array(s.table, s.start, s.stop, &s.wishes, out):
        if out.release != NULL:
            array_release(out)
        return OUT_OF_MEMORY
    s.done = True
    return 0


cdef const char *stream_error(ArrowArrayStream *stream) noexcept nogil:
    return "no memory"


cdef void stream_release(ArrowArrayStream *stream) noexcept nogil:
    cdef Streaming *s = <Streaming *>stream.private_data
    if s != NULL:
        table_release(s.table)
        free(s)
    stream.private_data = NULL
    stream.release = NULL


# --- capsules -----------------------------------------------------------------------------------------------------------------------

cdef int wish_of(const char *format) noexcept:
    cdef int n
    for n in range(5):
        if strcmp(format, WANT_FORMATS[n]) == 0:
            return n
    return WANT_BINARY


cdef Wishes read_wishes(Columns columns, object requested) except *:
    """What a requested schema asks for, as far as these rows can give it."""
    cdef Wishes wishes
    cdef ArrowSchema *schema
    cdef ArrowSchema *field
    cdef int64_t n
    wishes.key = wishes.value = WANT_BINARY
    if requested is None:
        return wishes
    schema = <ArrowSchema *>PyCapsule_GetPointer(requested, "arrow_schema")
    if schema.release == NULL:
        raise ValueError("the requested schema was released already")
    for n in range(schema.n_children):
        field = schema.children[n]
        if field.name == NULL or field.format == NULL:
            continue
        if strcmp(field.name, "key") == 0:
            wishes.key = possible(wish_of(field.format), columns, &columns.table.key)
        elif strcmp(field.name, "value") == 0:
            wishes.value = possible(wish_of(field.format), columns, &columns.table.value)
    return wishes


cdef int possible(int wish, Columns columns, Bytes *c) noexcept:
    """A string only when each value is UTF-8 by itself: checked here, since consumers trust it."""
    cdef Py_ssize_t row
    cdef const uint8_t *data
    cdef int64_t size
    if c.off:
        return WANT_BINARY
    if wish == WANT_STRING or wish == WANT_LARGE_STRING:
        for row in range(columns.start, columns.stop):
            size = bytes_get(columns.table, c, row, &data)
            if size > 0 and not is_utf8(data, size):
                return WANT_BINARY if wish == WANT_STRING else WANT_LARGE
    return wish


cdef object schema_capsule(Table *t, Wishes *wishes):
    cdef ArrowSchema *schema = <ArrowSchema *>malloc(sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError
    if not table_schema(t, wishes, schema):
        free(schema)
        raise MemoryError
    return PyCapsule_New(schema, "arrow_schema", capsule_schema_free)


cdef object export_schema(Table *t, object requested):
    cdef Wishes wishes
    wishes.key = wishes.value = WANT_BINARY
    return schema_capsule(t, &wishes)


cdef object export_array(Columns columns, object requested):
    cdef Wishes wishes = read_wishes(columns, requested)
    cdef ArrowArray *array
    schema = schema_capsule(columns.table, &wishes)
    array = <ArrowArray *>malloc(sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    if not table_array(columns.table, columns.start, columns.stop, &wishes, array):
        if array.release != NULL:
            array_release(array)
        free(array)
        raise MemoryError
    return schema, PyCapsule_New(array, "arrow_array", capsule_array_free)


cdef object export_stream(Columns columns, object requested):
    cdef Wishes wishes = read_wishes(columns, requested)
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
    cdef Streaming *s = <Streaming *>calloc(1, sizeof(Streaming))
    if stream == NULL or s == NULL:
        free(stream)
        free(s)
        raise MemoryError
    s.table = table_share(columns.table)
    s.start = columns.start
    s.stop = columns.stop
    s.wishes = wishes
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = stream_release
    stream.private_data = s
    return PyCapsule_New(stream, "arrow_array_stream", capsule_stream_free)
