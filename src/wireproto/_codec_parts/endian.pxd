# Big- and little-endian loads and stores at any alignment.
#
# May assume: the caller has checked that the bytes are there. Must not: check anything, touch Python. All of it inlines.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_ENDIAN_H
    #define WIREPROTO_ENDIAN_H
    #include <stdint.h>
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define wp_be16(x) (x)
    #define wp_be32(x) (x)
    #define wp_be64(x) (x)
    #define wp_le16(x) __builtin_bswap16(x)
    #define wp_le32(x) __builtin_bswap32(x)
    #define wp_le64(x) __builtin_bswap64(x)
    #else
    #define wp_be16(x) __builtin_bswap16(x)
    #define wp_be32(x) __builtin_bswap32(x)
    #define wp_be64(x) __builtin_bswap64(x)
    #define wp_le16(x) (x)
    #define wp_le32(x) (x)
    #define wp_le64(x) (x)
    #endif
    static inline uint16_t wp_get_u16(const void *p) { uint16_t v; memcpy(&v, p, 2); return wp_be16(v); }
    static inline uint32_t wp_get_u32(const void *p) { uint32_t v; memcpy(&v, p, 4); return wp_be32(v); }
    static inline uint64_t wp_get_u64(const void *p) { uint64_t v; memcpy(&v, p, 8); return wp_be64(v); }
    static inline int16_t wp_get_i16(const void *p) { return (int16_t)wp_get_u16(p); }
    static inline int32_t wp_get_i32(const void *p) { return (int32_t)wp_get_u32(p); }
    static inline int64_t wp_get_i64(const void *p) { return (int64_t)wp_get_u64(p); }
    static inline double wp_get_f64(const void *p) { uint64_t v = wp_get_u64(p); double d; memcpy(&d, &v, 8); return d; }
    static inline void wp_put_u16(void *p, uint16_t v) { v = wp_be16(v); memcpy(p, &v, 2); }
    static inline void wp_put_u32(void *p, uint32_t v) { v = wp_be32(v); memcpy(p, &v, 4); }
    static inline void wp_put_u64(void *p, uint64_t v) { v = wp_be64(v); memcpy(p, &v, 8); }
    static inline void wp_put_f64(void *p, double d) { uint64_t v; memcpy(&v, &d, 8); wp_put_u64(p, v); }
    static inline uint16_t wp_get_u16le(const void *p) { uint16_t v; memcpy(&v, p, 2); return wp_le16(v); }
    static inline uint32_t wp_get_u32le(const void *p) { uint32_t v; memcpy(&v, p, 4); return wp_le32(v); }
    static inline uint64_t wp_get_u64le(const void *p) { uint64_t v; memcpy(&v, p, 8); return wp_le64(v); }
    static inline void wp_put_u16le(void *p, uint16_t v) { v = wp_le16(v); memcpy(p, &v, 2); }
    static inline void wp_put_u32le(void *p, uint32_t v) { v = wp_le32(v); memcpy(p, &v, 4); }
    static inline void wp_put_u64le(void *p, uint64_t v) { v = wp_le64(v); memcpy(p, &v, 8); }
    #endif
    """
    # big endian
    uint16_t get_u16 "wp_get_u16"(const void *p) noexcept
    uint32_t get_u32 "wp_get_u32"(const void *p) noexcept
    uint64_t get_u64 "wp_get_u64"(const void *p) noexcept
    int16_t get_i16 "wp_get_i16"(const void *p) noexcept
    int32_t get_i32 "wp_get_i32"(const void *p) noexcept
    int64_t get_i64 "wp_get_i64"(const void *p) noexcept
    double get_f64 "wp_get_f64"(const void *p) noexcept
    void put_u16 "wp_put_u16"(void *p, uint16_t v) noexcept
    void put_u32 "wp_put_u32"(void *p, uint32_t v) noexcept
    void put_u64 "wp_put_u64"(void *p, uint64_t v) noexcept
    void put_f64 "wp_put_f64"(void *p, double v) noexcept
    # little endian
    uint16_t get_u16le "wp_get_u16le"(const void *p) noexcept
    uint32_t get_u32le "wp_get_u32le"(const void *p) noexcept
    uint64_t get_u64le "wp_get_u64le"(const void *p) noexcept
    void put_u16le "wp_put_u16le"(void *p, uint16_t v) noexcept
    void put_u32le "wp_put_u32le"(void *p, uint32_t v) noexcept
    void put_u64le "wp_put_u64le"(void *p, uint64_t v) noexcept
