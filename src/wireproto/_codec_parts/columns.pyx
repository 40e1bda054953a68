# Columns: a run of records of one partition (or to be sent to one topic), the one type for all protocols.
#
# May assume: its table never changes. Must not: know a protocol. A slice shares the table; Arrow consumers share it too, so that a
# Columns may go before them. Threads may share a Columns freely: nothing in it is written after it was made.

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.string cimport memcmp

from wireproto.errors import OptionError, ValueUnsupported

cdef dict POSITION_KINDS = {
    "none": POSITION_NONE, "offset": POSITION_OFFSET, "message_id": POSITION_MESSAGE, "sequence": POSITION_SEQUENCE,
}

cdef tuple POSITION_NAMES = ((), ("offset",), ("ledger", "entry", "index"), ("sequence",))
cdef tuple USUAL_NAMES = ("timestamp", "key", "value", "headers")
cdef tuple EXTRA_NAMES = ("leader_epoch", "producer_id", "producer_epoch", "sequence", "transactional", "timestamp_type")


cdef int wanted_of(columns, int kind, bint extras) except -1:
    """The columns asked for, as WANT_* bits; None is the usual ones.

    Raises:
        OptionError: there is no such column.
    """
    cdef int mask = 0
    if columns is None:
        return WANT_USUAL
    for name in (columns,) if isinstance(columns, str) else columns:
        if name in POSITION_NAMES[kind]:
            mask |= WANT_POSITION
        elif name in USUAL_NAMES:
            mask |= WANT_TIMESTAMP << USUAL_NAMES.index(name)
        elif extras and name in EXTRA_NAMES:
            mask |= WANT_EXTRA << EXTRA_NAMES.index(name)
        else:
            raise OptionError(f"there is no column {name!r}; there are "
                              f"{', '.join(POSITION_NAMES[kind] + USUAL_NAMES + (EXTRA_NAMES if extras else ()))}")
    return mask


cdef void missing(Table *t, int bit, str name) except *:
    """Raise when a column is not among those that were decoded."""
    if not t.wanted & bit:
        raise ValueUnsupported(f"the column {name!r} was not decoded (columns=…)")


cdef void check(int code) except *:
    """Raise what a table's code says."""
    if code == TABLE_MEMORY:
        raise MemoryError("no memory for the columns")
    if code == TABLE_FULL:
        raise ValueUnsupported("one Columns holds less than 2 GiB per column and less than 2^31 rows")


