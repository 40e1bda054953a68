# A Kafka batch being built: its memory, and records put into it without the GIL.
#
# Layouts: kafka_section.pyx, kafka_legacy.pyx. Offsets count from 0; the head of a v2 batch is left free in front and written last.
# May assume: one thread at a time; headers are encoded before their record. Must not: touch Python, or take a record that would make
# the batch larger than its limit (unless it is the first: a record of any size can be sent alone, the broker decides).

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wireproto._codec_parts.crc cimport crc32_update, crc32c_update
from wireproto._codec_parts.endian cimport put_u32, put_u32le, put_u64, put_u64le
from wireproto._codec_parts.varint cimport varint_size, write_varint32, write_varint64, zigzag64

cdef enum:
    TAKEN = 1
    NO_ROOM = 0
    COPY_PIECE = 65536
    RECORD_MOST = 40         # bytes around key, value and headers, at most
    SHORT_KEY = 64           # a key's size below which it is one byte, a value's below which it and the record's are two at most
    SHORT_VALUE = 8000
    SHORT_NUMBER = 1 << 21   # a zigzag number below which it is three bytes at most


cdef struct Growing:
    uint8_t *data
    int64_t used
    int64_t room


cdef inline int growing_reserve(Growing *g, int64_t more) noexcept nogil:
    cdef int64_t room = g.used + more + COPY_SLACK
    if likely(room <= g.room):
        return TABLE_OK
    if room < g.room * 2:
        room = g.room * 2
    if grow(<void **>&g.data, room) != TABLE_OK:
        return TABLE_MEMORY
    g.room = mem_room(g.data)
    return TABLE_OK


