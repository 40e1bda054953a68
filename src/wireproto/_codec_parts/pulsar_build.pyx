# PulsarBatchBuilder: records to one SEND frame, as a batch or as a single message.
#
#     frame      u32 command size · BaseCommand {1 type 6, 6 send {1 producer id, 2 sequence id, 3 number of messages, 6 highest sequence id}}
#                · 0x0e01 · u32 CRC-32C of what follows · u32 metadata size · MessageMetadata · payload     (its 4-byte length is the caller's)
#
# Fields and batches: pulsar_batch.pyx. Order: serialize, pack the whole payload, then the checksum. The metadata of a batch takes the key
# of its first record, as Java's does (key-shared subscriptions read it). The sequence ids of a batch count on from its first.
# May assume: one thread at a time; the caller has checked what a property may be. Must not: read a clock or know a connection.

from binascii import b2a_base64

from wireproto._codec_parts.varint cimport uvarint_size, write_uvarint64

cdef dict PULSAR_COMPRESSION = {"none": (0, "none"), "lz4": (1, "lz4-block"), "zlib": (2, "zlib"), "zstd": (3, "zstd"), "snappy": (4, "snappy-raw")}

cdef enum:
    PULSAR_HEAD_MOST = 32        # bytes around a record in a batch that are not counted field by field

cdef struct PulsarRow:
    int32_t head                 # bytes of metadata, then of payload, in the body
    int32_t payload
    bint null_value


cdef inline uint8_t *put_tag(uint8_t *to, uint32_t number, uint32_t kind) noexcept nogil:
    return write_uvarint64(to, number << 3 | kind)


cdef inline uint8_t *put_number(uint8_t *to, uint32_t number, uint64_t value) noexcept nogil:
    return write_uvarint64(put_tag(to, number, 0), value)


cdef inline uint8_t *put_text(uint8_t *to, uint32_t number, const uint8_t *data, int64_t size) noexcept nogil:
    to = write_uvarint64(put_tag(to, number, 2), size)
    memcpy(to, data, size)
    return to + size


cdef int add_number(Growing *g, uint32_t number, uint64_t value) noexcept nogil:
    if growing_reserve(g, 16) != TABLE_OK:
        return TABLE_MEMORY
    g.used = put_number(g.data + g.used, number, value) - g.data
    return TABLE_OK


cdef int add_text(Growing *g, uint32_t number, const uint8_t *data, int64_t size) noexcept nogil:
    if growing_reserve(g, size + 16) != TABLE_OK:
        return TABLE_MEMORY
    g.used = put_text(g.data + g.used, number, data, size) - g.data
    return TABLE_OK


