# Where the plain part of a JSON text ends: eight bytes at a time, as most of a JSON header is such text.
#
# May assume: bytes from p to end are there. Must not: read behind end, say what a text means. All of it inlines.

from libc.stdint cimport uint8_t, uint64_t

from wireproto._codec_parts.endian cimport get_u64le

cdef extern from * nogil:
    int trailing_zeros "__builtin_ctzll"(unsigned long long) noexcept


cdef enum:
    WORD = 8

cdef inline uint64_t each(uint8_t value) noexcept nogil:
    """A word of eight such bytes."""
    return 0x0101010101010101ULL * value


cdef inline uint64_t zeros(uint64_t word) noexcept nogil:
    """High bits where a byte is zero; the lowest one is right, those above it may not be."""
    return (word - each(1)) & ~word & each(0x80)


cdef inline const uint8_t *plain_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The first byte that is a quote, a backslash, a control character or beyond ASCII; `end` or behind it where there is none."""
    cdef uint64_t word, found
    while end - p >= WORD:
        word = get_u64le(p)
        found = zeros(word ^ each(c'"')) | zeros(word ^ each(c'\\')) | (((word - each(0x20)) & ~word | word) & each(0x80))
        if found:
            return p + (trailing_zeros(found) >> 3)
        p += WORD
    while p < end and 0x20 <= p[0] < 0x80 and p[0] != c'"' and p[0] != c'\\':
        p += 1
    return p
