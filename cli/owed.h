/* What an unmounted cache owes its stores. Of a mount with routes it owes nothing of what lies
 * in no store, which only the configuration says that it keeps. Any thread, but one caller at a
 * time for one cache. */
#ifndef RUNFS_CLI_OWED_H
#define RUNFS_CLI_OWED_H

#include "cache/cache.h"

/* recover_list() without that. */
int owed_each(const char *dir, struct op *op,
              int (*visit)(void *arg, const struct cache_pending *p), void *arg);

#endif
