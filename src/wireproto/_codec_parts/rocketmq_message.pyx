# RocketMQ's stored messages to Columns, and the batch body of command 320 both ways.
#
#     stored     int32 size (all) · int32 magic (daa320a7 v1, daa320ab v2, cbd43194 blank) · int32 CRC-32 of body & 7fffffff · int32 queue
#                · int32 flag · int64 queue offset · int64 commit log offset · int32 sysFlag · int64 born time · born host (4 or 16 + int32 port)
#                · int64 store time · store host (the same) · int32 reconsume times · int64 prepared offset · int32 size · body
#                · topic size (v1 int8, v2 int16) · topic · int16 size · properties
#     sysFlag    1 body packed · 10 born host v6 · 20 store host v6 · 40 and 80 inner batch · 700 packed by: 0, 3 zlib, 1 lz4 frame, 2 zstd (hex)
#     properties { name 01 value 02 }*, the last 02 perhaps missing (brokers before 5.2); a name without a value means nothing
#     batch      { int32 size (all) · int32 0 · int32 0 · int32 flag · int32 size · body · int16 size · properties }*
#     inner batch  one stored message whose body is a batch; its offsets count on from property INNER_BASE
#
# KEYS is the key; names that belong to brokers and clients are no headers. May assume: nothing of the bytes. Must not: hand out a part.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
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

cdef bytes ROCKET_NAMES = (
    b"KEYS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG "
    b"CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME "
    b"TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS TRANSACTION_PREPARED_QUEUE_OFFSET "
    b"__TRANSACTIONID__ INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET "
    b"1ST_POP_TIME SHARDING_KEY __SHARDINGKEY INNER_BASE INNER_NUM INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC "
    b"TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_IN_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY "
    b"TIMER_DELAY_LEVEL TIMER_LOG_ROLL_TIME BORN_HOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID CRC32 __CRC32# TRACE_CONTEXT "
)
ROCKETMQ_RESERVED = frozenset(ROCKET_NAMES.decode().split())

cdef struct ReservedName:
    const uint8_t *name
    Py_ssize_t size
    int next                     # in its bucket, -1 at the end

cdef ReservedName RESERVED_NAMES[96]
cdef int RESERVED_BUCKETS[256]


