# Messages of a Pulsar batch whose metadata is laid out as clients write it, in one pass.
#
#     usual      0a L { 0a N name 12 V value } *· 12 K key · 18 payload size · 28 event time · 30 00 · 40 sequence id       (each but the
#                third may be missing, in this order; lengths below 128, the payload below 16 KiB)
#
# That is a SingleMessageMetadata as protobuf runtimes serialize it: fields by rising number. What is laid out otherwise, has other fields,
# is empty, or stands at the very end of the entry is left to `read_single`, message by message, which takes all that protobuf allows.
# The loop keeps the ends of the table's arrays to itself: a byte that is written might be any of the table's own fields to the compiler.
#
# May assume: room for `count` rows, and for all bytes up to `end` in the column of values. Must not: read beyond `end`, write anything
# that the slow way would have written otherwise, or leave a trace of a message that it does not take.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from wireproto._codec_parts.endian cimport get_u16, get_u32, get_u64le

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_SINGLES_H
    #define WIREPROTO_SINGLES_H
    #include <stdint.h>
    #include <string.h>
    /* Copy `size` bytes in pieces of 16; up to 15 more are read and written. */
    static inline void wp_copy_text(uint8_t *to, const uint8_t *from, size_t size) {
        size_t at;
        memcpy(to, from, 16);
        for (at = 16; __builtin_expect(at < size, 0); at += 16) memcpy(to + at, from + at, 16);
    }
    /* Bytes of the varint that these eight begin with, little endian; 0 when it is longer. */
    static inline int wp_varint_bytes(uint64_t word) {
        uint64_t last = ~word & 0x8080808080808080u;
        return last ? (__builtin_ctzll(last) >> 3) + 1 : 0;
    }
    /* The value of a varint of `size` bytes, 1 to 8. */
    static inline uint64_t wp_short_value(uint64_t word, int size) {
        word &= (~(uint64_t)0 >> (64 - 8 * size)) & 0x7f7f7f7f7f7f7f7fu;
        word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
        word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
        return (word & 0x0fffffffu) | (word & 0x0fffffff00000000u) >> 4;
    }
    /* Whether no byte has its highest bit set. */
    static inline int wp_is_ascii(const uint8_t *p, size_t size) {
        uint8_t any = 0;
        size_t n;
        for (n = 0; n < size; n++) any |= p[n];
        return any < 0x80;
    }
    #endif
    """
    void copy_text "wp_copy_text"(uint8_t *to, const uint8_t *source, size_t size) noexcept
    int varint_bytes "wp_varint_bytes"(uint64_t word) noexcept
    uint64_t short_value "wp_short_value"(uint64_t word, int size) noexcept
    bint is_ascii "wp_is_ascii"(const uint8_t *p, size_t size) noexcept

cdef enum:
    SINGLE_SLACK = 32            # bytes behind a message's metadata that are there to be read


cdef int headers_reserve(Table *t, Py_ssize_t row, int64_t count, int64_t size) noexcept nogil:
    """Make room for `count` more headers, the first of the table perhaps, with `size` bytes of names and as many of values.

    Rows before `row` had none when there was none in the table.
    """
    cdef int64_t room = t.headers + count
    cdef int code
    if t.header_at == NULL:
        t.header_at = <int32_t *>mem_take((t.row_room + 1) * 4)
        if t.header_at == NULL:
            return TABLE_MEMORY
        memset(t.header_at, 0, (row + 1) * 4)
    if room > t.header_room:
        if room < t.header_room * 2:
            room = t.header_room * 2
        if room < t.row_room:
            room = t.row_room
        if room >= INT32_MAX:
            return TABLE_FULL
        if grow(<void **>&t.name.starts, (room + 1) * 4) != TABLE_OK or grow(<void **>&t.header_value.starts, (room + 1) * 4) != TABLE_OK:
            return TABLE_MEMORY
        if grow_bitmap(&t.header_value.valid, t.header_room, room) != TABLE_OK:
            return TABLE_MEMORY
        if t.header_room == 0:
            t.name.starts[0] = t.header_value.starts[0] = 0
        t.header_room = room
    code = bytes_reserve(&t.name, size)
    return code if code != TABLE_OK else bytes_reserve(&t.header_value, size)


cdef int64_t take_usual(
    PulsarEntryState *e, Table *t, const uint8_t **at, const uint8_t *end, int64_t index, int64_t count, int64_t *text,
) noexcept nogil:
    """Rows of up to `count` messages, the first of them number `index`, as long as they are laid out as usual.

    Args:
        text: set to the size of the metadata for whose properties there was no room, when that ended it.
    Returns:
        How many, with `at` behind the last of them; -1, and none taken, when a name is no ASCII, or without memory.
    """
    cdef const uint8_t *p = at[0]
    cdef const uint8_t *q
    cdef const uint8_t *stop                 # of the metadata
    cdef const uint8_t *key = EMPTY_BYTES
    cdef int64_t taken = 0, size, part, length, payload, key_size, time, nulls = 0
    cdef int64_t published = e.head.publish_time
    cdef uint64_t word
    cdef int bytes_of
    cdef Py_ssize_t row = t.rows
    cdef bint named = t.wanted & WANT_HEADERS != 0, usual
    cdef int64_t *times = t.timestamp
    cdef int32_t *key_starts = t.key.starts
    cdef int32_t *value_starts = t.value.starts
    cdef int32_t *header_at = t.header_at
    cdef int32_t *name_starts = t.name.starts
    cdef int32_t *text_starts = t.header_value.starts
    cdef uint8_t *keys = t.key.data
    cdef uint8_t *values = t.value.data
    cdef uint8_t *names = t.name.data
    cdef uint8_t *texts = t.header_value.data
    cdef int64_t key_used = t.key.used, key_room = t.key.room, value_used = t.value.used
    cdef int64_t name_used = t.name.used, text_used = t.header_value.used, headers = t.headers
    cdef int64_t name_row = name_used, text_row = text_used, header_row = headers
    cdef int64_t name_room = t.name.room - COPY_SLACK, text_room = t.header_value.room - COPY_SLACK, header_room = t.header_room
    while taken < count:
        if end - p < 4 + SINGLE_SLACK:
            break
        size = get_u32(p)
        q = p + 4
        if size > end - q - SINGLE_SLACK:
            break
        stop = q + size
        usual = True
        if q[0] == 0x0A and named and (name_used + size > name_room or text_used + size > text_room or headers + (size >> 2) >= header_room):
            text[0] = size
            break
        while q[0] == 0x0A:
            part = q[1]
            if part >= 0x80 or part > stop - q - 2:
                usual = False
                break
            if named:
                length = q[3]
                if q[2] != 0x0A or length + 4 > part or q[length + 4] != 0x12 or q[length + 5] != part - length - 4:
                    usual = False
                    break
                copy_text(names + name_used, q + 4, length)
                name_used += length
                length = part - length - 4
                copy_text(texts + text_used, q + 2 + part - length, length)
                text_used += length
                headers += 1
                name_starts[headers] = <int32_t>name_used
                text_starts[headers] = <int32_t>text_used
            q += 2 + part
        key_size = -1
        if usual and q[0] == 0x12:
            key_size = q[1]
            key = q + 2
            usual = key_size < 0x80 and key_size <= stop - key and key_used + key_size + COPY_SLACK <= key_room
            q = key + key_size
        if not usual or q[0] != 0x18:
            break
        payload = q[1]
        q += 2
        if payload >= 0x80:
            payload = (payload & 0x7F) | <int64_t>q[0] << 7
            q += 1
            if payload >= 0x4000:
                break
        time = published
        if q[0] == 0x28:
            word = get_u64le(q + 1)
            bytes_of = varint_bytes(word)
            if bytes_of == 0:
                break
            time = <int64_t>short_value(word, bytes_of)
            q += 1 + bytes_of
            if time == 0:
                time = published
        if q[0] == 0x30 and q[1] == 0:
            q += 2
        if q[0] == 0x40:
            bytes_of = varint_bytes(get_u64le(q + 1))
            q += 1 + bytes_of if bytes_of else SINGLE_SLACK
        if q != stop or payload > end - stop or time == 0:
            break
        if key_starts != NULL:
            if key_size >= 0:
                copy_text(keys + key_used, key, key_size)
                key_used += key_size
            else:
                if clear_bit(&t.key.valid, row, t.row_room) != TABLE_OK:
                    break
                nulls += 1
            key_starts[row + 1] = <int32_t>key_used
        if value_starts != NULL:
            copy_slack(values + value_used, stop, payload, end - stop)
            value_used += payload
            value_starts[row + 1] = <int32_t>value_used
        if times != NULL:
            times[row] = time
        row += 1
        if header_at != NULL:
            header_at[row] = <int32_t>headers
        p = stop + payload
        taken += 1
        name_row, text_row, header_row = name_used, text_used, headers
    if not is_ascii(names + t.name.used, name_row - t.name.used):
        unmark(&t.key, t.rows, row)
        return -1
    fill_positions(t, e.ledger, e.entry, index, row)
    t.key.used, t.value.used, t.name.used, t.header_value.used = key_used, value_used, name_row, text_row
    t.key.nulls += nulls
    t.headers = header_row
    t.rows = row
    at[0] = p
    return taken


cdef void unmark(Bytes *c, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Forget which of these rows were null."""
    cdef Py_ssize_t row
    if c.valid != NULL:
        for row in range(start, stop):
            c.valid[row >> 3] |= <uint8_t>(1 << (row & 7))