@cython.final
@cython.no_gc
cdef class Columns:
    """Records as columns: position parts, timestamp, key, value, headers. Immutable; made by a decoder, a builder, or `from_arrow`.

    ``len(c)``, ``c[i:j]`` (shares memory), ``c.records(topic, partition)``, ``c.values()``, ``c.keys()``, ``c.timestamps()``,
    ``c.positions()``, and the Arrow C data interface, which may be asked any number of times.
    """

    cdef Table *table
    cdef Py_ssize_t start, stop
    cdef readonly object facts      # per-batch facts, when the decoder was asked for them
    cdef readonly tuple skipped     # errors of the batches that were passed over (on_corrupt="skip")
    cdef readonly tuple home        # RocketMQ: name of the broker and id of the queue, which positions carry; else None

    def __cinit__(self):
        self.facts = ()
        self.skipped = ()

    def __init__(self):
        raise TypeError("columns come from a decoder, a ColumnsBuilder, Columns.from_rows or Columns.from_arrow")

    def __dealloc__(self):
        table_release(self.table)

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, index):
        if not isinstance(index, slice):
            raise TypeError("take a slice of columns; single records come from records(topic, partition)")
        start, stop, step = index.indices(self.stop - self.start)
        if step != 1:
            raise ValueError("a slice of columns has step 1")
        return columns_over(self, self.start + start, self.start + (stop if stop > start else start))

    def __repr__(self):
        return f"<Columns {self.stop - self.start} records, {self.nbytes} bytes>"

    @property
    def nbytes(self):
        """Bytes of keys, values and headers in these rows (not counting 30 to 50 bytes a row of fixed columns)."""
        cdef Table *t = self.table
        cdef Py_ssize_t a = self.start, b = self.stop
        cdef int64_t total = bytes_total(&t.key, a, b) + bytes_total(&t.value, a, b)
        if a < b and t.header_at != NULL:
            a, b = t.header_at[a], t.header_at[b]
            total += bytes_total(&t.name, a, b) + bytes_total(&t.header_value, a, b)
        return total

    @property
    def kind(self):
        """What a position is here: "offset", "message_id", "sequence", or "none" for rows to be sent."""
        for name, kind in POSITION_KINDS.items():
            if kind == self.table.kind:
                return name

    @property
    def columns(self):
        """Names of the columns that are there, in the order of Arrow's fields."""
        cdef Table *t = self.table
        cdef int n
        names = list(POSITION_NAMES[t.kind]) if t.wanted & WANT_POSITION else []
        if t.partition != NULL:
            names.append("partition")
        names += [USUAL_NAMES[n] for n in range(4) if t.wanted & (WANT_TIMESTAMP << n)]
        return tuple(names + [EXTRA_NAMES[n] for n in range(EXTRAS) if t.wanted & (WANT_EXTRA << n)])

    def column(self, str name not None):
        """Any one column by its name, as a list."""
        cdef Table *t = self.table
        if name in ("value", "key", "timestamp") or name == "headers":
            return self.headers() if name == "headers" else getattr(self, name + "s")()
        if name in POSITION_NAMES[t.kind]:
            n = POSITION_NAMES[t.kind].index(name)
            return [place[n] for place in self.positions()] if t.kind == POSITION_MESSAGE else self.positions()
        if name == "partition" and t.partition != NULL:
            return self.partitions()
        if name in EXTRA_NAMES:
            return self.extra(EXTRA_NAMES.index(name))
        raise OptionError(f"there is no column {name!r}; there are {', '.join(self.columns)}")

    cdef list extra(self, int n):
        cdef Py_ssize_t row
        cdef Table *t = self.table
        missing(t, WANT_EXTRA << n, EXTRA_NAMES[n])
        if n == EXTRA_TRANSACTIONAL:
            return [(<uint8_t *>t.extra[n])[row] != 0 for row in range(self.start, self.stop)]
        if EXTRA_WIDTHS[n] == 8:
            return [(<int64_t *>t.extra[n])[row] for row in range(self.start, self.stop)]
        return [(<int32_t *>t.extra[n])[row] for row in range(self.start, self.stop)]

    def values(self):
        """All values, as a list of bytes or None."""
        missing(self.table, WANT_VALUE, "value")
        return bytes_list(self.table, &self.table.value, self.start, self.stop)

    def keys(self):
        """All keys, as a list of bytes or None."""
        missing(self.table, WANT_KEY, "key")
        return bytes_list(self.table, &self.table.key, self.start, self.stop)

    def timestamps(self):
        """All timestamps, as a list of milliseconds since 1970 UTC or None."""
        cdef Table *t = self.table
        cdef Py_ssize_t row
        missing(t, WANT_TIMESTAMP, "timestamp")
        return [None if is_null(t.timestamp_valid, row) else t.timestamp[row] for row in range(self.start, self.stop)]

    def headers(self):
        """All headers, as a list of tuples of (name, value or None)."""
        missing(self.table, WANT_HEADERS, "headers")
        return headers_list(self.table, self.start, self.stop)

    def positions(self):
        """All positions in parts: offsets or sequences as int, message ids as (ledger, entry, index); None for rows to be sent."""
        cdef Table *t = self.table
        cdef Py_ssize_t row
        if t.kind == POSITION_NONE:
            return [None] * (self.stop - self.start)
        missing(t, WANT_POSITION, POSITION_NAMES[t.kind][0])
        if t.kind == POSITION_MESSAGE:
            return message_ids(t, self.start, self.stop)
        return [t.p0[row] for row in range(self.start, self.stop)]

    def partitions(self):
        """The partition column of rows to be sent, as a list of int, or None when the source named none."""
        cdef Py_ssize_t row
        if self.table.partition == NULL:
            return None
        return [self.table.partition[row] for row in range(self.start, self.stop)]

    def records(self, str topic not None, int partition):
        """Iterate the rows as `Record` objects."""
        cdef RecordIterator found = RecordIterator.__new__(RecordIterator)
        found.columns = self
        found.topic = topic
        found.partition = partition
        found.row = self.start
        return found

    def record(self, Py_ssize_t index, str topic not None, int partition):
        """The row at `index` (from 0) as a Record."""
        if not 0 <= index < self.stop - self.start:
            raise IndexError(f"row {index} of {self.stop - self.start}")
        return new_record(self, topic, partition, self.start + index)

    def __eq__(self, other):
        if not isinstance(other, Columns):
            return NotImplemented
        theirs = <Columns>other
        return self.kind == theirs.kind and self.lists() == theirs.lists()

    __hash__ = None

    cdef dict lists(self):
        """Every column by name, as a list."""
        cdef tuple positions = POSITION_NAMES[self.table.kind]
        found = {name: self.column(name) for name in self.columns if name not in positions}
        if self.table.wanted & WANT_POSITION and positions:
            found["position"] = self.positions()
        return found

    def __reduce__(self):
        return _unpickled, (self.kind, self.columns, len(self), self.lists())

    @staticmethod
    def from_rows(values, keys=None, headers=None, timestamps=None, partitions=None):
        """Rows to be sent, from lists of equal length.

        Args:
            values, keys: bytes (any buffer) or None each.
            headers: a mapping or pairs of (name, value or None) each, or None.
            timestamps: milliseconds since 1970 UTC or None each.
            partitions: int each.
        """
        return _columns("none", None, timestamps, keys, values, headers, partitions)

    @staticmethod
    def concat(parts):
        """One Columns out of several of the same kind, in order; copies."""
        return concat_columns(list(parts))

    @staticmethod
    def from_arrow(source):
        """Rows to be sent, from anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (see arrow_import)."""
        return import_arrow(source)

    def __arrow_c_schema__(self):
        """Arrow schema capsule of these columns."""
        return export_schema(self.table, None)

    def __arrow_c_array__(self, requested_schema=None):
        """Arrow (schema, array) capsules: a struct array of these columns. May be asked any number of times.

        Args:
            requested_schema: a schema capsule; for key and value its binary, large_binary, binary_view, string or large_string is
                honoured (string only where all the bytes are UTF-8). What cannot be honoured is given as it is.
        """
        return export_array(self, requested_schema)

    def __arrow_c_stream__(self, requested_schema=None):
        """Arrow stream capsule: one batch of these columns. May be asked any number of times."""
        return export_stream(self, requested_schema)


