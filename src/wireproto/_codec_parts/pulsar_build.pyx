# PulsarBatchBuilder: records to one SEND frame, as a batch or as a single message.
#
#     frame      u32 command size · BaseCommand {1 type 6, 6 send {1 producer id, 2 sequence id, 3 number of messages, 6 highest sequence id}}
#                · 0x0e01 · u32 CRC-32C of what follows · u32 metadata size · MessageMetadata · payload     (its 4-byte length is the caller's)
#
# Fields and batches: pulsar_batch.pyx; the body: pulsar_rows.pyx. Order: serialize, pack the whole payload, then the checksum. The metadata of
# a batch takes the key of its first record, as Java's does (key-shared subscriptions read it). The sequence ids of a batch count on from its
# first. May assume: one caller at a time; properties are encoded before their record (`pulsar_properties`).
# Must not: read a clock or know a connection.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wireproto._codec_parts.crc cimport crc32c_update
from wireproto._codec_parts.endian cimport get_u32, put_u16, put_u32
from wireproto._codec_parts.varint cimport read_uvarint64

from wireproto.errors import OptionError, ValueUnsupported

cdef dict PULSAR_COMPRESSION = {"none": (0, "none"), "lz4": (1, "lz4-block"), "zlib": (2, "zlib"), "zstd": (3, "zstd"), "snappy": (4, "snappy-raw")}


