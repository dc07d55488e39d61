/* Checksums of stretches; see sums.h. */
#include "cache/types/sums.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

/* The second of the two becomes part of the first when it begins where that ends. */
static void join(struct sums *s, size_t first)
{
    struct summed *a = &s->v[first], *b = a + 1;

    if (first + 1 >= s->n || a->end != b->off)
        return;
    checksum_append(&a->sum, &b->sum, b->end - b->off);
    a->end = b->end;
    s->n--;
    memmove(b, b + 1, (s->n - first - 1) * sizeof(*b));
}

static bool has_room(struct sums *s)
{
    return array_grow(s->v, s->cap, s->n + 1) == 0;
}

void sums_add(struct sums *s, uint64_t off, uint64_t end, const struct checksum *sum)
{
    size_t at = 0;

    if (off >= end || sum->kind == CHECKSUM_NONE || (s->n && s->v[0].sum.kind != sum->kind))
        return;
    while (at < s->n && s->v[at].end <= off)
        at++;
    if ((at < s->n && s->v[at].off < end) || !has_room(s))
        return;
    memmove(&s->v[at + 1], &s->v[at], (s->n - at) * sizeof(*s->v));
    s->v[at] = (struct summed){off, end, *sum};
    s->n++;
    join(s, at);
    if (at > 0)
        join(s, at - 1);
}

bool sums_whole(const struct sums *s, uint64_t size, struct checksum *ret)
{
    if (s->n != 1 || s->v[0].off != 0 || s->v[0].end != size)
        return false;
    *ret = s->v[0].sum;
    return true;
}

void sums_clear(struct sums *s)
{
    free(s->v);
    *s = (struct sums){0};
}