cdef Columns columns_over(Columns whole, Py_ssize_t start, Py_ssize_t stop):
    """Another view of its table, which stays shared."""
    cdef Columns columns = Columns.__new__(Columns)
    columns.table = table_share(whole.table)
    columns.start = start
    columns.stop = stop
    columns.facts = whole.facts
    columns.skipped = whole.skipped
    columns.home = whole.home
    return columns


cdef Columns columns_take(Table *table):
    """All rows of a table; takes over the caller's reference."""
    cdef Columns columns = Columns.__new__(Columns)
    columns.table = table
    if table.row_room == 0 and table.kept_count == 0:
        check(table_reserve(table, 0))
    columns.start = 0
    columns.stop = table.rows
    return columns


@cython.final
cdef class ColumnsBuilder:
    """Puts columns together record by record.

    Args:
        kind: what `position` is: "offset", "sequence" (an int), "message_id" (ledger, entry, index), or "none" for rows to be sent.
    """

    cdef Table *table

    def __cinit__(self, str kind="none"):
        if kind not in POSITION_KINDS:
            raise ValueError(f"kind {kind!r} is not one of {', '.join(POSITION_KINDS)}")
        self.table = table_new(POSITION_KINDS[kind])
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        table_release(self.table)

    def __len__(self):
        return self.table.rows

    def append(self, value, *, key=None, headers=None, timestamp=None, position=None, partition=None):
        """Add a record.

        Args:
            value, key: bytes (any buffer) or None.
            headers: a mapping or pairs of (name, value or None).
            timestamp: milliseconds since 1970 UTC or None.
            position: as the builder's kind says.
            partition: int; given for all rows or for none.
        """
        cdef Table *t = self.table
        cdef Py_ssize_t row = t.rows, headers_before = t.headers
        check(table_reserve(t, 1 if t.row_room else 16))
        try:
            if t.p1 != NULL:
                t.p0[row], t.p1[row], t.p2[row] = position
            elif t.p0 != NULL:
                t.p0[row] = position
            self.put_partition(row, partition)
            check(put_timestamp(t, row, 0 if timestamp is None else given_time(timestamp), timestamp is not None))
            push_object(&t.key, row, t.row_room, key)
            push_object(&t.value, row, t.row_room, value)
            push_headers(t, headers)
        except BaseException:
            table_cut(t, row, headers_before)
            raise
        end_row(t)

    cdef void put_partition(self, Py_ssize_t row, partition) except *:
        cdef Table *t = self.table
        if partition is None:
            if t.partition != NULL:
                raise ValueUnsupported("partition is given for some rows and not for others")
            return
        if t.partition == NULL:
            if row:
                raise ValueUnsupported("partition is given for some rows and not for others")
            check(grow(<void **>&t.partition, t.row_room * 4))
        t.partition[row] = partition

    def finish(self):
        """The columns; the builder is empty afterwards and may be used again."""
        cdef Table *t = self.table
        cdef Table *fresh = table_new(t.kind)
        if fresh == NULL:
            raise MemoryError
        self.table = fresh
        table_trim(t)
        return columns_take(t)