cdef int add_property(Growing *g, uint32_t number, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    cdef int64_t size = 2 + uvarint_size(name_size) + name_size + uvarint_size(value_size) + value_size
    cdef uint8_t *to
    if growing_reserve(g, size + 16) != TABLE_OK:
        return TABLE_MEMORY
    to = write_uvarint64(put_tag(g.data + g.used, number, 2), size)
    to = put_text(to, 1, name, name_size)
    to = put_text(to, 2, value, value_size)
    g.used = to - g.data
    return TABLE_OK


@cython.final
cdef class PulsarBatchBuilder:
    """Builds the SEND frame of one batch or one single message.

    Args:
        producer_name: as the broker confirmed it.
        compression: "none", "lz4", "zlib", "zstd" or "snappy".
        batched: a batch (also of one record); otherwise exactly one record, sent as it is.
        max_size: the most bytes of payload before compression.
        max_records: the most records of a batch.
        level: the codec's level, or None.
    """

    cdef Growing body
    cdef Growing rows            # of PulsarRow
    cdef bytes producer_name
    cdef int codec
    cdef str codec_name
    cdef object level
    cdef bint batched
    cdef int64_t max_size
    cdef int64_t max_records
    cdef int64_t count
    cdef bytes first_key         # as text, None without
    cdef bint first_key_encoded

    def __cinit__(
        self, str producer_name not None, *, str compression="none", bint batched=True, int64_t max_size=5 << 20,
        int64_t max_records=1000, level=None,
    ):
        if compression not in PULSAR_COMPRESSION:
            raise OptionError(f"compression {compression!r} is not one of {', '.join(PULSAR_COMPRESSION)}")
        self.producer_name = producer_name.encode()
        self.codec, self.codec_name = PULSAR_COMPRESSION[compression]
        self.level = level
        self.batched = batched
        self.max_size = max_size if max_size < INT32_MAX - 1024 else INT32_MAX - 1024
        self.max_records = max_records if batched else 1
        check(growing_reserve(&self.body, 256))
        check(growing_reserve(&self.rows, 256))

    def __dealloc__(self):
        free(self.body.data)
        free(self.rows.data)

    def __len__(self):
        return self.count

    @property
    def size(self):
        """Bytes of payload so far, before compression (of a batch: with what stands around each record, at most)."""
        return self.body.used + self.count * PULSAR_HEAD_MOST if self.batched else self.body.used

    def append(self, value, key=None, properties=(), int64_t event_time=0):
        """Add a record; False when there is no room for it.

        Args:
            value, key: bytes (any buffer) or None. A key that is no UTF-8 travels as base64.
            properties: pairs of (name, UTF-8 bytes), or a mapping.
            event_time: ms since 1970 UTC; 0 for none.
        Raises:
            ValueUnsupported: the record alone is larger than a frame may be; a property is null or no UTF-8; a negative event time.
        """
        cdef Blob v, k, p
        cdef Growing *g = &self.body
        cdef int64_t start = g.used
        cdef PulsarRow row
        cdef Py_ssize_t name_size
        cdef const char *name_at
        cdef bint encoded = False
        cdef bytes text = None
        cdef list pairs = list(properties.items() if hasattr(properties, "items") else properties or ())
        if event_time < 0:
            raise ValueUnsupported(f"event time {event_time} is before 1970, which Pulsar cannot carry")
        if self.count >= self.max_records:
            return False
        v.held = k.held = p.held = False
        try:
            blob_open(&v, value)
            blob_open(&k, key)
            for name, content in pairs:
                name_at = PyUnicode_AsUTF8AndSize(name, &name_size)
                if content is None:
                    raise ValueUnsupported(f"property {name!r} is null, which Pulsar cannot carry")
                blob_open(&p, content)
                if not is_utf8(p.data, p.size):
                    raise ValueUnsupported(f"property {name!r} is no UTF-8, which Pulsar cannot carry")
                check(add_property(g, 1 if self.batched else 4, <const uint8_t *>name_at, name_size, p.data, p.size))
                blob_close(&p)
            if k.size >= 0:
                encoded = not is_utf8(k.data, k.size)
                text = b2a_base64(PyMemoryView_FromMemory(<char *>k.data, k.size, PyBUF_READ), newline=False) if encoded else k.data[:k.size]
                check(add_text(g, 2 if self.batched else 6, <const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)))
            row.payload = <int32_t>(v.size if v.size > 0 else 0)
            if v.size > self.max_size or g.used - start + row.payload + PULSAR_HEAD_MOST > self.max_size:
                if self.count == 0:
                    raise ValueUnsupported(f"a record of {g.used - start + v.size} bytes; at most {self.max_size} fit a frame")
                g.used = start
                return False
            if self.batched:
                check(add_number(g, 3, row.payload))
            if event_time:
                check(add_number(g, 5 if self.batched else 12, event_time))
            if encoded:
                check(add_number(g, 6 if self.batched else 17, 1))
            row.head = <int32_t>(g.used - start)
            row.null_value = v.size < 0
            if self.count and start + row.head + row.payload + (self.count + 1) * PULSAR_HEAD_MOST > self.max_size:
                g.used = start
                return False
            check(growing_reserve(g, row.payload))
            if row.payload:
                memcpy(g.data + g.used, v.data, row.payload)
            check(growing_reserve(&self.rows, sizeof(PulsarRow)))
            memcpy(self.rows.data + self.rows.used, &row, sizeof(PulsarRow))
        except BaseException:
            g.used = start
            raise
        finally:
            blob_close(&v)
            blob_close(&k)
            blob_close(&p)
        g.used += row.payload
        self.rows.used += sizeof(PulsarRow)
        if self.count == 0:
            self.first_key, self.first_key_encoded = text, encoded
        self.count += 1
        return True

    def append_columns(self, Columns columns not None, Py_ssize_t start, Py_ssize_t stop, event_times=None):
        """Add rows start to stop until there is no room; returns how many were taken. Timestamps become event times (none: 0), or
        `event_times` are taken, one a row of `columns`."""
        cdef Table *t = columns.table
        cdef Py_ssize_t row, at
        cdef int64_t time
        if not 0 <= start <= stop <= columns.stop - columns.start:
            raise IndexError(f"rows {start} to {stop} of {columns.stop - columns.start}")
        for row in range(start, stop):
            at = columns.start + row
            if event_times is not None:
                time = event_times[row] or 0
            else:
                time = 0 if is_null(t.timestamp_valid, at) else t.timestamp[at]
            if not self.append(bytes_at(&t.value, at), bytes_at(&t.key, at), headers_at(t, at), time):
                return row - start
        return stop - start

    def finish(self, uint64_t producer_id, uint64_t sequence_id, uint64_t publish_time):
        """The frame from behind its length on, as a list of buffers; the builder is empty afterwards.

        Args:
            producer_id: of the connection's producer.
            sequence_id: of the first record; a batch's others count on.
            publish_time: ms since 1970 UTC.
        """
        cdef bytes payload
        cdef int64_t plain
        if self.count == 0:
            raise ValueUnsupported("a frame without records cannot be sent")
        payload = self.batch_payload(sequence_id) if self.batched else self.single_payload()
        plain = PyBytes_GET_SIZE(payload)
        if self.codec and plain:         # Pulsar's C++ client cannot unpack a packed nothing
            from wireproto.compression import compress
            payload = compress(self.codec_name, payload, self.level)
        head = self.frame_head(producer_id, sequence_id, publish_time, plain, payload)
        self.body.used = self.rows.used = self.count = 0
        self.first_key = None
        return [head, payload]

    cdef bytes single_payload(self):
        cdef PulsarRow *row = <PulsarRow *>self.rows.data
        return PyBytes_FromStringAndSize(<char *>self.body.data + row.head, row.payload)

    cdef bytes batch_payload(self, uint64_t sequence_id):
        """Each record's metadata completed by its sequence id, behind its size."""
        cdef PulsarRow *row = <PulsarRow *>self.rows.data
        cdef const uint8_t *p = self.body.data
        cdef int64_t n
        cdef uint8_t *to
        cdef uint8_t *head
        out = PyBytes_FromStringAndSize(NULL, self.body.used + self.count * PULSAR_HEAD_MOST)
        cdef uint8_t *begin = <uint8_t *>PyBytes_AS_STRING(out)
        to = begin
        for n in range(self.count):
            head = to
            memcpy(to + 4, p, row.head)
            to = put_number(to + 4 + row.head, 8, sequence_id + n)
            if row.null_value:
                to = put_number(to, 9, 1)
            put_u32(head, <uint32_t>(to - head - 4))
            memcpy(to, p + row.head, row.payload)
            to += row.payload
            p += row.head + row.payload
            row += 1
        return PyBytes_FromStringAndSize(<char *>begin, to - begin)

    cdef bytes frame_head(self, uint64_t producer_id, uint64_t sequence_id, uint64_t publish_time, int64_t plain, bytes payload):
        """All of the frame but its payload."""
        cdef PulsarRow *row = <PulsarRow *>self.rows.data
        cdef int64_t own = 0 if self.batched else row.head       # of a single message: key, properties, event time
        cdef int64_t room = 256 + PyBytes_GET_SIZE(self.producer_name) + own + (len(self.first_key) if self.first_key is not None else 0)
        out = PyBytes_FromStringAndSize(NULL, room)
        cdef uint8_t *begin = <uint8_t *>PyBytes_AS_STRING(out)
        cdef uint8_t *to
        cdef uint8_t *send
        cdef uint8_t *checked
        cdef uint8_t fields[64]
        cdef uint32_t crc
        send = put_number(put_number(fields, 1, producer_id), 2, sequence_id)
        if self.batched:
            send = put_number(put_number(send, 3, self.count), 6, sequence_id + self.count - 1)
        to = put_text(put_number(begin + 4, 1, 6), 6, fields, send - fields)
        put_u32(begin, <uint32_t>(to - begin - 4))
        put_u16(to, 0x0E01)
        checked = to + 6
        to = put_text(checked + 4, 1, <uint8_t *>PyBytes_AS_STRING(self.producer_name), PyBytes_GET_SIZE(self.producer_name))
        to = put_number(put_number(to, 2, sequence_id), 3, publish_time)
        if not self.batched:
            memcpy(to, self.body.data, own)
            to += own
        elif self.first_key is not None:
            to = put_text(to, 6, <uint8_t *>PyBytes_AS_STRING(self.first_key), PyBytes_GET_SIZE(self.first_key))
            if self.first_key_encoded:
                to = put_number(to, 17, 1)
        if self.codec and plain:
            to = put_number(put_number(to, 8, self.codec), 9, plain)
        if self.batched:
            to = put_number(put_number(to, 11, self.count), 24, sequence_id + self.count - 1)
        elif row.null_value:
            to = put_number(to, 25, 1)
        put_u32(checked, <uint32_t>(to - checked - 4))
        crc = crc32c_update(0, checked, to - checked)
        put_u32(checked - 4, crc32c_update(crc, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)))
        return PyBytes_FromStringAndSize(<char *>begin, to - begin)
