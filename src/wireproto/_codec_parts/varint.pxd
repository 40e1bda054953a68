# Varints (7 bits a byte, low group first), unsigned and zigzag, 32 and 64 bit; every read has an end.
#
# Reads advance *p and return 1; they return 0 when the bytes end inside the number, -1 when it has more bits than fit, and then leave *p.
# Writes want room for 5 (32 bit) or 10 (64 bit) bytes and return the new end. May assume nothing of the bytes; touch no Python.
# Fields are mostly one or two bytes long: those two have their own branch (measured faster than wide loads on real records).

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_VARINT_H
    #define WIREPROTO_VARINT_H
    #include <stdint.h>
    static inline int wp_uvarint64(const uint8_t **p, const uint8_t *end, uint64_t *out) {
        const uint8_t *q = *p;
        uint64_t v; uint8_t b; int shift;
        if (q >= end) return 0;
        b = *q++;
        if (b < 0x80) { *out = b; *p = q; return 1; }
        v = b & 0x7f;
        if (q >= end) return 0;
        b = *q++;
        if (b < 0x80) { *out = v | ((uint64_t)b << 7); *p = q; return 1; }
        v |= (uint64_t)(b & 0x7f) << 7;
        for (shift = 14; shift < 63; shift += 7) {
            if (q >= end) return 0;
            b = *q++;
            v |= (uint64_t)(b & 0x7f) << shift;
            if (b < 0x80) { *out = v; *p = q; return 1; }
        }
        if (q >= end) return 0;
        b = *q++;
        if (b > 1) return -1;                       /* the tenth byte holds one bit */
        *out = v | ((uint64_t)b << 63); *p = q; return 1;
    }
    static inline int wp_uvarint32(const uint8_t **p, const uint8_t *end, uint32_t *out) {
        const uint8_t *q = *p;
        uint32_t v; uint8_t b; int shift;
        if (q >= end) return 0;
        b = *q++;
        if (b < 0x80) { *out = b; *p = q; return 1; }
        v = b & 0x7f;
        if (q >= end) return 0;
        b = *q++;
        if (b < 0x80) { *out = v | ((uint32_t)b << 7); *p = q; return 1; }
        v |= (uint32_t)(b & 0x7f) << 7;
        for (shift = 14; shift < 28; shift += 7) {
            if (q >= end) return 0;
            b = *q++;
            v |= (uint32_t)(b & 0x7f) << shift;
            if (b < 0x80) { *out = v; *p = q; return 1; }
        }
        if (q >= end) return 0;
        b = *q++;
        if (b > 0x0f) return -1;                    /* the fifth byte holds four bits */
        *out = v | ((uint32_t)b << 28); *p = q; return 1;
    }
    static inline int wp_varint64(const uint8_t **p, const uint8_t *end, int64_t *out) {
        uint64_t u; int r = wp_uvarint64(p, end, &u);
        if (r > 0) *out = (int64_t)((u >> 1) ^ (0 - (u & 1)));
        return r;
    }
    static inline int wp_varint32(const uint8_t **p, const uint8_t *end, int32_t *out) {
        uint32_t u; int r = wp_uvarint32(p, end, &u);
        if (r > 0) *out = (int32_t)((u >> 1) ^ (0 - (u & 1)));
        return r;
    }
    static inline uint8_t *wp_put_uvarint64(uint8_t *p, uint64_t v) {
        while (v >= 0x80) { *p++ = (uint8_t)(v | 0x80); v >>= 7; }
        *p++ = (uint8_t)v; return p;
    }
    static inline uint8_t *wp_put_uvarint32(uint8_t *p, uint32_t v) {
        while (v >= 0x80) { *p++ = (uint8_t)(v | 0x80); v >>= 7; }
        *p++ = (uint8_t)v; return p;
    }
    static inline uint64_t wp_zigzag64(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
    static inline uint32_t wp_zigzag32(int32_t v) { return ((uint32_t)v << 1) ^ (uint32_t)(v >> 31); }
    static inline uint8_t *wp_put_varint64(uint8_t *p, int64_t v) { return wp_put_uvarint64(p, wp_zigzag64(v)); }
    static inline uint8_t *wp_put_varint32(uint8_t *p, int32_t v) { return wp_put_uvarint32(p, wp_zigzag32(v)); }
    static inline int wp_uvarint_size(uint64_t v) { return ((64 - __builtin_clzll(v | 1)) * 9 + 64) >> 6; }
    static inline int wp_varint_size(int64_t v) { return wp_uvarint_size(wp_zigzag64(v)); }
    #endif
    """
    int read_uvarint32 "wp_uvarint32"(const uint8_t **p, const uint8_t *end, uint32_t *out) noexcept
    int read_uvarint64 "wp_uvarint64"(const uint8_t **p, const uint8_t *end, uint64_t *out) noexcept
    int read_varint32 "wp_varint32"(const uint8_t **p, const uint8_t *end, int32_t *out) noexcept
    int read_varint64 "wp_varint64"(const uint8_t **p, const uint8_t *end, int64_t *out) noexcept
    uint8_t *write_uvarint32 "wp_put_uvarint32"(uint8_t *p, uint32_t v) noexcept
    uint8_t *write_uvarint64 "wp_put_uvarint64"(uint8_t *p, uint64_t v) noexcept
    uint8_t *write_varint32 "wp_put_varint32"(uint8_t *p, int32_t v) noexcept
    uint8_t *write_varint64 "wp_put_varint64"(uint8_t *p, int64_t v) noexcept
    uint64_t zigzag64 "wp_zigzag64"(int64_t v) noexcept
    uint32_t zigzag32 "wp_zigzag32"(int32_t v) noexcept
    int uvarint_size "wp_uvarint_size"(uint64_t v) noexcept
    int varint_size "wp_varint_size"(int64_t v) noexcept
