# A RocketMQ message's properties: text taken apart, the key and the headers in it.
#
#     properties   { name 01 value 02 }*, the last 02 perhaps missing (brokers before 5.2); a name without a value means nothing, and so
#                  does a value without a name; a value may hold further 01
#
# The first KEYS is the key; names that belong to brokers and clients are no headers, everything else is, in order, also twice. The last
# BORN_TIMESTAMP is when the message was made, where its command was of another time: RocketMQ's proxy says (ProducerProcessor) that what it
# sends in one command has the first one's born time, and that this property is to be used.
# May assume: that the bytes lie within what `end` ends, where there is one. Must not: touch Python but at import.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_PROPERTIES_H
    #define WIREPROTO_PROPERTIES_H
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    /* Which of the 64 bytes at p are 01, and which 02: a bit each, the first byte's the lowest. */
    static inline void wp_marks_64(const uint8_t *p, uint64_t *ones, uint64_t *twos) {
        const __m128i one = _mm_set1_epi8(1), two = _mm_set1_epi8(2);
        uint64_t a = 0, b = 0;
        int n;
        for (n = 0; n < 64; n += 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)(p + n));
            a |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, one)) << n;
            b |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, two)) << n;
        }
        *ones = a;
        *twos = b;
    }
    #else
    /* Which of eight bytes are zero: the sum sets each byte's high bit that is not, the product gathers the bits. */
    static inline uint64_t wp_zero_bits(uint64_t v) {
        const uint64_t low = 0x7f7f7f7f7f7f7f7fULL;
        return ((~(((v & low) + low) | v | low) >> 7) * 0x0102040810204080ULL) >> 56;
    }
    static inline void wp_marks_64(const uint8_t *p, uint64_t *ones, uint64_t *twos) {
        uint64_t a = 0, b = 0;
        int n;
        for (n = 0; n < 64; n += 8) {
            uint64_t v = wp_get_u64le(p + n);
            a |= wp_zero_bits(v ^ 0x0101010101010101ULL) << n;
            b |= wp_zero_bits(v ^ 0x0202020202020202ULL) << n;
        }
        *ones = a;
        *twos = b;
    }
    #endif
    /* The same of at most 64 bytes; `slack` may be read from p on. */
    static inline void wp_marks(const uint8_t *p, int64_t size, int64_t slack, uint64_t *ones, uint64_t *twos) {
        uint8_t copy[64];
        if (slack < 64) {
            memset(copy, 0, 64);
            memcpy(copy, p, size < 64 ? (size_t)size : 64);
            p = copy;
        }
        wp_marks_64(p, ones, twos);
        if (size < 64) {
            *ones &= ((uint64_t)1 << size) - 1;
            *twos &= ((uint64_t)1 << size) - 1;
        }
    }
    static inline int wp_lowest(uint64_t bits) { return __builtin_ctzll(bits); }
    /* Whether it is ASCII; 0 also where `slack` is too short to see at once. */
    static inline int wp_ascii_seen(const uint8_t *p, int64_t size, int64_t slack) {
        uint64_t seen = 0;
        if (slack < ((size + 7) & ~(int64_t)7)) return 0;
        for (; size >= 8; size -= 8, p += 8) seen |= wp_get_u64le(p);
        if (size) seen |= wp_get_u64le(p) & (((uint64_t)1 << (8 * size)) - 1);
        return !(seen & 0x8080808080808080ULL);
    }
    #endif
    """
    void marks "wp_marks"(const uint8_t *p, int64_t size, int64_t slack, uint64_t *ones, uint64_t *twos) noexcept
    int lowest "wp_lowest"(uint64_t bits) noexcept
    bint ascii_seen "wp_ascii_seen"(const uint8_t *p, int64_t size, int64_t slack) noexcept

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


cdef bint property_of(const uint8_t *p, Py_ssize_t size, const char *wanted, Py_ssize_t wanted_size, Text *found) noexcept nogil:
    """Whether one of this name is there; `found` is its value, else NULL."""
    cdef Text name
    cdef const uint8_t *end = p + size
    while next_property(&p, end, &name, found):
        if name.size == wanted_size and memcmp(name.data, wanted, wanted_size) == 0:
            return True
    found.data, found.size = NULL, 0
    return False


cdef struct Source:              # where the message that is being taken apart stands
    const uint8_t *end           # of the readable bytes
    int64_t size                 # of the message: what follows is taken to be like it
    Text own                 # value of its property BORN_TIMESTAMP; data is NULL where there is none


cdef inline bint is_usual(const uint8_t *name, int64_t size) noexcept nogil:
    """Whether it is one of the reserved names that most messages have."""
    return size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0 or size == 4 and memcmp(name, b"WAIT", 4) == 0


cdef bint is_ours(Source *s, const uint8_t *name, int64_t size, const uint8_t *stop) noexcept nogil:
    """`is_reserved`; a time of the message's own is noted."""
    if size == 14 and memcmp(name, b"BORN_TIMESTAMP", 14) == 0:
        s.own.data, s.own.size = name + 15, stop - name - 15
        return True
    return is_reserved(name, size)


