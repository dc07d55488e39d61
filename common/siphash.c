#include "common/siphash.h"

#include <endian.h>
#include <string.h>

static uint64_t rotl(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static uint64_t sip_end(uint64_t v[4])
{
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

void siphash(const uint64_t key[2], const void *data, size_t len, uint64_t ret[2])
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    uint64_t word, last = (uint64_t)len << 56;
    const unsigned char *bytes = data;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        memcpy(&word, bytes + i, 8);
        sip_word(v, le64toh(word));
    }
    for (size_t j = 0; i + j < len; j++)
        last |= (uint64_t)bytes[i + j] << (8 * j);
    sip_word(v, last);
    v[2] ^= 0xee;
    ret[0] = sip_end(v);
    v[1] ^= 0xdd;
    ret[1] = sip_end(v);
}
