/* A cache that owes what a text says, and has the names that another one says. */
#ifndef RUNFS_TESTS_UNIT_QUEUE_OWED_H
#define RUNFS_TESTS_UNIT_QUEUE_OWED_H

#include "cache/queue/queue_impl.h"

/* `rows`: "unlink a; rename b c", in their order, numbered from 1 in steps of SEQ_STEP. Before
 * one stands a "+" when it runs, a "-" when it has failed, a "*" when a rename was found to
 * need it. `names`: "a d/ d/x", what there is now; a directory ends in a slash. Both locks are
 * held until owed_free(). */
struct cache *owed_new(const char *rows, const char *names);
void owed_free(struct cache *c);
/* The n-th row, from 1. */
struct intent *owed_row(struct cache *c, unsigned n) REQUIRES(cache_mutex);
struct intent *owed_add(struct cache *c, const char *row) REQUIRES(cache_mutex);

#endif
