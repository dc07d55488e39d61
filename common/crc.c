/* Reflected CRCs, eight bytes at a time, from tables that are made when they are first needed.
 * The method: M. Kounavis, F. Berry, "Novel Table Lookup-Based Algorithms for High-Performance
 * CRC Generation" (slicing by eight). Where the processor multiplies without carry, 64 bytes at
 * a time (128, where it does so in words of 32 bytes) are folded into the next as many, and the
 * tables do the rest: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction". */
#include "common/crc.h"

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLY_32   UINT64_C(0xedb88320)
#define POLY_32C  UINT64_C(0x82f63b78)
#define POLY_NVME UINT64_C(0x9a6c9329ac4bc9b5)
#define SLICES    8

struct tables {
    /* [k][b]: what byte b does to a checksum with k more bytes behind it. */
    uint64_t slice[SLICES][256];
    /* What the halves of 16 bytes are multiplied by to move them so many bytes on. */
    uint64_t by_128[2], by_64[2], by_16[2];
};

static struct tables tables_32, tables_32c, tables_nvme;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The product of two polynomials modulo that of the checksum; bits are reflected, so `one` is
 * the highest bit. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t one, uint64_t polynomial)
{
    uint64_t product = 0;

    for (uint64_t bit = one; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

/* x^n. */
static uint64_t power_of_x(unsigned n, uint64_t one, uint64_t polynomial)
{
    uint64_t power = one;

    while (n--)
        power = multiply(power, one >> 1, one, polynomial);
    return power;
}

/* The first half of 16 bytes has the higher powers. A product of two reflected words of 64 bits
 * is one bit too far; so are these, the other way. */
static void make_folds(struct tables *t, uint64_t one, uint64_t polynomial)
{
    unsigned up = one >> 63 ? 0 : 32;

    for (unsigned i = 0; i < 2; i++) {
        unsigned half = i == 0 ? 64 : 0;
        t->by_128[i] = power_of_x(8 * 128 + half - 1, one, polynomial) << up;
        t->by_64[i] = power_of_x(8 * 64 + half - 1, one, polynomial) << up;
        t->by_16[i] = power_of_x(8 * 16 + half - 1, one, polynomial) << up;
    }
}

static void make_one(struct tables *t, uint64_t polynomial)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        t->slice[0][i] = crc;
    }
    for (unsigned i = 0; i < 256; i++)
        for (unsigned k = 1; k < SLICES; k++) {
            uint64_t before = t->slice[k - 1][i];
            t->slice[k][i] = before >> 8 ^ t->slice[0][before & 0xff];
        }
}

static void make_tables(void)
{
    make_one(&tables_32, POLY_32);
    make_folds(&tables_32, UINT64_C(1) << 31, POLY_32);
    make_one(&tables_32c, POLY_32C);
    make_folds(&tables_32c, UINT64_C(1) << 31, POLY_32C);
    make_one(&tables_nvme, POLY_NVME);
    make_folds(&tables_nvme, UINT64_C(1) << 63, POLY_NVME);
}

/* A checksum of 32 bits is one of 64 whose upper half is zero. */
static uint64_t by_slices(const struct tables *t, uint64_t crc, const unsigned char *p,
                          size_t len)
{
    uint64_t word;

    for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        word = le64toh(word) ^ crc;
        crc = t->slice[7][word & 0xff] ^ t->slice[6][word >> 8 & 0xff] ^
              t->slice[5][word >> 16 & 0xff] ^ t->slice[4][word >> 24 & 0xff] ^
              t->slice[3][word >> 32 & 0xff] ^ t->slice[2][word >> 40 & 0xff] ^
              t->slice[1][word >> 48 & 0xff] ^ t->slice[0][word >> 56];
    }
    while (len--)
        crc = crc >> 8 ^ t->slice[0][(crc ^ *p++) & 0xff];
    return crc;
}

/* ---- without carry ---- */

#if defined(__x86_64__)
#define FOLDING __attribute__((target("pclmul")))

static bool can_fold(void)
{
    return __builtin_cpu_supports("pclmul");
}

FOLDING static __m128i load(const unsigned char *p)
{
    return _mm_loadu_si128((const void *)p);
}

/* `x`, moved on by what `by` stands for, and added to what is there. */
FOLDING static __m128i fold(__m128i x, __m128i by, __m128i there)
{
    __m128i first = _mm_clmulepi64_si128(x, by, 0x00);
    __m128i second = _mm_clmulepi64_si128(x, by, 0x11);

    return _mm_xor_si128(_mm_xor_si128(first, second), there);
}

/* The checksum of `n` times 16 bytes that are folded already, and of what follows them. */
FOLDING static uint64_t unfold(const struct tables *t, const __m128i *x, size_t n,
                               const unsigned char *p, size_t len)
{
    const __m128i by_16 = _mm_set_epi64x((long long)t->by_16[1], (long long)t->by_16[0]);
    __m128i all = x[0];
    unsigned char rest[16];

    for (size_t i = 1; i < n; i++)
        all = fold(all, by_16, x[i]);
    for (; len >= 16; p += 16, len -= 16)
        all = fold(all, by_16, load(p));
    _mm_storeu_si128((void *)rest, all);
    return by_slices(t, by_slices(t, 0, rest, sizeof(rest)), p, len);
}

