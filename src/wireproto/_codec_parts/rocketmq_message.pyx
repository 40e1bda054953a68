# RocketMQ's stored messages to Columns, and the batch body of command 320 both ways.
#
#     stored     int32 size (all) · int32 magic (daa320a7 v1, daa320ab v2, cbd43194 blank) · int32 CRC-32 of body & 7fffffff · int32 queue
#                · int32 flag · int64 queue offset · int64 commit log offset · int32 sysFlag · int64 born time · born host (4 or 16 + int32 port)
#                · int64 store time · store host (the same) · int32 reconsume times · int64 prepared offset · int32 size · body
#                · topic size (v1 int8, v2 int16) · topic · int16 size · properties
#     sysFlag    1 body packed · 10 born host v6 · 20 store host v6 · 40 and 80 inner batch · 700 packed by: 0, 3 zlib, 1 lz4 frame, 2 zstd (hex)
#     batch      { int32 size (all) · int32 0 · int32 0 · int32 flag · int32 size · body · int16 size · properties }*
#     inner batch  one stored message whose body is a batch; its offsets count on from property INNER_BASE
#
# Properties: rocketmq_properties.pyx. May assume: nothing of the bytes. Must not: hand out a part.

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memset

from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, Truncated, ValueUnsupported

cdef enum:
    ROCKET_LEAST = 91         # a stored message without body, topic and properties, both hosts v4
    ROCKET_PACKED = 0x1
    ROCKET_BORN_V6 = 0x10
    ROCKET_STORE_V6 = 0x20
    ROCKET_INNER = 0xC0
    ROCKET_BATCH_LEAST = 22
    PROPERTIES_MOST = 32767

cdef uint32_t ROCKET_MAGIC_V1 = 0xDAA320A7
cdef uint32_t ROCKET_MAGIC_V2 = 0xDAA320AB
cdef uint32_t ROCKET_MAGIC_BLANK = 0xCBD43194
cdef tuple ROCKET_CODECS = ("zlib", "lz4", "zstd", "zlib")

cdef struct Stored:
    int64_t size
    uint32_t crc
    int32_t queue
    int64_t offset
    int64_t log_offset
    int32_t flags
    int64_t born
    int64_t stored
    int32_t reconsumed
    const uint8_t *body
    int64_t body_size
    Text topic
    const uint8_t *properties
    Py_ssize_t properties_size
    bint blank
    const char *why


