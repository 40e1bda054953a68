/* See lz4.h. One pass with one table of places, as LZ4's fast compressor: the last place of each hash of five bytes. Where nothing is
 * found for a while it looks less closely, so that what cannot be compressed costs little.
 *
 * Reads stay within the source: a place is looked at only TAIL bytes or more before the end, and 16 bytes at a time are copied there at
 * most. Writes stay within the room: each sequence asks for what it takes, and COPY bytes more, before it is written. */
#include "lz4.h"
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    LEAST = 4,                                       /* a match's least length */
    TAIL = 16,                                       /* no match begins so near to the end (the format asks for 12) */
    LAST = 5,                                        /* bytes that end a block as literals */
    COPY = 16,                                       /* literals are copied in pieces of this size */
    NEAR = 3,                                        /* words that are compared before a match is taken for a long one */
    WIDE = 64,
    FAR = 65535,                                     /* the largest distance */
    BITS = 12,
    PATIENCE = 6                                     /* 2^6 misses, then every second place, … */
};

static inline uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

#if defined(__SSE2__)
static inline __m128i get128(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
#endif

static inline uint32_t hash(const uint8_t *p, int bits)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (uint32_t)(((get64(p) >> 24) * 11400714785074694791ull) >> (64 - bits));
#else
    return (uint32_t)(((get64(p) << 24) * 889523592379ull) >> (64 - bits));
#endif
}

/* Which of the 8 bytes differ first, given their exclusive or. */
static inline size_t first_in(uint64_t differ)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (size_t)(__builtin_clzll(differ) >> 3);
#else
    return (size_t)(__builtin_ctzll(differ) >> 3);
#endif
}

/* Whether WIDE bytes are alike at p and q. */
static inline int alike_wide(const uint8_t *p, const uint8_t *q)
{
#if defined(__SSE2__)
    __m128i same = _mm_cmpeq_epi8(get128(p), get128(q));
    for (int at = 16; at < WIDE; at += 16) same = _mm_and_si128(same, _mm_cmpeq_epi8(get128(p + at), get128(q + at)));
    return _mm_movemask_epi8(same) == 0xFFFF;
#else
    uint64_t differ = 0;
    for (int at = 0; at < WIDE; at += 8) differ |= get64(p + at) ^ get64(q + at);
    return differ == 0;
#endif
}

/* How many bytes are alike at p and q, p not beyond `end`, when it may be many. */
static __attribute__((noinline)) size_t alike_long(const uint8_t *p, const uint8_t *q, const uint8_t *end)
{
    const uint8_t *start = p;
    while (end - p >= WIDE && alike_wide(p, q)) { p += WIDE; q += WIDE; }
    for (; end - p >= 8; p += 8, q += 8) {
        uint64_t differ = get64(p) ^ get64(q);
        if (differ) return (size_t)(p - start) + first_in(differ);
    }
    while (p < end && *p == *q) { p++; q++; }
    return (size_t)(p - start);
}

/* The same, when it is a few as a rule. */
static inline size_t alike(const uint8_t *p, const uint8_t *q, const uint8_t *end)
{
    const uint8_t *start = p;
    for (int n = 0; n < NEAR && end - p >= 8; n++, p += 8, q += 8) {
        uint64_t differ = get64(p) ^ get64(q);
        if (differ) return (size_t)(p - start) + first_in(differ);
    }
    return (size_t)(p - start) + alike_long(p, q, end);
}

/* The rest of a length of which the token said 15. */
static inline uint8_t *put_rest(uint8_t *to, size_t rest)
{
    if (rest >= 255) {
        size_t full = rest / 255;
        memset(to, 255, full);
        to += full;
        rest -= 255 * full;
    }
    *to++ = (uint8_t)rest;
    return to;
}

size_t wp_lz4_block(const uint8_t *from, size_t size, uint8_t *to, size_t room)
{
    uint32_t table[1 << BITS];
    const uint8_t *p = from, *done = from, *end = from + size, *q, *near_end;
    uint8_t *const begin = to, *const limit = to + room;
    size_t literals, length;
    int bits = BITS;

    if (size > WP_LZ4_MOST) return 0;
    if (size <= TAIL) goto rest;
    near_end = end - TAIL;
    while (bits > 6 && size < (size_t)1 << (bits + 1)) bits--;      /* a small block: less to clear */
    memset(table, 0, sizeof *table << bits);         /* place 0 for all: its bytes are compared like any other's */
    p++;
    for (;;) {
        uint32_t misses = 1u << PATIENCE, here = hash(p, bits);
        for (;;) {                                   /* find bytes that were there before */
            size_t step = misses++ >> PATIENCE;
            const uint8_t *next;
            uint32_t ahead;
            if ((size_t)(near_end - p) < step) goto rest;
            next = p + step;
            ahead = hash(next, bits);
            q = from + table[here];
            table[here] = (uint32_t)(p - from);
            if (get32(q) == get32(p) && p - q <= FAR) break;
            p = next;
            here = ahead;
        }
        while (p > done && q > from && p[-1] == q[-1]) { p--; q--; }
        literals = (size_t)(p - done);
        for (;;) {                                   /* one sequence, and those that follow it at once */
            uint8_t *token = to;
            length = alike(p + LEAST, q + LEAST, end - LAST);
            if ((size_t)(limit - to) < literals + literals / 255 + length / 255 + 8 + COPY) return 0;
            to++;
            if (literals >= 15) {
                *token = 0xF0;
                to = put_rest(to, literals - 15);
            } else {
                *token = (uint8_t)(literals << 4);
            }
            for (size_t at = 0; at < literals; at += COPY) memcpy(to + at, done + at, COPY);
            to += literals;
            to[0] = (uint8_t)(p - q);
            to[1] = (uint8_t)((p - q) >> 8);
            to += 2;
            p += LEAST + length;
            if (length >= 15) {
                *token |= 15;
                to = put_rest(to, length - 15);
            } else {
                *token |= (uint8_t)length;
            }
            done = p;
            if (p > near_end) goto rest;
            table[hash(p - 2, bits)] = (uint32_t)(p - 2 - from);
            here = hash(p, bits);
            q = from + table[here];
            table[here] = (uint32_t)(p - from);
            if (get32(q) != get32(p) || p - q > FAR) break;
            literals = 0;
        }
        if (++p > near_end) goto rest;
    }
rest:
    literals = (size_t)(end - done);
    if ((size_t)(limit - to) < literals + literals / 255 + 2) return 0;
    if (literals >= 15) {
        *to++ = 0xF0;
        to = put_rest(to, literals - 15);
    } else {
        *to++ = (uint8_t)(literals << 4);
    }
    if (literals) memcpy(to, done, literals);
    return (size_t)(to + literals - begin);
}