@cython.final
cdef class PulsarBatchBuilder(RecordBuilder):
    """Builds the SEND frame of one batch or one single message.

    Args:
        producer_name: as the broker confirmed it.
        compression: "none", "lz4", "zlib", "zstd" or "snappy".
        batched: a batch (also of one record); otherwise exactly one record, sent as it is.
        max_size: the most bytes of payload before compression.
        max_records: the most records of a batch. limit: bytes (`size`) at which an `OutBatch` is full; its first record is taken all the same.
        level: the codec's level, or None.
    """

    cdef PulsarBuild b
    cdef bytes producer_name
    cdef int codec
    cdef str codec_name
    cdef object level
    cdef list frame              # once it is sealed
    cdef int64_t limit

    def __cinit__(
        self, str producer_name not None, *, str compression="none", bint batched=True, int64_t max_size=5 << 20,
        int64_t max_records=1000, int64_t limit=INT32_MAX, level=None,
    ):
        if compression not in PULSAR_COMPRESSION:
            raise OptionError(f"compression {compression!r} is not one of {', '.join(PULSAR_COMPRESSION)}")
        self.producer_name = producer_name.encode()
        self.codec, self.codec_name = PULSAR_COMPRESSION[compression]
        self.level = level
        self.b.batched = batched
        self.b.max_size = max_size if max_size < INT32_MAX - 1024 else INT32_MAX - 1024
        self.b.max_records = max_records if batched else 1
        self.limit = limit
        check(growing_reserve(&self.b.body, 256))
        check(growing_reserve(&self.b.rows, 256))

    def __dealloc__(self):
        mem_give(self.b.body.data)
        mem_give(self.b.rows.data)

    def __len__(self):
        return self.b.count

    @property
    def size(self):
        """Bytes of payload so far, before compression (of a batch: with what stands around each record, at most)."""
        return self.b.body.used + self.b.count * PULSAR_HEAD_MOST if self.b.batched else self.b.body.used

    # for OutBatch

    cdef int put(self, int64_t time, const Blob *key, const Blob *value, bytes headers, bint last) noexcept:
        cdef PulsarBuild *b = &self.b
        cdef int64_t start = b.body.used
        cdef int64_t size = start + (b.count + 1) * PULSAR_HEAD_MOST + (value.size if value.size > 0 else 0) + (key.size if key.size > 0 else 0)
        if headers is not None:
            size += PyBytes_GET_SIZE(headers)
        if b.count + (not last) >= b.max_records or self.frame is not None or (size >= self.limit and (b.count or not last)):
            return NO_ROOM
        if headers is not None:
            if growing_reserve(&b.body, PyBytes_GET_SIZE(headers)) != TABLE_OK:
                return TABLE_MEMORY
            memcpy(b.body.data + start, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
            b.body.used += PyBytes_GET_SIZE(headers)
        return pulsar_put(b, start, value.data, value.size, key.data, key.size, time)

    cdef Py_ssize_t put_rows(self, Columns columns, object rows, Py_ssize_t start, Py_ssize_t stop, int64_t now) except -1:
        return self.append_columns(columns, start, stop, self.limit) if self.frame is None else 0

    cdef int64_t held(self) noexcept:
        return self.b.body.used + self.b.rows.used

    cdef bint is_full(self) noexcept:
        return self.b.count >= self.b.max_records or self.size >= self.limit

    cdef void refuse(self, int code) except *:
        if code == ROW_TOO_LARGE:
            raise ValueUnsupported(f"a record that is larger than the {self.b.max_size} bytes that fit a frame")
        raise MemoryError("no memory for the batch")

    def seal(self, uint64_t producer_id, uint64_t sequence_id, uint64_t publish_time):
        """As `finish`, once: later calls return the same frame. The batch takes no more from then on."""
        if self.frame is None:
            self.frame = self.finish(producer_id, sequence_id, publish_time)
            mem_give(self.b.body.data)
            self.b.body.data = NULL
            self.b.body.room = 0
        return self.frame

    def drop(self):
        """It is stored: the frame is not needed any more."""
        self.frame = []

    # by itself

    def append(self, value, key=None, properties=(), int64_t event_time=0):
        """Add a record; False when there is no room for it.

        Args:
            value, key: bytes (any buffer) or None. A key that is no UTF-8 travels as base64.
            properties: pairs of (name, UTF-8 bytes), or a mapping.
            event_time: ms since 1970 UTC; 0 for none.
        Raises:
            ValueUnsupported: the record alone is larger than a frame may be; a property is null or no UTF-8; a negative event time.
        """
        cdef Blob v, k
        cdef int64_t start = self.b.body.used
        cdef int code
        if event_time < 0:
            raise ValueUnsupported(f"event time {event_time} is before 1970, which Pulsar cannot carry")
        if self.b.count >= self.b.max_records:
            return False
        v.held = k.held = False
        try:
            blob_open(&v, value)
            blob_open(&k, key)
            if properties:
                add_properties(&self.b.body, self.b.batched, properties)
            code = pulsar_put(&self.b, start, v.data, v.size, k.data, k.size, event_time)
        except BaseException:
            self.b.body.used = start
            raise
        finally:
            blob_close(&v)
            blob_close(&k)
        if code == ROW_TOO_LARGE:
            raise ValueUnsupported(f"a record of {(0 if value is None else len(value)) + (0 if key is None else len(key))} bytes; "
                                   f"at most {self.b.max_size} fit a frame")
        if code == TABLE_MEMORY:
            raise MemoryError("no memory for the batch")
        return code == TAKEN

    def check_columns(self, Columns columns not None):
        """See that each row can be sent.

        Raises:
            ValueUnsupported: one cannot: too large, an event time that is not after 1970, a property that is null, no UTF-8 or there twice.
        """
        cdef Py_ssize_t row
        cdef int code
        cdef Table *t = columns.table
        for row in range(columns.start, columns.stop):
            code = pulsar_refusal(t, row, self.b.max_size)
            if code == ROW_MANY_PROPERTIES:
                code = many_properties(headers_at(t, row))
            if code != 0:
                self.refuse_row(columns, row - columns.start, code)

    def append_columns(self, Columns columns not None, Py_ssize_t start, Py_ssize_t stop, int64_t limit=INT32_MAX):
        """Add rows start to stop until there is no room; timestamps become event times.

        Args:
            limit: bytes (`size`) that the batch is to stay below; its first record is taken all the same.
        Returns:
            the number of rows taken.
        Raises:
            ValueUnsupported: a row cannot be sent (see `check_columns`). Those before it are in the batch.
        """
        cdef Py_ssize_t taken = 0, at
        cdef int code
        cdef Table *t = columns.table
        if not 0 <= start <= stop <= columns.stop - columns.start:
            raise IndexError(f"rows {start} to {stop} of {columns.stop - columns.start}")
        while True:
            with nogil:
                code = pulsar_rows(&self.b, t, columns.start + start + taken, columns.start + stop, limit, &taken)
            if code != ROW_MANY_PROPERTIES:
                break
            at = columns.start + start + taken
            code = many_properties(headers_at(t, at))
            if code != 0:
                break
            if not self.append(bytes_at(t, &t.value, at), bytes_at(t, &t.key, at), headers_at(t, at),
                               t.timestamp[at] if is_timed(t, at) else 0):
                return taken
            taken += 1
        if code == TABLE_MEMORY:
            raise MemoryError("no memory for the batch")
        if code < 0:
            self.refuse_row(columns, start + taken, code)
        return taken

    cdef void refuse_row(self, Columns columns, Py_ssize_t row, int code) except *:
        """Raise what keeps a row from being sent."""
        cdef Table *t = columns.table
        cdef Py_ssize_t at = columns.start + row
        if code == ROW_TIME:
            raise ValueUnsupported(f"row {row}: an event time of {t.timestamp[at]}: Pulsar's are milliseconds above 0")
        if code == ROW_NULL_PROPERTY:
            raise ValueUnsupported(f"row {row}: a property is null, which Pulsar cannot carry")
        if code == ROW_NOT_UTF8:
            raise ValueUnsupported(f"row {row}: a property is no UTF-8, which Pulsar cannot carry")
        if code == ROW_NAME_TWICE:
            raise ValueUnsupported(f"row {row}: a property is there twice; Pulsar's are unique")
        raise ValueUnsupported(
            f"row {row}: a record of {bytes_size(&t.value, at) + bytes_size(&t.key, at)} bytes and "
            f"its properties; at most {self.b.max_size} fit a frame")

    def finish(self, uint64_t producer_id, uint64_t sequence_id, uint64_t publish_time):
        """The frame from behind its length on, as a list of buffers; the builder is empty afterwards.

        Args:
            producer_id: of the connection's producer.
            sequence_id: of the first record; a batch's others count on.
            publish_time: ms since 1970 UTC.
        """
        cdef bytes payload
        cdef int64_t plain
        if self.b.count == 0:
            raise ValueUnsupported("a frame without records cannot be sent")
        payload = self.batch_payload(sequence_id) if self.b.batched else self.single_payload()
        plain = PyBytes_GET_SIZE(payload)
        if self.codec and plain:         # Pulsar's C++ client cannot unpack a packed nothing
            from wireproto.compression import compress
            payload = compress(self.codec_name, payload, self.level)
        head = self.frame_head(producer_id, sequence_id, publish_time, plain, payload)
        self.b.body.used = self.b.rows.used = self.b.count = 0
        return [head, payload]

    cdef bytes single_payload(self):
        cdef PulsarRow *row = <PulsarRow *>self.b.rows.data
        return PyBytes_FromStringAndSize(<char *>self.b.body.data + row.head, row.payload)

    cdef bytes batch_payload(self, uint64_t sequence_id):
        out = PyBytes_FromStringAndSize(NULL, pulsar_payload_size(&self.b, sequence_id))
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(out)
        with nogil:
            pulsar_payload(&self.b, sequence_id, to)
        return out

    cdef bytes frame_head(self, uint64_t producer_id, uint64_t sequence_id, uint64_t publish_time, int64_t plain, bytes payload):
        """All of the frame but its payload."""
        cdef PulsarBuild *b = &self.b
        cdef PulsarRow *row = <PulsarRow *>b.rows.data
        cdef int64_t own = 0 if b.batched else row.head       # of a single message: key, properties, event time
        cdef int64_t room = 256 + PyBytes_GET_SIZE(self.producer_name) + own + (b.first_key_size if b.first_key >= 0 else 0)
        out = PyBytes_FromStringAndSize(NULL, room)
        cdef uint8_t *begin = <uint8_t *>PyBytes_AS_STRING(out)
        cdef uint8_t *to
        cdef uint8_t *send
        cdef uint8_t *checked
        cdef uint8_t fields[64]
        cdef uint32_t crc
        send = put_number(put_number(fields, 1, producer_id), 2, sequence_id)
        if b.batched:
            send = put_number(put_number(send, 3, b.count), 6, sequence_id + b.count - 1)
        to = put_text(put_number(begin + 4, 1, 6), 6, fields, send - fields)
        put_u32(begin, <uint32_t>(to - begin - 4))
        put_u16(to, 0x0E01)
        checked = to + 6
        to = put_text(checked + 4, 1, <uint8_t *>PyBytes_AS_STRING(self.producer_name), PyBytes_GET_SIZE(self.producer_name))
        to = put_number(put_number(to, 2, sequence_id), 3, publish_time)
        if not b.batched:
            memcpy(to, b.body.data, own)
            to += own
        elif b.first_key >= 0:
            to = put_text(to, 6, b.body.data + b.first_key, b.first_key_size)
            if b.first_key_encoded:
                to = put_number(to, 17, 1)
        if self.codec and plain:
            to = put_number(put_number(to, 8, self.codec), 9, plain)
        if b.batched:
            to = put_number(put_number(to, 11, b.count), 24, sequence_id + b.count - 1)
        elif row.null_value:
            to = put_number(to, 25, 1)
        put_u32(checked, <uint32_t>(to - checked - 4))
        crc = crc32c_update(0, checked, to - checked)
        put_u32(checked - 4, crc32c_update(crc, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)))
        return PyBytes_FromStringAndSize(<char *>begin, to - begin)


