/* Checksums of the stretches of a file that came from the store, each summed as it came, so
 * that the whole need not be read again when the last one is there. The caller locks. */
#ifndef RUNFS_CACHE_SUMS_H
#define RUNFS_CACHE_SUMS_H

#include "common/checksum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct summed {
    uint64_t off, end;
    struct checksum sum;
};

struct sums {
    struct summed *v; /* in order, all of one kind; neighbours are one */
    size_t n, cap;
};

/* Adds the sum of [off, end). What overlaps what is known, is of another kind or finds no
 * memory is left out: the whole is not known then. */
void sums_add(struct sums *s, uint64_t off, uint64_t end, const struct checksum *sum);
/* The sum of [0, size), size > 0, where it is known. */
bool sums_whole(const struct sums *s, uint64_t size, struct checksum *ret);
void sums_clear(struct sums *s);

#endif
