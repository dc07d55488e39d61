/* What the files of queue/ share. */
#ifndef RUNFS_CACHE_QUEUE_QUEUE_IMPL_H
#define RUNFS_CACHE_QUEUE_QUEUE_IMPL_H

#include "cache/queue/queue.h"

/* ---- order.c ---- */
/* Whether what the store has at `key` now will be at `path` when all intentions are done. */
bool intent_leads_to(struct cache *c, const char *key, const char *path) REQUIRES(cache_mutex);
/* Where the rename takes what is at *at (heap, replaced). Whether it does; without memory *at
 * is NULL then. */
bool intent_forward(const struct intent *i, char **at);

/* ---- tombstone.c ---- */
/* An intention towards a key begins (+1) or ends (-1). */
void tombstone_count_locked(struct cache *c, const char *key, int by, bool with_tree)
    REQUIRES(cache_mutex);

#endif
