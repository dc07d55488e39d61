/* A set of names that were seen: open addressing over SipHash-2-4 with 128 bits (Aumasson and
 * Bernstein, https://www.aumasson.jp/siphash/siphash.pdf). */
#include "backends/name_set.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_CAP 1024

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

static struct name_hash sip_hash(const uint64_t key[2], const char *name, size_t len)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
                     key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    uint64_t word, last = (uint64_t)len << 56;
    struct name_hash h;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        memcpy(&word, name + i, 8);
        sip_word(v, le64toh(word));
    }
    for (size_t j = 0; i + j < len; j++)
        last |= (uint64_t)(unsigned char)name[i + j] << (8 * j);
    sip_word(v, last);
    v[2] ^= 0xee;
    h.a = sip_end(v);
    v[1] ^= 0xdd;
    h.b = sip_end(v);
    if (!h.a && !h.b)
        h.b = 1; /* zero marks an empty slot */
    return h;
}

static struct name_hash *find_slot(struct name_hash *slot, size_t cap, struct name_hash h)
{
    size_t i = h.a & (cap - 1);

    while ((slot[i].a || slot[i].b) && (slot[i].a != h.a || slot[i].b != h.b))
        i = (i + 1) & (cap - 1);
    return &slot[i];
}

static int grow(struct name_set *s)
{
    size_t cap = s->cap ? 2 * s->cap : FIRST_CAP;
    struct name_hash *slot = calloc(cap, sizeof(*slot));
    if (!slot)
        return -ENOMEM;

    for (size_t i = 0; i < s->cap; i++)
        if (s->slot[i].a || s->slot[i].b)
            *find_slot(slot, cap, s->slot[i]) = s->slot[i];
    free(s->slot);
    s->slot = slot;
    s->cap = cap;
    return 0;
}

int name_set_init(struct name_set *s)
{
    memset(s, 0, sizeof(*s));
    if (getrandom(s->key, sizeof(s->key), 0) != (ssize_t)sizeof(s->key))
        return -EIO;
    return 0;
}

void name_set_release(struct name_set *s)
{
    free(s->slot);
    s->slot = NULL;
    s->n = s->cap = 0;
}

int name_set_add(struct name_set *s, const char *name, bool is_prefix)
{
    const uint64_t key[2] = {s->key[0] ^ is_prefix, s->key[1]};

    if (4 * (s->n + 1) > 3 * s->cap && grow(s) < 0)
        return -ENOMEM;
    struct name_hash h = sip_hash(key, name, strlen(name));
    struct name_hash *slot = find_slot(s->slot, s->cap, h);
    if (slot->a || slot->b)
        return 0;
    *slot = h;
    s->n++;
    return 1;
}
