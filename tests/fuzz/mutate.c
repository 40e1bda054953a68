/* The fuzzer's mutations: picks an entry of the corpus, changes it, and leaves the input in memory that the driver shares, so that what a
 * crash was caused by can be read there afterwards. One call an input; no Python object is touched. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CAP (1 << 16)

struct shared { uint64_t runs, size, entry; uint8_t data[CAP]; };

static struct shared *out;
static uint64_t state = 88172645463325252ULL;
static uint8_t **entries;
static size_t *sizes, count, room;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static size_t below(size_t n) { return n ? (size_t)((draw() >> 16) % n) : 0; }

void start(void *memory, uint64_t seed) {
    int i;
    while (count) free(entries[--count]);
    out = memory;
    state = seed * 0x9e3779b97f4a7c15ULL + 88172645463325252ULL;
    if (!state) state = 1;
    for (i = 0; i < 20; i++) draw();
}

int add(const uint8_t *data, size_t size) {
    if (size > CAP) return -1;
    if (count == room) {
        room = room ? room * 2 : 256;
        entries = realloc(entries, room * sizeof *entries);
        sizes = realloc(sizes, room * sizeof *sizes);
        if (!entries || !sizes) abort();
    }
    entries[count] = malloc(size ? size : 1);
    if (!entries[count]) abort();
    memcpy(entries[count], data, size);
    sizes[count++] = size;
    return 0;
}

static const uint8_t BYTES[] = {0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x20, 0x0e, 0xc0, 0xed, 0xf4};
static const char JSON[] = "\"\\{}[]:,ut0123456789-+.eE\x01 ";

static uint64_t interesting(size_t left) {
    static const uint64_t some[] = {0, 1, 2, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000ULL,
                                    0x7fffffffffffffffULL, 0x8000000000000000ULL, ~0ULL, ~1ULL};
    size_t i = below(sizeof some / sizeof *some + 6);
    switch (i) {
    case 0: return left;
    case 1: return left + 1;
    case 2: return left - 1;
    case 3: return left / 2;
    case 4: return draw() & 0xffff;
    case 5: return draw();
    default: return some[i - 6];
    }
}

static size_t insert(uint8_t *p, size_t size, size_t at, size_t n) {
    if (size + n > CAP) return size;
    memmove(p + at + n, p + at, size - at);
    return size + n;
}

static size_t change(uint8_t *p, size_t size) {
    size_t at = below(size), n, from, i;
    uint64_t v;
    if (!size) {
        n = 1 + below(8);
        for (i = 0; i < n; i++) p[i] = (uint8_t)draw();
        return n;
    }
    switch (below(15)) {
    case 0: p[at] ^= (uint8_t)(1 << below(8)); break;
    case 1: p[at] = BYTES[below(sizeof BYTES)]; break;
    case 2: p[at] = (uint8_t)draw(); break;
    case 3: p[at] += (uint8_t)(below(9) - 4); break;
    case 4: case 5:                                                   /* a big-endian number: a length or count that lies */
        n = (size_t)2 << below(3);
        if (size < n) break;
        at = below(size - n + 1);
        v = interesting(size - at - n);
        for (i = 0; i < n; i++) p[at + i] = (uint8_t)(v >> 8 * (n - 1 - i));
        break;
    case 6:                                                           /* a varint of any length, overlong ones too */
        n = 1 + below(10);
        v = interesting(size - at);
        for (i = 0; i < n && at + i < size; i++, v >>= 7) p[at + i] = (uint8_t)((v & 0x7f) | (i + 1 < n ? 0x80 : 0));
        break;
    case 7:
        n = 1 + below(size - at < 16 ? size - at : below(8) ? 16 : size - at);
        if (n > size - at) n = size - at;
        memmove(p + at, p + at + n, size - at - n);
        return size - n;
    case 8:                                                           /* a piece of its own, once more */
        n = 1 + below(below(8) ? 16 : 512);
        from = below(size);
        if (n > size - from) n = size - from;
        if (size + n > CAP) break;
        {
            uint8_t piece[512];
            memcpy(piece, p + from, n);
            size = insert(p, size, at, n);
            memcpy(p + at, piece, n);
        }
        break;
    case 9:
        from = below(size);
        n = 1 + below(16);
        if (n > size - from) n = size - from;
        if (n > size - at) n = size - at;
        memmove(p + at, p + from, n);
        break;
    case 10:                                                          /* goes on as another entry does */
        i = below(count);
        from = below(sizes[i]);
        n = sizes[i] - from;
        if (n > CAP - at) n = CAP - at;
        memcpy(p + at, entries[i] + from, n);
        return at + n;
    case 11: return at;
    case 12:
        n = 1 + below(9);
        if (size + n > CAP) break;
        size = insert(p, size, at, n);
        memset(p + at, BYTES[below(sizeof BYTES)], n);
        break;
    case 13: p[at] = (uint8_t)JSON[below(sizeof JSON - 1)]; break;
    case 14:                                                          /* a little-endian number, or all of a field gone */
        n = (size_t)1 << below(4);
        if (size < n) break;
        at = below(size - n + 1);
        v = interesting(size - at - n);
        for (i = 0; i < n; i++) p[at + i] = (uint8_t)(v >> 8 * i);
        break;
    }
    return size;
}

/* The next input: its size; which entry it came from stands in the shared memory. One in 64 is unchanged, one in 16 only cut. */
uint64_t next(void) {
    size_t i = below(count), size = sizes[i], turns = 1;
    uint64_t kind = draw() & 63;
    memcpy(out->data, entries[i], size);
    if (kind >= 1 && kind < 5) size = below(size + 1);
    else if (kind) {
        while (turns < 8 && (draw() & 1)) turns++;
        while (turns--) size = change(out->data, size);
    }
    out->size = size;
    out->entry = i;
    out->runs++;
    return size;
}