cdef void table_want(Table *t, int wanted) noexcept:
    """Choose the columns of a table that has no room yet."""
    t.wanted = wanted
    t.key.off = not wanted & WANT_KEY
    t.value.off = not wanted & WANT_VALUE


cdef list bytes_list(Table *t, Bytes *c, Py_ssize_t start, Py_ssize_t stop):
    """Values as bytes or None each."""
    cdef Py_ssize_t row
    cdef list found = PyList_New(stop - start)
    cdef object item
    cdef const uint8_t *data
    cdef int64_t size
    cdef const int32_t *starts = c.starts
    if c.viewed or c.valid != NULL:
        for row in range(start, stop):
            size = bytes_get(t, c, row, &data)
            item = None if size < 0 else PyBytes_FromStringAndSize(<char *>data, size)
            Py_INCREF(item)
            PyList_SET_ITEM(found, row - start, item)
        return found
    for row in range(start, stop):
        item = PyBytes_FromStringAndSize(<char *>c.data + starts[row], starts[row + 1] - starts[row])
        Py_INCREF(item)
        PyList_SET_ITEM(found, row - start, item)
    return found


cdef list message_ids(Table *t, Py_ssize_t start, Py_ssize_t stop):
    """(ledger, entry, index) each; neighbours share the first two."""
    cdef Py_ssize_t row
    cdef int64_t ledger_now = 0, entry_now = 0
    cdef object ledger = 0, entry = 0
    cdef list found = []
    for row in range(start, stop):
        if t.p1[row] != entry_now or t.p0[row] != ledger_now:
            ledger_now, entry_now = t.p0[row], t.p1[row]
            ledger, entry = ledger_now, entry_now
        found.append((ledger, entry, t.p2[row]))
    return found