cdef int many_properties(tuple pairs) except *:
    """`pulsar_refusal` of a row with more properties than are compared one by one."""
    cdef set seen = set()
    for name, content in pairs:
        if content is None:
            return ROW_NULL_PROPERTY
        if not is_utf8(<const uint8_t *>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content)):
            return ROW_NOT_UTF8
        if name in seen:
            return ROW_NAME_TWICE
        seen.add(name)
    return 0


cdef int add_properties(Growing *g, bint batched, properties) except -1:
    """Into a body, in front of the record that is being added."""
    cdef Blob p
    cdef Py_ssize_t name_size
    cdef const char *name_at
    cdef set seen = set()
    for name, content in list(properties.items() if hasattr(properties, "items") else properties):
        if not isinstance(name, str):
            raise ValueUnsupported(f"property {name!r}: a name is text")
        try:
            name_at = PyUnicode_AsUTF8AndSize(name, &name_size)
        except UnicodeEncodeError:
            raise ValueUnsupported(f"the name of property {name!r} is no UTF-8, which Pulsar cannot carry") from None
        if content is None:
            raise ValueUnsupported(f"property {name!r} is null, which Pulsar cannot carry")
        if name in seen:
            raise ValueUnsupported(f"property {name!r} is there twice; Pulsar's are unique")
        seen.add(name)
        blob_open(&p, content)
        try:
            if not is_utf8(p.data, p.size):
                raise ValueUnsupported(f"property {name!r} is no UTF-8, which Pulsar cannot carry")
            check(add_property(g, 1 if batched else 4, <const uint8_t *>name_at, name_size, p.data, p.size))
        finally:
            blob_close(&p)
    return 0