@cython.final
@cython.no_gc
cdef class Block:
    """Memory of the pool that is read as a buffer, and goes back to the pool with the last reader."""

    cdef uint8_t *data
    cdef int64_t size

    def __dealloc__(self):
        mem_give(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


cdef struct Building:
    Growing body
    Growing headers          # those of the record in hand
    int magic
    int64_t limit
    int64_t head             # bytes of the body that are the batch's head, written last
    int32_t count
    int64_t base_time
    int64_t max_time


cdef inline uint8_t *put_blob(uint8_t *to, const uint8_t *data, int32_t size) noexcept nogil:
    to = write_varint32(to, size)
    if size > 0:
        copy_short(to, data, size)
        to += size
    return to


cdef inline uint64_t short_varint(uint64_t zigzag, int *size) noexcept nogil:
    """A number below SHORT_NUMBER as a varint, first byte lowest, and how many bytes it has."""
    if zigzag < 0x80:
        size[0] = 1
        return zigzag
    if zigzag < 0x4000:
        size[0] = 2
        return (zigzag & 0x7F) | (zigzag << 1 & 0x7F00) | 0x80
    size[0] = 3
    return (zigzag & 0x7F) | (zigzag << 1 & 0x7F00) | (zigzag << 2 & 0x7F0000) | 0x8080


cdef inline bint is_short(int64_t key_size, int64_t value_size, uint64_t delta, uint64_t count) noexcept nogil:
    """Whether `put_short` may write the record; delta and count as zigzag numbers."""
    return key_size < SHORT_KEY and value_size < SHORT_VALUE and (delta | count) < SHORT_NUMBER


cdef inline uint8_t *put_short(
    uint8_t *to, uint64_t delta, uint64_t count, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size
) noexcept nogil:
    """A v2 record without headers for which `is_short`, in a few stores; its end. Up to 8 bytes behind that are written as well."""
    cdef int64_t key_bytes = key_size if key_size > 0 else 0
    cdef int64_t value_bytes = value_size if value_size > 0 else 0
    cdef int first, second, third
    cdef uint64_t front = short_varint(delta, &first)
    cdef uint64_t word = short_varint(count, &second)
    front = front << 8 | word << (8 + 8 * first) | zigzag64(key_size) << (8 + 8 * (first + second))
    word = short_varint(2 * (3 + first + second + key_bytes + value_bytes + (1 if value_size < 64 else 2)), &third)
    put_u32le(to, <uint32_t>word)
    to += third
    put_u64le(to, front)                                 # attributes 0, delta, offset, size of the key: 8 bytes at most
    to += 2 + first + second
    copy_short(to, key, key_bytes)
    to += key_bytes
    put_u32le(to, <uint32_t>short_varint(zigzag64(value_size), &third))
    to += third
    copy_short(to, value, value_bytes)
    to += value_bytes
    to[0] = 0
    return to + 1


cdef inline int put_record(Building *b, int64_t time, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    """One v2 record, its headers encoded in b.headers already; TAKEN, NO_ROOM or a table code."""
    cdef int64_t delta = <int64_t>(<uint64_t>time - <uint64_t>b.base_time) if b.count else 0
    cdef int64_t size
    cdef uint8_t *to
    if likely(key_size + value_size + RECORD_MOST <= b.limit - b.body.used and b.headers.used == 1
              and is_short(key_size, value_size, zigzag64(delta), 2 * <uint64_t>b.count)):
        if growing_reserve(&b.body, key_size + value_size + RECORD_MOST) != TABLE_OK:
            return TABLE_MEMORY
        to = put_short(b.body.data + b.body.used, zigzag64(delta), 2 * <uint64_t>b.count, key, key_size, value, value_size)
        b.body.used = to - b.body.data
        record_counted(b, time)
        return TAKEN
    size = (1 + varint_size(delta) + varint_size(b.count) + varint_size(key_size) + varint_size(value_size)
            + (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0) + b.headers.used)
    if size > INT32_MAX - V2_HEAD - RECORD_MOST:
        return TABLE_FULL
    if b.count and b.body.used + size + varint_size(size) > b.limit:
        return NO_ROOM
    if growing_reserve(&b.body, size + 5) != TABLE_OK:
        return TABLE_MEMORY
    to = write_varint32(b.body.data + b.body.used, <int32_t>size)
    to[0] = 0
    to = write_varint64(to + 1, delta)
    to = write_varint32(to, b.count)
    to = put_blob(to, key, <int32_t>key_size)
    to = put_blob(to, value, <int32_t>value_size)
    if likely(b.headers.used == 1):
        to[0] = 0
    else:
        memcpy(to, b.headers.data, b.headers.used)
    b.body.used = to + b.headers.used - b.body.data
    record_counted(b, time)
    return TAKEN


cdef inline void record_counted(Building *b, int64_t time) noexcept nogil:
    if b.count == 0:
        b.base_time = b.max_time = time
    elif time > b.max_time:
        b.max_time = time
    b.count += 1


cdef void put_message(uint8_t *to, int magic, int attributes, int64_t offset, int64_t time, const uint8_t *key, int64_t key_size,
                      const uint8_t *value, int64_t value_size) noexcept nogil:
    """One v0 or v1 message; the room is there (`message_size`)."""
    cdef uint8_t *start = to
    to += V1_VALUES if magic == 1 else V0_VALUES
    put_u64(start, offset)
    start[16] = magic
    start[17] = attributes
    if magic == 1:
        put_u64(start + 18, time)
    put_u32(to, <uint32_t>key_size)
    to += 4
    if key_size > 0:
        memcpy(to, key, key_size)
        to += key_size
    put_u32(to, <uint32_t>value_size)
    to += 4
    if value_size > 0:
        memcpy(to, value, value_size)
        to += value_size
    put_u32(start + 8, <uint32_t>(to - start - LOG_OVERHEAD))
    put_u32(start + 12, crc32_update(0, start + 16, to - start - 16))


cdef inline int64_t message_size(int magic, int64_t key_size, int64_t value_size) noexcept nogil:
    return (V1_VALUES if magic == 1 else V0_VALUES) + 8 + (key_size if key_size > 0 else 0) + (value_size if value_size > 0 else 0)


cdef int put_legacy(Building *b, int64_t time, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    cdef int64_t size = message_size(b.magic, key_size, value_size)
    if size > INT32_MAX - 64:
        return TABLE_FULL
    if b.count and b.body.used + size > b.limit:
        return NO_ROOM
    if growing_reserve(&b.body, size) != TABLE_OK:
        return TABLE_MEMORY
    put_message(b.body.data + b.body.used, b.magic, 0, b.count, time, key, key_size, value, value_size)
    b.body.used += size
    if b.count == 0 or time > b.max_time:
        b.max_time = time
    b.count += 1
    return TAKEN


cdef inline int put_row(Building *b, int64_t time, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    if b.magic == 2:
        return put_record(b, time, key, key_size, value, value_size)
    return put_legacy(b, time, key, key_size, value, value_size)


cdef int no_headers(Building *b) noexcept nogil:
    b.headers.used = 0
    if growing_reserve(&b.headers, 16) != TABLE_OK:
        return TABLE_MEMORY
    b.headers.data[0] = 0
    b.headers.used = 1
    return TABLE_OK


cdef int headers_begin(Building *b, int64_t count) noexcept nogil:
    b.headers.used = 0
    if growing_reserve(&b.headers, 16) != TABLE_OK:
        return TABLE_MEMORY
    b.headers.used = write_varint32(b.headers.data, <int32_t>count) - b.headers.data
    return TABLE_OK


cdef int headers_add(Building *b, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    cdef uint8_t *to
    if name_size + value_size > INT32_MAX - 64 or b.headers.used > INT32_MAX:
        return TABLE_FULL
    if growing_reserve(&b.headers, name_size + (value_size if value_size > 0 else 0) + 10) != TABLE_OK:
        return TABLE_MEMORY
    to = put_blob(b.headers.data + b.headers.used, name, <int32_t>name_size)
    to = put_blob(to, value, <int32_t>value_size)
    b.headers.used = to - b.headers.data
    return TABLE_OK


cdef int rows_put_plain(Building *b, Table *t, Py_ssize_t start, Py_ssize_t stop, int64_t now, Py_ssize_t *taken) noexcept nogil:
    """Rows without headers into a v2 batch, until there is no room. What is not short, or near the end of the room, goes by `put_record`."""
    cdef Py_ssize_t row
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t time, key_size, value_size
    cdef int64_t base_time = b.base_time, max_time = b.max_time
    cdef int64_t guess = bytes_total(&t.key, start, stop) + bytes_total(&t.value, start, stop) + (stop - start) * 12
    cdef int32_t first = b.count, count = b.count
    cdef bint plain = is_plain(&t.key) and is_plain(&t.value)
    cdef bint timed = t.timestamp != NULL and t.timestamp_valid == NULL
    cdef bint untimed = t.timestamp == NULL or t.timestamp_nulls == t.rows
    cdef const int32_t *key_starts = t.key.starts            # held here: for all that the compiler knows, records are written over the table
    cdef const int32_t *value_starts = t.value.starts
    cdef const uint8_t *keys = t.key.data
    cdef const uint8_t *values = t.value.data
    cdef const int64_t *times = t.timestamp
    cdef uint64_t delta
    cdef uint8_t *to
    cdef uint8_t *end
    cdef int code = no_headers(b)
    if guess > b.limit - b.body.used:
        guess = b.limit - b.body.used
    if code != TABLE_OK or (guess > 0 and growing_reserve(&b.body, guess) != TABLE_OK):
        return TABLE_MEMORY
    code = TAKEN
    to = b.body.data + b.body.used
    end = room_end(b)
    for row in range(start, stop):
        if likely(plain):
            key, value = keys + key_starts[row], values + value_starts[row]
            key_size, value_size = key_starts[row + 1] - key_starts[row], value_starts[row + 1] - value_starts[row]
        else:
            key_size = bytes_get(t, &t.key, row, &key)
            value_size = bytes_get(t, &t.value, row, &value)
        time = times[row] if timed else now if untimed or not is_timed(t, row) else times[row]
        delta = zigzag64(<int64_t>(<uint64_t>time - <uint64_t>base_time))
        if unlikely(count == 0 or key_size + value_size > end - to or not is_short(key_size, value_size, delta, 2 * <uint64_t>count)):
            b.body.used = to - b.body.data
            b.base_time, b.max_time, b.count = base_time, max_time, count
            code = put_record(b, time, key, key_size, value, value_size)
            if code != TAKEN:
                break
            base_time, max_time, count = b.base_time, b.max_time, b.count
            to = b.body.data + b.body.used
            end = room_end(b)
            continue
        to = put_short(to, delta, 2 * <uint64_t>count, key, key_size, value, value_size)
        if time > max_time:
            max_time = time
        count += 1
    taken[0] += count - first
    b.body.used = to - b.body.data
    b.base_time, b.max_time, b.count = base_time, max_time, count
    return code


cdef inline bint is_plain(const Bytes *c) noexcept nogil:
    """Whether a column has starts and bytes and no null."""
    return not (c.viewed or c.off) and c.valid == NULL


cdef inline uint8_t *room_end(Building *b) noexcept nogil:
    """As far as a record may go, less what is around its key and value, without asking for more room or breaking the limit."""
    return b.body.data + (b.limit if b.limit < b.body.room else b.body.room) - RECORD_MOST


cdef int rows_put(Building *b, Table *t, Py_ssize_t start, Py_ssize_t stop, int64_t now, Py_ssize_t *taken) noexcept nogil:
    """Rows of a table until there is no room."""
    cdef Py_ssize_t row, n
    cdef int code
    cdef const uint8_t *name
    cdef const uint8_t *key
    cdef const uint8_t *data
    cdef int64_t size, name_size, key_size
    if b.magic == 2 and t.header_at == NULL:
        return rows_put_plain(b, t, start, stop, now, taken)
    for row in range(start, stop):
        code = no_headers(b)
        if t.header_at != NULL and t.header_at[row] != t.header_at[row + 1]:
            code = headers_begin(b, t.header_at[row + 1] - t.header_at[row])
            for n in range(t.header_at[row], t.header_at[row + 1]):
                if code == TABLE_OK:
                    name_size = bytes_get(t, &t.name, n, &name)
                    size = bytes_get(t, &t.header_value, n, &data)
                    code = headers_add(b, name, name_size, data, size)
        if code != TABLE_OK:
            return code
        key_size = bytes_get(t, &t.key, row, &key)
        size = bytes_get(t, &t.value, row, &data)
        code = put_row(b, t.timestamp[row] if is_timed(t, row) else now, key, key_size, data, size)
        if code != TAKEN:
            return code
        taken[0] += 1
    return TAKEN


cdef uint32_t copy_summed(uint8_t *to, const uint8_t *data, int64_t size, uint32_t crc) noexcept nogil:
    """Copy and go on with the CRC-32C, in pieces that stay in the cache between the two."""
    cdef int64_t piece
    while size > 0:
        piece = size if size < COPY_PIECE else COPY_PIECE
        crc = crc32c_update(crc, data, piece)
        memcpy(to, data, piece)
        to += piece
        data += piece
        size -= piece
    return crc


cdef uint32_t body_summed(uint8_t *batch, const uint8_t *body, int64_t size) noexcept nogil:
    """The CRC of a v2 batch whose head is written, and whose body is copied to it, or is there (NULL)."""
    cdef uint32_t crc = crc32c_update(0, batch + 21, V2_HEAD - 21)
    if body == NULL:
        return crc32c_update(crc, batch + V2_HEAD, size)
    return copy_summed(batch + V2_HEAD, body, size, crc)
