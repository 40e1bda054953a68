# Kafka record sections, batch by batch: what a Fetch answers for one partition, walked without the GIL.
#
# A section is batches (and message sets' messages) one after the other, of any magic, the last one perhaps cut off by the broker:
#
#     v2 batch   int64 base offset · int32 length (of what follows) · int32 leader epoch · int8 magic 2 · uint32 CRC-32C (from attributes)
#                · int16 attributes · int32 last offset delta · int64 base timestamp · int64 max timestamp · int64 producer id
#                · int16 producer epoch · int32 base sequence · int32 count · records                         (61 bytes, then records)
#     attributes 0-2 codec (none gzip snappy lz4 zstd) · 3 log append time · 4 transactional · 5 control · 6 base timestamp is a delete horizon
#     record     varint length · int8 attributes · varint timestamp delta · varint offset delta · varint key size · key
#                · varint value size · value · varint count · { varint name size · name · varint value size · value }*       (zigzag; size -1: null)
#     control    key: int16 version · int16 type (0 abort, 1 commit)
#     v0, v1     see kafka_legacy.pyx; magic lies at byte 16 in all of them
#
# May assume: the section's bytes stay (the caller holds the buffer). Must not: touch Python, read a byte before it is known to be there,
# or reserve by a count that the bytes cannot hold. The base offset is not under the CRC: the broker writes it afterwards.

from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wireproto._codec_parts.crc cimport crc32_update, crc32c_update
from wireproto._codec_parts.endian cimport get_i16, get_i32, get_i64, get_u32
from wireproto._codec_parts.varint cimport read_varint32, read_varint64

cdef enum:
    BATCH_NEXT = 1           # one more is behind it
    BATCH_END = 2            # no whole batch is left
    BATCH_PACKED = 3         # s.packed must be unpacked (with the interpreter), then go on with walk_unpacked
    BATCH_BAD = 4            # s.why says why; the section can go on behind it
    BATCH_LOST = 5           # s.why says why; where the next batch begins is unknown
    BATCH_KEEP = 6           # the table's views need the section kept (with the interpreter); then the same batch again
    LOG_OVERHEAD = 12
    MAGIC_AT = 16
    V2_HEAD = 61
    V2_LEAST = 49            # the least an int32 length may say
    RECORD_LEAST = 7
    VIEWS_FROM = 400         # bytes a record, on average, from which on values are views: copying costs more than a view then
    CRC_STEP = 32768         # a longer batch is summed in such steps as its records are read, so that memory is gone through once
    CODEC_MASK = 7
    APPEND_TIME = 8
    TRANSACTIONAL = 16
    CONTROL = 32

cdef struct BatchHead:            # of the batch in hand
    int64_t base
    int64_t last             # last offset, whether or not a record is there
    int32_t size             # whole batch
    int magic
    int attributes
    int32_t last_delta
    int64_t base_time
    int64_t max_time
    int64_t producer
    int32_t count

cdef struct Aborted:
    int64_t producer
    int64_t first
    bint active

cdef struct Section:
    const uint8_t *start
    const uint8_t *at
    const uint8_t *end
    Table *table
    const uint8_t *base      # where the kept buffer begins that the section lies in
    int32_t buffer           # its number among the table's; -1: not kept
    const uint8_t *in_base   # the same of the batch in hand, which may have been unpacked
    int32_t in_buffer
    const uint8_t *in_end    # where the bytes end that are likely to hold more of the kind, for estimates
    int64_t fetch_offset
    int64_t stop
    int64_t next
    bint check_crc
    bint committed
    Aborted *aborted
    Py_ssize_t aborted_count
    BatchHead head
    const uint8_t *packed
    Py_ssize_t packed_size
    const uint8_t *summed    # the CRC of the batch in hand is known up to here: `sum`; NULL: it is not summed on the way
    uint32_t sum
    Py_ssize_t rows_before
    Py_ssize_t headers_before
    const char *why
    bint crc_wrong
    int64_t why_at


cdef int bad(Section *s, const char *why, int code=BATCH_BAD) noexcept nogil:
    s.why = why
    s.crc_wrong = False
    s.why_at = s.at - s.start
    return code


