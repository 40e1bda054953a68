# Arrow to Columns: rows to be sent, from anything with the Arrow capsules.
#
# Accepted: a struct array (a record batch, table, data frame) with these fields in any order (another name is refused: it would be lost),
#
#     value        binary, large_binary, binary_view, string, large_string, string_view, null (null: a null value)   required
#     key          the same                                                                                       optional
#     headers      list or map of struct<name: string, value: binary …>                                           optional
#     timestamp    timestamp of any unit, or int64 milliseconds                                                   optional
#     partition    int32, int64 (no null)                                                                         optional
#     topic        string or binary of any width (no null): `topic_shares` reads it                                 optional
#     offset, ledger, entry, index, sequence       a position, as our own export has it: not sent, passed over
#
# or a bare array of bytes, which is the values. May assume: the producer keeps to the C data interface, which gives no buffer sizes.
# Must not: trust what can be checked (starts in order, sizes, views within their buffers, UTF-8 of names). One array of rows without
# headers, key and value with int32 starts, is not copied: the columns keep it. Everything else is.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset, strcmp, strncmp

from wireproto.errors import Malformed, ValueUnsupported


cdef bint arrow_null(ArrowArray *a, int64_t row) noexcept nogil:
    """Whether an element is null; `row` counts from the array's own offset."""
    cdef const uint8_t *valid = <const uint8_t *>a.buffers[0] if a.n_buffers > 0 else NULL
    row += a.offset
    return a.null_count != 0 and valid != NULL and not (valid[row >> 3] >> (row & 7)) & 1


cdef enum:
    BYTES_NOT = 0
    BYTES_32 = 1
    BYTES_64 = 2
    BYTES_VIEW = 3
    RESERVE_MOST = 64 << 20  # bytes that are reserved on the word of starts alone


cdef int bytes_kind(const char *format) noexcept nogil:
    if strcmp(format, "z") == 0 or strcmp(format, "u") == 0:
        return BYTES_32
    if strcmp(format, "Z") == 0 or strcmp(format, "U") == 0:
        return BYTES_64
    if strcmp(format, "vz") == 0 or strcmp(format, "vu") == 0:
        return BYTES_VIEW
    return BYTES_NOT


cdef int arrow_bytes(ArrowArray *a, int kind, int64_t row, const uint8_t **data, int64_t *size) noexcept nogil:
    """An element's bytes; size -1 for null. False when its starts or view contradict the format."""
    cdef int64_t at = row + a.offset
    cdef int64_t first, last, buffers
    cdef const int32_t *view
    cdef const int64_t *sizes
    data[0] = EMPTY_BYTES
    if arrow_null(a, row):
        size[0] = -1
        return True
    if kind == BYTES_VIEW:
        view = <const int32_t *>a.buffers[1] + 4 * at
        size[0] = view[0]
        if view[0] < 0:
            return False
        if view[0] <= VIEW_INLINE:
            data[0] = <const uint8_t *>(view + 1)
            return True
        buffers = a.n_buffers - 3
        if view[2] < 0 or view[2] >= buffers or view[3] < 0:
            return False
        sizes = <const int64_t *>a.buffers[a.n_buffers - 1]
        if <int64_t>view[3] + view[0] > sizes[view[2]]:
            return False
        data[0] = <const uint8_t *>a.buffers[2 + view[2]] + view[3]
        return True
    if kind == BYTES_32:
        first, last = (<const int32_t *>a.buffers[1])[at], (<const int32_t *>a.buffers[1])[at + 1]
    else:
        first, last = (<const int64_t *>a.buffers[1])[at], (<const int64_t *>a.buffers[1])[at + 1]
    size[0] = last - first
    if first < 0 or last < first:
        return False
    if last > first:
        if a.buffers[2] == NULL:
            return False
        data[0] = <const uint8_t *>a.buffers[2] + first
    return True


cdef struct Field:               # one field of the struct: where it lies and how it is read
    ArrowArray *array
    int kind                     # bytes_kind; for the timestamp: numerator and denominator to milliseconds below
    int64_t times
    int64_t over

cdef struct Incoming:
    Field value
    bint valued               # whether there is a column of values, be it one of nulls alone
    Field key
    Field timestamp
    Field partition
    ArrowArray *headers
    bint headers_large
    ArrowArray *pair
    Field name
    Field header_value
    const char *why
    const char *column


cdef int contradiction(Incoming *in_, const char *column, const char *why) noexcept nogil:
    in_.column = column
    in_.why = why
    return BATCH_BAD


