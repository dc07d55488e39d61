/* What programs ask for: open, read, write, close, names, attributes. The functions that the
 * frontend calls are in cache.h; here is what the mount needs besides. The room
 * owns the open handles, under `lock`; it calls all rooms below it. */
#ifndef RUNFS_CACHE_OPS_OPS_H
#define RUNFS_CACHE_OPS_OPS_H

#include "cache/transfer/transfer.h"

struct handle {
    struct node *node;
    int flags; /* as open(2) */
    bool writable;
    GUARDED_BY(cache_mutex) struct {
        bool keeps_fd; /* FD_WRITE has a user for as long as the handle lives */
        bool told;     /* this handle has been given the last error */
        bool begins;   /* among file.beginners */
    };
    uint64_t opened_size; /* constant; of the file then */
};

/* ---- deletion.c ---- */
/* What was kept for deletion locks, and for none that is left, goes. */
void deletion_sweep(struct cache *c) EXCLUDES(cache_ns, cache_mutex);

/* ---- room.c ---- */
/* Makes the room's part of the cache. 0 or -ENOMEM. */
int opened_new(struct cache *c);
/* Accepts a cache without that part. */
void opened_free(struct cache *c);
/* The room's numbers of the status. */
void opened_stats_locked(struct cache *c, struct cache_stats *ret) REQUIRES(cache_mutex);

#endif
