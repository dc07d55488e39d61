/* What fsync() waits for with durability=store, beyond the content of a file: names. */
#ifndef RUNFS_CACHE_DURABLE_H
#define RUNFS_CACHE_DURABLE_H

#include "cache/node.h"

/* Both: 0 when the store has what was so when the call was first made with this waiter, or a
 * negative errno of an attempt since then that failed, or it parks. */

/* What was renamed, the file or a directory above it, is under the name that it got. */
int durable_file_locked(struct cache *c, struct node *n, struct waiter *w)
    REQUIRES(cache_mutex);
/* The directory's names: what came, went, or was renamed in it, with the content of what is
 * closed; its own marker and those of the directories in it. What was never closed nor synced
 * is left out, and so are directories under a staging name. -ESTALE: the store's version of
 * a name stayed: somebody else's, or one whose removal was taken back. */
int durable_dir_locked(struct cache *c, struct node *dir, struct waiter *w)
    REQUIRES(cache_mutex);

#endif
