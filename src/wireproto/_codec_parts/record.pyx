# Record: one row of a Columns, as an object that reads its fields only when asked.
#
# May assume: the columns never change. Must not: copy anything at creation, or be tracked by the collector (it refers to columns and a
# str only, so no cycle can go through it).

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8

from wireproto.position import LogOffset, MessageId


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


cdef object position_at(Table *t, Py_ssize_t row, topic, int partition):
    if t.p0 == NULL and t.kind != POSITION_NONE:
        missing(t, WANT_POSITION, POSITION_NAMES[t.kind][0])
    if t.kind == POSITION_MESSAGE:
        return MessageId(topic, partition, t.p0[row], t.p1[row], t.p2[row])
    if t.kind == POSITION_NONE:
        return None
    return LogOffset(topic, partition, t.p0[row])


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
        return position_at(self.columns.table, self.row, self.topic, self.partition)

    @property
    def offset(self):
        cdef Table *t = self.columns.table
        if t.kind == POSITION_MESSAGE or t.kind == POSITION_NONE:
            raise AttributeError("this record's position is not an offset")
        if unlikely(t.p0 == NULL):
            missing(t, WANT_POSITION, POSITION_NAMES[t.kind][0])
        return t.p0[self.row]

    @property
    def timestamp(self):
        cdef Table *t = self.columns.table
        if unlikely(t.timestamp == NULL):
            missing(t, WANT_TIMESTAMP, "timestamp")
        return None if is_null(t.timestamp_valid, self.row) else t.timestamp[self.row]

    @property
    def key(self):
        cdef Table *t = self.columns.table
        if unlikely(t.key.off):
            missing(t, WANT_KEY, "key")
        return bytes_at(t, &t.key, self.row)

    @property
    def value(self):
        cdef Table *t = self.columns.table
        if unlikely(t.value.off):
            missing(t, WANT_VALUE, "value")
        return bytes_at(t, &t.value, self.row)

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
    return new_record(builder.finish(), topic, partition, 0)


@cython.final
@cython.no_gc
cdef class RecordIterator:
    """Records of a Columns in order. A `next` from several threads hands each record to one of them."""

    cdef Columns columns
    cdef str topic
    cdef int partition
    cdef Py_ssize_t row

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.columns.stop - self.row

    def __next__(self):
        cdef Py_ssize_t row = self.row
        if row >= self.columns.stop:
            raise StopIteration
        self.row = row + 1
        return new_record(self.columns, self.topic, self.partition, row)
