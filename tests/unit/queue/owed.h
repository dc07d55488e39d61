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

/* Files of these names were closed. "d/f 3": closed as the third of all. Behind the number "s"
 * stands for a staging name that it has for long, "S" for one that it has just got, "w" for
 * somebody who waits for it, "r" for a name that the store refuses, "o" for one that is open
 * for writing. */
void owed_close(struct cache *c, const char *files) REQUIRES(cache_mutex);

/* A deletion lock of the path that is older than all rows, and hides what is removed; one that
 * is younger; one that refuses removals. The end of the first of the path. "a b": what lay at
 * the one lies at the other now. */
void owed_locked(struct cache *c, const char *path) REQUIRES(cache_mutex);
void owed_late(struct cache *c, const char *path) REQUIRES(cache_mutex);
void owed_refusing(struct cache *c, const char *path) REQUIRES(cache_mutex);
void owed_unlocked(struct cache *c, const char *path) REQUIRES(cache_mutex);
void owed_moves(struct cache *c, const char *names) REQUIRES(cache_mutex);

/* What transfer/ would tell: "upload a; marker d" run there, "session a" is being ended,
 * "reader a" still reads what the store has there. Right until it is called again. */
const struct order_world *owed_world(const char *on_its_way);

#endif
