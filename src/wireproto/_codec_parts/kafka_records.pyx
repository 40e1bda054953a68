# decode_kafka: record sections to Columns, and what their heads tell by themselves.
#
# May assume: nothing of the bytes. Must not: hand out a record twice or leave one out without saying so. What went well before a broken
# batch is handed out first; the next call, which begins at that batch, raises (or skips, if the option says so).

from cpython.buffer cimport Py_buffer, PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError

cdef enum:
    UNPACKED_AT_ONCE = 256 << 20         # bytes

cdef object unpack_block = None          # wireproto.compression.unpack, imported at first use


cdef object unpacker():
    global unpack_block
    if unpack_block is None:
        from wireproto.compression import unpack
        unpack_block = unpack
    return unpack_block


cdef class AbortedList:
    """The aborted transactions of a Fetch answer as C; freed with this object."""

    cdef Aborted *items
    cdef Py_ssize_t count

    def __cinit__(self, aborted):
        pairs = [item if isinstance(item, tuple) else (item.producer_id, item.first_offset) for item in aborted or ()]
        self.items = <Aborted *>calloc(len(pairs) + 1, sizeof(Aborted))
        if self.items == NULL:
            raise MemoryError
        for producer, first in pairs:
            self.items[self.count].producer = producer
            self.items[self.count].first = first
            self.items[self.count].active = True
            self.count += 1

    def __dealloc__(self):
        free(self.items)


def decode_kafka(
    records, *, str topic not None, int partition, int64_t fetch_offset, aborted=(), bint isolation_committed=False,
    bint check_crc=True, stop=None, on_corrupt="raise", int64_t limit=UNPACKED_AT_ONCE, bint facts=False, columns=None,
):
    """Decode one partition's `records` of a Fetch answer (magic 0, 1, 2, mixed; the last batch perhaps cut off).

    Args:
        records: the bytes (any buffer), or None, which is empty.
        topic, partition: for errors.
        fetch_offset: rows before it are left out (a broker answers with whole batches).
        aborted: (producer_id, first_offset) pairs, or objects with these fields, in any order.
        isolation_committed: leave out the rows of aborted transactions.
        stop: rows at or beyond this offset are left out.
        on_corrupt: "raise", or "skip": pass over broken batches and list their errors in `columns.skipped`.
        limit: bytes that one batch may unpack to; unpacking more batches ends once the columns hold as much.
        facts: fill `columns.facts` with one dict a batch, as `kafka_batches` gives them.
        columns: names of the columns to decode, hold and export; None: offset, timestamp, key, value, headers. Of a record's batch there
            are also leader_epoch, producer_id, producer_epoch, sequence, transactional, timestamp_type.
    Returns:
        (Columns, next offset): behind the last batch read, also when its records are compacted away, control records or aborted.
        With a broken batch in the middle the offset is that batch's: the next call raises.
    Raises:
        ChecksumMismatch, DecompressionError, Malformed: the first batch is broken; topic, partition, position (offset), byte offset.
        OptionError: there is no such column.

    Values of some hundred bytes and more are not copied: the columns keep `records`' bytes for as long as they live.
    """
    cdef bint skip = on_corrupt == "skip"
    if not skip and on_corrupt != "raise":
        raise ValueError(f"on_corrupt is 'raise' or 'skip', not {on_corrupt!r}")
    return decode_section(
        records, topic, partition, fetch_offset, aborted, isolation_committed, check_crc, stop, skip, limit, facts, columns
    )