cdef int arrow_time(Incoming *in_, int64_t at, int64_t *time) noexcept nogil:
    """Whether a row has a timestamp, and which in ms; -1 when milliseconds cannot hold it."""
    cdef Field *f = &in_.timestamp
    time[0] = 0
    if f.array == NULL or arrow_null(f.array, at):
        return 0
    time[0] = (<const int64_t *>f.array.buffers[1])[at + f.array.offset]
    if f.times > 1:
        if not -INT64_MAX // f.times <= time[0] <= INT64_MAX // f.times:
            return -1
        time[0] *= f.times
    elif f.over > 1:
        time[0] = -((-time[0] + f.over - 1) // f.over) if time[0] < 0 else time[0] // f.over
    return 1


cdef bint arrow_partition(Incoming *in_, int64_t at, int32_t *partition) noexcept nogil:
    """A row's partition; False when it is null or no int32 from -1 on."""
    cdef ArrowArray *a = in_.partition.array
    cdef int64_t n = at + a.offset, number
    if arrow_null(a, at):
        return False
    number = (<const int32_t *>a.buffers[1])[n] if in_.partition.kind == 4 else (<const int64_t *>a.buffers[1])[n]
    partition[0] = <int32_t>number
    return -1 <= number < INT32_MAX


cdef void arrow_done(void *owner) noexcept nogil:
    """Release a kept array to its producer."""
    cdef ArrowArray *array = <ArrowArray *>owner
    array.release(array)
    free(array)


cdef bint lendable(Field *f) noexcept nogil:
    return f.array == NULL or (f.kind == BYTES_32 and f.array.buffers[1] != NULL)


cdef int lend_bytes(Bytes *c, Field *f, int64_t start, int64_t rows) noexcept nogil:
    """A column of bytes over the array's own buffers; no column is nulls. BATCH_BAD when its starts contradict the format."""
    cdef int64_t row, at
    cdef const int32_t *starts
    cdef const uint8_t *valid
    cdef int32_t before
    cdef int wrong
    if f.array == NULL:
        c.starts = <int32_t *>mem_take((rows + 1) * 4)
        c.valid = <uint8_t *>mem_take((rows >> 3) + 1)
        if c.starts == NULL or c.valid == NULL:
            return TABLE_MEMORY
        memset(c.starts, 0, (rows + 1) * 4)
        memset(c.valid, 0, (rows >> 3) + 1)
        c.nulls = rows
        return TABLE_OK
    at = start + f.array.offset
    starts = <const int32_t *>f.array.buffers[1] + at
    valid = <const uint8_t *>f.array.buffers[0]
    wrong = starts[0] < 0
    for row in range(rows):
        wrong |= starts[row + 1] < starts[row]
    before = starts[rows]
    if wrong or (before > starts[0] and f.array.buffers[2] == NULL):
        return BATCH_BAD
    c.starts = <int32_t *>starts
    c.data = <uint8_t *>f.array.buffers[2] if f.array.buffers[2] != NULL else EMPTY_BYTES
    c.used = c.room = before
    c.lent = LENT_STARTS | LENT_DATA
    if valid != NULL and f.array.null_count != 0:
        for row in range(rows):
            c.nulls += not valid[(at + row) >> 3] >> ((at + row) & 7) & 1
        if at & 7 == 0:
            c.valid = <uint8_t *>valid + (at >> 3)
            c.lent |= LENT_VALID
            return TABLE_OK
        c.valid = <uint8_t *>mem_take((rows >> 3) + 1)
        if c.valid == NULL:
            return TABLE_MEMORY
        memset(c.valid, 0, (rows >> 3) + 1)
        for row in range(rows):
            c.valid[row >> 3] |= <uint8_t>((valid[(at + row) >> 3] >> ((at + row) & 7) & 1) << (row & 7))
    return TABLE_OK


cdef int lend_rows(Incoming *in_, ArrowArray *rows, Table *t) noexcept nogil:
    """The rows of the only array, over its own buffers; the table is fresh."""
    cdef int64_t row, time, start = rows.offset, count = rows.length
    cdef int code, known
    code = lend_bytes(&t.key, &in_.key, start, count)
    if code == BATCH_BAD:
        return contradiction(in_, "key", "starts or views contradict the format")
    if code == TABLE_OK:
        code = lend_bytes(&t.value, &in_.value, start, count)
    if code == BATCH_BAD:
        return contradiction(in_, "value", "starts or views contradict the format")
    if code != TABLE_OK or grow(<void **>&t.timestamp, count * 8) != TABLE_OK:
        return TABLE_MEMORY
    if in_.partition.array != NULL and grow(<void **>&t.partition, count * 4) != TABLE_OK:
        return TABLE_MEMORY
    t.row_room = count
    if (in_.partition.array == NULL and in_.timestamp.array != NULL and in_.timestamp.array.null_count == 0
            and in_.timestamp.times == 1 and in_.timestamp.over == 1):
        memcpy(t.timestamp, <const int64_t *>in_.timestamp.array.buffers[1] + start + in_.timestamp.array.offset, count * 8)
        t.rows = count
        return TABLE_OK
    if in_.partition.array == NULL and in_.timestamp.array == NULL:
        t.timestamp_valid = <uint8_t *>mem_take((count + 7) >> 3)
        if t.timestamp_valid == NULL:
            return TABLE_MEMORY
        memset(t.timestamp, 0, count * 8)
        memset(t.timestamp_valid, 0, (count + 7) >> 3)
        if count & 7:                                    # bits of rows that are not there: as if nothing were the matter with them
            t.timestamp_valid[count >> 3] = <uint8_t>(0xFF << (count & 7))
        t.rows = t.timestamp_nulls = count
        return TABLE_OK
    for row in range(count):
        known = arrow_time(in_, start + row, &time)
        if known < 0:
            return contradiction(in_, "timestamp", "seconds beyond what milliseconds can hold")
        code = put_timestamp(t, row, time, known)
        if code != TABLE_OK:
            return code
        if in_.partition.array != NULL and not arrow_partition(in_, start + row, t.partition + row):
            return contradiction(in_, "partition", "a null, or a number out of range")
    t.rows = count
    return TABLE_OK


cdef int take_row(Incoming *in_, ArrowArray *rows, Table *t, int64_t row) noexcept nogil:
    """Copy one row; a field's own offset adds to the struct's."""
    cdef int64_t at = row + rows.offset
    cdef int64_t first, last, n, size, name_size, time = 0
    cdef const uint8_t *data
    cdef const uint8_t *name
    cdef int code, known
    if in_.key.array == NULL:
        size = -1
    elif not arrow_bytes(in_.key.array, in_.key.kind, at, &data, &size):
        return contradiction(in_, "key", "starts or views contradict the format")
    code = bytes_reserve(&t.key, size if size > 0 else 0)
    if code == TABLE_OK:
        code = bytes_push(&t.key, t.rows, t.row_room, data, size, 0)
    if code != TABLE_OK:
        return code
    if in_.value.array == NULL:
        size = -1
    elif not arrow_bytes(in_.value.array, in_.value.kind, at, &data, &size):
        return contradiction(in_, "value", "starts or views contradict the format")
    code = bytes_reserve(&t.value, size if size > 0 else 0)
    if code == TABLE_OK:
        code = bytes_push(&t.value, t.rows, t.row_room, data, size, 0)
    if code != TABLE_OK:
        return code
    known = arrow_time(in_, at, &time)
    if known < 0:
        return contradiction(in_, "timestamp", "seconds beyond what milliseconds can hold")
    code = put_timestamp(t, t.rows, time, known)
    if code != TABLE_OK:
        return code
    if in_.partition.array != NULL:
        if not arrow_partition(in_, at, t.partition + t.rows):
            return contradiction(in_, "partition", "a null, or a number out of range")
    if in_.headers != NULL and not arrow_null(in_.headers, at):
        n = at + in_.headers.offset
        if in_.headers_large:
            first, last = (<const int64_t *>in_.headers.buffers[1])[n], (<const int64_t *>in_.headers.buffers[1])[n + 1]
        else:
            first, last = (<const int32_t *>in_.headers.buffers[1])[n], (<const int32_t *>in_.headers.buffers[1])[n + 1]
        if first < 0 or last < first or last > in_.pair.length:
            return contradiction(in_, "headers", "starts contradict the format")
        for n in range(first, last):
            at = n + in_.pair.offset
            if arrow_null(in_.pair, n):
                return contradiction(in_, "headers", "a null header")
            if not arrow_bytes(in_.name.array, in_.name.kind, at, &name, &name_size):
                return contradiction(in_, "headers", "starts or views of a name contradict the format")
            if name_size < 0 or not is_utf8(name, name_size):
                return contradiction(in_, "headers", "a name that is null or no UTF-8")
            if not arrow_bytes(in_.header_value.array, in_.header_value.kind, at, &data, &size):
                return contradiction(in_, "headers", "starts or views of a value contradict the format")
            code = header_push(t, name, name_size, data, size)
            if code != TABLE_OK:
                return code
    end_row(t)
    return TABLE_OK


cdef int reserve_as(Bytes *c, Field *f, ArrowArray *rows) noexcept nogil:
    """Room for a whole column with starts, as far as they say it truly."""
    cdef int64_t at, size = 0
    if f.array == NULL or f.array.buffers[1] == NULL or rows.length == 0:
        return TABLE_OK
    at = rows.offset + f.array.offset
    if f.kind == BYTES_32:
        size = <int64_t>(<const int32_t *>f.array.buffers[1])[at + rows.length] - (<const int32_t *>f.array.buffers[1])[at]
    elif f.kind == BYTES_64:
        size = (<const int64_t *>f.array.buffers[1])[at + rows.length] - (<const int64_t *>f.array.buffers[1])[at]
    return bytes_reserve(c, size) if 0 < size < RESERVE_MOST else TABLE_OK


cdef int take_rows(Incoming *in_, ArrowArray *rows, Table *t) noexcept nogil:
    cdef int64_t row
    cdef int code = table_reserve(t, rows.length)
    if code == TABLE_OK:
        code = reserve_as(&t.key, &in_.key, rows)
    if code == TABLE_OK:
        code = reserve_as(&t.value, &in_.value, rows)
    for row in range(rows.length):
        if code != TABLE_OK:
            return code
        if arrow_null(rows, row):
            return contradiction(in_, "row", "a null row")
        code = take_row(in_, rows, t, row)
    return code


cdef void as_bytes(Field *field, ArrowSchema *schema, ArrowArray *array, str name) except *:
    field.array = array
    field.kind = bytes_kind(schema.format)
    if field.kind == BYTES_NOT or schema.dictionary != NULL:
        raise ValueUnsupported(f"column {name!r} is {(<bytes>schema.format).decode()!r}; binary or string of any width is needed")
    if array.n_buffers < (4 if field.kind == BYTES_VIEW else 3) and not (field.kind == BYTES_VIEW and array.n_buffers == 3):
        raise Malformed(f"column {name!r}: {array.n_buffers} buffers")


cdef void as_timestamp(Field *field, ArrowSchema *schema, ArrowArray *array) except *:
    cdef const char *format = schema.format
    field.array = array
    field.times = field.over = 1
    if strcmp(format, "l") == 0 or strncmp(format, "tsm:", 4) == 0:
        return
    if strncmp(format, "tss:", 4) == 0:
        field.times = 1000
    elif strncmp(format, "tsu:", 4) == 0:
        field.over = 1000
    elif strncmp(format, "tsn:", 4) == 0:
        field.over = 1000000
    else:
        raise ValueUnsupported(f"column 'timestamp' is {(<bytes>format).decode()!r}; a timestamp or int64 milliseconds is needed")


cdef void as_headers(Incoming *in_, ArrowSchema *schema, ArrowArray *array) except *:
    cdef ArrowSchema *pair
    cdef Py_ssize_t name = 0, value = 1
    in_.headers_large = strcmp(schema.format, "+L") == 0
    if not in_.headers_large and strcmp(schema.format, "+l") != 0 and strcmp(schema.format, "+m") != 0:
        raise ValueUnsupported(f"column 'headers' is {(<bytes>schema.format).decode()!r}; a list of struct<name, value> or a map is needed")
    pair = schema.children[0] if schema.n_children == 1 and array.n_children == 1 else NULL
    if pair == NULL or strcmp(pair.format, "+s") != 0 or pair.n_children != 2 or array.children[0].n_children != 2:
        raise ValueUnsupported("column 'headers': its items are not struct<name, value>")
    if strcmp(schema.format, "+m") != 0:                 # a map's are in their order, whatever they are called
        name = field_named(pair, b"name", b"key")
        value = field_named(pair, b"value", b"value")
        if name < 0 or value < 0 or name == value:
            raise ValueUnsupported(f"column 'headers': its items are struct<{', '.join(field_names(pair))}>, not struct<name, value>")
    in_.headers = array
    in_.pair = array.children[0]
    as_bytes(&in_.name, pair.children[name], in_.pair.children[name], "headers.name")
    as_bytes(&in_.header_value, pair.children[value], in_.pair.children[value], "headers.value")


cdef Py_ssize_t field_named(ArrowSchema *schema, const char *wanted, const char *other) noexcept:
    """The first field of one of these names; -1: there is none."""
    cdef Py_ssize_t n
    cdef const char *name
    for n in range(schema.n_children):
        name = schema.children[n].name
        if name != NULL and (strcmp(name, wanted) == 0 or strcmp(name, other) == 0):
            return n
    return -1


cdef list field_names(ArrowSchema *schema):
    """For an error."""
    cdef Py_ssize_t n
    return [(<bytes>schema.children[n].name).decode("utf-8", "replace") if schema.children[n].name != NULL else "" for n in range(schema.n_children)]


cdef void take_topics(ArrowSchema *schema, ArrowArray *array, int64_t start, int64_t count, list topics) except *:
    """Append what a column names."""
    cdef Field field
    cdef const uint8_t *data
    cdef const uint8_t *before = NULL
    cdef int64_t row, size, size_before = -1
    cdef str name = ""
    if count == 0:
        return                                           # whatever the type: Arrow's null, where there was nothing to tell it by
    as_bytes(&field, schema, array, "topic")
    for row in range(start, start + count):
        if not arrow_bytes(array, field.kind, row, &data, &size):
            raise Malformed("column 'topic': starts or views contradict the format", offset=len(topics))
        if size < 0 or not is_utf8(data, size):
            raise ValueUnsupported("column 'topic': a null, or no UTF-8")
        if size != size_before or memcmp(data, before, size) != 0:
            name = (<const char *>data)[:size].decode()
            before, size_before = data, size
        topics.append(name)


cdef void take_batch(ArrowSchema *schema, ArrowArray *array, Table *t, bint only=False, list topics=None) except *:
    """Append one array's rows, and their topics, where they are asked for. The `only` one is kept instead of copied where that can be; then it is taken over (release is NULL)."""
    cdef Incoming in_
    cdef ArrowArray *whole = array
    cdef ArrowArray *kept
    cdef bint whole_rows
    cdef int64_t n
    cdef int code
    cdef ArrowArray values
    memset(&in_, 0, sizeof(in_))
    if array.length < 0 or array.offset < 0 or array.length > INT32_MAX:
        raise Malformed(f"an array of {array.length} rows at {array.offset}")
    if bytes_kind(schema.format) != BYTES_NOT:           # bare values: as if they were the only field of a struct
        as_bytes(&in_.value, schema, array, "value")
        memset(&values, 0, sizeof(values))
        values.length = array.length
        array = &values
    else:
        if strcmp(schema.format, "+s") != 0 or schema.n_children != array.n_children:
            raise ValueUnsupported(f"rows to be sent are a struct array or an array of bytes, not {(<bytes>schema.format).decode()!r}")
        for n in range(schema.n_children):
            if array.children[n].length < array.offset + array.length:
                raise Malformed("a column is shorter than its batch")
            take_field(&in_, schema.children[n], array.children[n])
            if schema.children[n].name != NULL and field_named(schema, schema.children[n].name, schema.children[n].name) != n:
                raise ValueUnsupported(f"there are two columns {(<bytes>schema.children[n].name).decode()!r}")
            if topics is not None and schema.children[n].name != NULL and strcmp(schema.children[n].name, "topic") == 0:
                take_topics(schema.children[n], array.children[n], array.offset, array.length, topics)
        if not in_.valued:
            raise ValueUnsupported("there is no column 'value'")
    whole_rows = array.null_count == 0 or array.n_buffers < 1 or array.buffers[0] == NULL
    if only and t.rows == 0 and in_.headers == NULL and array.length > 0 and whole_rows and lendable(&in_.key) and lendable(&in_.value):
        table_empty(t)
        with nogil:
            code = lend_rows(&in_, array, t)
        if code != TABLE_OK:
            t.rows = 0
        if code == BATCH_BAD:
            raise Malformed(f"column {in_.column.decode()!r}: {in_.why.decode()}", offset=0)
        check(code)
        kept = <ArrowArray *>malloc(sizeof(ArrowArray))
        if kept == NULL:
            t.rows = 0
            raise MemoryError
        kept[0] = whole[0]
        if table_keep(t, NULL, 0, kept, arrow_done) < 0:
            free(kept)
            t.rows = 0
            raise MemoryError
        whole.release = NULL
        return
    if in_.partition.array != NULL and t.partition == NULL:
        if t.rows:
            raise ValueUnsupported("partition is given for some rows and not for others")
        check(table_reserve(t, array.length))
        check(grow(<void **>&t.partition, t.row_room * 4))
    with nogil:
        code = take_rows(&in_, array, t)
    if code == BATCH_BAD:
        raise Malformed(f"column {in_.column.decode()!r}: {in_.why.decode()}", offset=t.rows)
    check(code)


cdef void take_field(Incoming *in_, ArrowSchema *schema, ArrowArray *array) except *:
    name = (<bytes>schema.name).decode("utf-8", "replace") if schema.name != NULL else ""
    if name == "value":
        in_.valued = True
        if strcmp(schema.format, "n") != 0:              # Arrow's null type: what a list of nulls, or an empty one, becomes
            as_bytes(&in_.value, schema, array, name)
    elif name == "key":
        if strcmp(schema.format, "n") != 0:
            as_bytes(&in_.key, schema, array, name)
    elif name == "timestamp":
        if strcmp(schema.format, "n") != 0:
            as_timestamp(&in_.timestamp, schema, array)
    elif name == "headers":
        if strcmp(schema.format, "n") != 0:
            as_headers(in_, schema, array)
    elif name == "partition":
        in_.partition.array = array
        in_.partition.kind = 4 if strcmp(schema.format, "i") == 0 else 8
        if in_.partition.kind == 8 and strcmp(schema.format, "l") != 0:
            raise ValueUnsupported("column 'partition' is not int32 or int64")
    elif name not in ("offset", "ledger", "entry", "index", "sequence", "topic"):
        raise ValueUnsupported(f"column {name!r} cannot be sent: value, key, headers, timestamp, partition can")


cdef object import_arrow(source, list topics=None):
    """See `Columns.from_arrow`, and `topic_shares`."""
    cdef ArrowSchema *schema
    cdef ArrowArray *array
    cdef ArrowArrayStream *stream
    cdef Table *t
    cdef Columns columns
    if isinstance(source, Columns):
        return source
    t = table_new(POSITION_NONE)
    if t == NULL:
        raise MemoryError
    columns = columns_take(t)
    if hasattr(source, "__arrow_c_array__"):             # first: one array is cheaper to ask for than a stream of one
        schema_capsule_, array_capsule_ = source.__arrow_c_array__()
        schema = <ArrowSchema *>PyCapsule_GetPointer(schema_capsule_, "arrow_schema")
        array = <ArrowArray *>PyCapsule_GetPointer(array_capsule_, "arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise Malformed("the array was released already")
        take_batch(schema, array, t, True, topics)
    elif hasattr(source, "__arrow_c_stream__"):
        capsule = source.__arrow_c_stream__()
        stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
        if stream.release == NULL:
            raise Malformed("the stream was released already")
        import_stream(stream, t, topics)
    else:
        raise TypeError(f"{type(source).__name__} has neither __arrow_c_stream__ nor __arrow_c_array__")
    table_trim(t)
    columns.stop = t.rows
    return columns


cdef void import_stream(ArrowArrayStream *stream, Table *t, list topics) except *:
    cdef ArrowSchema schema
    cdef ArrowArray array
    schema.release = NULL
    cdef ArrowArray following
    cdef bint first = True, more
    array.release = NULL
    following.release = NULL
    try:
        if stream.get_schema(stream, &schema) != 0:
            raise Malformed(f"the Arrow stream failed: {stream_reason(stream)}")
        if not stream_next_array(stream, &array):
            return
        while True:                                      # one ahead, to know whether there is but one
            more = stream_next_array(stream, &following)
            take_batch(&schema, &array, t, first and not more, topics)
            first = False
            if array.release != NULL:
                array.release(&array)
            array.release = NULL
            if not more:
                return
            array = following
            following.release = NULL
    finally:
        if array.release != NULL:
            array.release(&array)
        if following.release != NULL:
            following.release(&following)
        if schema.release != NULL:
            schema.release(&schema)


cdef bint stream_next_array(ArrowArrayStream *stream, ArrowArray *array) except -1:
    """The stream's next array; False at its end."""
    array.release = NULL
    if stream.get_next(stream, array) != 0:
        array.release = NULL
        raise Malformed(f"the Arrow stream failed: {stream_reason(stream)}")
    return array.release != NULL


cdef str stream_reason(ArrowArrayStream *stream):
    cdef const char *text = stream.get_last_error(stream)
    return (<bytes>text).decode("utf-8", "replace") if text != NULL else "no reason given"
