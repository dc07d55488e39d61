/* The cache of a mount, as it is found: one of an earlier version, one that another process
 * still has, one of other stores. One thread at a time. */
#ifndef RUNFS_CLI_MOUNT_CACHE_H
#define RUNFS_CLI_MOUNT_CACHE_H

#include "backends/store.h"
#include "cache/cache.h"

/* -EEXIST when an earlier version left something unpublished under its name of the cache
 * directory in the default place: it would neither be seen nor published any more. */
int mount_cache_check_former(const struct store *store, const char *mountpoint, struct op *op);

/* cache_new(), which waits up to `patience_ns` for a runfs that was unmounted just before and
 * has the cache still, and which says what other stores a cache is of. Takes off op's deadline.
 */
int mount_cache_open(const struct cache_config *config, struct store *store,
                     int64_t patience_ns, struct op *op, struct cache **ret);

#endif