cdef tuple decode_section(
    object records, str topic, int partition, int64_t fetch_offset, object aborted, bint isolation_committed, bint check_crc, object stop,
    bint skip, int64_t limit, bint facts, object columns,
):
    """`decode_kafka`, for the core."""
    cdef Section s
    cdef Py_buffer view
    cdef Columns found
    cdef int wanted = wanted_of(columns, POSITION_OFFSET, True)
    cdef AbortedList transactions
    cdef PackedAhead ahead = PackedAhead.__new__(PackedAhead)
    transactions = AbortedList(aborted if isolation_committed else ())
    memset(&s, 0, sizeof(s))
    drop_waiting()
    if wanted & (WANT_EXTRA << EXTRA_SEQUENCE):
        wanted |= WANT_POSITION                          # it is counted from the offset
    s.table = table_new(POSITION_OFFSET, wanted)
    if s.table == NULL:
        raise MemoryError
    s.table.row_room = 0
    found = Columns.__new__(Columns)                     # from here on the table has its owner
    found.table = s.table
    s.buffer = -1
    s.next = s.fetch_offset = fetch_offset
    s.stop = INT64_MAX if stop is None else stop
    s.check_crc = check_crc
    s.committed = isolation_committed
    s.aborted = transactions.items
    s.aborted_count = transactions.count
    PyObject_GetBuffer(b"" if records is None else records, &view, PyBUF_SIMPLE)
    try:
        s.start = s.at = <const uint8_t *>view.buf
        s.end = s.start + view.len
        found.skipped = run_section(&s, topic, partition, limit, skip, steady_owner(records), ahead)
    finally:
        PyBuffer_Release(&view)
        ahead.close()
    if facts:
        found.facts = tuple(kafka_batches(records))
    if s.table.row_room == 0:
        check(table_reserve(s.table, 0))
    table_trim(s.table)
    found.stop = s.table.rows
    return found, s.next


cdef void choose_views(Section *s, int64_t size) noexcept:
    """Before the first row: whether values of the batch in hand, of `size` bytes, are worth a view."""
    cdef Table *t = s.table
    if t.rows or t.value.off or t.value.viewed or s.head.count <= 0 or size // s.head.count < VIEWS_FROM:
        return
    t.value.viewed = True
    t.row_room = 0                                       # nothing was reserved for views yet


cdef tuple run_section(Section *s, str topic, int partition, int64_t limit, bint skip, object owner, PackedAhead ahead):
    """Walk to the end; returns the errors that were passed over. `owner`: bytes that views may point into, or None: no views."""
    cdef int code
    cdef list skipped = []
    if owner is not None and PyBytes_GET_SIZE(owner) <= INT32_MAX and read_head(s) == BATCH_NEXT and s.head.magic == 2:
        if not s.head.attributes & CODEC_MASK:
            choose_views(s, s.head.size)
    while True:
        if s.end - s.at >= RELEASE_GIL_FROM:
            with nogil:
                code = walk_section(s)
        else:
            code = walk_section(s)
        why = None
        if code == BATCH_KEEP:
            s.buffer = keep_bytes(s.table, owner)
            if s.buffer < 0:
                raise MemoryError
            s.base = <const uint8_t *>PyBytes_AS_STRING(owner)
            continue
        if code == BATCH_PACKED:
            if s.table.rows and s.table.key.used + s.table.value.used >= limit:
                return tuple(skipped)
            try:
                code = walk_packed(s, limit, owner is not None, ahead.take(s, limit, owner))
            except DecompressionError as error:
                why = error
                bad(s, NULL)
                code = BATCH_BAD
        if code == BATCH_NEXT:
            pass_batch(s)
            continue
        if code == BATCH_END:
            return tuple(skipped)
        table_cut(s.table, s.rows_before, s.headers_before)
        if code == TABLE_FULL and s.table.rows:
            return tuple(skipped)                        # the rest comes with the next fetch
        check(code)
        if why is None:
            why = (ChecksumMismatch if s.crc_wrong else Malformed)(s.why.decode())
        why.with_context(message="RecordBatch", version=s.head.magic, topic=topic, partition=partition, position=s.head.base, offset=s.why_at)
        if not skip:
            if s.table.rows or s.next > s.fetch_offset:
                return tuple(skipped)
            raise why
        skipped.append(why)
        skip_batch(s, code)
        if code == BATCH_LOST:
            return tuple(skipped)


cdef void skip_batch(Section *s, int code) noexcept:
    """Step over a broken batch. Its own last offset is believed only when its count agrees; else at least one offset passes."""
    if code == BATCH_BAD and s.next <= s.head.last < INT64_MAX and (s.head.magic < 2 or s.head.count - 1 == s.head.last_delta):
        s.next = s.head.last + 1
    elif s.next <= s.fetch_offset:
        s.next = s.fetch_offset + 1
    s.at += s.head.size


