# Records into the body of a Pulsar batch or single message, without the GIL: what PulsarBatchBuilder fills.
#
#     body       { metadata of the record, but for its sequence id · value }*, sizes beside it in `rows`
#     metadata   of a batch's record:  properties 1 · key 2 · payload size 3 · event time 5 · key is base64 6        (SingleMessageMetadata)
#                of a single message:  properties 4 · key 6 · event time 12 · key is base64 17                       (MessageMetadata)
#
# May assume: one caller at a time. Must not: touch Python, or leave half a record behind when one does not fit.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from wireproto._codec_parts.varint cimport uvarint_size, write_uvarint64

cdef enum:
    PULSAR_HEAD_MOST = 32        # bytes around each of several records that are not counted field by field
    PULSAR_ALONE_MOST = 41       # of one: size 4, key 6, payload size 6, event time 10, flags 4, sequence id 11
    PULSAR_PROPERTIES_HERE = 64  # more properties than this in a record are looked through by Python
    ROW_TOO_LARGE = -11
    ROW_NULL_PROPERTY = -12
    ROW_NOT_UTF8 = -13
    ROW_NAME_TWICE = -14
    ROW_TIME = -15
    ROW_MANY_PROPERTIES = -16

cdef struct PulsarRow:
    int32_t head                 # bytes of metadata, then of payload, in the body
    int32_t payload
    bint null_value


cdef struct PulsarBuild:
    Growing body
    Growing rows                 # of PulsarRow
    bint batched
    int64_t max_size             # of a frame's payload
    int64_t max_records
    int64_t count
    int64_t first_key            # where the first record's key stands in the body, and its size; -1 without
    int64_t first_key_size
    bint first_key_encoded


cdef inline uint8_t *put_tag(uint8_t *to, uint32_t number, uint32_t kind) noexcept nogil:
    return write_uvarint64(to, number << 3 | kind)


cdef inline uint8_t *put_number(uint8_t *to, uint32_t number, uint64_t value) noexcept nogil:
    return write_uvarint64(put_tag(to, number, 0), value)


cdef inline uint8_t *put_text(uint8_t *to, uint32_t number, const uint8_t *data, int64_t size) noexcept nogil:
    to = write_uvarint64(put_tag(to, number, 2), size)
    memcpy(to, data, size)
    return to + size


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