def pulsar_properties(bint batched, headers):
    """Headers as they stand in front of a record: what an `Appender` gives `OutBatch`.

    Raises:
        ValueUnsupported: a name twice, a null value, or what is not UTF-8.
    """
    cdef Growing g
    g.data = NULL
    g.used = g.room = 0
    try:
        add_properties(&g, batched, headers)
        return PyBytes_FromStringAndSize(<char *>g.data, g.used) if g.used else None
    finally:
        mem_give(g.data)


def pulsar_receipt(bytes frame not None):
    """(producer id, sequence id, ledger, entry) of a SEND_RECEIPT; None: it is none, or not as most are, and `frames.decode` tells.

    Numbers that mean -1 come so. Frame: u32 command size · BaseCommand {1 type 7, 7 {1 producer id, 2 sequence id, 3 {1 ledger, 2 entry, …}}}.
    """
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(frame)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(frame)
    cdef uint64_t found[3]
    cdef uint64_t place[3]
    if end - p < 8 or p[4] != 0x08 or p[5] != 7 or p[6] != 0x3A or get_u32(p) != <uint64_t>(end - p - 4):
        return None
    p += 7
    if not inner(&p, end) or not three_numbers(p, end, found, place) or not place[0]:
        return None
    return found[1], found[2], <int64_t>place[1], <int64_t>place[2]


cdef bint inner(const uint8_t **p, const uint8_t *end) noexcept:
    """Whether a length stands here that reaches to the end."""
    cdef uint64_t size
    return read_uvarint64(p, end, &size) == 1 and size == <uint64_t>(end - p[0])


cdef bint three_numbers(const uint8_t *p, const uint8_t *end, uint64_t *found, uint64_t *place) noexcept:
    """Fields 1 and 2, which must be there, of a message of numbers; those of its field 3, a message too, to `place` (NULL: there is none),
    whose [0] says whether it was there. False: it is something else."""
    cdef uint64_t tag, value
    cdef int seen = 0
    if place != NULL:
        place[0] = 0
    while p < end:
        if read_uvarint64(&p, end, &tag) != 1 or read_uvarint64(&p, end, &value) != 1:
            return False
        if tag == 0x1A and place != NULL and value <= <uint64_t>(end - p):
            if not three_numbers(p, p + value, place, NULL):
                return False
            place[0] = 1
            p += value
        elif tag & 7 or tag < 8 or tag >> 32:
            return False
        elif tag == 0x08 or tag == 0x10:
            found[tag >> 3] = value
            seen |= <int>(tag >> 3)
    return seen == 3
