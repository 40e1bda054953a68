/* See crc.h. Reflected CRCs: bit 0 of the first byte is the highest power of x; `c` is the raw register, inverted only at the two ends.
 *
 *   table     eight tables, 8 bytes a step                                            any machine
 *   sse42     crc32q, one chain; from 384 bytes three chains merged by PCLMULQDQ      CRC-32C; CRC-32 by folding four xmm
 *   vpclmul   folding four ymm, 128 bytes a step                                      both
 *   avx512    folding four zmm, 256 bytes a step                                      both
 *   arm       crc32cx / crc32x, one chain                                             both
 *
 * Folding by D bits (Gopal et al., Intel 2009): x = lo(x) * x^(D+32) + hi(x) * x^(D-32) + data, modulo P; the powers are computed at start,
 * so that there is one code for both polynomials. What is left, 16 bytes, goes through the short kernel. */
#include "crc.h"
#include <string.h>

struct fold { uint64_t near_, far_; };               /* x^(D+32), x^(D-32) */
struct poly {
    uint32_t table[8][256];
    struct fold by128, by256, by384, by512, by1024, by2048;
    uint64_t by64;                                   /* x^64 */
    uint64_t shift128, shift256, shift1k, shift2k;   /* x^(8n-33): moves a register over n bytes */
};
typedef uint32_t kernel(uint32_t c, const uint8_t *p, size_t n);

static struct poly poly_c, poly_i;
static int ready;

static uint32_t power(uint32_t p, unsigned n)        /* x^n mod P, reflected */
{
    uint32_t v = 0x80000000u;
    while (n--) v = v & 1 ? (v >> 1) ^ p : v >> 1;
    return v;
}

static struct fold fold_by(uint32_t p, unsigned bits)
{
    struct fold f = { (uint64_t)power(p, bits + 32) << 1, (uint64_t)power(p, bits - 32) << 1 };
    return f;
}

static void fill(struct poly *y, uint32_t p)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ p : c >> 1;
        y->table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) y->table[k][n] = (y->table[k - 1][n] >> 8) ^ y->table[0][y->table[k - 1][n] & 255];
    y->by128 = fold_by(p, 128);
    y->by256 = fold_by(p, 256);
    y->by384 = fold_by(p, 384);
    y->by512 = fold_by(p, 512);
    y->by64 = (uint64_t)power(p, 64) << 1;
    y->by1024 = fold_by(p, 1024);
    y->by2048 = fold_by(p, 2048);
    y->shift128 = power(p, 8 * 128 - 33);
    y->shift256 = power(p, 8 * 256 - 33);
    y->shift1k = power(p, 8 * 1024 - 33);
    y->shift2k = power(p, 8 * 2048 - 33);
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

static uint32_t table_c(uint32_t c, const uint8_t *p, size_t n) { return by_table(poly_c.table, c, p, n); }
static uint32_t table_i(uint32_t c, const uint8_t *p, size_t n) { return by_table(poly_i.table, c, p, n); }

static kernel *run_c = table_c, *run_i = table_i;
static const char *in_use = "table";

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

__attribute__((target("sse4.2")))
static uint32_t chain_c(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t a = c, v;
    for (; n >= 8; p += 8, n -= 8) { memcpy(&v, p, 8); a = _mm_crc32_u64(a, v); }
    c = (uint32_t)a;
    while (n--) c = _mm_crc32_u8(c, *p++);
    return c;
}

__attribute__((target("sse4.2,pclmul")))
static inline uint32_t moved(uint32_t c, uint64_t shift)
{
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)c), _mm_cvtsi64_si128((long long)shift), 0)));
}

__attribute__((target("sse4.2,pclmul")))
static inline uint32_t three(uint32_t c, const uint8_t *p, size_t step, uint64_t one, uint64_t two)
{
    uint64_t a = c, b = 0, d = 0, v;
    for (size_t i = 0; i < step; i += 8) {
        memcpy(&v, p + i, 8); a = _mm_crc32_u64(a, v);
        memcpy(&v, p + step + i, 8); b = _mm_crc32_u64(b, v);
        memcpy(&v, p + 2 * step + i, 8); d = _mm_crc32_u64(d, v);
    }
    return moved((uint32_t)a, two) ^ moved((uint32_t)b, one) ^ (uint32_t)d;
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t sse42_c(uint32_t c, const uint8_t *p, size_t n)
{
    for (; n >= 3072; p += 3072, n -= 3072) c = three(c, p, 1024, poly_c.shift1k, poly_c.shift2k);
    for (; n >= 384; p += 384, n -= 384) c = three(c, p, 128, poly_c.shift128, poly_c.shift256);
    return chain_c(c, p, n);
}

#define LOAD128(q) _mm_loadu_si128((const __m128i *)(q))
#define KEY128(f) _mm_set_epi64x((long long)(f).far_, (long long)(f).near_)
#define FOLD128(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* Fold x over the n bytes at p, 1 to 15; 16 - n bytes before them are read as well. */
__attribute__((target("sse4.2,pclmul")))
static inline __m128i with_rest(__m128i x, const uint8_t *p, size_t n, __m128i k)
{
    static const uint8_t places[48] = {
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    };
    __m128i up = LOAD128(places + n), down = LOAD128(places + 16 + n);
    __m128i early = _mm_shuffle_epi8(x, up);         /* the first n bytes, at the end of 16 */
    __m128i late = _mm_blendv_epi8(LOAD128(p + n - 16), _mm_shuffle_epi8(x, down), up);      /* the others, and the rest behind them */
    return _mm_xor_si128(FOLD128(early, k), late);
}

/* The register after the 16 bytes of x, for CRC-32: 128 bits to 96, to 64, then Barrett's reduction. */
__attribute__((target("sse4.2,pclmul")))
static inline uint32_t reduced_i(__m128i x)
{
    const __m128i low = _mm_cvtsi32_si128(-1), poly = _mm_set_epi64x(0x1f7011641, 0x1db710641);  /* x^64 / P, P; each with its x^32 */
    __m128i part;
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, _mm_cvtsi64_si128((long long)poly_i.by128.far_), 0x00));
    part = _mm_clmulepi64_si128(_mm_and_si128(x, low), _mm_cvtsi64_si128((long long)poly_i.by64), 0x00);
    x = _mm_xor_si128(_mm_srli_si128(x, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(x, low), poly, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, part), 1);
}

