# The table: rows of records as arrays in C memory, filled without the GIL by the decoders, then never changed.
#
# May assume: one writer until it is handed to a Columns; from then on it is read only, and shared by counting references atomically
# (Arrow consumers give it back on any thread, perhaps without an interpreter). Must not: touch Python.
#
#     column      arrays                                          absent when
#     position    p0 int64, p1 int64, p2 int32 (see POSITION_*)   the kind has no such part, or not wanted
#     partition   int32                                           the source named none (input only)
#     timestamp   int64 ms, bitmap                                not wanted; bitmap: no null
#     key, value  int32 starts[rows + 1], bytes, bitmap           not wanted; bitmap: no null
#                 or views[rows] into kept buffers, bitmap
#     headers     int32 header_at[rows + 1] into                  not wanted, or no row has a header
#                 name, header_value (as key, value)
#     extra       a fact of the record's batch, a value a row     not wanted
#
# Starts are 32 bits wide as Arrow's binary has them: a table holds less than 2 GiB per column, and says TABLE_FULL before.
# A view is Arrow's binary_view: size and, up to 12 bytes, the bytes themselves; else their first 4, and where they lie: which of the
# table's kept buffers, and where in it. What is kept (a fetch's answer, an Arrow array) lives as long as the table.
# Arrays come from the pool; EXTRA_* name the facts, in the order of Arrow's fields.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_TABLE_H
    #define WIREPROTO_TABLE_H
    #include <stdint.h>
    #include <string.h>
    #define wp_atomic_add(p, n) __atomic_add_fetch((p), (n), __ATOMIC_ACQ_REL)
    /* Copy `size` bytes; up to 31 more are read and written where both sides have that slack, which saves a call for short ones. */
    static inline void wp_copy_slack(uint8_t *to, const uint8_t *from, size_t size, size_t slack) {
        if (size <= 256 && slack >= ((size + 31) & ~(size_t)31)) {
            size_t at;
            for (at = 0; at < size; at += 32) memcpy(to + at, from + at, 32);
        } else {
            memcpy(to, from, size);
        }
    }
    /* Copy `size` bytes and touch no other: short ones in overlapping pieces, without a call. */
    static inline void wp_copy_short(uint8_t *to, const uint8_t *from, size_t size) {
        size_t at;
        if (size >= 32) {
            if (size > 256) { memcpy(to, from, size); return; }
            for (at = 0; at + 32 <= size; at += 32) memcpy(to + at, from + at, 32);
            memcpy(to + size - 32, from + size - 32, 32);
        } else if (size >= 16) { memcpy(to, from, 16); memcpy(to + size - 16, from + size - 16, 16);
        } else if (size >= 8) { memcpy(to, from, 8); memcpy(to + size - 8, from + size - 8, 8);
        } else if (size >= 4) { memcpy(to, from, 4); memcpy(to + size - 4, from + size - 4, 4);
        } else if (size) { to[0] = from[0]; to[size >> 1] = from[size >> 1]; to[size - 1] = from[size - 1]; }
    }
    #define wp_likely(x) __builtin_expect(!!(x), 1)
    #define wp_unlikely(x) __builtin_expect(!!(x), 0)
    #endif
    """
    int64_t atomic_add "wp_atomic_add"(int64_t *p, int64_t n) noexcept
    void copy_slack "wp_copy_slack"(uint8_t *to, const uint8_t *source, size_t size, size_t slack) noexcept
    void copy_short "wp_copy_short"(uint8_t *to, const uint8_t *source, size_t size) noexcept
    bint likely "wp_likely"(bint x) noexcept
    bint unlikely "wp_unlikely"(bint x) noexcept

cdef enum:
    POSITION_NONE = 0        # rows to be sent
    POSITION_OFFSET = 1      # p0 offset                          Kafka, RocketMQ
    POSITION_MESSAGE = 2     # p0 ledger, p1 entry, p2 index      Pulsar
    POSITION_SEQUENCE = 3    # p0 sequence                        ZooKeeper queue
    TABLE_OK = 0
    TABLE_MEMORY = -1
    TABLE_FULL = -2
    COPY_SLACK = 32
    VIEW_INLINE = 12
    LENT_STARTS = 1
    LENT_DATA = 2
    LENT_VALID = 4
    WANT_POSITION = 1
    WANT_TIMESTAMP = 2
    WANT_KEY = 4
    WANT_VALUE = 8
    WANT_HEADERS = 16
    WANT_USUAL = 31
    EXTRA_LEADER_EPOCH = 0
    EXTRA_PRODUCER_ID = 1
    EXTRA_PRODUCER_EPOCH = 2
    EXTRA_SEQUENCE = 3
    EXTRA_TRANSACTIONAL = 4
    EXTRA_TIMESTAMP_TYPE = 5
    EXTRAS = 6
    WANT_EXTRA = 32              # of the first; the others are the next bits

ctypedef void (*OwnerRelease)(void *owner) noexcept nogil

cdef int *EXTRA_WIDTHS = [4, 8, 4, 4, 1, 4]

cdef struct View:
    int32_t size
    int32_t prefix           # from here on the bytes themselves when there are at most 12
    int32_t buffer           # which of the table's kept buffers
    int32_t at               # where in it

cdef struct Kept:            # a buffer that views point into, or whose arrays are lent
    const uint8_t *data
    int64_t size
    void *owner              # notified once when the table is freed
    OwnerRelease release

cdef struct Bytes:
    int32_t *starts      # rows + 1
    uint8_t *data
    View *views          # instead of starts and data
    bint viewed          # filled by `view_push`
    bint off             # not wanted
    uint8_t *valid       # bit set: not null; NULL: no null at all
    int64_t nulls
    int64_t used
    int64_t room         # bytes of data
    int lent             # LENT_*: arrays that are a kept owner's

cdef struct Table:
    int64_t references
    int kind
    int wanted               # WANT_*
    Py_ssize_t rows
    Py_ssize_t row_room
    int64_t *p0
    int64_t *p1
    int32_t *p2
    int32_t *partition
    int64_t *timestamp
    uint8_t *timestamp_valid
    int64_t timestamp_nulls
    Bytes key
    Bytes value
    int32_t *header_at
    Py_ssize_t headers
    Py_ssize_t header_room
    Bytes name
    Bytes header_value
    void *extra[6]
    Kept *kept
    int kept_count


cdef uint8_t EMPTY_BYTES[64]     # what a pointer without bytes points to


cdef Table *table_new(int kind, int wanted=WANT_USUAL) noexcept nogil:
    """A table without rows, one reference; NULL without memory."""
    cdef Table *t = <Table *>calloc(1, sizeof(Table))
    if t != NULL:
        t.references = 1
        t.kind = kind
        t.wanted = wanted
        t.key.off = not wanted & WANT_KEY
        t.value.off = not wanted & WANT_VALUE
    return t


cdef void bytes_free(Bytes *c) noexcept nogil:
    if not c.lent & LENT_STARTS:
        mem_give(c.starts)
        mem_give(c.views)
    if not c.lent & LENT_DATA:
        mem_give(c.data)
    if not c.lent & LENT_VALID:
        mem_give(c.valid)


cdef void table_release(Table *t) noexcept nogil:
    """Give one reference back; the last one frees."""
    cdef int n
    if t == NULL or atomic_add(&t.references, -1) != 0:
        return
    mem_give(t.p0)
    mem_give(t.p1)
    mem_give(t.p2)
    mem_give(t.partition)
    mem_give(t.timestamp)
    mem_give(t.timestamp_valid)
    bytes_free(&t.key)
    bytes_free(&t.value)
    mem_give(t.header_at)
    bytes_free(&t.name)
    bytes_free(&t.header_value)
    for n in range(EXTRAS):
        mem_give(t.extra[n])
    for n in range(t.kept_count):
        t.kept[n].release(t.kept[n].owner)
    free(t.kept)
    free(t)


cdef int table_keep(Table *t, const uint8_t *data, int64_t size, void *owner, OwnerRelease release) noexcept nogil:
    """Keep a buffer for as long as the table lives; its number, or TABLE_MEMORY (then the owner stays the caller's)."""
    cdef Kept *kept = <Kept *>realloc(t.kept, (t.kept_count + 1) * sizeof(Kept))
    if kept == NULL:
        return TABLE_MEMORY
    t.kept = kept
    kept += t.kept_count
    kept.data = data
    kept.size = size
    kept.owner = owner
    kept.release = release
    t.kept_count += 1
    return t.kept_count - 1


cdef inline Table *table_share(Table *t) noexcept nogil:
    atomic_add(&t.references, 1)
    return t


cdef int grow(void **p, int64_t size) noexcept nogil:
    """Make an array of the pool's at least `size` bytes large."""
    cdef void *q
    cdef int64_t room = mem_room(p[0])
    if size <= room and p[0] != NULL:
        return TABLE_OK
    q = mem_take(size)
    if q == NULL:
        return TABLE_MEMORY
    if room:
        memcpy(q, p[0], room)
        mem_give(p[0])
    p[0] = q
    return TABLE_OK


cdef int grow_bitmap(uint8_t **valid, Py_ssize_t before, Py_ssize_t rows) noexcept nogil:
    """Lengthen a bitmap that exists; new bits say "not null"."""
    cdef Py_ssize_t had = (before + 7) >> 3
    cdef Py_ssize_t need = (rows + 7) >> 3
    if valid[0] == NULL:
        return TABLE_OK
    if grow(<void **>valid, need) != TABLE_OK:
        return TABLE_MEMORY
    if need > had:
        memset(valid[0] + had, 0xFF, need - had)
    return TABLE_OK


cdef void bytes_empty(Bytes *c) noexcept nogil:
    bytes_free(c)
    c.starts, c.data, c.views, c.valid = NULL, NULL, NULL, NULL
    c.used = c.room = c.nulls = c.lent = 0


cdef void table_empty(Table *t) noexcept nogil:
    """Take back the room of a table without rows, so that arrays may be lent to it."""
    bytes_empty(&t.key)
    bytes_empty(&t.value)
    t.row_room = 0


cdef int bytes_rows(Bytes *c, Py_ssize_t before, Py_ssize_t room) noexcept nogil:
    """Lengthen a column of bytes to `room` rows."""
    if c.off:
        return TABLE_OK
    if grow_bitmap(&c.valid, before, room) != TABLE_OK:
        return TABLE_MEMORY
    if c.viewed:
        return grow(<void **>&c.views, (room + 1) * sizeof(View))
    if grow(<void **>&c.starts, (room + 1) * 4) != TABLE_OK:
        return TABLE_MEMORY
    if before == 0:
        c.starts[0] = 0
    return TABLE_OK


cdef int table_reserve(Table *t, Py_ssize_t more) noexcept nogil:
    """Make room for `more` rows. The caller has checked that number against the bytes they come from."""
    cdef Py_ssize_t before = t.row_room
    cdef Py_ssize_t room = t.rows + more
    cdef int n
    if room <= before and before > 0:
        return TABLE_OK
    if room >= INT32_MAX:
        return TABLE_FULL
    if before > 0 and room < before + (before >> 1):
        room = before + (before >> 1)
    if t.kind != POSITION_NONE and t.wanted & WANT_POSITION:
        if grow(<void **>&t.p0, room * 8) != TABLE_OK:
            return TABLE_MEMORY
        if t.kind == POSITION_MESSAGE and (grow(<void **>&t.p1, room * 8) != TABLE_OK or grow(<void **>&t.p2, room * 4) != TABLE_OK):
            return TABLE_MEMORY
    if t.partition != NULL and grow(<void **>&t.partition, room * 4) != TABLE_OK:
        return TABLE_MEMORY
    if t.wanted & WANT_TIMESTAMP:
        if grow(<void **>&t.timestamp, room * 8) != TABLE_OK or grow_bitmap(&t.timestamp_valid, before, room) != TABLE_OK:
            return TABLE_MEMORY
    if bytes_rows(&t.key, before, room) != TABLE_OK or bytes_rows(&t.value, before, room) != TABLE_OK:
        return TABLE_MEMORY
    if t.header_at != NULL and grow(<void **>&t.header_at, (room + 1) * 4) != TABLE_OK:
        return TABLE_MEMORY
    for n in range(EXTRAS):
        if t.wanted & (WANT_EXTRA << n) and grow(&t.extra[n], room * EXTRA_WIDTHS[n]) != TABLE_OK:
            return TABLE_MEMORY
    t.row_room = room
    return TABLE_OK


cdef int bytes_reserve(Bytes *c, int64_t more) noexcept nogil:
    """Make room for `more` bytes and the slack that `copy_slack` may write into."""
    cdef int64_t room = c.used + more + COPY_SLACK
    if room <= c.room or c.off:
        return TABLE_OK
    if c.used + more > INT32_MAX:
        return TABLE_FULL
    if c.room > 0 and room < c.room * 2:
        room = c.room * 2
    if grow(<void **>&c.data, room) != TABLE_OK:
        return TABLE_MEMORY
    c.room = mem_room(c.data)
    return TABLE_OK


cdef int clear_bit(uint8_t **valid, Py_ssize_t row, Py_ssize_t room) noexcept nogil:
    """Mark a row null; the bitmap comes into being with the first."""
    if valid[0] == NULL:
        valid[0] = <uint8_t *>mem_take((room + 7) >> 3)
        if valid[0] == NULL:
            return TABLE_MEMORY
        memset(valid[0], 0xFF, (room + 7) >> 3)
    valid[0][row >> 3] &= <uint8_t>~(1 << (row & 7))
    return TABLE_OK


cdef inline int bytes_push(Bytes *c, Py_ssize_t row, Py_ssize_t row_room, const uint8_t *p, int64_t size, int64_t slack) noexcept nogil:
    """Put a value at `row`, the next one; size < 0 is null. Room was reserved. `slack`: bytes that may be read from p on."""
    if unlikely(c.off):
        return TABLE_OK
    if unlikely(size < 0):
        c.starts[row + 1] = <int32_t>c.used
        c.nulls += 1
        return clear_bit(&c.valid, row, row_room)
    copy_slack(c.data + c.used, p, size, slack)
    c.used += size
    c.starts[row + 1] = <int32_t>c.used
    return TABLE_OK


cdef inline int view_push(
    Bytes *c, Py_ssize_t row, Py_ssize_t row_room, const uint8_t *p, int64_t size, int32_t buffer, const uint8_t *base
) noexcept nogil:
    """Put a view at `row`, the next one, into the kept buffer of that number, which begins at `base`; size < 0 is null."""
    cdef View *view = c.views + row
    memset(view, 0, sizeof(View))
    if unlikely(size < 0):
        c.nulls += 1
        return clear_bit(&c.valid, row, row_room)
    if unlikely(c.used + size > INT32_MAX):
        return TABLE_FULL
    view.size = <int32_t>size
    if size <= VIEW_INLINE:
        memcpy(&view.prefix, p, size)
    else:
        memcpy(&view.prefix, p, 4)
        view.buffer = buffer
        view.at = <int32_t>(p - base)
    c.used += size
    return TABLE_OK


cdef inline bint is_null(const uint8_t *valid, Py_ssize_t row) noexcept nogil:
    return valid != NULL and not (valid[row >> 3] >> (row & 7)) & 1


cdef inline int64_t bytes_get(const Table *t, const Bytes *c, Py_ssize_t row, const uint8_t **data) noexcept nogil:
    """Where a value lies, and its size; -1 for null."""
    cdef const View *view
    data[0] = EMPTY_BYTES
    if c.off or (c.valid != NULL and is_null(c.valid, row)):
        return -1
    if c.viewed:
        view = c.views + row
        data[0] = <const uint8_t *>&view.prefix if view.size <= VIEW_INLINE else t.kept[view.buffer].data + view.at
        return view.size
    data[0] = c.data + c.starts[row]
    return c.starts[row + 1] - c.starts[row]


cdef inline int64_t bytes_size(const Bytes *c, Py_ssize_t row) noexcept nogil:
    """A value's size; 0 for null."""
    return 0 if c.off else c.views[row].size if c.viewed else c.starts[row + 1] - c.starts[row]


cdef inline bint is_timed(const Table *t, Py_ssize_t row) noexcept nogil:
    """Whether the row has a timestamp."""
    return t.timestamp != NULL and not is_null(t.timestamp_valid, row)


cdef int64_t bytes_total(const Bytes *c, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Bytes of the values in these rows."""
    cdef int64_t total = 0
    cdef Py_ssize_t row
    if c.off or start >= stop:
        return 0
    if not c.viewed:
        return c.starts[stop] - c.starts[start]
    for row in range(start, stop):
        total += c.views[row].size
    return total


cdef inline void put_position(Table *t, Py_ssize_t row, int64_t p0, int64_t p1, int32_t p2) noexcept nogil:
    if likely(t.p0 != NULL):
        t.p0[row] = p0
        if t.p1 != NULL:
            t.p1[row] = p1
            t.p2[row] = p2


cdef inline int put_timestamp(Table *t, Py_ssize_t row, int64_t ms, bint known) noexcept nogil:
    if unlikely(t.timestamp == NULL):
        return TABLE_OK
    if unlikely(not known):
        t.timestamp[row] = 0
        t.timestamp_nulls += 1
        return clear_bit(&t.timestamp_valid, row, t.row_room)
    t.timestamp[row] = ms
    return TABLE_OK


cdef int header_push(Table *t, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t value_size) noexcept nogil:
    """Add a header to the row being filled (t.rows). Names must be UTF-8 by now."""
    cdef Py_ssize_t before = t.header_room
    cdef Py_ssize_t room
    cdef int code
    if not t.wanted & WANT_HEADERS:
        return TABLE_OK
    if t.header_at == NULL:
        t.header_at = <int32_t *>mem_take((t.row_room + 1) * 4)
        if t.header_at == NULL:
            return TABLE_MEMORY
        memset(t.header_at, 0, (t.rows + 1) * 4)
    if t.headers >= before:
        room = 64 if before == 0 else before * 2
        if room >= INT32_MAX:
            return TABLE_FULL
        if grow(<void **>&t.name.starts, (room + 1) * 4) != TABLE_OK:
            return TABLE_MEMORY
        if grow(<void **>&t.header_value.starts, (room + 1) * 4) != TABLE_OK:
            return TABLE_MEMORY
        if grow_bitmap(&t.header_value.valid, before, room) != TABLE_OK:
            return TABLE_MEMORY
        if before == 0:
            t.name.starts[0] = 0
            t.header_value.starts[0] = 0
        t.header_room = room
    code = bytes_reserve(&t.name, name_size)
    if code == TABLE_OK and value_size >= 0:
        code = bytes_reserve(&t.header_value, value_size)
    if code != TABLE_OK:
        return code
    bytes_push(&t.name, t.headers, t.header_room, name, name_size, 0)
    code = bytes_push(&t.header_value, t.headers, t.header_room, value, value_size, 0)
    t.headers += 1
    return code


cdef inline void end_row(Table *t) noexcept nogil:
    """The row is complete."""
    t.rows += 1
    if t.header_at != NULL:
        t.header_at[t.rows] = <int32_t>t.headers


cdef void bytes_trim(Bytes *c) noexcept nogil:
    """Move to a smaller block what fills less than half of its own."""
    cdef int64_t need = c.used + COPY_SLACK
    cdef void *smaller
    if c.data == NULL or c.lent or c.room <= 65536 or c.room < 2 * need:
        return
    smaller = mem_take(need)
    if smaller != NULL:
        memcpy(smaller, c.data, c.used)
        mem_give(c.data)
        c.data = <uint8_t *>smaller
        c.room = mem_room(smaller)


cdef void table_trim(Table *t) noexcept nogil:
    """Give back what was reserved by estimate and not used."""
    bytes_trim(&t.key)
    bytes_trim(&t.value)
    bytes_trim(&t.name)
    bytes_trim(&t.header_value)


cdef void bytes_cut(Bytes *c, Py_ssize_t rows, Py_ssize_t to) noexcept nogil:
    cdef Py_ssize_t row
    if c.viewed and c.views != NULL:
        c.used = bytes_total(c, 0, to)
    elif c.starts != NULL and to <= rows:
        c.used = c.starts[to]
    if c.valid != NULL:
        for row in range(to, rows):
            if not c.valid[row >> 3] >> (row & 7) & 1:
                c.nulls -= 1
                c.valid[row >> 3] |= <uint8_t>(1 << (row & 7))


cdef void table_cut(Table *t, Py_ssize_t rows, Py_ssize_t headers) noexcept nogil:
    """Forget the rows from `rows` on (a batch that proved bad halfway); a row half filled counts as one of them."""
    cdef Py_ssize_t row, filled = t.rows + 1
    if filled > t.row_room:
        filled = t.row_room
    bytes_cut(&t.key, filled, rows)
    bytes_cut(&t.value, filled, rows)
    bytes_cut(&t.name, t.headers, headers)
    bytes_cut(&t.header_value, t.headers, headers)
    if t.timestamp_valid != NULL:
        for row in range(rows, filled):
            if not t.timestamp_valid[row >> 3] >> (row & 7) & 1:
                t.timestamp_nulls -= 1
                t.timestamp_valid[row >> 3] |= <uint8_t>(1 << (row & 7))
    t.rows = rows
    t.headers = headers


cdef bint is_utf8(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Whether the bytes are UTF-8 as RFC 3629 has it (no surrogates, nothing overlong)."""
    cdef const uint8_t *end = p + size
    cdef uint8_t b
    cdef int tail
    while p < end:
        b = p[0]
        if b < 0x80:
            p += 1
            continue
        tail = 1 if 0xC2 <= b <= 0xDF else 2 if 0xE0 <= b <= 0xEF else 3 if 0xF0 <= b <= 0xF4 else 0
        if tail == 0 or end - p <= tail or p[1] & 0xC0 != 0x80:
            return False
        if (b == 0xE0 and p[1] < 0xA0) or (b == 0xED and p[1] > 0x9F) or (b == 0xF0 and p[1] < 0x90) or (b == 0xF4 and p[1] > 0x8F):
            return False
        if tail > 1 and p[2] & 0xC0 != 0x80:
            return False
        if tail > 2 and p[3] & 0xC0 != 0x80:
            return False
        p += tail + 1
    return True