cdef int walk_packed(Section *s, int64_t limit, bint views, plain) except? -3:
    """Unpack s.packed, unless `plain` is what it unpacked to, and read what is in it."""
    cdef const uint8_t *start
    cdef Py_ssize_t size
    cdef int code, codec = s.head.attributes & CODEC_MASK
    if codec > 4:
        raise DecompressionError(f"unknown compression type {codec}")
    if plain is None:
        plain = unpacker()(KAFKA_CODECS[codec], PyMemoryView_FromMemory(<char *>s.packed, s.packed_size, PyBUF_READ), limit)
    start = plain_at(plain, &size)
    if views and s.head.magic == 2 and size <= INT32_MAX:
        choose_views(s, size)
    s.in_base, s.in_end = start, start + size
    if s.table.value.viewed:
        s.in_buffer = keep_bytes(s.table, plain)
        if s.in_buffer < 0:
            raise MemoryError
    if size >= RELEASE_GIL_FROM:
        with nogil:
            code = walk_records(s, start, start + size, False) if s.head.magic == 2 else walk_inner(s, start, start + size)
    else:
        code = walk_records(s, start, start + size, False) if s.head.magic == 2 else walk_inner(s, start, start + size)
    return code


def kafka_section_end(records):
    """Where a section's whole batches end, from their heads alone (nothing is checked but their lengths), in one pass.

    Returns:
        (next offset, leader epoch): behind the last whole batch, and its leader's epoch. (-1, -1) when there is none; the epoch is -1
        when its format has none. So the next Fetch can leave before this section is decoded.
    """
    cdef Py_buffer view
    cdef int32_t epoch = -1
    cdef int64_t following
    PyObject_GetBuffer(b"" if records is None else records, &view, PyBUF_SIMPLE)
    following = section_end(<const uint8_t *>view.buf, <const uint8_t *>view.buf + view.len, &epoch)
    PyBuffer_Release(&view)
    return following, epoch


cdef int64_t section_end(const uint8_t *start, const uint8_t *end, int32_t *epoch) noexcept:
    """See `kafka_section_end`."""
    cdef Section s
    memset(&s, 0, sizeof(s))
    s.next = -1
    s.start = s.at = start
    s.end = end
    while read_head(&s) == BATCH_NEXT:
        epoch[0] = get_i32(s.at + 12) if s.head.magic == 2 else -1
        pass_batch(&s)
    return s.next


def kafka_batches(records):
    """The heads of a section's whole batches, as dicts: offset, last_offset, size, magic, codec, timestamp_type ("create" or "append"),
    and from v2 on count, leader_epoch, producer_id, producer_epoch, base_sequence, base_timestamp, max_timestamp, transactional, control."""
    cdef Section s
    cdef Py_buffer view
    cdef BatchHead *h = &s.head
    cdef list found = []
    memset(&s, 0, sizeof(s))
    PyObject_GetBuffer(b"" if records is None else records, &view, PyBUF_SIMPLE)
    try:
        s.start = s.at = <const uint8_t *>view.buf
        s.end = s.start + view.len
        while read_head(&s) == BATCH_NEXT:
            batch = {
                "offset": h.base, "last_offset": h.last, "size": h.size, "magic": h.magic,
                "codec": KAFKA_CODECS[h.attributes & CODEC_MASK] if h.attributes & CODEC_MASK <= 4 else "unknown",
                "timestamp_type": "append" if h.attributes & APPEND_TIME else "create",
            }
            if h.magic == 2:
                batch.update({
                    "count": h.count, "leader_epoch": get_i32(s.at + 12), "producer_id": h.producer,
                    "producer_epoch": get_i16(s.at + 51), "base_sequence": get_i32(s.at + 53),
                    "base_timestamp": h.base_time, "max_timestamp": h.max_time,
                    "transactional": h.attributes & TRANSACTIONAL != 0, "control": h.attributes & CONTROL != 0,
                })
            found.append(batch)
            pass_batch(&s)
    finally:
        PyBuffer_Release(&view)
    return found
