/* See crc.h. Reflected CRCs: bit 0 of the first byte is the highest power of x. */
#include "crc.h"
#include <string.h>

static uint32_t table_c[8][256], table_i[8][256];
static volatile int ready;

static void fill(uint32_t t[8][256], uint32_t poly)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ poly : c >> 1;
        t[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) t[k][n] = (t[k - 1][n] >> 8) ^ t[0][t[k - 1][n] & 255];
}

static uint32_t by_table(uint32_t (*t)[256], uint32_t c, const uint8_t *p, size_t n)
{
    while (n >= 8) {
        uint32_t a = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t[7][a & 255] ^ t[6][(a >> 8) & 255] ^ t[5][(a >> 16) & 255] ^ t[4][a >> 24]
          ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
        p += 8; n -= 8;
    }
    while (n--) c = (c >> 8) ^ t[0][(c ^ *p++) & 255];
    return c;
}

void wp_crc_init(void)
{
    if (ready) return;
    fill(table_c, 0x82f63b78u);
    fill(table_i, 0xedb88320u);
    ready = 1;
}

uint32_t wp_crc32c(uint32_t value, const void *data, size_t size) { return ~by_table(table_c, ~value, data, size); }
uint32_t wp_crc32(uint32_t value, const void *data, size_t size) { return ~by_table(table_i, ~value, data, size); }
const char *wp_crc_kernel(void) { return "table"; }
int wp_crc_select(const char *name) { return strcmp(name, "table") == 0; }
