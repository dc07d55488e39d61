/* CRC-32C: by the processor's instruction where it has one, else by table. */
#include "common/crc32c.h"

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
    crc = ~crc;
    crc = have_instruction() ? by_instruction(crc, data, len) : by_table(crc, data, len);
    return ~crc;
}
