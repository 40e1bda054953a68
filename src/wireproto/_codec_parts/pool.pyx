# The pool: memory of columns and batches that is used again instead of being given back, so that steady reading touches no fresh pages.
#
# A fresh page costs more than filling it, and an aligned small block more than a few rows. So blocks from 64 B to 64 MiB are kept, by class
# of size, when they are no longer in use: those from 16 KiB on within a limit of bytes in the whole process (`memory_pool`); then blocks
# of the class that was not asked for the longest go back to the allocator. So do larger blocks. Smaller ones, half a MiB at most in all
# their slots, are not counted; a limit of 0 keeps none of them either.
#
#     block     64 bytes of head (its class, its room), then the room; the pointer that is handed out is behind the head, aligned to 64
#     class     small: 64, 128, 256 … 8 Ki, by powers of two; then two per octave: 16 Ki, 24 Ki, 32 Ki, 48 Ki … 64 Mi; -1: not kept
#     slots     POOL_SLOTS pointers a class, each exchanged whole and atomically: no lock, so none that a fork could leave taken, and
#               blocks are given back on any thread, with or without an interpreter
#
# May assume: nothing. Must not: touch Python, but in `memory_pool`.

from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #ifndef WIREPROTO_POOL_H
    #define WIREPROTO_POOL_H
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #define WP_POOL_FIRST 14
    #define WP_POOL_CLASSES 25
    #define WP_POOL_SLOTS 16
    #define WP_POOL_HEAD 64
    #define WP_POOL_SMALL 8
    typedef struct { int64_t room; int64_t size_class; } wp_block;
    static void *wp_pool_slots[WP_POOL_CLASSES][WP_POOL_SLOTS];
    static int64_t wp_pool_ticks[WP_POOL_CLASSES], wp_pool_tick;
    static void *wp_small_slots[WP_POOL_SMALL][WP_POOL_SLOTS];
    static int64_t wp_pool_held, wp_pool_limit = (int64_t)64 << 20, wp_pool_fresh, wp_pool_again;

    static inline int64_t wp_class_room(int c) {
        int64_t octave = (int64_t)1 << (WP_POOL_FIRST + (c >> 1));
        return octave + ((c & 1) ? octave >> 1 : 0);
    }
    static int wp_class_of(int64_t size) {
        int c;
        if (size <= ((int64_t)1 << (WP_POOL_FIRST - 1))) return -1;
        for (c = 0; c < WP_POOL_CLASSES; c++) if (size <= wp_class_room(c)) return c;
        return -1;
    }
    /* The first slot that has a block, or is free, changes hands; both identify the size class by its number. */
    static inline void *wp_small_take(int c) {
        void *block;
        int n;
        for (n = 0; n < WP_POOL_SLOTS; n++) {
            if (!__atomic_load_n(&wp_small_slots[c][n], __ATOMIC_RELAXED)) continue;
            block = __atomic_exchange_n(&wp_small_slots[c][n], NULL, __ATOMIC_ACQUIRE);
            if (block) return block;
        }
        return NULL;
    }
    static inline int wp_small_give(int c, void *block) {
        void *none;
        int n;
        if (__atomic_load_n(&wp_pool_limit, __ATOMIC_RELAXED) == 0) return 0;
        for (n = 0; n < WP_POOL_SLOTS; n++) {
            if (__atomic_load_n(&wp_small_slots[c][n], __ATOMIC_RELAXED)) continue;
            none = NULL;
            if (__atomic_compare_exchange_n(&wp_small_slots[c][n], &none, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return 1;
        }
        return 0;
    }
    static void *wp_mem_take(int64_t size) {
        int n, c;
        int64_t room;
        uint8_t *block = NULL;
        if (size <= ((int64_t)64 << (WP_POOL_SMALL - 1))) {
            c = size <= 64 ? 0 : 58 - __builtin_clzll((uint64_t)size - 1);
            block = (uint8_t *)wp_small_take(c);
            if (block) return block + WP_POOL_HEAD;
            room = (int64_t)64 << c;
            c = -2 - c;
        } else {
            c = wp_class_of(size);
            room = c < 0 ? (size + 63) & ~(int64_t)63 : wp_class_room(c);
        }
        if (c >= 0) {
            __atomic_store_n(&wp_pool_ticks[c], __atomic_add_fetch(&wp_pool_tick, 1, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
            for (n = 0; n < WP_POOL_SLOTS; n++) {
                if (!__atomic_load_n(&wp_pool_slots[c][n], __ATOMIC_RELAXED)) continue;
                block = __atomic_exchange_n(&wp_pool_slots[c][n], NULL, __ATOMIC_ACQUIRE);
                if (block) {
                    __atomic_sub_fetch(&wp_pool_held, room, __ATOMIC_RELAXED);
                    __atomic_add_fetch(&wp_pool_again, 1, __ATOMIC_RELAXED);
                    return block + WP_POOL_HEAD;
                }
            }
            __atomic_add_fetch(&wp_pool_fresh, 1, __ATOMIC_RELAXED);
        }
        if (posix_memalign((void **)&block, 64, (size_t)room + WP_POOL_HEAD) != 0) return NULL;
        ((wp_block *)block)->room = room;
        ((wp_block *)block)->size_class = c;
        return block + WP_POOL_HEAD;
    }
    static int wp_pool_drop_oldest(int but) {
        int c, n, oldest = -1;
        int64_t tick = INT64_MAX;
        void *block;
        for (c = 0; c < WP_POOL_CLASSES; c++) {
            if (c == but || __atomic_load_n(&wp_pool_ticks[c], __ATOMIC_RELAXED) >= tick) continue;
            for (n = 0; n < WP_POOL_SLOTS && !__atomic_load_n(&wp_pool_slots[c][n], __ATOMIC_RELAXED); n++) {}
            if (n < WP_POOL_SLOTS) { oldest = c; tick = __atomic_load_n(&wp_pool_ticks[c], __ATOMIC_RELAXED); }
        }
        if (oldest < 0) return 0;
        for (n = 0; n < WP_POOL_SLOTS; n++) {
            block = __atomic_exchange_n(&wp_pool_slots[oldest][n], NULL, __ATOMIC_ACQUIRE);
            if (block) { __atomic_sub_fetch(&wp_pool_held, wp_class_room(oldest), __ATOMIC_RELAXED); free(block); return 1; }
        }
        return 1;
    }
    static void wp_mem_give(void *p) {
        uint8_t *block;
        void *none;
        int64_t c, room;
        int n;
        if (!p) return;
        block = (uint8_t *)p - WP_POOL_HEAD;
        c = ((wp_block *)block)->size_class;
        room = ((wp_block *)block)->room;
        if (c <= -2 && wp_small_give(-2 - c, block)) return;
        if (c >= 0) {
            int64_t limit = __atomic_load_n(&wp_pool_limit, __ATOMIC_RELAXED);
            int tries = 0;
            __atomic_add_fetch(&wp_pool_held, room, __ATOMIC_RELAXED);
            while (room <= limit && __atomic_load_n(&wp_pool_held, __ATOMIC_RELAXED) > limit && tries++ < 32 && wp_pool_drop_oldest(c)) {}
            if (__atomic_load_n(&wp_pool_held, __ATOMIC_RELAXED) <= limit) {
                for (n = 0; n < WP_POOL_SLOTS; n++) {
                    none = NULL;
                    if (__atomic_compare_exchange_n(&wp_pool_slots[c][n], &none, block, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
                }
            }
            __atomic_sub_fetch(&wp_pool_held, room, __ATOMIC_RELAXED);
        }
        free(block);
    }
    static inline int64_t wp_mem_room(void *p) { return p ? ((wp_block *)((uint8_t *)p - WP_POOL_HEAD))->room : 0; }
    static void wp_pool_empty(void) {
        void *block;
        int c, n;
        for (c = 0; c < WP_POOL_CLASSES; c++) for (n = 0; n < WP_POOL_SLOTS; n++) {
            block = __atomic_exchange_n(&wp_pool_slots[c][n], NULL, __ATOMIC_ACQUIRE);
            if (block) { __atomic_sub_fetch(&wp_pool_held, wp_class_room(c), __ATOMIC_RELAXED); free(block); }
        }
        for (c = 0; c < WP_POOL_SMALL; c++) while ((block = wp_small_take(c))) free(block);
    }
    static int64_t wp_pool_number(int which) {
        return __atomic_load_n(which == 0 ? &wp_pool_held : which == 1 ? &wp_pool_limit : which == 2 ? &wp_pool_fresh : &wp_pool_again,
                               __ATOMIC_RELAXED);
    }
    static void wp_pool_bound(int64_t limit) {
        __atomic_store_n(&wp_pool_limit, limit, __ATOMIC_RELAXED);
        if (!limit || wp_pool_number(0) > limit) wp_pool_empty();
    }
    #endif
    """
    void *mem_take "wp_mem_take"(int64_t size) noexcept
    void mem_give "wp_mem_give"(void *p) noexcept
    int64_t mem_room "wp_mem_room"(void *p) noexcept
    void pool_empty "wp_pool_empty"() noexcept
    int64_t pool_number "wp_pool_number"(int which) noexcept
    void pool_bound "wp_pool_bound"(int64_t limit) noexcept


def memory_pool(limit=None):
    """What the pool of column memory holds, for the whole process.

    Args:
        limit: from now on keep at most so many bytes of unused blocks (default 64 MiB); 0 keeps none.
    Returns:
        dict of held, limit (bytes), fresh, again (blocks allocated, blocks used again, since the start).
    """
    if limit is not None:
        if limit < 0:
            raise ValueError("a limit is not negative")
        pool_bound(limit)
    return {"held": pool_number(0), "limit": pool_number(1), "fresh": pool_number(2), "again": pool_number(3)}
