/* The threads that wait for stores. Each set of stores has a queue and threads of its own, made
 * as they are needed: what waits for a store that does not answer holds up nothing that this
 * store has no part in. */
#ifndef RUNFS_CACHE_CORE_WORKERS_H
#define RUNFS_CACHE_CORE_WORKERS_H

#include "cache/core/locks.h"
#include "common/lock.h"
#include "common/pool.h"

#include <stdint.h>

#define STORE_SET_WORDS 4

/* Some of the stores of a mount, by their index. Without routes it is always empty. */
struct store_set {
    uint64_t words[STORE_SET_WORDS];
};

void store_set_add(struct store_set *s, unsigned store);

struct workers;

/* `threads` at most for each set. With one store alone they start at once, else as tasks wait.
 * NULL without memory or threads. */
struct workers *workers_new(const char *name, unsigned threads, bool one_store);
/* A task that asks these stores (NULL: none, or the only one); `first`: ahead of what waits for
 * them. As pool_submit(). */
void workers_submit_locked(struct workers *w, const struct store_set *stores, struct task *task,
                           bool first) REQUIRES(cache_mutex);
/* Runs what is queued, and what its tasks submit, then ends the threads. Accepts NULL. */
void workers_free(struct cache *c, struct workers *w) EXCLUDES(cache_mutex);

#endif
