# C declarations of crc.c, for every part that checks or writes a CRC.

from libc.stdint cimport uint32_t

cdef extern from "crc.h" nogil:
    void crc_init "wp_crc_init"() noexcept
    uint32_t crc32c_update "wp_crc32c"(uint32_t value, const void *data, size_t size) noexcept
    uint32_t crc32_update "wp_crc32"(uint32_t value, const void *data, size_t size) noexcept
    const char *crc_kernel "wp_crc_kernel"() noexcept
    int crc_select "wp_crc_select"(const char *name) noexcept