cdef int bad_crc(Section *s, const char *why) noexcept nogil:
    bad(s, why)
    s.crc_wrong = True
    return BATCH_BAD


cdef int read_head(Section *s) noexcept nogil:
    """Read what every format has in common, and v2's head; BATCH_NEXT when the batch is whole."""
    cdef BatchHead *h = &s.head
    cdef const uint8_t *p = s.at
    cdef int64_t size
    if s.end - p <= MAGIC_AT:
        return BATCH_END
    h.base = h.last = get_i64(p)
    size = <int64_t>get_i32(p + 8) + LOG_OVERHEAD
    h.magic = p[MAGIC_AT]
    h.producer = -1
    h.last_delta = 0
    h.count = 1
    if h.magic > 2:
        return bad(s, "unknown magic of a record batch", BATCH_LOST)
    if size < (V2_LEAST + LOG_OVERHEAD if h.magic == 2 else 26 if h.magic == 0 else 34):
        return bad(s, "a batch is smaller than its head", BATCH_LOST)
    if size > s.end - p:
        return BATCH_END
    h.size = <int32_t>size if size <= INT32_MAX else INT32_MAX
    if h.magic < 2:
        h.attributes = p[17]
    else:
        h.attributes = get_i16(p + 21)
        h.last_delta = get_i32(p + 23)
        h.base_time = get_i64(p + 27)
        h.max_time = get_i64(p + 35)
        h.producer = get_i64(p + 43)
        h.count = get_i32(p + 57)
    if size > INT32_MAX:
        return bad(s, "a batch of 2 GiB")
    if h.base < 0 or h.last_delta < 0 or h.base > INT64_MAX - 1 - h.last_delta:
        return bad(s, "a batch's offsets are negative or run over")
    h.last = h.base + h.last_delta
    return BATCH_NEXT


cdef int walk_batch(Section *s) noexcept nogil:
    """Read the batch at s.at into the table. s.at stays on it; `pass_batch` goes on."""
    cdef BatchHead *h = &s.head
    cdef const uint8_t *p = s.at
    cdef int code = read_head(s)
    cdef bint wanted, packed
    s.rows_before = s.table.rows
    s.headers_before = s.table.headers
    if code != BATCH_NEXT:
        return code
    s.in_base, s.in_buffer, s.in_end = s.base, s.buffer, s.end
    if h.magic < 2:
        if s.check_crc and get_u32(p + 12) != crc32_update(0, p + 16, h.size - 16):
            return bad_crc(s, "the CRC is wrong")
        if h.last < s.fetch_offset:
            return BATCH_NEXT
        return BATCH_KEEP if s.table.value.viewed and s.buffer < 0 and not h.attributes & CODEC_MASK else walk_message(s)
    wanted = h.attributes & CONTROL or not (                # control batches are always read: they end transactions
        h.last < s.fetch_offset or s.stop <= h.base or (s.committed and h.attributes & TRANSACTIONAL and is_aborted(s)))
    packed = h.attributes & CODEC_MASK
    if wanted and not packed and s.table.value.viewed and s.buffer < 0:
        return BATCH_KEEP
    s.summed, s.sum = p + 21, 0
    if s.check_crc and (packed or not wanted or h.size <= CRC_STEP or h.attributes & CONTROL) and not sum_agrees(s):
        return bad_crc(s, "the CRC is wrong")
    if not wanted:
        return BATCH_NEXT
    if packed:
        s.packed = p + V2_HEAD
        s.packed_size = h.size - V2_HEAD
        return BATCH_PACKED
    code = walk_records(s, p + V2_HEAD, p + h.size, s.check_crc)
    if s.check_crc and not sum_agrees(s):                 # whatever was found: bytes that are not what was written say nothing
        return bad_crc(s, "the CRC is wrong")
    return code


cdef const uint8_t *sum_on(Section *s) noexcept nogil:
    """Take the CRC of the batch in hand a step on; where it has got to."""
    cdef Py_ssize_t left = s.at + s.head.size - s.summed
    cdef Py_ssize_t step = CRC_STEP if left > CRC_STEP else left
    s.sum = crc32c_update(s.sum, s.summed, step)
    s.summed += step
    return s.summed


