/* LZ4 blocks: compression only. Layout of a block (lz4_Block_format.md of the LZ4 project):
 *
 *   { token · [255 …] rest of the literals' length · literals · u16le distance · [255 …] rest of the match's length }*
 *   the last sequence ends with its literals
 *
 * token: literals' length in the upper 4 bits, match's length - 4 in the lower; 15 means that bytes follow which are added, up to one
 * below 255. Matches begin 12 bytes and end 5 bytes before the end of the block at least. Thread-safe; no Python, no allocation. */
#ifndef WIREPROTO_LZ4_H
#define WIREPROTO_LZ4_H
#include <stddef.h>
#include <stdint.h>

#define WP_LZ4_MOST ((size_t)0x7E000000)         /* the largest block that the format has */

/* Compress `size` bytes (up to WP_LZ4_MOST) into `to`, which has `room` bytes. Returns the block's size, 0 when it does not fit. */
size_t wp_lz4_block(const uint8_t *from, size_t size, uint8_t *to, size_t room);

/* What a block of `size` bytes may take at most. */
static inline size_t wp_lz4_bound(size_t size) { return size + size / 255 + 16; }

#endif