/* What is left: n bytes behind a folded x, which holds 16 or more that lie before p. */
__attribute__((target("sse4.2,pclmul")))
static inline uint32_t finish(__m128i x, const uint8_t *p, size_t n, const struct poly *y)
{
    __m128i k = KEY128(y->by128);
    for (; n >= 16; p += 16, n -= 16) x = _mm_xor_si128(FOLD128(x, k), LOAD128(p));
    if (n) x = with_rest(x, p, n, k);
    if (y == &poly_i) return reduced_i(x);
    return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)), (uint64_t)_mm_extract_epi64(x, 1));
}

__attribute__((target("sse4.2,pclmul")))
static uint32_t xmm_i(uint32_t c, const uint8_t *p, size_t n)
{
    if (n < 16) return table_i(c, p, n);
    __m128i a = _mm_xor_si128(LOAD128(p), _mm_cvtsi32_si128((int)c));
    if (n < 64) return finish(a, p + 16, n - 16, &poly_i);
    __m128i b = LOAD128(p + 16), d = LOAD128(p + 32), e = LOAD128(p + 48), k = KEY128(poly_i.by512);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a = _mm_xor_si128(FOLD128(a, k), LOAD128(p));
        b = _mm_xor_si128(FOLD128(b, k), LOAD128(p + 16));
        d = _mm_xor_si128(FOLD128(d, k), LOAD128(p + 32));
        e = _mm_xor_si128(FOLD128(e, k), LOAD128(p + 48));
    }
    a = FOLD128(a, KEY128(poly_i.by384));
    b = FOLD128(b, KEY128(poly_i.by256));
    d = FOLD128(d, KEY128(poly_i.by128));
    return finish(_mm_xor_si128(_mm_xor_si128(a, b), _mm_xor_si128(d, e)), p, n, &poly_i);
}

#define LOAD256(q) _mm256_loadu_si256((const __m256i *)(q))
#define KEY256(f) _mm256_broadcastsi128_si256(KEY128(f))
#define FOLD256(x, k) _mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11))

__attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq")))
static inline uint32_t fold_ymm(uint32_t c, const uint8_t *p, size_t n, const struct poly *y)
{
    __m256i first = _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_cvtsi32_si128((int)c), 0);
    __m256i a = _mm256_xor_si256(LOAD256(p), first), b = LOAD256(p + 32), d = LOAD256(p + 64), e = LOAD256(p + 96), k = KEY256(y->by1024);
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        a = _mm256_xor_si256(FOLD256(a, k), LOAD256(p));
        b = _mm256_xor_si256(FOLD256(b, k), LOAD256(p + 32));
        d = _mm256_xor_si256(FOLD256(d, k), LOAD256(p + 64));
        e = _mm256_xor_si256(FOLD256(e, k), LOAD256(p + 96));
    }
    k = KEY256(y->by256);
    b = _mm256_xor_si256(FOLD256(a, k), b);
    d = _mm256_xor_si256(FOLD256(b, k), d);
    e = _mm256_xor_si256(FOLD256(d, k), e);
    __m128i x = _mm_xor_si128(FOLD128(_mm256_castsi256_si128(e), KEY128(y->by128)), _mm256_extracti128_si256(e, 1));
    return finish(x, p, n, y);
}

__attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq")))
static uint32_t ymm_c(uint32_t c, const uint8_t *p, size_t n)
{
    return n < 192 ? chain_c(c, p, n) : fold_ymm(c, p, n, &poly_c);
}

__attribute__((target("avx2,sse4.2,pclmul,vpclmulqdq")))
static uint32_t ymm_i(uint32_t c, const uint8_t *p, size_t n)
{
    return n < 128 ? xmm_i(c, p, n) : fold_ymm(c, p, n, &poly_i);
}