cdef bint sum_agrees(Section *s) noexcept nogil:
    """Sum the rest of the batch in hand; whether that is the CRC which its head gives."""
    cdef Py_ssize_t left = s.at + s.head.size - s.summed
    s.sum = crc32c_update(s.sum, s.summed, left)
    s.summed += left
    return s.sum == get_u32(s.at + 17)


cdef inline void pass_batch(Section *s) noexcept nogil:
    """Step over the batch in hand, for which the next offset is now known."""
    if s.table != NULL and s.table.wanted >= WANT_EXTRA:
        fill_extras(s)
    s.at += s.head.size
    if s.head.last + 1 > s.next:
        s.next = s.head.last + 1


cdef void fill_extras(Section *s) noexcept nogil:
    """The facts of the batch in hand, for each of its rows."""
    cdef Table *t = s.table
    cdef const uint8_t *p = s.at
    cdef bint v2 = s.head.magic == 2
    cdef Py_ssize_t row
    cdef int64_t delta
    cdef int32_t first = <int32_t>get_i32(p + 53) if v2 else -1
    cdef int32_t number
    if t.extra[EXTRA_LEADER_EPOCH] != NULL:
        number = <int32_t>get_i32(p + 12) if v2 else -1
        for row in range(s.rows_before, t.rows):
            (<int32_t *>t.extra[EXTRA_LEADER_EPOCH])[row] = number
    if t.extra[EXTRA_PRODUCER_ID] != NULL:
        for row in range(s.rows_before, t.rows):
            (<int64_t *>t.extra[EXTRA_PRODUCER_ID])[row] = s.head.producer
    if t.extra[EXTRA_PRODUCER_EPOCH] != NULL:
        number = get_i16(p + 51) if v2 else -1
        for row in range(s.rows_before, t.rows):
            (<int32_t *>t.extra[EXTRA_PRODUCER_EPOCH])[row] = number
    if t.extra[EXTRA_SEQUENCE] != NULL:
        for row in range(s.rows_before, t.rows):
            delta = t.p0[row] - s.head.base
            (<int32_t *>t.extra[EXTRA_SEQUENCE])[row] = -1 if first < 0 else <int32_t>((first + delta) & INT32_MAX)   # wraps to 0
    if t.extra[EXTRA_TRANSACTIONAL] != NULL:
        for row in range(s.rows_before, t.rows):
            (<uint8_t *>t.extra[EXTRA_TRANSACTIONAL])[row] = v2 and s.head.attributes & TRANSACTIONAL != 0
    if t.extra[EXTRA_TIMESTAMP_TYPE] != NULL:
        number = -1 if s.head.magic == 0 else s.head.attributes & APPEND_TIME != 0
        for row in range(s.rows_before, t.rows):
            (<int32_t *>t.extra[EXTRA_TIMESTAMP_TYPE])[row] = number


cdef int walk_section(Section *s) noexcept nogil:
    """Batch by batch until something needs the interpreter or nothing whole is left."""
    cdef int code
    while True:
        code = walk_batch(s)
        if code != BATCH_NEXT:
            return code
        pass_batch(s)


cdef bint is_aborted(Section *s) noexcept nogil:
    """Whether the batch's producer is within an aborted transaction here. The list may be in any order."""
    cdef Py_ssize_t n
    cdef bint found = False
    for n in range(s.aborted_count):
        if s.aborted[n].producer == s.head.producer and s.aborted[n].active and s.aborted[n].first <= s.head.last:
            found = True
    return found


cdef void end_transaction(Section *s, const uint8_t *key, int64_t size) noexcept nogil:
    """A marker: an abort ends the aborted transactions of its producer that began before it."""
    cdef Py_ssize_t n
    if size < 4 or get_i16(key + 2) != 0:
        return
    for n in range(s.aborted_count):
        if s.aborted[n].producer == s.head.producer and s.aborted[n].first <= s.head.last:
            s.aborted[n].active = False


