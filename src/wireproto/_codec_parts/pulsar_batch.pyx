# Pulsar entries to Columns: MESSAGE frames, their metadata walked by hand, batches split.
#
#     frame      u32 command size · BaseCommand · [0x0e02 u32 size · BrokerEntryMetadata] · [0x0e01 u32 CRC-32C of all that follows]
#                · u32 metadata size · MessageMetadata · payload                        (a frame here: what follows its own 4-byte length)
#     payload    after unpacking, when num_messages_in_batch is present: { u32 size · SingleMessageMetadata · payload_size bytes }*
#     fields     BaseCommand 9 message · CommandMessage 2 id {1 ledger, 2 entry} 3 redelivery count 4 ack set
#                MessageMetadata 3 publish time 4 properties 6 key 8 compression 9 plain size 11 number in batch 12 event time
#                13 encryption keys 17 key is base64 20 marker 25 null value 27 chunks 30 null key 31 batch indexes left by compaction
#                SingleMessageMetadata 1 properties 2 key 3 payload size 4 compacted out 5 event time 6 key is base64 9 null value 10 null key
#     ack set    64-bit words, lowest bit first; set: not acked yet
#
# May assume: nothing of the bytes. Must not: hand out part of an entry; one that cannot be read gives no row and says why in its facts.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from wireproto._codec_parts.endian cimport get_u16, get_u32
from wireproto._codec_parts.varint cimport read_uvarint64

from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError, Truncated

cdef tuple PULSAR_CODECS = ("none", "lz4-block", "zlib", "zstd", "snappy-raw")

cdef struct Tag:                 # a protobuf field
    uint32_t number
    uint32_t kind                # 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
    uint64_t value
    const uint8_t *data
    int64_t size


cdef int next_tag(const uint8_t **p, const uint8_t *end, Tag *tag) noexcept nogil:
    """The next field: 1, 0 at the end, -1 when the bytes contradict protobuf."""
    cdef uint64_t head
    if p[0] >= end:
        return 0
    if unlikely(read_uvarint64(p, end, &head) <= 0 or head >> 3 == 0 or head >> 32):
        return -1
    tag.number = <uint32_t>(head >> 3)
    tag.kind = <uint32_t>(head & 7)
    if tag.kind == 0:
        return 1 if read_uvarint64(p, end, &tag.value) > 0 else -1
    if tag.kind == 2:
        if unlikely(read_uvarint64(p, end, &tag.value) <= 0 or tag.value > <uint64_t>(end - p[0])):
            return -1
        tag.data = p[0]
        tag.size = <int64_t>tag.value
        p[0] += tag.size
        return 1
    if tag.kind != 1 and tag.kind != 5:
        return -1
    if end - p[0] < (8 if tag.kind == 1 else 4):
        return -1
    p[0] += 8 if tag.kind == 1 else 4
    return 1


cdef struct PulsarHead:          # of a message, from MessageMetadata or SingleMessageMetadata
    const uint8_t *start
    const uint8_t *end
    uint32_t property_number
    int64_t key_size
    const uint8_t *key
    bint key_encoded
    bint null_key
    bint null_value
    bint has_properties
    bint compacted_out
    int64_t event_time
    int64_t payload_size
    # MessageMetadata alone
    int64_t publish_time
    uint64_t compression
    uint64_t plain_size
    int64_t batch                # -1: not a batch
    bint marker
    bint encrypted
    bint chunked
    int64_t survivors            # number of batch indexes listed


