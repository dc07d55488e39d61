/* What intent.c and copy.c share. */
#ifndef RUNFS_CACHE_INTENT_H
#define RUNFS_CACHE_INTENT_H

#include "cache/node.h"

bool intent_is_rename(const struct intent *i);
/* Whether open files without a name still read the version at `path` (or below); their fetches
 * are started. */
bool readers_need_locked(struct cache *c, const char *path, bool below) REQUIRES(&c->lock);
/* Runs a rename or renamedir that is ready. */
void copy_start_locked(struct cache *c, struct intent *i) REQUIRES(&c->lock);

#endif
