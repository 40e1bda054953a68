# Record: one row of a Columns, as an object that reads its fields only when asked.
#
# May assume: the columns never change. Must not: copy anything at creation, or be tracked by the collector (it refers to columns and a
# str only, so no cycle can go through it).

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyObject_GenericGetAttr
from cpython.ref cimport Py_INCREF, Py_REFCNT, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8

from wireproto.position import LogOffset, MessageId, QueueOffset

cdef extern from * nogil:
    """
    #ifdef Py_GIL_DISABLED
    #define WP_ONE_THREAD 0
    #else
    #define WP_ONE_THREAD 1
    #endif
    """
    const bint ONE_THREAD "WP_ONE_THREAD"      # the interpreter runs one thread at a time: what follows relies on that

# Names as the compiler interns them: one comparison of pointers finds the usual fields, which the way over the type's table of names,
# its descriptor and its getter does for four times as much.
cdef str NAME_VALUE = "value", NAME_KEY = "key", NAME_OFFSET = "offset", NAME_TIMESTAMP = "timestamp"

cdef int64_t last_ms = 0                 # records that come together often have one timestamp; the int made last is kept
cdef object last_timestamp = 0


cdef inline object bytes_at(Table *t, Bytes *c, Py_ssize_t row):
    cdef const uint8_t *data
    cdef int64_t size = bytes_get(t, c, row, &data)
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<char *>data, size)


cdef object headers_at(Table *t, Py_ssize_t row):
    cdef Py_ssize_t n, start, stop
    if t.header_at == NULL:
        missing(t, WANT_HEADERS, "headers")
        return ()
    start, stop = t.header_at[row], t.header_at[row + 1]
    if start == stop:
        return ()
    found = []
    for n in range(start, stop):
        name = PyUnicode_DecodeUTF8(
            <char *>t.name.data + t.name.starts[n], t.name.starts[n + 1] - t.name.starts[n], "strict")
        found.append((name, bytes_at(t, &t.header_value, n)))
    return tuple(found)


cdef object position_at(Columns columns, Py_ssize_t row, topic, int partition):
    cdef Table *t = columns.table
    if t.p0 == NULL and t.kind != POSITION_NONE:
        missing(t, WANT_POSITION, POSITION_NAMES[t.kind][0])
    if t.kind == POSITION_MESSAGE:
        return MessageId(topic, partition, t.p0[row], t.p1[row], t.p2[row])
    if t.kind == POSITION_NONE:
        return None
    if columns.home is not None:
        return QueueOffset(topic, partition, t.p0[row], *columns.home)
    return LogOffset(topic, partition, t.p0[row])


cdef inline object offset_at(Table *t, Py_ssize_t row):
    if unlikely(t.p0 == NULL or t.kind == POSITION_MESSAGE):
        return no_offset(t)
    return t.p0[row]


cdef object no_offset(Table *t):
    if t.kind != POSITION_MESSAGE and t.kind != POSITION_NONE:
        missing(t, WANT_POSITION, POSITION_NAMES[t.kind][0])
    raise AttributeError("this record's position is not an offset")


cdef inline object timestamp_at(Table *t, Py_ssize_t row):
    global last_ms, last_timestamp
    if unlikely(t.timestamp == NULL):
        missing(t, WANT_TIMESTAMP, "timestamp")
    if unlikely(is_null(t.timestamp_valid, row)):
        return None
    if not ONE_THREAD:
        return t.timestamp[row]
    if t.timestamp[row] != last_ms:
        last_timestamp = t.timestamp[row]
        last_ms = t.timestamp[row]
    return last_timestamp


cdef inline object key_at(Table *t, Py_ssize_t row):
    if unlikely(t.key.off):
        missing(t, WANT_KEY, "key")
    return bytes_at(t, &t.key, row)


cdef inline object value_at(Table *t, Py_ssize_t row):
    if unlikely(t.value.off):
        missing(t, WANT_VALUE, "value")
    return bytes_at(t, &t.value, row)