cdef int64_t count_packed(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef int64_t count = 0
    cdef uint64_t value
    while read_uvarint64(&p, end, &value) > 0:
        count += 1
    return count


cdef bint read_metadata(PulsarHead *h, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef Tag tag
    cdef int got
    memset(h, 0, sizeof(h[0]))
    h.start, h.end, h.key_size, h.batch, h.property_number = p, end, -1, -1, 4
    while True:
        got = next_tag(&p, end, &tag)
        if got <= 0:
            return got == 0
        if tag.kind == 0:
            if tag.number == 3:
                h.publish_time = <int64_t>tag.value
            elif tag.number == 8:
                h.compression = tag.value
            elif tag.number == 9:
                h.plain_size = <uint32_t>tag.value
            elif tag.number == 11:
                h.batch = <int32_t>tag.value
                if h.batch < 0:
                    return False
            elif tag.number == 12:
                h.event_time = <int64_t>tag.value
            elif tag.number == 17:
                h.key_encoded = tag.value != 0
            elif tag.number == 20:
                h.marker = True
            elif tag.number == 25:
                h.null_value = tag.value != 0
            elif tag.number == 27:
                h.chunked = tag.value > 1
            elif tag.number == 30:
                h.null_key = tag.value != 0
            elif tag.number == 31:
                h.survivors += 1
        elif tag.kind == 2:
            if tag.number == 31:
                h.survivors += count_packed(tag.data, tag.data + tag.size)
            elif tag.number == 4:
                h.has_properties = True
            elif tag.number == 6:
                h.key, h.key_size = tag.data, tag.size
            elif tag.number == 13:
                h.encrypted = True


cdef bint read_single(PulsarHead *h, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef Tag tag
    cdef int got
    memset(h, 0, sizeof(h[0]))
    h.start, h.end, h.key_size, h.payload_size, h.property_number = p, end, -1, -1, 1
    while True:
        got = next_tag(&p, end, &tag)
        if got <= 0:
            return got == 0 and h.payload_size >= 0
        if tag.kind == 0:
            if tag.number == 3:
                h.payload_size = <int32_t>tag.value
            elif tag.number == 5:
                h.event_time = <int64_t>tag.value
            elif tag.number == 4:
                h.compacted_out = tag.value != 0
            elif tag.number == 6:
                h.key_encoded = tag.value != 0
            elif tag.number == 9:
                h.null_value = tag.value != 0
            elif tag.number == 10:
                h.null_key = tag.value != 0
        elif tag.kind == 2:
            if tag.number == 2:
                h.key, h.key_size = tag.data, tag.size
            elif tag.number == 1:
                h.has_properties = True


cdef struct PulsarEntryState:
    int64_t ledger
    int64_t entry
    uint64_t redelivery
    const uint8_t *command
    const uint8_t *command_end
    bint has_ack_set
    int64_t broker_time
    int64_t broker_index
    PulsarHead head
    const uint8_t *payload
    const uint8_t *end
    const uint8_t *why_at
    const char *why
    bint crc_wrong
    bint cut
    bint bounded_after, bounded_before
    int64_t after[3]
    int64_t before[3]


cdef int lost(PulsarEntryState *e, const char *why, const uint8_t *at) noexcept nogil:
    e.why = why
    e.why_at = at
    return BATCH_BAD


cdef bint find_message(PulsarEntryState *e, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The CommandMessage in a BaseCommand: ids, counts, and whether there is an ack set."""
    cdef Tag tag
    cdef int got
    cdef const uint8_t *q
    e.command = NULL
    while True:
        got = next_tag(&p, end, &tag)
        if got < 0:
            return False
        if got == 0:
            break
        if tag.number == 9 and tag.kind == 2:
            e.command, e.command_end = tag.data, tag.data + tag.size
    if e.command == NULL:
        return False
    p = e.command
    while True:
        got = next_tag(&p, e.command_end, &tag)
        if got <= 0:
            return got == 0
        if tag.number == 3 and tag.kind == 0:
            e.redelivery = <uint32_t>tag.value
        elif tag.number == 4:
            e.has_ack_set = True
        elif tag.number == 2 and tag.kind == 2:
            q = tag.data
            end = tag.data + tag.size
            while True:
                got = next_tag(&q, end, &tag)
                if got < 0:
                    return False
                if got == 0:
                    break
                if tag.kind == 0 and tag.number == 1:
                    e.ledger = <int64_t>tag.value
                elif tag.kind == 0 and tag.number == 2:
                    e.entry = <int64_t>tag.value


cdef int open_entry(PulsarEntryState *e, const uint8_t *p, const uint8_t *end, bint check_crc) noexcept nogil:
    """Take a frame apart behind its command, up to the payload as it was sent."""
    cdef int64_t size
    cdef const uint8_t *q
    cdef Tag tag
    e.broker_time = e.broker_index = -1
    if end - p >= 6 and get_u16(p) == 0x0E02:
        size = get_u32(p + 2)
        if size > end - p - 6:
            return lost(e, "broker metadata ends beyond the frame", p)
        q = p + 6
        while next_tag(&q, p + 6 + size, &tag) > 0:
            if tag.kind == 0 and tag.number == 1:
                e.broker_time = <int64_t>tag.value
            elif tag.kind == 0 and tag.number == 2:
                e.broker_index = <int64_t>tag.value
        p += 6 + size
    if end - p >= 6 and get_u16(p) == 0x0E01:
        if check_crc and crc32c_update(0, p + 6, end - p - 6) != get_u32(p + 2):
            e.crc_wrong = True
            return lost(e, "the entry's CRC is wrong", p)
        p += 6
    if end - p < 4:
        e.cut = True
        return lost(e, "the frame ends before its metadata", p)
    size = get_u32(p)
    if size > end - p - 4:
        e.cut = True
        return lost(e, "metadata ends beyond the frame", p)
    if not read_metadata(&e.head, p + 4, p + 4 + size):
        return lost(e, "metadata is no protobuf, or counts below zero", p)
    e.payload = p + 4 + size
    e.end = end
    return BATCH_NEXT


cdef int push_pulsar(PulsarEntryState *e, Table *t, PulsarHead *h, int64_t index, const uint8_t *value, int64_t size, int64_t slack) noexcept nogil:
    """One row; room for it is there."""
    cdef Py_ssize_t row = t.rows
    cdef int64_t time = h.event_time if h.event_time else e.head.publish_time
    cdef int64_t key_size = -1 if h.null_key else h.key_size
    cdef int code
    put_position(t, row, e.ledger, e.entry, <int32_t>index)
    code = put_timestamp(t, row, time, time != 0)
    if key_size > 0 and h.key_encoded and not t.key.off:
        key_size = decode_base64(h.key, key_size, t.key.data + t.key.used)
        if key_size < 0:
            return lost(e, "a key is marked as base64 and is not", h.key)
        t.key.used += key_size
        t.key.starts[row + 1] = <int32_t>t.key.used
    else:
        code |= bytes_push(&t.key, row, t.row_room, h.key, key_size, 0)
    code |= bytes_push(&t.value, row, t.row_room, value, -1 if h.null_value else size, slack)
    if code != TABLE_OK:
        return TABLE_MEMORY
    if h.has_properties and t.wanted & WANT_HEADERS:
        code = push_properties(e, t, h)
        if code != TABLE_OK:
            return code
    end_row(t)
    return BATCH_NEXT


cdef int push_properties(PulsarEntryState *e, Table *t, PulsarHead *h) noexcept nogil:
    cdef const uint8_t *p = h.start
    cdef const uint8_t *q
    cdef Tag tag, part
    cdef const uint8_t *name
    cdef const uint8_t *value
    cdef int64_t name_size, value_size
    cdef int code
    while next_tag(&p, h.end, &tag) > 0:
        if tag.number != h.property_number or tag.kind != 2:
            continue
        name = value = EMPTY_BYTES
        name_size = value_size = 0
        q = tag.data
        while q < tag.data + tag.size:
            if next_tag(&q, tag.data + tag.size, &part) <= 0:
                return lost(e, "a property is no protobuf", tag.data)
            if part.kind == 2 and part.number == 1:
                name, name_size = part.data, part.size
            elif part.kind == 2 and part.number == 2:
                value, value_size = part.data, part.size
        code = push_named(t, name, name_size, value, value_size)
        if code != TABLE_OK:
            return code
    return TABLE_OK


cdef int64_t decode_base64(const uint8_t *p, int64_t size, uint8_t *to) noexcept nogil:
    """Standard alphabet, padded or not; the number of bytes, -1 when it is none. Needs 3/4 of `size` bytes of room."""
    cdef int64_t n, made = 0
    cdef uint32_t bits = 0
    cdef int held = 0
    cdef uint8_t b
    while size > 0 and p[size - 1] == 61:
        size -= 1
    for n in range(size):
        b = p[n]
        if 65 <= b <= 90:
            b -= 65
        elif 97 <= b <= 122:
            b -= 71
        elif 48 <= b <= 57:
            b += 4
        elif b == 43 or b == 45:
            b = 62
        elif b == 47 or b == 95:
            b = 63
        else:
            return -1
        bits = bits << 6 | b
        held += 6
        if held >= 8:
            held -= 8
            to[made] = <uint8_t>(bits >> held)
            made += 1
    return -1 if size & 3 == 1 else made


@cython.final
cdef class PulsarEntry:
    """Facts of one entry, and which rows of the columns are its.

    Attributes:
        ledger, entry, redelivery_count: of the frame.
        permits: messages in it that are not acknowledged (1 when it is no batch): what a consumer gives back to the broker for it.
        batch_size: messages in the batch, 0 when it is none.
        publish_time: ms; 0 when the metadata could not be read.
        broker_timestamp, broker_index: of the broker's own metadata, -1 without it; the index is the last message's.
        start, stop: its rows.
        error: None, or why it could not be read; then it has no rows.
    """

    cdef readonly int64_t ledger, entry, redelivery_count, permits, batch_size, publish_time, broker_timestamp, broker_index
    cdef readonly Py_ssize_t start, stop
    cdef readonly object error

    def __repr__(self):
        return f"<PulsarEntry {self.ledger}:{self.entry} rows {self.start}:{self.stop}{f' {self.error}' if self.error else ''}>"


def decode_pulsar(
    frames, *, str topic not None, int partition, bint check_crc=True, int64_t limit=256 << 20, after=None, before=None, columns=None,
):
    """Decode MESSAGE frames of one consumer.

    Args:
        frames: an iterable of frames (any buffers), each from behind its 4-byte length on, in order.
        topic, partition: for errors.
        limit: bytes one entry may unpack to.
        after, before: (ledger, entry, index): rows at or before `after`, and at or beyond `before`, are left out; index -1 means the
            whole entry.
        columns: names of the columns to decode, hold and export; None: ledger, entry, index, timestamp, key, value, headers.
    Returns:
        (Columns, [PulsarEntry, …] one a frame). Left out: acked rows of a batch, rows that compaction emptied, markers.
    Raises:
        Malformed: a frame is no MESSAGE command. What is wrong behind its command is in the entry's `error`.
    """
    cdef PulsarEntryState e
    cdef Py_buffer view
    cdef Columns found
    cdef list entries = []
    cdef Table *t = table_new(POSITION_MESSAGE, wanted_of(columns, POSITION_MESSAGE, False))
    if t == NULL:
        raise MemoryError
    found = columns_take(t)
    for frame in frames:
        memset(&e, 0, sizeof(e))
        if after is not None:
            e.after[0], e.after[1], e.after[2] = after
            e.bounded_after = True
        if before is not None:
            e.before[0], e.before[1], e.before[2] = before
            e.bounded_before = True
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            entries.append(read_entry(&e, t, &view, topic, partition, check_crc, limit))
        finally:
            PyBuffer_Release(&view)
    table_trim(t)
    found.stop = t.rows
    return found, entries


cdef PulsarEntry read_entry(PulsarEntryState *e, Table *t, Py_buffer *view, str topic, int partition, bint check_crc, int64_t limit):
    cdef const uint8_t *p = <const uint8_t *>view.buf
    cdef const uint8_t *end = p + view.len
    cdef PulsarEntry found = PulsarEntry.__new__(PulsarEntry)
    cdef Py_ssize_t rows = t.rows, headers = t.headers
    cdef int64_t size = get_u32(p) if view.len >= 4 else -1
    cdef PulsarEntryState unchecked
    cdef int code
    if size < 0 or size > view.len - 4 or not find_message(e, p + 4, p + 4 + size):
        raise Malformed("not a MESSAGE frame", message="CommandMessage", topic=topic, partition=partition, offset=0)
    found.ledger, found.entry, found.redelivery_count, found.permits = e.ledger, e.entry, e.redelivery, 1
    found.start = rows
    code = open_entry(e, p + 4 + size, end, check_crc)
    found.broker_timestamp, found.broker_index = e.broker_time, e.broker_index
    why = None
    if code == BATCH_NEXT:
        found.publish_time = e.head.publish_time
        if e.head.batch >= 0:
            found.batch_size = e.head.batch
        found.permits = cost(e)
        if not e.head.marker:
            try:
                code = unpack_entry(e, t, limit)
            except DecompressionError as error:
                why = error
                code = lost(e, NULL, e.payload)
    if code != BATCH_NEXT:
        table_cut(t, rows, headers)
        check(code)
        if e.crc_wrong:
            unchecked = e[0]
            if open_entry(&unchecked, p + 4 + size, end, False) == BATCH_NEXT and unchecked.head.batch <= 0xFFFF:
                found.permits = cost(&unchecked)      # the broker counts what it has stored, which is most likely in order
        if why is None:
            why = (ChecksumMismatch if e.crc_wrong else Truncated if e.cut else Malformed)(e.why.decode())
        found.error = why.with_context(
            message="MessageMetadata", topic=topic, partition=partition, position=f"{e.ledger}:{e.entry}",
            offset=e.why_at - p if p <= e.why_at <= end else None)
    found.stop = t.rows
    return found


cdef int unpack_entry(PulsarEntryState *e, Table *t, int64_t limit) except? -3:
    cdef const uint8_t *p
    cdef Py_ssize_t size
    if e.head.encrypted:
        return lost(e, "the entry is encrypted", e.payload)
    if e.head.chunked:
        return lost(e, "the entry is a chunk of a larger message", e.payload)
    if e.head.compression == 0:
        return walk_entry(e, t, e.payload, e.end)
    if e.head.compression > 4:
        raise DecompressionError(f"unknown compression type {e.head.compression}")
    plain = unpacker()(
        PULSAR_CODECS[e.head.compression], PyMemoryView_FromMemory(<char *>e.payload, e.end - e.payload, PyBUF_READ), limit,
        e.head.plain_size)
    p = plain_at(plain, &size)
    return walk_entry(e, t, p, p + size)
