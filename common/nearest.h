/* "Did you mean ...": the known word nearest to a mistyped one. Any thread. */
#ifndef RUNFS_COMMON_NEAREST_H
#define RUNFS_COMMON_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *word; /* as typed; borrowed */
    const char *best; /* the nearest so far, NULL while nothing is near */
    unsigned distance;
};

void nearest_init(struct nearest *n, const char *word);
/* Compares one known word, which must live as long as the answer is used. */
void nearest_try(struct nearest *n, const char *known);

/* Insertions, deletions, substitutions and swaps of neighbours that lead from `a` to `b`; words
 * over 64 characters are far from everything. */
unsigned edit_distance(const char *a, const char *b);

#endif