/* At least 64 bytes. */
FOLDING static uint64_t by_folds(const struct tables *t, uint64_t crc, const unsigned char *p,
                                 size_t len)
{
    const __m128i by_64 = _mm_set_epi64x((long long)t->by_64[1], (long long)t->by_64[0]);
    __m128i x[4];

    for (size_t i = 0; i < 4; i++)
        x[i] = load(p + 16 * i);
    x[0] = _mm_xor_si128(x[0], _mm_set_epi64x(0, (long long)crc));
    for (p += 64, len -= 64; len >= 64; p += 64, len -= 64)
        for (size_t i = 0; i < 4; i++)
            x[i] = fold(x[i], by_64, load(p + 16 * i));
    return unfold(t, x, 4, p, len);
}

#define WIDE __attribute__((target("pclmul,avx2,vpclmulqdq")))

static bool can_fold_wide(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") && can_fold();
}

WIDE static __m256i load_wide(const unsigned char *p)
{
    return _mm256_loadu_si256((const void *)p);
}

WIDE static __m256i fold_wide(__m256i x, __m256i by, __m256i there)
{
    __m256i first = _mm256_clmulepi64_epi128(x, by, 0x00);
    __m256i second = _mm256_clmulepi64_epi128(x, by, 0x11);

    return _mm256_xor_si256(_mm256_xor_si256(first, second), there);
}

/* At least 128 bytes. */
WIDE static uint64_t by_wide_folds(const struct tables *t, uint64_t crc, const unsigned char *p,
                                   size_t len)
{
    const __m256i by_128 = _mm256_set_epi64x((long long)t->by_128[1], (long long)t->by_128[0],
                                             (long long)t->by_128[1], (long long)t->by_128[0]);
    __m256i x[4];
    __m128i halves[8];

    for (size_t i = 0; i < 4; i++)
        x[i] = load_wide(p + 32 * i);
    x[0] = _mm256_xor_si256(x[0], _mm256_set_epi64x(0, 0, 0, (long long)crc));
    for (p += 128, len -= 128; len >= 128; p += 128, len -= 128)
        for (size_t i = 0; i < 4; i++)
            x[i] = fold_wide(x[i], by_128, load_wide(p + 32 * i));
    memcpy(halves, x, sizeof(halves));
    return unfold(t, halves, 8, p, len);
}
#else
static bool can_fold(void)
{
    return false;
}

static bool can_fold_wide(void)
{
    return false;
}

static uint64_t by_folds(const struct tables *t, uint64_t crc, const unsigned char *p,
                         size_t len)
{
    return by_slices(t, crc, p, len);
}

static uint64_t by_wide_folds(const struct tables *t, uint64_t crc, const unsigned char *p,
                              size_t len)
{
    return by_slices(t, crc, p, len);
}
#endif

/* For less the last step costs more than is gained. */
static bool is_worth_wide(size_t len)
{
    return len >= 256 && can_fold_wide();
}

static uint64_t sum(const struct tables *t, uint64_t crc, const void *data, size_t len)
{
    (void)pthread_once(&once, make_tables);
    if (is_worth_wide(len))
        return by_wide_folds(t, crc, data, len);
    return len >= 64 && can_fold() ? by_folds(t, crc, data, len) : by_slices(t, crc, data, len);
}

bool crc32c_folds(size_t len)
{
    return is_worth_wide(len);
}

uint32_t crc32c_by_folds(uint32_t crc, const void *data, size_t len)
{
    return ~(uint32_t)sum(&tables_32c, (uint32_t)~crc, data, len);
}

uint32_t crc32_zlib(uint32_t crc, const void *data, size_t len)
{
    return ~(uint32_t)sum(&tables_32, (uint32_t)~crc, data, len);
}

uint64_t crc64nvme(uint64_t crc, const void *data, size_t len)
{
    return ~sum(&tables_nvme, ~crc, data, len);
}

/* ---- combining ---- */

/* Bytes behind multiply a checksum by x^8 each. */
static uint64_t combine(uint64_t first, uint64_t second, uint64_t len, uint64_t one,
                        uint64_t polynomial)
{
    uint64_t power = one >> 8, shift = one;

    for (; len; len >>= 1) {
        if (len & 1)
            shift = multiply(shift, power, one, polynomial);
        power = multiply(power, power, one, polynomial);
    }
    return multiply(first, shift, one, polynomial) ^ second;
}

uint32_t crc32_zlib_combine(uint32_t first, uint32_t second, uint64_t len)
{
    return (uint32_t)combine(first, second, len, UINT64_C(1) << 31, POLY_32);
}

uint64_t crc64nvme_combine(uint64_t first, uint64_t second, uint64_t len)
{
    return combine(first, second, len, UINT64_C(1) << 63, POLY_NVME);
}
