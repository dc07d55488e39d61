/* Reflected CRCs from tables that are made when they are first needed. */
#include "common/crc.h"

#include <pthread.h>

#define POLY_32   UINT32_C(0xedb88320)
#define POLY_NVME UINT64_C(0x9a6c9329ac4bc9b5)

static uint32_t table_32[256];
static uint64_t table_nvme[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t a = i;
        uint64_t b = i;

        for (int bit = 0; bit < 8; bit++) {
            a = a >> 1 ^ (a & 1 ? POLY_32 : 0);
            b = b >> 1 ^ (b & 1 ? POLY_NVME : 0);
        }
        table_32[i] = a;
        table_nvme[i] = b;
    }
}

uint32_t crc32_zlib(uint32_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;

    (void)pthread_once(&once, make_tables);
    crc = ~crc;
    while (len--)
        crc = crc >> 8 ^ table_32[(crc ^ *p++) & 0xff];
    return ~crc;
}

uint64_t crc64nvme(uint64_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;

    (void)pthread_once(&once, make_tables);
    crc = ~crc;
    while (len--)
        crc = crc >> 8 ^ table_nvme[(crc ^ *p++) & 0xff];
    return ~crc;
}
