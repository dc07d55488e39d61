#include "common/hash.h"

#include "common/siphash.h"

#include <pthread.h>
#include <sys/random.h>

static uint64_t key[2];

static void make_key(void)
{
    (void)!getrandom(key, sizeof(key), 0);
}

uint64_t hash_fnv(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t hash_bytes(const void *data, size_t len)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t h[2];

    (void)pthread_once(&once, make_key);
    siphash(key, data, len, h);
    return h[0];
}
