/* The top of the cache: what the mount, recovery, flush and status share. */
#ifndef RUNFS_CACHE_MOUNT_H
#define RUNFS_CACHE_MOUNT_H

#include "cache/ops/ops.h"

/* ---- mount.c ---- */
/* Recovers a directory without a store, and starts no uploads. */
int cache_open_offline(const char *dir, struct op *op, struct cache **ret);

/* ---- recover.c ---- */
int cache_recover(struct cache *c, struct op *op) EXCLUDES(cache_ns, cache_mutex);

/* ---- root.c ---- */
/* -ENODEV when another folder stands at the path of one that the cache belongs to. */
int root_check(struct cache *c, struct op *op);
/* Notes which folders the cache belongs to. */
int root_note(struct cache *c, struct op *op);

/* ---- scratch.c ---- */
/* Takes out of the mirror what is in no store by its route, as the mount ends and before the
 * next one recovers; if it is the same mount's still. 0 or a negative errno. */
int scratch_clear(struct cache *c, struct op *op) EXCLUDES(cache_ns, cache_mutex);

/* ---- takeover.c ---- */
/* Whether recovery found something that the store lacks. */
bool cache_owes(struct cache *c) EXCLUDES(cache_mutex);
/* -EEXIST when the cache is another mount's and owes something; before recovery, which judges
 * by this mount's routes and logs, and with nothing changed. */
int takeover_check(struct cache *c, struct op *op) EXCLUDES(cache_ns, cache_mutex);
/* After recovery: clears a cache that was another mount's, and notes that it is this one's. */
int takeover(struct cache *c, struct op *op) EXCLUDES(cache_ns, cache_mutex);

#endif
