# C declarations of lz4.c.

from libc.stdint cimport uint8_t

cdef extern from "lz4.h" nogil:
    size_t LZ4_MOST "WP_LZ4_MOST"
    size_t lz4_write "wp_lz4_block"(const uint8_t *data, size_t size, uint8_t *to, size_t room) noexcept
    size_t lz4_bound "wp_lz4_bound"(size_t size) noexcept