@cython.final
@cython.freelist(512)
@cython.no_gc
cdef class Record:
    """One record: topic, partition, position, timestamp (ms or None), key, value, headers. Frozen; made by `Columns.records`.

    `offset` is the number in a Kafka or RocketMQ position (ZooKeeper: the sequence), without making a position object.
    """

    cdef Columns columns
    cdef readonly str topic
    cdef Py_ssize_t row
    cdef readonly int partition

    def __init__(self):
        raise TypeError("records are made by Columns.records()")

    @property
    def position(self):
        return position_at(self.columns, self.row, self.topic, self.partition)

    @property
    def offset(self):
        return offset_at(self.columns.table, self.row)

    @property
    def timestamp(self):
        return timestamp_at(self.columns.table, self.row)

    @property
    def key(self):
        return key_at(self.columns.table, self.row)

    @property
    def value(self):
        return value_at(self.columns.table, self.row)

    def __getattribute__(self, name):
        if name is NAME_VALUE:
            return value_at(self.columns.table, self.row)
        if name is NAME_KEY:
            return key_at(self.columns.table, self.row)
        if name is NAME_OFFSET:
            return offset_at(self.columns.table, self.row)
        if name is NAME_TIMESTAMP:
            return timestamp_at(self.columns.table, self.row)
        return PyObject_GenericGetAttr(self, name)

    @property
    def headers(self):
        return headers_at(self.columns.table, self.row)

    cdef tuple fields(self):
        """All of it; None for what was not decoded."""
        cdef int wanted = self.columns.table.wanted
        return (
            self.topic, self.partition,
            self.position if wanted & WANT_POSITION else None,
            self.timestamp if wanted & WANT_TIMESTAMP else None,
            self.key if wanted & WANT_KEY else None,
            self.value if wanted & WANT_VALUE else None,
            self.headers if wanted & WANT_HEADERS else (),
        )

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.fields() == (<Record>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        _, _, position, timestamp, key, value, headers = self.fields()
        if value is not None and len(value) > 40:
            value = f"{value[:37]!r}… ({len(value)} bytes)"
        else:
            value = repr(value)
        return (f"<Record {self.topic}[{self.partition}] {position} timestamp={timestamp} key={key!r} value={value}"
                f"{f' headers={headers!r}' if headers else ''}>")

    def __reduce__(self):
        return _record, self.fields()


cdef inline Record new_record(Columns columns, str topic, int partition, Py_ssize_t row):
    cdef Record record = Record.__new__(Record)
    record.columns = columns
    record.topic = topic
    record.partition = partition
    record.row = row
    return record


def _record(topic, partition, position, timestamp, key, value, headers):
    """A record on its own, out of its fields (pickle, and adapters that put one together from parts)."""
    builder = ColumnsBuilder("message_id" if isinstance(position, MessageId) else "none" if position is None else "offset")
    place = position
    if isinstance(position, MessageId):
        place = (position.ledger, position.entry, position.index)
    elif position is not None:
        place = position.offset
    builder.append(value, key=key, headers=headers, timestamp=timestamp, position=place)
    columns = <Columns>builder.finish()
    if isinstance(position, QueueOffset):
        columns.home = (position.broker, position.queue)
    return new_record(columns, topic, partition, 0)


@cython.final
@cython.no_gc
cdef class RecordIterator:
    """Records of a Columns in order. A `next` from several threads hands each record to one of them.

    A Record object that no other code refers to is reused for the next row but one: a loop holds one while it asks for the next.
    """

    cdef Columns columns
    cdef str topic
    cdef int partition
    cdef Py_ssize_t row
    cdef PyObject *older         # the two handed out last; a reference each
    cdef PyObject *newer

    def __dealloc__(self):
        Py_XDECREF(self.older)
        Py_XDECREF(self.newer)

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.columns.stop - self.row

    def __next__(self):
        cdef Py_ssize_t row = self.row
        cdef PyObject *spare = self.older
        cdef Record record
        if row >= self.columns.stop:
            raise StopIteration
        self.row = row + 1
        if not ONE_THREAD:
            return new_record(self.columns, self.topic, self.partition, row)
        if spare != NULL and Py_REFCNT(<object>spare) == 1:
            (<Record>spare).row = row
        else:
            record = new_record(self.columns, self.topic, self.partition, row)
            Py_INCREF(record)
            self.older = NULL
            Py_XDECREF(spare)
            spare = <PyObject *>record
        self.older = self.newer
        self.newer = spare
        return <Record>spare
