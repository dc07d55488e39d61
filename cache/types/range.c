/* Sets of byte ranges; see range.h. */
#include "cache/types/range.h"

#include "common/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ranges_clear(struct ranges *r)
{
    free(r->v);
    *r = (struct ranges){0};
}

/* Index of the first range that ends at or after `off`. */
static size_t find(const struct ranges *r, uint64_t off)
{
    size_t lo = 0, hi = r->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r->v[mid].end < off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int grow(struct ranges *r)
{
    return array_grow(r->v, r->cap, r->n + 1);
}

/* Replaces the ranges [i, j) by one. */
static void replace(struct ranges *r, size_t i, size_t j, struct range by)
{
    memmove(&r->v[i + 1], &r->v[j], (r->n - j) * sizeof(*r->v));
    r->v[i] = by;
    r->n = r->n - (j - i) + 1;
}

int ranges_add(struct ranges *r, uint64_t off, uint64_t end)
{
    if (off >= end)
        return 0;
    size_t i = find(r, off), j = i;
    struct range whole = {off, end};
    while (j < r->n && r->v[j].off <= end) {
        whole.off = r->v[j].off < whole.off ? r->v[j].off : whole.off;
        whole.end = r->v[j].end > whole.end ? r->v[j].end : whole.end;
        j++;
    }
    if (j == i && grow(r) < 0)
        return -ENOMEM;
    replace(r, i, j, whole);
    return 0;
}

bool ranges_missing(const struct ranges *r, uint64_t off, uint64_t end, struct range *ret)
{
    if (off >= end)
        return false;
    size_t i = find(r, off + 1);
    if (i < r->n && r->v[i].off <= off) {
        off = r->v[i].end;
        i++;
    }
    if (off >= end)
        return false;
    ret->off = off;
    ret->end = i < r->n && r->v[i].off < end ? r->v[i].off : end;
    return true;
}

bool ranges_has(const struct ranges *r, uint64_t off, uint64_t end)
{
    struct range missing;

    return !ranges_missing(r, off, end, &missing);
}