cdef inline int name_bucket(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    return (size * 31 + name[0] * 7 + name[size - 1]) & 255


cdef void fill_reserved() noexcept:
    """Once, at import; only read afterwards."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(ROCKET_NAMES)
    cdef Py_ssize_t start = 0, at
    cdef int n, count = 0, bucket
    for n in range(256):
        RESERVED_BUCKETS[n] = -1
    for at in range(PyBytes_GET_SIZE(ROCKET_NAMES)):
        if p[at] == 32:
            bucket = name_bucket(p + start, at - start)
            RESERVED_NAMES[count].name = p + start
            RESERVED_NAMES[count].size = at - start
            RESERVED_NAMES[count].next = RESERVED_BUCKETS[bucket]
            RESERVED_BUCKETS[bucket] = count
            count += 1
            start = at + 1


fill_reserved()


cdef bint is_reserved(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    cdef int n
    if size == 0:
        return False
    n = RESERVED_BUCKETS[name_bucket(name, size)]
    while n >= 0:
        if RESERVED_NAMES[n].size == size and memcmp(RESERVED_NAMES[n].name, name, size) == 0:
            return True
        n = RESERVED_NAMES[n].next
    return False


cdef struct Text:
    const uint8_t *data          # NULL: not there
    Py_ssize_t size


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
    m.why = "a negative queue offset"
    return m.offset >= 0


cdef bint next_property(const uint8_t **p, const uint8_t *end, Text *name, Text *value) noexcept nogil:
    """The next name that has a value."""
    cdef const uint8_t *stop
    cdef const uint8_t *split
    while p[0] < end:
        stop = <const uint8_t *>memchr(p[0], 2, end - p[0])
        if stop == NULL:
            stop = end
        split = <const uint8_t *>memchr(p[0], 1, stop - p[0])
        if split != NULL and split > p[0] and split + 1 < stop:
            name.data, name.size = p[0], split - p[0]
            value.data, value.size = split + 1, stop - split - 1
            p[0] = stop + 1
            return True
        p[0] = stop + 1
    return False


cdef Text property_of(const uint8_t *p, Py_ssize_t size, const char *wanted, Py_ssize_t wanted_size) noexcept nogil:
    cdef Text name, value, none
    cdef const uint8_t *end = p + size
    none.data = NULL
    none.size = 0
    while next_property(&p, end, &name, &value):
        if name.size == wanted_size and memcmp(name.data, wanted, wanted_size) == 0:
            return value
    return none


cdef int push_rocket(Table *t, int64_t offset, int64_t born, const uint8_t *body, int64_t body_size,
                     const uint8_t *properties, Py_ssize_t size) noexcept nogil:
    """One row: body, key and headers out of the properties."""
    cdef Text name, value
    cdef Text key = property_of(properties, size, "KEYS", 4)
    cdef const uint8_t *end = properties + size
    cdef int code = TABLE_OK
    if t.rows >= t.row_room:
        code = table_reserve(t, MESSAGE_ROWS)
    if code == TABLE_OK:
        code = bytes_reserve(&t.key, key.size)
    if code == TABLE_OK:
        code = bytes_reserve(&t.value, body_size)
    if code != TABLE_OK:
        return code
    put_position(t, t.rows, offset, 0, 0)
    code = put_timestamp(t, t.rows, born, born > 0 or t.kind != POSITION_NONE)
    code |= bytes_push(&t.key, t.rows, t.row_room, key.data, key.size if key.data != NULL else -1, 0)
    code |= bytes_push(&t.value, t.rows, t.row_room, body, body_size, 0)
    if code != TABLE_OK:
        return TABLE_MEMORY
    while next_property(&properties, end, &name, &value):
        if is_reserved(name.data, name.size):
            continue
        code = push_named(t, name.data, name.size, value.data, value.size)
        if code != TABLE_OK:
            return code
    end_row(t)
    return TABLE_OK


cdef int walk_batch_body(Table *t, const uint8_t *p, const uint8_t *end, int64_t offset, int64_t born, int64_t start, int64_t *last) noexcept nogil:
    """The messages of a batch body; BATCH_BAD when it is broken. `last`: the offset of the last row, set when there is one."""
    cdef int64_t size, body_size
    cdef const uint8_t *body
    cdef int code
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
            code = push_rocket(t, offset, born, body, body_size, body + body_size + 2, size - ROCKET_BATCH_LEAST - body_size)
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
    cdef Text real = property_of(m.properties, m.properties_size, "RETRY_TOPIC", 11)
    if real.data == NULL:
        real = property_of(m.properties, m.properties_size, "REAL_TOPIC", 10)
    items = (
        ("commit_log_offset", m.log_offset), ("reconsume_times", m.reconsumed), ("store_timestamp", m.stored), ("queue_id", m.queue),
        ("topic", text_or_none(m.topic)), ("real_topic", text_or_none(real)),
        ("unique_id", text_or_none(property_of(m.properties, m.properties_size, "UNIQ_KEY", 8))),
        ("origin_id", text_or_none(property_of(m.properties, m.properties_size, "ORIGIN_MESSAGE_ID", 17))),
    )
    for name, value in items:
        (<list>facts[name]).extend([value] * rows)


def decode_rocketmq(
    bodies, *, str topic not None, int partition, int64_t start=0, int64_t limit=256 << 20, bint check_crc=True, bint facts=True,
    on_corrupt="raise", columns=None,
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
    return found, following


cdef int64_t read_reply(
    Table *t, const uint8_t *p, Py_ssize_t size, str topic, int partition, int64_t start, int64_t following, int64_t limit, bint check_crc,
    dict noted, list skipped, bint skip,
) except -1:
    cdef const uint8_t *begin = p
    cdef const uint8_t *end = p + size
    cdef Stored m
    cdef Py_ssize_t rows, headers
    memset(&m, 0, sizeof(m))
    while p < end:
        if not read_stored(&m, p, end):
            kind = Truncated if end - p < 8 or get_i32(p) > end - p else Malformed
            raise kind(m.why.decode(), message="stored message", topic=topic, partition=partition,
                       position=m.offset if m.offset >= 0 else None, offset=p - begin)
        if not m.blank:
            rows, headers = t.rows, t.headers
            try:
                following = max(following, read_body(t, &m, start, limit - t.value.used, check_crc) + 1)
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


cdef int64_t read_body(Table *t, Stored *m, int64_t start, int64_t limit, bint check_crc) except -1:
    """The rows of one stored message; returns its last queue offset."""
    cdef const uint8_t *body = m.body
    cdef int64_t size = m.body_size, offset = m.offset
    cdef int64_t last = offset
    cdef int code, codec
    cdef Text base
    if check_crc and size and crc32_update(0, body, size) & 0x7FFFFFFF != m.crc & 0x7FFFFFFF:
        raise ChecksumMismatch("the CRC of a body is wrong")
    if offset < start and m.flags & ROCKET_INNER != ROCKET_INNER:
        return offset
    if m.flags & ROCKET_PACKED:
        codec = m.flags >> 8 & 7
        if codec > 3:
            raise DecompressionError(f"unknown compression type {codec}")
        plain = unpacker()(ROCKET_CODECS[codec], PyMemoryView_FromMemory(<char *>body, size, PyBUF_READ), limit if limit > 0 else 0)
        body = <const uint8_t *>PyBytes_AS_STRING(plain)
        size = PyBytes_GET_SIZE(plain)
    if m.flags & ROCKET_INNER != ROCKET_INNER:
        check(push_rocket(t, offset, m.born, body, size, m.properties, m.properties_size))
        return offset
    base = property_of(m.properties, m.properties_size, "INNER_BASE", 10)
    if base.data != NULL:
        try:
            offset = int(base.data[:base.size])
        except ValueError:
            raise Malformed("INNER_BASE is no number") from None
    code = walk_batch_body(t, body, body + size, offset, m.born, start, &last)
    if code == BATCH_BAD:
        raise Malformed("an inner batch is broken")
    check(code)
    return max(m.offset, last)


def decode_rocketmq_batch(body):
    """Decode the body of a batch send (command 320) into rows without positions or timestamps.

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