#define LOAD512(q) _mm512_loadu_si512((const void *)(q))
#define KEY512(f) _mm512_broadcast_i32x4(KEY128(f))
/* 0x96: the exclusive or of three */
#define FOLD512(x, k, more) \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), more, 0x96)

__attribute__((target("avx512f,avx512vl,avx2,sse4.2,pclmul,vpclmulqdq")))
static inline uint32_t fold_zmm(uint32_t c, const uint8_t *p, size_t n, const struct poly *y)
{
    __m512i first = _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)c), 0);
    __m512i a = _mm512_xor_si512(LOAD512(p), first), b = LOAD512(p + 64), d = LOAD512(p + 128), e = LOAD512(p + 192);
    __m512i k = KEY512(y->by2048);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = FOLD512(a, k, LOAD512(p));
        b = FOLD512(b, k, LOAD512(p + 64));
        d = FOLD512(d, k, LOAD512(p + 128));
        e = FOLD512(e, k, LOAD512(p + 192));
    }
    k = KEY512(y->by512);
    b = FOLD512(a, k, b);
    d = FOLD512(b, k, d);
    e = FOLD512(d, k, e);
    __m128i q = KEY128(y->by128), x = _mm512_castsi512_si128(e);
    x = _mm_xor_si128(FOLD128(x, q), _mm512_extracti32x4_epi32(e, 1));
    x = _mm_xor_si128(FOLD128(x, q), _mm512_extracti32x4_epi32(e, 2));
    x = _mm_xor_si128(FOLD128(x, q), _mm512_extracti32x4_epi32(e, 3));
    return finish(x, p, n, y);
}

__attribute__((target("avx512f,avx512vl,avx2,sse4.2,pclmul,vpclmulqdq")))
static uint32_t zmm_c(uint32_t c, const uint8_t *p, size_t n)
{
    return n < 512 ? ymm_c(c, p, n) : fold_zmm(c, p, n, &poly_c);
}

__attribute__((target("avx512f,avx512vl,avx2,sse4.2,pclmul,vpclmulqdq")))
static uint32_t zmm_i(uint32_t c, const uint8_t *p, size_t n)
{
    return n < 512 ? ymm_i(c, p, n) : fold_zmm(c, p, n, &poly_i);
}

static int choose(const char *name)
{
    __builtin_cpu_init();
    int sse = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    int ymm = sse && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    int zmm = ymm && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    if (zmm && (!name || !strcmp(name, "avx512"))) { run_c = zmm_c; run_i = zmm_i; in_use = "avx512"; return 1; }
    if (ymm && (!name || !strcmp(name, "vpclmul"))) { run_c = ymm_c; run_i = ymm_i; in_use = "vpclmul"; return 1; }
    if (sse && (!name || !strcmp(name, "sse42"))) { run_c = sse42_c; run_i = xmm_i; in_use = "sse42"; return 1; }
    return 0;
}

#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#include <arm_acle.h>
#ifdef __linux__
#include <sys/auxv.h>
#define HAVE_CRC() ((getauxval(AT_HWCAP) >> 7) & 1)  /* HWCAP_CRC32 */
#else
#define HAVE_CRC() 1                                  /* every Apple processor of this architecture has it */
#endif
#ifdef __clang__
#define WITH_CRC __attribute__((target("crc")))
#else
#define WITH_CRC __attribute__((target("+crc")))
#endif

WITH_CRC static uint32_t arm_c(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t v;
    for (; n >= 8; p += 8, n -= 8) { memcpy(&v, p, 8); c = __crc32cd(c, v); }
    while (n--) c = __crc32cb(c, *p++);
    return c;
}

WITH_CRC static uint32_t arm_i(uint32_t c, const uint8_t *p, size_t n)
{
    uint64_t v;
    for (; n >= 8; p += 8, n -= 8) { memcpy(&v, p, 8); c = __crc32d(c, v); }
    while (n--) c = __crc32b(c, *p++);
    return c;
}

static int choose(const char *name)
{
    if (HAVE_CRC() && (!name || !strcmp(name, "arm"))) { run_c = arm_c; run_i = arm_i; in_use = "arm"; return 1; }
    return 0;
}
#else
static int choose(const char *name) { (void)name; return 0; }
#endif

void wp_crc_init(void)
{
    if (ready) return;
    fill(&poly_c, 0x82f63b78u);
    fill(&poly_i, 0xedb88320u);
    choose(NULL);
    ready = 1;
}

uint32_t wp_crc32c(uint32_t value, const void *data, size_t size) { return ~run_c(~value, data, size); }
uint32_t wp_crc32(uint32_t value, const void *data, size_t size) { return ~run_i(~value, data, size); }
const char *wp_crc_kernel(void) { return in_use; }

int wp_crc_select(const char *name)
{
    if (choose(name)) return 1;
    if (strcmp(name, "table")) return 0;
    run_c = table_c; run_i = table_i; in_use = "table";
    return 1;
}