cdef void fill_positions(Table *t, int64_t ledger, int64_t entry, int64_t index, Py_ssize_t stop) noexcept nogil:
    """Of the rows from the table's last on up to `stop`, neighbours in one batch."""
    cdef Py_ssize_t row, start = t.rows
    cdef int64_t *ledgers = t.p0
    cdef int64_t *entries = t.p1
    cdef int32_t *indexes = t.p2
    if ledgers == NULL:
        return
    for row in range(start, stop):
        ledgers[row] = ledger
    for row in range(start, stop):
        entries[row] = entry
    for row in range(start, stop):
        indexes[row] = <int32_t>(index + row - start)


cdef int walk_usual(PulsarEntryState *e, Table *t, const uint8_t **at, const uint8_t *end, int64_t *index, int64_t count, bint *usual) noexcept nogil:
    """Take the messages from number `index` on that are laid out as usual; TABLE_*. `usual` is cleared when none of the entry should be."""
    cdef int64_t took, text, left
    cdef int code
    while True:
        text = 0
        took = take_usual(e, t, at, end, index[0], count - index[0], &text)
        if took < 0:
            usual[0] = False
            return TABLE_OK
        index[0] += took
        if text == 0:
            return TABLE_OK
        left = text * (count - index[0])     # as if the others were alike: a part of it is names, another values
        code = headers_reserve(t, t.rows, (left >> 5) + text, min(left >> 2, end - at[0]) + text)
        if code != TABLE_OK:
            return code