cdef bint read_stored(Stored *m, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Take the message at p apart. On False `why` says what is wrong."""
    cdef uint32_t magic
    cdef int64_t size
    m.why = "a stored message ends within its head"
    m.offset = -1
    if end - p < 8:
        return False
    m.size = get_i32(p)
    magic = get_u32(p + 4)
    m.blank = magic == ROCKET_MAGIC_BLANK
    m.why = "a stored message's size does not fit"
    if m.size > end - p or m.size < (8 if m.blank else ROCKET_LEAST):
        return False
    if m.blank:
        return True
    m.why = "unknown magic of a stored message"
    if magic != ROCKET_MAGIC_V1 and magic != ROCKET_MAGIC_V2:
        return False
    end = p + m.size
    m.crc = get_u32(p + 8)
    m.queue = get_i32(p + 12)
    m.offset = get_i64(p + 20)
    m.log_offset = get_i64(p + 28)
    m.flags = get_i32(p + 36)
    m.born = get_i64(p + 40)
    p += 48 + (20 if m.flags & ROCKET_BORN_V6 else 8)
    m.why = "a stored message's body does not fit it"
    if end - p < 8 + (20 if m.flags & ROCKET_STORE_V6 else 8) + 16:
        return False
    m.stored = get_i64(p)
    p += 8 + (20 if m.flags & ROCKET_STORE_V6 else 8)
    m.reconsumed = get_i32(p)
    m.body_size = get_i32(p + 12)
    p += 16
    if m.body_size < 0 or m.body_size > end - p:
        return False
    m.body = p
    p += m.body_size
    m.why = "a stored message's topic does not fit it"
    if end - p < (1 if magic == ROCKET_MAGIC_V1 else 2):
        return False
    size = p[0] if magic == ROCKET_MAGIC_V1 else get_u16(p)
    p += 1 if magic == ROCKET_MAGIC_V1 else 2
    if size > end - p:
        return False
    m.topic.data, m.topic.size = p, size
    p += size
    m.why = "a stored message's properties do not fit it"
    if end - p < 2:
        return False
    size = get_u16(p)
    p += 2
    if size != end - p:
        return False
    m.properties, m.properties_size = p, size
    m.why = "a negative queue offset, or one that nothing can follow"
    return 0 <= m.offset < INT64_MAX


cdef int push_rocket(Table *t, Source *s, int64_t offset, int64_t born, const uint8_t *body, int64_t body_size, int64_t slack,
                     const uint8_t *properties, Py_ssize_t size) noexcept nogil:
    """Add one row: body, and key, time and headers of its properties. `slack` may be read from the body on, which lies elsewhere when unpacked."""
    cdef Text key
    cdef Py_ssize_t row = t.rows
    cdef int code = TABLE_OK
    cdef bint known = born > 0 or t.kind != POSITION_NONE
    key.data, key.size = NULL, -1
    s.own.data = NULL
    if unlikely(row >= t.row_room):                      # about as many are expected behind as fit
        code = table_reserve(t, MESSAGE_ROWS + (s.end - properties) // s.size)
        if code != TABLE_OK:
            return code
    if t.wanted & (WANT_KEY | WANT_HEADERS | WANT_TIMESTAMP):
        code = take_properties(t, s, properties, size, &key)
        if unlikely(code != TABLE_OK):
            return code
        if unlikely(s.own.data != NULL) and read_born(&s.own, &born):
            known = True
    if key.size > 0 and t.key.used + key.size + COPY_SLACK > t.key.room and not t.key.off:
        code = room_for(&t.key, key.size, 256 * key.size // s.size, s.end - key.data)
    if code == TABLE_OK and t.value.used + body_size + COPY_SLACK > t.value.room and not t.value.off:
        code = room_for(&t.value, body_size, 256 * body_size // s.size, slack)
    if unlikely(code != TABLE_OK):
        return code
    put_position(t, row, offset, 0, 0)
    code = put_timestamp(t, row, born, known)
    code |= bytes_push(&t.key, row, t.row_room, key.data, key.size, s.end - key.data)
    code |= bytes_push(&t.value, row, t.row_room, body, body_size, slack)
    if unlikely(code != TABLE_OK):
        return TABLE_MEMORY
    end_row(t)
    return TABLE_OK


cdef int walk_batch_body(Table *t, const uint8_t *p, const uint8_t *end, int64_t offset, int64_t born, int64_t start, int64_t *last) noexcept nogil:
    """The messages of a batch body; BATCH_BAD when it is broken. `last`: the offset of the last row, set when there is one."""
    cdef int64_t size, body_size
    cdef const uint8_t *body
    cdef int code
    cdef Source source
    source.end = end
    while p < end:
        if end - p < ROCKET_BATCH_LEAST:
            return BATCH_BAD
        size = get_i32(p)
        body_size = get_i32(p + 16)
        if size < ROCKET_BATCH_LEAST or size > end - p or body_size < 0 or body_size > size - ROCKET_BATCH_LEAST:
            return BATCH_BAD
        body = p + 20
        if get_u16(body + body_size) != size - ROCKET_BATCH_LEAST - body_size:
            return BATCH_BAD
        if offset >= start:
            source.size = size
            code = push_rocket(t, &source, offset, born, body, body_size, end - body, body + body_size + 2,
                               size - ROCKET_BATCH_LEAST - body_size)
            if code != TABLE_OK:
                return code
            last[0] = offset
        offset += 1
        p += size
    return TABLE_OK


cdef str text_or_none(Text text):
    return None if text.data == NULL else text.data[:text.size].decode("utf-8", "replace")


cdef void note_facts(dict facts, Stored *m, Py_ssize_t rows) except *:
    """The facts of one stored message, once for each row it gave."""
    cdef Text real, unique, origin
    if not property_of(m.properties, m.properties_size, "RETRY_TOPIC", 11, &real):
        property_of(m.properties, m.properties_size, "REAL_TOPIC", 10, &real)
    property_of(m.properties, m.properties_size, "UNIQ_KEY", 8, &unique)
    property_of(m.properties, m.properties_size, "ORIGIN_MESSAGE_ID", 17, &origin)
    items = (
        ("commit_log_offset", m.log_offset), ("reconsume_times", m.reconsumed), ("store_timestamp", m.stored), ("queue_id", m.queue),
        ("topic", text_or_none(m.topic)), ("real_topic", text_or_none(real)),
        ("unique_id", text_or_none(unique)), ("origin_id", text_or_none(origin)),
    )
    for name, value in items:
        (<list>facts[name]).extend([value] * rows)


def decode_rocketmq(
    bodies, *, str topic not None, int partition, int64_t start=0, int64_t limit=256 << 20, bint check_crc=True, bint facts=True,
    on_corrupt="raise", columns=None, tuple home=None,
):
    """Decode the stored messages of pull replies.

    Args:
        bodies: one reply's body, or a list of consecutive ones (any buffers).
        topic, partition: for errors.
        start: rows of a lower queue offset are left out.
        limit: bytes that all bodies of this call together may unpack to.
        facts: fill `columns.facts`: a dict of lists, one item a row: commit_log_offset, reconsume_times, store_timestamp, queue_id,
            topic (as stored), unique_id, real_topic, origin_id (str or None). A slice keeps the whole lists.
        on_corrupt: "raise", or "skip": pass over messages with a wrong CRC or a body that does not unpack, into `columns.skipped`.
        columns: names of the columns to decode, hold and export; None: offset, timestamp, key, value, headers.
        home: name of the broker and id of the queue, for the records' positions; None: they are plain offsets.
    Returns:
        (Columns, next offset): one more than the last message's queue offset, `start` without any.
    Raises:
        ChecksumMismatch, DecompressionError, Malformed, Truncated: with topic, partition, position (queue offset), byte offset.
    """
    cdef Table *t = table_new(POSITION_OFFSET, wanted_of(columns, POSITION_OFFSET, False))
    cdef Py_buffer view
    cdef int64_t following = start
    cdef Columns found
    cdef list skipped = []
    if t == NULL:
        raise MemoryError
    found = columns_take(t)
    noted = {name: [] for name in ("commit_log_offset", "reconsume_times", "store_timestamp", "queue_id", "topic", "unique_id",
                                   "real_topic", "origin_id")} if facts else None
    for body in bodies if isinstance(bodies, (list, tuple)) else (bodies,):
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            following = read_reply(
                t, <const uint8_t *>view.buf, view.len, topic, partition, start, following, limit, check_crc, noted, skipped,
                on_corrupt == "skip")
        finally:
            PyBuffer_Release(&view)
    table_trim(t)
    found.stop = t.rows
    found.facts = noted if facts else ()
    found.skipped = tuple(skipped)
    found.home = home
    return found, following


cdef int64_t read_reply(
    Table *t, const uint8_t *p, Py_ssize_t size, str topic, int partition, int64_t start, int64_t following, int64_t limit, bint check_crc,
    dict noted, list skipped, bint skip,
) except -1:
    cdef const uint8_t *begin = p
    cdef const uint8_t *end = p + size
    cdef Stored m
    cdef Py_ssize_t rows, headers
    cdef int code = TABLE_OK
    memset(&m, 0, sizeof(m))
    while p < end:
        if noted is None:
            if end - p < RELEASE_GIL_FROM:
                p = walk_plain(t, p, end, start, check_crc, &following, &code)
            else:
                with nogil:
                    p = walk_plain(t, p, end, start, check_crc, &following, &code)
            check(code)
            if p >= end:
                break
        if not read_stored(&m, p, end):
            kind = Truncated if end - p < 8 or get_i32(p) > end - p else Malformed
            raise kind(m.why.decode(), message="stored message", topic=topic, partition=partition,
                       position=m.offset if m.offset >= 0 else None, offset=p - begin)
        if not m.blank:
            rows, headers = t.rows, t.headers
            try:
                following = max(following, read_body(t, &m, end, start, limit - t.value.used, check_crc) + 1)
                if noted is not None and t.rows > rows:
                    note_facts(noted, &m, t.rows - rows)
            except (ChecksumMismatch, DecompressionError, Malformed) as why:
                table_cut(t, rows, headers)
                why.with_context(message="stored message", topic=topic, partition=partition, position=m.offset, offset=p - begin)
                if not skip:
                    raise
                skipped.append(why)
                following = max(following, m.offset + 1)
        p += m.size
    return following


cdef const uint8_t *walk_plain(
    Table *t, const uint8_t *p, const uint8_t *end, int64_t start, bint check_crc, int64_t *following, int *code
) noexcept nogil:
    """The rows of stored messages that are as most are: sound, not packed, no inner batch. Returns where it met another, or the end."""
    cdef Stored m
    cdef Source source
    cdef int64_t last = following[0] - 1
    source.end = end
    while p < end:
        if not read_stored(&m, p, end) or m.blank or m.flags & (ROCKET_PACKED | ROCKET_INNER):
            break
        if check_crc and m.body_size and (crc32_update(0, m.body, m.body_size) ^ m.crc) & 0x7FFFFFFF:
            break
        if m.offset >= start:
            source.size = m.size
            code[0] = push_rocket(t, &source, m.offset, m.born, m.body, m.body_size, end - m.body, m.properties, m.properties_size)
            if unlikely(code[0] != TABLE_OK):
                break
        if m.offset > last:
            last = m.offset
        p += m.size
    following[0] = last + 1
    return p


cdef int64_t read_body(Table *t, Stored *m, const uint8_t *end, int64_t start, int64_t limit, bint check_crc) except -1:
    """The rows of one stored message; returns its last queue offset."""
    cdef const uint8_t *body = m.body
    cdef int64_t size = m.body_size, offset = m.offset
    cdef int64_t last = offset
    cdef int64_t slack = end - body
    cdef Py_ssize_t unpacked
    cdef int code, codec
    cdef Text base
    cdef Source source
    source.end, source.size = end, m.size
    if check_crc and size and crc32_update(0, body, size) & 0x7FFFFFFF != m.crc & 0x7FFFFFFF:
        raise ChecksumMismatch("the CRC of a body is wrong")
    if offset < start and m.flags & ROCKET_INNER != ROCKET_INNER:
        return offset
    if m.flags & ROCKET_PACKED:
        codec = m.flags >> 8 & 7
        if codec > 3:
            raise DecompressionError(f"unknown compression type {codec}")
        plain = unpacker()(ROCKET_CODECS[codec], PyMemoryView_FromMemory(<char *>body, size, PyBUF_READ), limit if limit > 0 else 0)
        body = plain_at(plain, &unpacked)
        size = unpacked
        slack = 0
    if m.flags & ROCKET_INNER != ROCKET_INNER:
        check(push_rocket(t, &source, offset, m.born, body, size, slack, m.properties, m.properties_size))
        return offset
    if property_of(m.properties, m.properties_size, "INNER_BASE", 10, &base):
        try:
            offset = int(base.data[:base.size])
        except (ValueError, OverflowError):
            raise Malformed("INNER_BASE is no number of 64 bits") from None
        if offset < 0 or offset > INT64_MAX - size:      # a message of the batch takes more than a byte
            raise Malformed("INNER_BASE is no queue offset")
    code = walk_batch_body(t, body, body + size, offset, m.born, start, &last)
    if code == BATCH_BAD:
        raise Malformed("an inner batch is broken")
    check(code)
    return max(m.offset, last)


def decode_rocketmq_batch(body):
    """Decode the body of a batch send (command 320) into rows without positions; rows with a BORN_TIMESTAMP have timestamps.

    Raises:
        Malformed: sizes contradict each other.
    """
    cdef Table *t = table_new(POSITION_NONE)
    cdef Columns columns
    cdef Py_buffer view
    cdef int64_t last
    cdef int code
    if t == NULL:
        raise MemoryError
    columns = columns_take(t)
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    code = walk_batch_body(t, <const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, 0, 0, 0, &last)
    PyBuffer_Release(&view)
    if code == BATCH_BAD:
        raise Malformed("a batch body is broken")
    check(code)
    columns.stop = t.rows
    return columns