cdef inline int push_property(Table *t, Source *s, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t size) noexcept nogil:
    """Add a header to the row being filled."""
    cdef Bytes *n = &t.name
    cdef Bytes *v = &t.header_value
    cdef Py_ssize_t at = t.headers
    if unlikely(at >= t.header_room or n.used + name_size + COPY_SLACK > n.room or v.used + size + COPY_SLACK > v.room
                or not ascii_seen(name, name_size, s.end - name)):
        return push_property_far(t, s, name, name_size, value, size)
    copy_slack(n.data + n.used, name, name_size, s.end - name)
    copy_slack(v.data + v.used, value, size, s.end - value)
    n.used += name_size
    v.used += size
    n.starts[at + 1] = <int32_t>n.used
    v.starts[at + 1] = <int32_t>v.used
    t.headers = at + 1
    return TABLE_OK


cdef int push_property_far(Table *t, Source *s, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t size) noexcept nogil:
    """The same where room is short or the name is no ASCII."""
    cdef int code = TABLE_OK
    if t.name.used + name_size + COPY_SLACK > t.name.room:
        code = room_for(&t.name, name_size, 256 * name_size // s.size, s.end - name)
    if code == TABLE_OK and t.header_value.used + size + COPY_SLACK > t.header_value.room:
        code = room_for(&t.header_value, size, 256 * size // s.size, s.end - value)
    return code if code != TABLE_OK else push_named(t, name, name_size, value, size)


cdef bint read_born(Text *text, int64_t *ms) noexcept nogil:
    """Read a BORN_TIMESTAMP: ms since 1970, as Java's Long.parseLong takes it of ASCII digits. False for anything else."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef bint minus = text.size > 0 and p[0] == c'-'
    cdef uint64_t most = <uint64_t>INT64_MAX + minus
    cdef uint64_t value = 0
    cdef uint8_t digit
    if text.size > 0 and (minus or p[0] == c'+'):
        p += 1
    if p == end:
        return False
    while p < end:
        digit = <uint8_t>(p[0] - c'0')
        if digit > 9 or value > (most - digit) // 10:
            return False
        value = value * 10 + digit
        p += 1
    ms[0] = <int64_t>(0 - value) if minus else <int64_t>value
    return True


cdef inline int take_pair(Table *t, Source *s, const uint8_t *begin, const uint8_t *split, const uint8_t *stop, Text *key) noexcept nogil:
    """A name from begin to split, and a value up to stop."""
    if split == begin or stop - split < 2:
        return TABLE_OK
    if split - begin == 4 and memcmp(begin, b"KEYS", 4) == 0:
        if key.data == NULL:
            key.data, key.size = split + 1, stop - split - 1
        return TABLE_OK
    if begin[0] < c'a' and (is_usual(begin, split - begin) or is_ours(s, begin, split - begin, stop)):
        return TABLE_OK                          # no reserved name begins with a small letter
    if not t.wanted & WANT_HEADERS:
        return TABLE_OK
    return push_property(t, s, begin, split - begin, split + 1, stop - split - 1)


cdef int take_properties(Table *t, Source *s, const uint8_t *p, int64_t size, Text *key) noexcept nogil:
    """The key, the time of its own, and the headers into the row being filled: the marks of 64 bytes at a time."""
    cdef const uint8_t *begin = p                # of the pair
    cdef const uint8_t *split = NULL             # its first 01
    cdef const uint8_t *stop
    cdef uint64_t ones, twos, bit
    cdef int64_t left = size
    cdef int code
    while left > 0:
        marks(p, left, s.end - p, &ones, &twos)
        while twos:
            stop = p + lowest(twos)
            bit = twos & (0 - twos)
            if split == NULL and ones & (bit - 1):
                split = p + lowest(ones)
            if split != NULL:
                code = take_pair(t, s, begin, split, stop, key)
                if unlikely(code != TABLE_OK):
                    return code
            begin, split = stop + 1, NULL
            ones &= 0 - bit                      # those behind it
            twos &= twos - 1
        if split == NULL and ones:
            split = p + lowest(ones)
        left -= 64
        if left > 0:
            p += 64
        else:
            p += left + 64
    return take_pair(t, s, begin, split, p, key) if split != NULL else TABLE_OK
