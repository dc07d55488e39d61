/* A set of byte ranges, sorted, merged and disjoint. Not locked: the owner's lock guards it. */
#ifndef RUNFS_CACHE_RANGE_H
#define RUNFS_CACHE_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t off, end; /* [off, end) in bytes */
};

struct ranges {
    struct range *v;
    size_t n, cap;
};

void ranges_clear(struct ranges *r);
/* 0 or -ENOMEM (the set is unchanged). An empty range is no change. */
int ranges_add(struct ranges *r, uint64_t off, uint64_t end);
/* Whether all of [off, end) is in the set; true for an empty range. */
bool ranges_has(const struct ranges *r, uint64_t off, uint64_t end);
/* The first stretch of [off, end) that is not in the set; false when there is none. */
bool ranges_missing(const struct ranges *r, uint64_t off, uint64_t end, struct range *ret);

#endif