cdef list headers_list(Table *t, Py_ssize_t start, Py_ssize_t stop):
    """Headers of these rows; a name that the row before has at the same index is reused."""
    cdef Py_ssize_t row, n, place, count
    cdef int32_t size
    cdef const uint8_t *data
    cdef const uint8_t *seen[8]
    cdef int32_t seen_size[8]
    cdef list seen_name = [None] * 8
    cdef list found = PyList_New(stop - start)
    cdef tuple headers
    cdef object name
    for n in range(8):
        seen[n], seen_size[n] = EMPTY_BYTES, -1
    for row in range(start, stop):
        count = t.header_at[row + 1] - t.header_at[row] if t.header_at != NULL else 0
        headers = PyTuple_New(count) if count else ()
        for place in range(count):
            n = t.header_at[row] + place
            data = t.name.data + t.name.starts[n]
            size = t.name.starts[n + 1] - t.name.starts[n]
            if size == seen_size[place & 7] and memcmp(data, seen[place & 7], size) == 0:
                name = <object>PyList_GET_ITEM(seen_name, place & 7)
            else:
                name = PyUnicode_DecodeUTF8(<char *>data, size, "strict")
                seen[place & 7], seen_size[place & 7] = data, size
                seen_name[place & 7] = name
            header = (name, bytes_at(t, &t.header_value, n))
            Py_INCREF(header)
            PyTuple_SET_ITEM(headers, place, header)
        Py_INCREF(headers)
        PyList_SET_ITEM(found, row - start, headers)
    return found


cdef void push_object(Bytes *c, Py_ssize_t row, Py_ssize_t row_room, value) except *:
    """Put a bytes-like object or None."""
    cdef Py_buffer view
    if value is None:
        check(bytes_push(c, row, row_room, NULL, -1, 0))
    elif isinstance(value, bytes):
        check(bytes_reserve(c, PyBytes_GET_SIZE(value)))
        bytes_push(c, row, row_room, <uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), 0)
    elif isinstance(value, str):
        raise TypeError("keys, values and header values are bytes, not str: encode it")
    else:
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            check(bytes_reserve(c, view.len))
            bytes_push(c, row, row_room, <uint8_t *>view.buf, view.len, 0)
        finally:
            PyBuffer_Release(&view)


cdef const char *header_name(object name, Py_ssize_t *size) except NULL:
    """The name of a header, as UTF-8."""
    try:
        return PyUnicode_AsUTF8AndSize(name, size)
    except UnicodeEncodeError:
        raise ValueUnsupported(f"the header name {name!r} holds a lone surrogate, which has no UTF-8") from None


cdef void push_headers(Table *t, headers) except *:
    """Put a mapping or pairs of (str, bytes-like or None) as the headers of the row being filled."""
    cdef const char *name_at
    cdef Py_ssize_t name_size
    cdef Py_buffer view
    if headers is None:
        return
    for name, value in headers.items() if hasattr(headers, "items") else headers:
        name_at = header_name(name, &name_size)
        if value is None:
            check(header_push(t, <uint8_t *>name_at, name_size, NULL, -1))
            continue
        if isinstance(value, str):
            raise TypeError(f"header {name!r}: values are bytes, not str: encode it")
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            check(header_push(t, <uint8_t *>name_at, name_size, <uint8_t *>view.buf, view.len))
        finally:
            PyBuffer_Release(&view)


def _unpickled(kind, columns, Py_ssize_t rows, dict lists):
    """Columns out of what `Columns.__reduce__` gave."""
    cdef Py_ssize_t row
    cdef int n
    cdef ColumnsBuilder builder = ColumnsBuilder(kind)
    cdef Table *t = builder.table
    table_want(t, wanted_of([name for name in columns if name != "partition"], t.kind, True))
    check(table_reserve(t, rows))
    for row in range(rows):
        builder.append(
            lists["value"][row] if "value" in lists else None,
            **{to: lists[name][row] for to, name in (("key", "key"), ("headers", "headers"), ("timestamp", "timestamp"),
                                                     ("position", "position"), ("partition", "partition")) if name in lists})
        for n in range(EXTRAS):
            if not t.wanted & (WANT_EXTRA << n):
                continue
            if n == EXTRA_TRANSACTIONAL:
                (<uint8_t *>t.extra[n])[row] = lists[EXTRA_NAMES[n]][row]
            elif EXTRA_WIDTHS[n] == 8:
                (<int64_t *>t.extra[n])[row] = lists[EXTRA_NAMES[n]][row]
            else:
                (<int32_t *>t.extra[n])[row] = lists[EXTRA_NAMES[n]][row]
    return builder.finish()


