/* CRC-32C: by folding (crc.c) or the processor's instruction where it has them, else by table.
 */
#include "common/crc32c.h"

#include "common/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[256];

static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[i] = crc;
    }
}

static uint32_t by_table(uint32_t crc, const unsigned char *p, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, fill_table);
    while (len--)
        crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
    return crc;
}

#if defined(__x86_64__)
static bool have_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const unsigned char *p, size_t len)
{
    uint64_t wide = crc, word;

    for (; len >= sizeof(word); len -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    while (len--)
        crc = __builtin_ia32_crc32qi(crc, *p++);
    return crc;
}
#else
static bool have_instruction(void)
{
    return false;
}

static uint32_t by_instruction(uint32_t crc, const unsigned char *p, size_t len)
{
    return by_table(crc, p, len);
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    if (crc32c_folds(len))
        return crc32c_by_folds(crc, data, len);
    crc = ~crc;
    crc = have_instruction() ? by_instruction(crc, data, len) : by_table(crc, data, len);
    return ~crc;
}

/* ---- combining ---- */

/* The product of two polynomials modulo that of the checksum; bits are reflected, so 1 is the
 * highest bit. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

/* Bytes behind multiply a checksum by x^8 each. */
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t len)
{
    uint32_t power = UINT32_C(1) << 23; /* x^8 */
    uint32_t shift = UINT32_C(1) << 31; /* 1 */

    for (; len; len >>= 1) {
        if (len & 1)
            shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(first, shift) ^ second;
}
