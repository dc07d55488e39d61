/* An unmounted cache directory: what it still owes its store, for `runfs recover`. Any thread,
 * but one caller at a time; the directory is locked while open. */
#ifndef RUNFS_CACHE_RECOVER_H
#define RUNFS_CACHE_RECOVER_H

#include "cache/cache.h"

#define RECOVER_KEPT ".runfs-kept"

/* Visits each dirty or kept file, without contacting the store. -EBUSY while mounted, or when
 * another command has it. */
int recover_list(const char *dir, struct op *op,
                 int (*visit)(void *arg, const struct cache_pending *), void *arg);
/* Copies every dirty or kept file to `to` under its path (folders are made), and visits what is
 * there then. One that can't be copied does not end it; the first such failure is returned.
 * What an earlier run has copied is left, and so is anything else: that is -EEXIST, but a kept
 * file whose path is taken comes below RECOVER_KEPT in `to`. */
int recover_export(const char *dir, const char *to, struct op *op,
                   int (*visit)(void *arg, const struct cache_pending *), void *arg);
/* The store URL and options the directory belongs to, heap JSON as cache_config.identity had
 * it. */
int recover_identity(const char *dir, struct op *op, char **ret);

#endif
