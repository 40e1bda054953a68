# Hashes of keys, by which clients choose partitions.
#
#     murmur2    Kafka's: of the bytes
#     java       Pulsar's default: String.hashCode, 31 * h + unit, over UTF-16 units
#     murmur3    Pulsar's other one: murmur3, 32 bits, seed 0, over UTF-8
#
# Pulsar's keys are text: one that is no UTF-8 is hashed in the form in which it travels, as base64. All are used without their sign bit.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from wireproto._codec_parts.endian cimport get_u32le

cdef enum:
    HASH_MURMUR2 = 0
    HASH_JAVA = 1
    HASH_MURMUR3 = 2

cdef tuple KEY_HASHES = ("murmur2", "java", "murmur3")


cdef inline uint32_t rotated(uint32_t value, int bits) noexcept nogil:
    return value << bits | value >> (32 - bits)


cdef inline uint32_t murmur3_block(uint32_t value, uint32_t k) noexcept nogil:
    return rotated(value ^ rotated(k * <uint32_t>0xCC9E2D51, 15) * 0x1B873593, 13) * 5 + <uint32_t>0xE6546B64


cdef uint32_t murmur3_end(uint32_t value, int64_t size) noexcept nogil:
    value ^= <uint32_t>size
    value = (value ^ value >> 16) * <uint32_t>0x85EBCA6B
    value = (value ^ value >> 13) * <uint32_t>0xC2B2AE35
    return value ^ value >> 16


cdef uint32_t murmur3(const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint32_t value = 0
    cdef uint32_t k = 0
    cdef int64_t n
    for n in range(size // 4):
        value = murmur3_block(value, get_u32le(p + 4 * n))
    n = size & ~<int64_t>3
    if size & 3:
        if size & 3 == 3:
            k = <uint32_t>p[n + 2] << 16
        if size & 3 >= 2:
            k |= <uint32_t>p[n + 1] << 8
        k |= p[n]
        value ^= rotated(k * <uint32_t>0xCC9E2D51, 15) * 0x1B873593
    return murmur3_end(value, size)


cdef uint32_t hash_of_base64(int hashing, const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint8_t four[4]
    cdef uint32_t value = 0
    cdef int64_t n = 0
    cdef int i
    while n < size:
        put_base64(four, p + n, min(size - n, 3))
        if hashing == HASH_MURMUR3:
            value = murmur3_block(value, get_u32le(four))
        else:
            for i in range(4):
                value = value * 31 + four[i]
        n += 3
    return murmur3_end(value, (size + 2) // 3 * 4) if hashing == HASH_MURMUR3 else value


cdef uint32_t key_hash_of(int hashing, const uint8_t *p, int64_t size) noexcept nogil:
    if hashing == HASH_MURMUR2:
        return murmur2(p, size)
    if not is_utf8(p, size):
        return hash_of_base64(hashing, p, size)
    return murmur3(p, size) if hashing == HASH_MURMUR3 else java_hash_of(p, size)


def key_hash(str hashing not None, key not None):
    """The hash of a key (bytes, any buffer), without its sign bit.

    Args:
        hashing: "murmur2", "java" or "murmur3".
    """
    cdef Blob k
    cdef uint32_t value
    cdef int number = KEY_HASHES.index(hashing)
    blob_open(&k, key)
    value = key_hash_of(number, k.data, k.size)
    blob_close(&k)
    return value & 0x7FFFFFFF
