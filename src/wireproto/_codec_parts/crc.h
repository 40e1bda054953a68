/* CRC-32C (Castagnoli: Kafka batches, Pulsar frames) and CRC-32 (IEEE: Kafka message sets, RocketMQ bodies).
 *
 * Both take and return the finished value: start with 0, pass the result on to go on. Thread-safe; no Python, no allocation.
 * The kernel is chosen once, at wp_crc_init(), which the module calls when it is imported; without it the tables are used. */
#ifndef WIREPROTO_CRC_H
#define WIREPROTO_CRC_H
#include <stddef.h>
#include <stdint.h>

void wp_crc_init(void);
uint32_t wp_crc32c(uint32_t value, const void *data, size_t size);
uint32_t wp_crc32(uint32_t value, const void *data, size_t size);
const char *wp_crc_kernel(void);                 /* name of the kernel in use */
int wp_crc_select(const char *name);             /* for tests: force a kernel by name; 0 if this machine lacks it */

#endif
