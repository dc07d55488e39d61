/* A set of names that were seen: open addressing over SipHash with 128 bits. */
#include "backends/layers/name_set.h"

#include "common/siphash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_CAP 1024

static struct name_hash hash_of(const struct name_set *s, const char *name, bool is_prefix)
{
    const uint64_t key[2] = {s->key[0] ^ is_prefix, s->key[1]};
    uint64_t h[2];

    siphash(key, name, strlen(name), h);
    if (!h[0] && !h[1])
        h[1] = 1; /* zero marks an empty slot */
    return (struct name_hash){h[0], h[1]};
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
    if (4 * (s->n + 1) > 3 * s->cap && grow(s) < 0)
        return -ENOMEM;
    struct name_hash h = hash_of(s, name, is_prefix);
    struct name_hash *slot = find_slot(s->slot, s->cap, h);
    if (slot->a || slot->b)
        return 0;
    *slot = h;
    s->n++;
    return 1;
}
