# Kafka message sets, v0 and v1 (magic 0, 1): single messages, and wrappers whose value is a packed set.
#
#     message    int64 offset · int32 size (of what follows) · uint32 CRC-32 (from magic) · int8 magic · int8 attributes
#                · [v1: int64 timestamp] · int32 key size · key · int32 value size · value                  (size -1: null)
#     attributes 0-2 codec (none gzip snappy lz4) · 3 log append time (v1)
#     wrapper    codec set: value is a message set of the same magic, not packed again. v0: its offsets are the log's. v1: they count
#                from 0 (with gaps after compaction), and the wrapper has the last one's offset; with log append time its timestamp rules.
#
# May assume and must not: as kafka_section.pyx.

cdef enum:
    V0_VALUES = 18          # where key size lies
    V1_VALUES = 26
    MESSAGE_ROWS = 64


cdef struct LegacyMessage:
    int64_t time
    const uint8_t *key
    int32_t key_size
    const uint8_t *value
    int32_t value_size


cdef bint read_message(const uint8_t *p, const uint8_t *end, int magic, LegacyMessage *m) noexcept nogil:
    """Take a message apart that begins at p and must end exactly at `end` (the head is there)."""
    m.time = get_i64(p + 18) if magic == 1 else -1
    p += V1_VALUES if magic == 1 else V0_VALUES
    if end - p < 8:
        return False
    m.key_size = get_i32(p)
    p += 4
    m.key = p
    if m.key_size < -1 or (m.key_size > 0 and m.key_size > end - p - 4):
        return False
    if m.key_size > 0:
        p += m.key_size
    m.value_size = get_i32(p)
    p += 4
    m.value = p
    if m.value_size < -1:
        return False
    return end - p == (m.value_size if m.value_size > 0 else 0)


cdef int push_message(Section *s, int64_t offset, int64_t time, LegacyMessage *m) noexcept nogil:
    cdef Table *t = s.table
    cdef int64_t size
    cdef int code
    if offset < s.fetch_offset or offset >= s.stop:
        return BATCH_NEXT
    if t.rows >= t.row_room:                             # about as many are expected behind as fit
        size = V1_VALUES + 8 + (m.key_size if m.key_size > 0 else 0) + (m.value_size if m.value_size > 0 else 0)
        code = table_reserve(t, MESSAGE_ROWS + (s.in_end - m.value) // size)
        if code != TABLE_OK:
            return code
    code = TABLE_OK
    if m.key_size > 0 and t.key.used + m.key_size + COPY_SLACK > t.key.room and not t.key.off:
        code = room_for(&t.key, m.key_size, 256 * m.key_size // (34 + m.key_size + (m.value_size if m.value_size > 0 else 0)), s.in_end - m.key)
    if code == TABLE_OK and m.value_size > 0 and t.value.used + m.value_size + COPY_SLACK > t.value.room and not t.value.off and not t.value.viewed:
        code = room_for(&t.value, m.value_size, 256 * m.value_size // (34 + m.value_size + (m.key_size if m.key_size > 0 else 0)), s.in_end - m.value)
    if code != TABLE_OK:
        return code
    put_position(t, t.rows, offset, 0, 0)
    code = put_timestamp(t, t.rows, time, time != -1)
    code |= bytes_push(&t.key, t.rows, t.row_room, m.key, m.key_size, s.in_end - m.key)
    if t.value.viewed:
        code |= view_push(&t.value, t.rows, t.row_room, m.value, m.value_size, s.in_buffer, s.in_base)
    else:
        code |= bytes_push(&t.value, t.rows, t.row_room, m.value, m.value_size, s.in_end - m.value)
    if code != TABLE_OK:
        return TABLE_MEMORY
    end_row(t)
    return BATCH_NEXT


cdef int walk_message(Section *s) noexcept nogil:
    """The message or wrapper at s.at."""
    cdef BatchHead *h = &s.head
    cdef LegacyMessage m
    if not read_message(s.at, s.at + h.size, h.magic, &m):
        return bad(s, "a message's key and value do not fit it")
    if h.attributes & CODEC_MASK == 0:
        return push_message(s, h.base, m.time, &m)
    if m.value_size < 0:
        return bad(s, "a wrapper message without a value")
    h.max_time = m.time
    s.packed = m.value
    s.packed_size = m.value_size
    return BATCH_PACKED


cdef int walk_inner(Section *s, const uint8_t *start, const uint8_t *end) noexcept nogil:
    """The messages of a wrapper, plain by now. In here a cut message is an error."""
    cdef BatchHead *h = &s.head
    cdef const uint8_t *p = start
    cdef LegacyMessage m
    cdef int64_t size, offset, base = 0, last = -1
    cdef int code
    if start == end:
        return bad(s, "an empty wrapper message")
    while p < end:                                         # where it ends, before anything is taken from it
        if end - p < (V1_VALUES if h.magic == 1 else V0_VALUES):
            return bad(s, "a packed message set ends within a message")
        size = <int64_t>get_i32(p + 8) + LOG_OVERHEAD
        if p[MAGIC_AT] != h.magic:
            return bad(s, "a packed message has another magic than its wrapper")
        if p[17] & CODEC_MASK:
            return bad(s, "a packed message is packed again")
        if size < (34 if h.magic == 1 else 26) or size > end - p:
            return bad(s, "a packed message's size does not fit its set")
        offset = get_i64(p)
        if offset <= last:
            return bad(s, "packed messages are out of order")
        last = offset
        p += size
    if h.magic == 1:
        base = h.base - last
        if base < 0:
            return bad(s, "a packed message's offset is beyond its wrapper")
    elif last > h.base:
        h.last = last
    p = start
    while p < end:
        size = <int64_t>get_i32(p + 8) + LOG_OVERHEAD
        if s.check_crc and get_u32(p + 12) != crc32_update(0, p + 16, size - 16):
            code = bad(s, "the CRC of a packed message is wrong")
            s.crc_wrong = True
            return code
        if not read_message(p, p + size, h.magic, &m):
            return bad(s, "a packed message's key and value do not fit it")
        code = push_message(s, base + get_i64(p), h.max_time if h.magic == 1 and h.attributes & APPEND_TIME else m.time, &m)
        if code != BATCH_NEXT:
            return code
        p += size
    return BATCH_NEXT
