# The messages of an entry, to rows: a batch split, by its usual layout or message by message, and what is left out of it.
#
# May assume: an opened entry, its payload plain. Must not: hand out a row that was acked, emptied by compaction, or is out of bounds.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from wireproto._codec_parts.endian cimport get_u32
from wireproto._codec_parts.varint cimport read_uvarint64


cdef struct Repeated:            # a walk over a repeated varint field, packed or not
    uint32_t number
    const uint8_t *p
    const uint8_t *end
    const uint8_t *q
    const uint8_t *q_end


cdef void repeated_begin(Repeated *r, uint32_t number, const uint8_t *p, const uint8_t *end) noexcept nogil:
    r.number, r.p, r.end = number, p, end
    r.q = r.q_end = NULL


cdef bint repeated_next(Repeated *r, uint64_t *value) noexcept nogil:
    cdef Tag tag
    while True:
        if r.q < r.q_end:
            if read_uvarint64(&r.q, r.q_end, value) > 0:
                return True
            r.q = r.q_end
        if next_tag(&r.p, r.end, &tag) <= 0:
            return False
        if tag.number == r.number and tag.kind == 0:
            value[0] = tag.value
            return True
        if tag.number == r.number and tag.kind == 2:
            r.q, r.q_end = tag.data, tag.data + tag.size


cdef struct AckSet:              # asked with rising indexes
    Repeated words
    int64_t at
    uint64_t word


cdef void ack_set_begin(AckSet *a, const uint8_t *p, const uint8_t *end) noexcept nogil:
    repeated_begin(&a.words, 4, p, end)
    a.at = -1
    a.word = 0


cdef bint still_unacked(AckSet *a, int64_t index) noexcept nogil:
    """Whether the bit of `index` is set; words that are not there are acked."""
    while a.at < index >> 6:
        a.at += 1
        if not repeated_next(&a.words, &a.word):
            a.word = 0
    return a.word >> (index & 63) & 1


cdef int64_t cost(PulsarEntryState *e) noexcept nogil:
    """Permits that a broker takes for an entry: its messages that are not acknowledged; 1 when it is no batch."""
    cdef Repeated words
    cdef uint64_t word = 0
    cdef int64_t left = e.head.batch, found = 0
    if left < 0:
        return 1
    if not e.has_ack_set:
        return left
    repeated_begin(&words, 4, e.command, e.command_end)
    while left > 0 and repeated_next(&words, &word):
        if left < 64:
            word &= (<uint64_t>1 << left) - 1
        left -= 64
        while word:
            word &= word - 1
            found += 1
    return found


cdef bint within(PulsarEntryState *e, int64_t index) noexcept nogil:
    """Whether a row lies behind `after` and ahead of `before`."""
    if e.bounded_after:
        if e.ledger < e.after[0] or (e.ledger == e.after[0] and e.entry < e.after[1]):
            return False
        if e.ledger == e.after[0] and e.entry == e.after[1] and (e.after[2] < 0 or index <= e.after[2]):
            return False
    if e.bounded_before:
        if e.ledger > e.before[0] or (e.ledger == e.before[0] and e.entry > e.before[1]):
            return False
        if e.ledger == e.before[0] and e.entry == e.before[1] and (e.before[2] < 0 or index >= e.before[2]):
            return False
    return True


cdef bint within_whole(PulsarEntryState *e) noexcept nogil:
    """Whether all rows of the entry do."""
    if e.bounded_after and e.ledger == e.after[0] and e.entry == e.after[1]:
        return False
    if e.bounded_before and e.ledger == e.before[0] and e.entry == e.before[1]:
        return False
    return within(e, 0)


cdef int count_singles(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """How many messages a batch's payload holds; -1 when it is broken."""
    cdef PulsarHead h
    cdef int count = 0
    cdef int64_t size
    while p < end:
        if end - p < 4:
            return -1
        size = get_u32(p)
        if size > end - p - 4 or not read_single(&h, p + 4, p + 4 + size) or h.payload_size > end - p - 4 - size:
            return -1
        p += 4 + size + h.payload_size
        count += 1
    return count


cdef int walk_single(PulsarEntryState *e, Table *t, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The row of an entry that is one message."""
    cdef int code = table_reserve(t, 1)
    if code == TABLE_OK:
        code = bytes_reserve(&t.key, e.head.key_size + 4)
    if code == TABLE_OK:
        code = bytes_reserve(&t.value, end - p)
    if code != TABLE_OK:
        return code
    return push_pulsar(e, t, &e.head, -1, p, end - p, 0) if within(e, -1) else BATCH_NEXT


cdef int walk_entry(PulsarEntryState *e, Table *t, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The rows of an entry, its payload plain by now."""
    cdef PulsarHead h
    cdef Repeated survivors
    cdef AckSet acks
    cdef uint64_t listed
    cdef int64_t n, size, index = -1, count = e.head.batch
    cdef int misses = 0
    cdef bint renumbered = False, usual
    cdef int code
    if count < 0:
        return walk_single(e, t, p, end)
    if e.head.survivors:                       # a compacted batch holds its survivors only, or all with the others emptied
        n = count_singles(p, end)
        if n == e.head.survivors:
            count = n
            renumbered = True
            repeated_begin(&survivors, 31, e.head.start, e.head.end)
    if count > (end - p) // 6:                 # size, and at least the field payload_size
        return lost(e, "a batch's count does not fit its bytes", p)
    code = table_reserve(t, count)
    if code == TABLE_OK:
        code = bytes_reserve(&t.key, 16 * count)
    if code == TABLE_OK:
        code = bytes_reserve(&t.value, end - p)
    if code != TABLE_OK:
        return code
    ack_set_begin(&acks, e.command, e.command_end)
    usual = not renumbered and not e.has_ack_set and within_whole(e)
    n = 0
    while n < count:
        if usual:
            index = n
            code = walk_usual(e, t, &p, end, &n, count, &usual)
            if code != TABLE_OK:
                return code
            if n == count:
                break
            misses += n == index
            usual = usual and misses < 8
        if unlikely(end - p < 4):
            return lost(e, "a batch ends before its last message", p)
        size = get_u32(p)
        if unlikely(size > end - p - 4 or not read_single(&h, p + 4, p + 4 + size)):
            return lost(e, "a message's metadata in a batch is broken", p)
        p += 4 + size
        if unlikely(h.payload_size > end - p):
            return lost(e, "a message in a batch ends beyond it", p)
        if renumbered:
            if not repeated_next(&survivors, &listed) or <int64_t>listed <= index or listed > INT32_MAX:
                return lost(e, "the batch indexes that compaction left are out of order", p)
            index = <int64_t>listed
        else:
            index = n
        if not h.compacted_out and within(e, index) and (not e.has_ack_set or still_unacked(&acks, index)):
            code = bytes_reserve(&t.key, h.key_size + 4)
            if code == TABLE_OK:
                code = push_pulsar(e, t, &h, index, p, h.payload_size, end - p)
            if code != BATCH_NEXT:
                return code
        p += h.payload_size
        n += 1
    if p != end:
        return lost(e, "a batch is longer than its messages", p)
    return BATCH_NEXT