def _columns(kind, positions, timestamps, keys, values, headers, partitions):
    """Columns out of lists (pickle, from_rows)."""
    cdef Py_ssize_t row, rows = len(values)
    for name, other in (("keys", keys), ("headers", headers), ("timestamps", timestamps), ("partitions", partitions)):
        if other is not None and len(other) != rows:
            raise ValueError(f"{len(other)} {name} for {rows} values")
    builder = ColumnsBuilder(kind)
    for row in range(rows):
        builder.append(
            values[row],
            key=None if keys is None else keys[row],
            headers=None if headers is None else headers[row],
            timestamp=None if timestamps is None else timestamps[row],
            position=None if positions is None else positions[row],
            partition=None if partitions is None else partitions[row],
        )
    return builder.finish()


cdef int copy_rows(Table *to, Table *t, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Append rows of one table to another of the same kind and columns."""
    cdef Py_ssize_t row, n, at
    cdef const uint8_t *name
    cdef const uint8_t *data
    cdef int64_t size, name_size
    cdef int code = table_reserve(to, stop - start)
    if code == TABLE_OK and stop > start:
        code = bytes_reserve(&to.key, bytes_total(&t.key, start, stop))
        if code == TABLE_OK:
            code = bytes_reserve(&to.value, bytes_total(&t.value, start, stop))
    for n in range(EXTRAS):
        if code == TABLE_OK and t.wanted & (WANT_EXTRA << n):
            memcpy(<uint8_t *>to.extra[n] + to.rows * EXTRA_WIDTHS[n], <uint8_t *>t.extra[n] + start * EXTRA_WIDTHS[n],
                   (stop - start) * EXTRA_WIDTHS[n])
    for row in range(start, stop):
        if code != TABLE_OK:
            return code
        at = to.rows
        if t.p0 != NULL:
            put_position(to, at, t.p0[row], t.p1[row] if t.p1 != NULL else 0, t.p2[row] if t.p2 != NULL else 0)
        if to.partition != NULL:
            to.partition[at] = t.partition[row]
        if t.timestamp != NULL:
            code = put_timestamp(to, at, t.timestamp[row], not is_null(t.timestamp_valid, row))
        if code == TABLE_OK and not t.key.off:
            size = bytes_get(t, &t.key, row, &data)
            code = bytes_push(&to.key, at, to.row_room, data, size, 0)
        if code == TABLE_OK and not t.value.off:
            size = bytes_get(t, &t.value, row, &data)
            code = bytes_push(&to.value, at, to.row_room, data, size, 0)
        if code == TABLE_OK and t.header_at != NULL:
            for n in range(t.header_at[row], t.header_at[row + 1]):
                name_size = bytes_get(t, &t.name, n, &name)
                size = bytes_get(t, &t.header_value, n, &data)
                code = header_push(to, name, name_size, data, size)
                if code != TABLE_OK:
                    return code
        end_row(to)
    return code


cdef Columns concat_columns(list parts):
    cdef Columns part
    cdef Table *to
    if not parts:
        raise ValueError("nothing to concatenate")
    if len(parts) == 1:
        return parts[0]
    to = table_new((<Columns?>parts[0]).table.kind, (<Columns>parts[0]).table.wanted)
    if to == NULL:
        raise MemoryError
    try:
        for part in parts:
            if part.table.kind != to.kind or part.table.wanted != to.wanted or (
                    part.table.partition == NULL) != ((<Columns>parts[0]).table.partition == NULL):
                raise ValueError("columns of different kinds")
        check(table_reserve(to, sum([len(part) for part in parts])))
        if (<Columns>parts[0]).table.partition != NULL:
            check(grow(<void **>&to.partition, to.row_room * 4))
        for part in parts:
            check(copy_rows(to, part.table, part.start, part.stop))
        to.references += 1
        return columns_take(to)
    finally:
        table_release(to)