cdef const uint8_t *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef uint8_t *put_base64(uint8_t *to, const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint32_t word
    while size >= 3:
        word = <uint32_t>p[0] << 16 | <uint32_t>p[1] << 8 | p[2]
        to[0], to[1], to[2], to[3] = BASE64[word >> 18], BASE64[word >> 12 & 63], BASE64[word >> 6 & 63], BASE64[word & 63]
        to += 4
        p += 3
        size -= 3
    if size:
        word = <uint32_t>p[0] << 16 | (<uint32_t>p[1] << 8 if size == 2 else 0)
        to[0], to[1], to[2], to[3] = BASE64[word >> 18], BASE64[word >> 12 & 63], BASE64[word >> 6 & 63] if size == 2 else 61, 61
        to += 4
    return to


cdef int pulsar_put(
    PulsarBuild *b, int64_t start, const uint8_t *value, int64_t value_size, const uint8_t *key, int64_t key_size, int64_t event_time,
) noexcept nogil:
    """Complete the record whose properties stand in the body from `start` on. On anything but TAKEN the body ends at `start` again.

    Returns:
        TAKEN, NO_ROOM, ROW_TOO_LARGE (no frame could hold it), TABLE_MEMORY.
    """
    cdef Growing *g = &b.body
    cdef PulsarRow row
    cdef uint8_t *to
    cdef bint encoded = key_size > 0 and not is_utf8(key, key_size)
    cdef int64_t text_size = (key_size + 2) // 3 * 4 if encoded else key_size
    cdef int64_t text_at = -1
    cdef int64_t payload = value_size if value_size > 0 else 0
    cdef int64_t head = g.used - start + (text_size if text_size > 0 else 0)
    if head + payload + PULSAR_ALONE_MOST > b.max_size:
        g.used = start
        return NO_ROOM if b.count else ROW_TOO_LARGE
    if b.count and start + head + payload + (b.count + 2) * PULSAR_HEAD_MOST > b.max_size:
        g.used = start
        return NO_ROOM
    if growing_reserve(g, head + payload + 64) != TABLE_OK or growing_reserve(&b.rows, sizeof(PulsarRow)) != TABLE_OK:
        g.used = start
        return TABLE_MEMORY
    to = g.data + g.used
    if key_size >= 0:
        to = write_uvarint64(put_tag(to, 2 if b.batched else 6, 2), text_size)
        text_at = to - g.data
        if encoded:
            to = put_base64(to, key, key_size)
        elif key_size:
            copy_slack(to, key, key_size, 0)
            to += key_size
    if b.batched:
        to = put_number(to, 3, payload)
    if event_time:
        to = put_number(to, 5 if b.batched else 12, event_time)
    if encoded:
        to = put_number(to, 6 if b.batched else 17, 1)
    row.head = <int32_t>(to - g.data - start)
    row.payload = <int32_t>payload
    row.null_value = value_size < 0
    if payload:
        memcpy(to, value, payload)
    g.used = to - g.data + payload
    (<PulsarRow *>(b.rows.data + b.rows.used))[0] = row
    b.rows.used += sizeof(PulsarRow)
    if b.count == 0:
        b.first_key, b.first_key_size, b.first_key_encoded = text_at, text_size, encoded
    b.count += 1
    return TAKEN


cdef int pulsar_refusal(Table *t, Py_ssize_t row, int64_t max_size) noexcept nogil:
    """What keeps a row from being sent; 0 when nothing does."""
    cdef const uint8_t *key
    cdef int64_t size = 64 + bytes_size(&t.value, row)
    cdef int64_t key_size = bytes_get(t, &t.key, row, &key)
    cdef Py_ssize_t n, m, first, last
    if is_timed(t, row) and t.timestamp[row] <= 0:
        return ROW_TIME
    if key_size > 0:
        size += key_size
    if t.header_at != NULL and t.header_at[row] != t.header_at[row + 1]:
        first, last = t.header_at[row], t.header_at[row + 1]
        size += t.name.starts[last] - t.name.starts[first] + t.header_value.starts[last] - t.header_value.starts[first] + 8 * (last - first)
        if last - first > PULSAR_PROPERTIES_HERE:
            return ROW_MANY_PROPERTIES if size <= max_size else ROW_TOO_LARGE
        for n in range(first, last):
            if is_null(t.header_value.valid, n):
                return ROW_NULL_PROPERTY
            if not is_utf8(t.header_value.data + t.header_value.starts[n], t.header_value.starts[n + 1] - t.header_value.starts[n]):
                return ROW_NOT_UTF8
            for m in range(first, n):
                if same_name(t, m, n):
                    return ROW_NAME_TWICE
    if size > max_size or (size + key_size > max_size and key_size > 0 and not is_utf8(key, key_size)):
        return ROW_TOO_LARGE
    return 0


cdef inline bint same_name(Table *t, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    cdef int64_t size = t.name.starts[a + 1] - t.name.starts[a]
    return t.name.starts[b + 1] - t.name.starts[b] == size and memcmp(t.name.data + t.name.starts[a], t.name.data + t.name.starts[b], size) == 0


cdef int pulsar_rows(PulsarBuild *b, Table *t, Py_ssize_t start, Py_ssize_t stop, int64_t limit, Py_ssize_t *taken) noexcept nogil:
    """Rows of a table until there is no room (TAKEN or NO_ROOM) or one cannot be sent (its code)."""
    cdef Py_ssize_t row, n
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t begin, size, key_size
    cdef int code
    for row in range(start, stop):
        if b.count >= b.max_records:
            return NO_ROOM
        if b.count and b.body.used + bytes_size(&t.value, row) + (b.count + 1) * PULSAR_HEAD_MOST > limit:
            return NO_ROOM
        code = pulsar_refusal(t, row, b.max_size)
        if code != 0:
            return code
        begin = b.body.used
        if t.header_at != NULL:
            for n in range(t.header_at[row], t.header_at[row + 1]):
                if add_property(
                        &b.body, 1 if b.batched else 4,
                        t.name.data + t.name.starts[n], t.name.starts[n + 1] - t.name.starts[n],
                        t.header_value.data + t.header_value.starts[n], t.header_value.starts[n + 1] - t.header_value.starts[n]) != TABLE_OK:
                    b.body.used = begin
                    return TABLE_MEMORY
        key_size = bytes_get(t, &t.key, row, &key)
        size = bytes_get(t, &t.value, row, &value)
        code = pulsar_put(b, begin, value, size, key, key_size, t.timestamp[row] if is_timed(t, row) else 0)
        if code != TAKEN:
            return code
        taken[0] += 1
    return TAKEN


cdef uint8_t *pulsar_payload(PulsarBuild *b, uint64_t sequence_id, uint8_t *to) noexcept nogil:
    """Each record's metadata completed by its sequence id, behind its size; the end of it."""
    cdef PulsarRow *row = <PulsarRow *>b.rows.data
    cdef const uint8_t *p = b.body.data
    cdef int64_t n
    cdef uint8_t *head
    for n in range(b.count):
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
    return to


cdef int64_t pulsar_payload_size(PulsarBuild *b, uint64_t sequence_id) noexcept nogil:
    """Bytes that `pulsar_payload` writes."""
    cdef PulsarRow *row = <PulsarRow *>b.rows.data
    cdef int64_t n, size = b.body.used
    for n in range(b.count):
        size += 5 + uvarint_size(sequence_id + n) + (2 if row[n].null_value else 0)
    return size