cdef int room_for(Bytes *c, int64_t need, int64_t share, int64_t left) noexcept nogil:
    """Room for a value of `need` bytes and, if its column keeps that share (of 256) of what is left to read, for all that follow."""
    cdef int64_t guess
    if need + COPY_SLACK > left:
        return bytes_reserve(c, need)
    guess = ((left >> 7) + 1) * ((share >> 1) + 1) + need
    if c.used + guess > INT32_MAX - COPY_SLACK:
        guess = need
    return bytes_reserve(c, guess if guess < left else left)


cdef int walk_records(Section *s, const uint8_t *p, const uint8_t *end, bint summing) noexcept nogil:
    """The records of a v2 batch, plain by now; s.in_* say where they lie. `summing`: take the CRC on ahead of what is read."""
    cdef BatchHead *h = &s.head
    cdef Table *t = s.table
    cdef bint control = h.attributes & CONTROL != 0
    cdef bint append_time = h.attributes & APPEND_TIME != 0
    cdef bint want_key = t.wanted & WANT_KEY != 0, want_value = t.wanted & WANT_VALUE != 0, want_headers = t.wanted & WANT_HEADERS != 0
    cdef bint want_time = t.wanted & WANT_TIMESTAMP != 0, want_offset = t.wanted & WANT_POSITION != 0, viewed = t.value.viewed
    cdef int32_t n, size, delta, key_size, value_size, headers, delta_most = h.last_delta
    cdef int32_t before = -1
    cdef int64_t time_delta, time
    cdef int64_t first = h.base if h.base > s.fetch_offset else s.fetch_offset
    cdef const uint8_t *summed = s.summed if summing else end
    cdef const uint8_t *section_end = s.in_end
    cdef const uint8_t *stop
    cdef const uint8_t *key
    cdef int code
    cdef Py_ssize_t row = t.rows, more
    cdef Bytes *k = &t.key
    cdef Bytes *v = &t.value
    cdef int64_t *p0
    cdef int64_t *times
    if h.count < 0 or h.count > (end - p) // RECORD_LEAST:
        return bad(s, "a batch's record count does not fit its bytes")
    more = h.count
    if section_end > end and h.count:                    # about as many a byte are expected behind
        more += <Py_ssize_t>((section_end - end) // ((end - p) // h.count + 1))
    if t.rows + h.count > t.row_room:
        code = table_reserve(t, more)
        if code != TABLE_OK:
            return code
    p0, times = t.p0, t.timestamp
    code = TABLE_OK
    for n in range(h.count):
        if unlikely(p >= summed):
            summed = sum_on(s)
        if unlikely(read_varint32(&p, end, &size) <= 0 or size <= 0 or size > end - p):
            code = bad(s, "a record's length does not fit its batch")
            break
        stop = p + size
        p += 1
        if unlikely(read_varint64(&p, stop, &time_delta) <= 0 or read_varint32(&p, stop, &delta) <= 0):
            code = bad(s, "a record ends within its timestamp or offset")
            break
        if unlikely(delta <= before or delta > delta_most):
            code = bad(s, "a record's offset is out of order or beyond its batch")
            break
        before = delta
        if unlikely(read_varint32(&p, stop, &key_size) <= 0 or key_size < -1 or key_size > stop - p):
            code = bad(s, "a record's key does not fit it")
            break
        key = p
        if key_size > 0:
            p += key_size
        if unlikely(read_varint32(&p, stop, &value_size) <= 0 or value_size < -1 or value_size > stop - p):
            code = bad(s, "a record's value does not fit it")
            break
        if unlikely(control or h.base + delta < first or h.base + delta >= s.stop):
            if control and n == 0 and s.committed:
                end_transaction(s, key, key_size)
            p = stop
            continue
        if likely(want_offset):
            p0[row] = h.base + delta
        if likely(want_time):
            time = h.max_time if append_time else <int64_t>(<uint64_t>h.base_time + <uint64_t>time_delta)
            times[row] = time
            if unlikely(time == -1) and put_timestamp(t, row, 0, False) != TABLE_OK:
                code = TABLE_MEMORY
                break
        if likely(want_key):
            code = push_copied(s, k, row, key, key_size, size, end)
            if unlikely(code != TABLE_OK):
                break
        if likely(want_value):
            if viewed:
                code = view_push(v, row, t.row_room, p, value_size, s.in_buffer, s.in_base)
            else:
                code = push_copied(s, v, row, p, value_size, size, end)
            if unlikely(code != TABLE_OK):
                break
        if value_size > 0:
            p += value_size
        if likely(stop - p == 1 and p[0] == 0):          # no headers
            p = stop
        elif want_headers:
            t.rows = row
            if unlikely(read_varint32(&p, stop, &headers) <= 0 or headers < 0 or headers > stop - p):
                code = bad(s, "a record's header count does not fit it")
                break
            if headers:
                code = walk_headers(s, &p, stop, headers)
                if code != TABLE_OK:
                    break
            if unlikely(p != stop):
                code = bad(s, "a record is longer than its fields")
                break
        else:
            p = stop
        row += 1
        if unlikely(t.header_at != NULL):
            t.header_at[row] = <int32_t>t.headers
    t.rows = row
    if code == TABLE_OK:
        return BATCH_NEXT if p == end else bad(s, "a batch is longer than its records")
    return code


cdef inline int push_copied(
    Section *s, Bytes *c, Py_ssize_t row, const uint8_t *p, int32_t size, int32_t record, const uint8_t *end
) noexcept nogil:
    """Copy a key or value of a record of that size, in bytes that go on to `end`; room is made for it and what else is to come."""
    cdef int code
    if likely(size >= 0):
        if unlikely(c.used + size + COPY_SLACK > c.room):
            code = room_for(c, size, 256 * <int64_t>size // record, s.in_end - p)
            if code != TABLE_OK:
                return code
        copy_slack(c.data + c.used, p, size, end - p)
        c.used += size
    elif null_at(c, row, s.table.row_room) != TABLE_OK:
        return TABLE_MEMORY
    c.starts[row + 1] = <int32_t>c.used
    return TABLE_OK


cdef inline int null_at(Bytes *c, Py_ssize_t row, Py_ssize_t row_room) noexcept nogil:
    """Mark a row of a column with starts as null (its start is the caller's)."""
    c.nulls += 1
    return clear_bit(&c.valid, row, row_room)


cdef int walk_headers(Section *s, const uint8_t **at, const uint8_t *stop, int32_t count) noexcept nogil:
    cdef int32_t _n, name_size, size
    cdef const uint8_t *p = at[0]
    cdef const uint8_t *name
    cdef int code
    for _n in range(count):
        if unlikely(read_varint32(&p, stop, &name_size) <= 0 or name_size < 0 or name_size > stop - p):
            return bad(s, "a header's name does not fit its record")
        name = p
        p += name_size
        if unlikely(read_varint32(&p, stop, &size) <= 0 or size < -1 or size > stop - p):
            return bad(s, "a header's value does not fit its record")
        code = push_named(s.table, name, name_size, p, size)
        if code != TABLE_OK:
            return code
        if size > 0:
            p += size
    at[0] = p
    return TABLE_OK


cdef int push_named(Table *t, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    """Add a header whose name any producer may have written: bytes that are no UTF-8 become U+FFFD, as other clients read them."""
    cdef uint8_t *fixed
    cdef uint8_t *to
    cdef int64_t n = 0
    cdef int step, code
    if is_utf8(name, name_size):
        return header_push(t, name, name_size, value, value_size)
    fixed = <uint8_t *>mem_take(3 * name_size)
    if fixed == NULL:
        return TABLE_MEMORY
    to = fixed
    while n < name_size:
        for step in range(1, 5):
            if n + step <= name_size and is_utf8(name + n, step):
                memcpy(to, name + n, step)
                to += step
                n += step
                break
        else:
            to[0], to[1], to[2] = 0xEF, 0xBF, 0xBD
            to += 3
            n += 1
    code = header_push(t, fixed, to - fixed, value, value_size)
    mem_give(fixed)
    return code
